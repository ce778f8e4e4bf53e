//! JPEG files: which of them are whole, and their pixels, at full or at a reduced scale.
//!
//! A JPEG is whole when its scans have the data of every block. A whole sequential JPEG may lack the end marker, which some cameras never write. A
//! progressive JPEG without the end marker counts as cut, since another scan may have followed.
//!
//! ```text
//! markers: segments, size, end
//!    |-- decoder of pixels, strict, without the end marker --> pixels
//!    |      '-- refuses --> scan: are the scans whole? --> decoder of pixels, forgiving
//!    '-- large frame --> scan at 1, 2 or 4 eighths of the size --> pixels
//! ```
//! The decoder of pixels (zune-jpeg) fills missing data with grey, and reports no error if an end marker follows. So it receives a
//! sequential JPEG without the end marker.

mod huffman;
mod markers;
mod scan;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use image::{DynamicImage, GrayImage, RgbImage};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use huffman::STANDARD_TABLES;
pub(crate) use markers::Markers;
use markers::kind;
pub(crate) use scan::reduced;

/// Fault of an image file that gives no pixels.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file ends early.
    Cut,
    /// The file is damaged, or of a kind that is not supported.
    Broken(String),
}

/// Bytes that decoding needs besides the file, at `eighths` eighths of the size; 8 is the full scale.
pub(crate) fn decoded_bytes(markers: &Markers, eighths: usize) -> u64 {
    let frame = &markers.frame;
    let samples: usize =
        frame.components.iter().map(|part| frame.blocks(part).iter().product::<usize>() * 64).sum();
    let pixels = frame.width as usize * frame.height as usize;
    let bytes = pixels * if frame.components.len() == 1 { 1 } else { 3 };
    if eighths < 8 {
        return ((samples + bytes) * eighths * eighths / 64) as u64;
    }
    // With several scans, all coefficients of two bytes each are kept until the last scan.
    let waits = frame.is_progressive || markers.count(kind::SCAN) > 1;
    (bytes + if waits { 2 * samples } else { 0 }) as u64
}

/// Returns true if [`reduced`] can decode the file.
pub(crate) fn is_reducible(markers: &Markers) -> bool {
    !markers.frame.is_progressive && matches!(markers.frame.components.len(), 1 | 3)
}

/// Decodes a frame at its full size.
pub(crate) fn decode(file: &[u8], markers: &Markers) -> Result<DynamicImage, Fault> {
    let (is_progressive, is_ended) = (markers.frame.is_progressive, markers.is_ended);
    if is_progressive && !(is_ended && markers.is_refined(file)) {
        return Err(Fault::Cut);
    }
    let image = &file[..markers.end + if is_progressive { 2 } else { 0 }];
    let image =
        if markers.count(kind::HUFFMAN) > 0 { Cow::Borrowed(image) } else { Cow::Owned(with_tables(image)) };
    let broken = |error: DecodeErrors| Fault::Broken(error.to_string());
    if is_progressive {
        return pixels(&image, markers.size(), true).map_err(broken);
    }
    if is_ended && let Ok(decoded) = pixels(&image, markers.size(), true) {
        return Ok(decoded);
    }
    scan::check(file, markers)?;
    pixels(&image, markers.size(), false).map_err(broken)
}

/// The image with a segment of the standard tables after the start marker.
fn with_tables(image: &[u8]) -> Vec<u8> {
    let length = (STANDARD_TABLES.len() as u16 + 2).to_be_bytes();
    let (start, rest) = image.split_at(2);
    [start, &[0xff, kind::HUFFMAN], &length, STANDARD_TABLES, rest].concat()
}

/// Pixels of an image whose markers say this size.
fn pixels(image: &[u8], size: [u32; 2], is_strict: bool) -> Result<DynamicImage, DecodeErrors> {
    let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(image), options.set_strict_mode(false));
    // Strictness is for the scans alone.
    decoder.decode_headers()?;
    let colours = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => ColorSpace::Luma,
        _ => ColorSpace::RGB,
    };
    let options = decoder.options().set_strict_mode(is_strict).jpeg_set_out_colorspace(colours);
    decoder.set_options(options);
    let (width, height) = decoder.dimensions().unwrap_or_default();
    if [width, height] != size.map(|side| side as usize) {
        return Err(DecodeErrors::FormatStatic("two sizes"));
    }
    let mut bytes = vec![0; width * height * colours.num_components()];
    decoder.decode_into(&mut bytes)?;
    let (width, height) = (width as u32, height as u32);
    let image = match colours {
        ColorSpace::Luma => GrayImage::from_raw(width, height, bytes).map(DynamicImage::from),
        _ => RgbImage::from_raw(width, height, bytes).map(DynamicImage::from),
    };
    Ok(image.expect("the buffer has the bytes of the size"))
}
