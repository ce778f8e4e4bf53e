//! Frames to views and back: decoding, resizing, byte order CHW, and the size of an image as JPEG or WebP.
//!
//! No other module prepares pixels. Metadata such as an orientation tag is ignored, and alpha is dropped.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::{DynamicImage, GrayImage, ImageReader, Limits, RgbImage};

use crate::{Shape, View};

/// Largest width and height of a frame, in pixels.
pub const MAX_SIDE_PX: u32 = 2048;
/// Memory limit of a decoder for one frame: the largest frame as RGBA, twice.
const MAX_DECODER_BYTES: u64 = 32 * 1024 * 1024;

/// Error of an image that cannot be decoded or encoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The file is no image, is damaged, or exceeds the limits.
    #[error(
        "decode {bytes} bytes: expected PNG, JPEG or WebP up to {MAX_SIDE_PX}x{MAX_SIDE_PX} pixels: {source}"
    )]
    Decode {
        /// Length of the file.
        bytes: usize,
        /// Error of the decoder.
        source: image::ImageError,
    },
    /// The shape has other than one or three channels, no pixel, or a side above [`MAX_SIDE_PX`].
    #[error("image of {0}: expected 1 (grey) or 3 (RGB) channels and at least one pixel")]
    Shape(Shape),
    /// The encoder failed.
    #[error("encode {shape} as {format}: {reason}")]
    Encode {
        /// Shape of the view.
        shape: Shape,
        /// File format.
        format: &'static str,
        /// Error of the encoder.
        reason: String,
    },
}

/// Decodes an image to `shape`, or to the image's own shape when `None`. Also returns the image's own shape: one channel for grey, three
/// for colour.
pub(crate) fn decode_from(bytes: &[u8], shape: Option<Shape>) -> Result<(View, Shape), CodecError> {
    let image = decode_any(bytes)?;
    let channels = if image.color().has_color() { 3 } else { 1 };
    let image_shape = Shape { channels, height: image.height() as usize, width: image.width() as usize };
    let shape = shape.unwrap_or(image_shape);
    check(shape)?;
    Ok((fitted(image, shape), image_shape))
}

/// Encodes a view as PNG with the strongest compression.
///
/// # Errors
/// [`CodecError::Shape`] or [`CodecError::Encode`].
pub fn png(view: &View) -> Result<Vec<u8>, CodecError> {
    let mut file = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut file, CompressionType::Best, PngFilter::Adaptive);
    image_of(view)?.write_with_encoder(encoder).map_err(|error| encode_error(view, "PNG", &error))?;
    Ok(file)
}

/// Encodes a view as lossless WebP with the strongest compression. A grey view becomes RGB.
///
/// # Errors
/// [`CodecError::Shape`] or [`CodecError::Encode`].
pub fn webp_lossless(view: &View) -> Result<Vec<u8>, CodecError> {
    webp_file(view, "lossless WebP", |config| {
        config.lossless = 1;
        config.method = 6;
        config.quality = 100.0;
        config.exact = 1;
    })
}

/// Length of a view as JPEG, in bytes.
///
/// # Errors
/// [`CodecError::Shape`], [`CodecError::Encode`], also for a quality outside 1 to 100.
pub fn jpeg_len(view: &View, quality: u8) -> Result<usize, CodecError> {
    let image = image_of(view)?;
    if !(1..=100).contains(&quality) {
        return Err(encode_error(view, "JPEG", &format!("quality {quality} is not within 1 to 100")));
    }
    let mut file = Vec::new();
    image
        .write_with_encoder(JpegEncoder::new_with_quality(&mut file, quality))
        .map_err(|error| encode_error(view, "JPEG", &error))?;
    Ok(file.len())
}

/// Length of a view as lossy WebP, in bytes, with the default settings of libwebp. The quality is 0 to 100.
///
/// # Errors
/// [`CodecError::Shape`] for a view that is no image; [`CodecError::Encode`], such as for a quality outside 0 to 100.
pub fn webp_len(view: &View, quality: u8) -> Result<usize, CodecError> {
    webp_file(view, "WebP", |config| config.quality = f32::from(quality)).map(|file| file.len())
}

/// Converts an image to a view of a checked `shape`; resizes with a triangle filter if the size differs.
pub(crate) fn fitted(image: DynamicImage, shape: Shape) -> View {
    let (height, width) = (shape.height as u32, shape.width as u32);
    let image = if (image.height(), image.width()) == (height, width) {
        image
    } else {
        image.resize_exact(width, height, FilterType::Triangle)
    };
    let interleaved =
        if shape.channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() };
    View::new(shape, planes(&interleaved, shape.channels))
}

/// Decodes an image within the limits.
pub(crate) fn decode_any(bytes: &[u8]) -> Result<DynamicImage, CodecError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE_PX);
    limits.max_image_height = Some(MAX_SIDE_PX);
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    let mut reader = ImageReader::new(Cursor::new(bytes));
    reader.limits(limits);
    let image = reader.with_guessed_format().map_err(image::ImageError::from).and_then(ImageReader::decode);
    image.map_err(|source| CodecError::Decode { bytes: bytes.len(), source })
}

fn webp_file(
    view: &View,
    format: &'static str,
    set: impl FnOnce(&mut webp::WebPConfig),
) -> Result<Vec<u8>, CodecError> {
    let image = image_of(view)?.into_rgb8();
    let mut config = webp::WebPConfig::new()
        .map_err(|()| encode_error(view, format, &"libwebp has no default settings"))?;
    set(&mut config);
    let encoder = webp::Encoder::from_rgb(&image, image.width(), image.height());
    match encoder.encode_advanced(&config) {
        Ok(file) => Ok(file.to_vec()),
        Err(error) => Err(encode_error(view, format, &format!("{error:?}"))),
    }
}

/// Image of a view. Image files have the channels of a pixel together:
///
/// ```text
/// view    R R R R  G G G G  B B B B
/// image   R G B  R G B  R G B  R G B
/// ```
fn image_of(view: &View) -> Result<DynamicImage, CodecError> {
    check(view.shape)?;
    let Shape { channels, height, width } = view.shape;
    let area = height * width;
    let pixel = |at| (0..channels).map(move |channel| view.pixels[channel * area + at]);
    let image = from_bytes((0..area).flat_map(pixel).collect(), channels, [width as u32, height as u32]);
    Ok(image.expect("a view has the bytes of its shape"))
}

/// Image of one or three channels, the channels of a pixel together. `None` if there are no bytes, or the wrong number.
pub(crate) fn from_bytes(bytes: Vec<u8>, channels: usize, [width, height]: [u32; 2]) -> Option<DynamicImage> {
    if bytes.is_empty() || bytes.len() != channels * width as usize * height as usize {
        return None;
    }
    match channels {
        1 => GrayImage::from_raw(width, height, bytes).map(DynamicImage::from),
        _ => RgbImage::from_raw(width, height, bytes).map(DynamicImage::from),
    }
}

/// Reorders interleaved channels as CHW.
fn planes(interleaved: &[u8], channels: usize) -> Vec<u8> {
    (0..channels).flat_map(|channel| interleaved.iter().skip(channel).step_by(channels).copied()).collect()
}

/// Refuses a shape that no image has: other channels than one or three, no pixel, or a side above [`MAX_SIDE_PX`].
pub(crate) fn check(shape: Shape) -> Result<(), CodecError> {
    let side = 1..=MAX_SIDE_PX as usize;
    let fits = matches!(shape.channels, 1 | 3) && side.contains(&shape.height) && side.contains(&shape.width);
    if fits { Ok(()) } else { Err(CodecError::Shape(shape)) }
}

fn encode_error(view: &View, format: &'static str, reason: &dyn std::fmt::Display) -> CodecError {
    CodecError::Encode { shape: view.shape, format, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use image::{ExtendedColorType, ImageEncoder};

    use super::*;
    use crate::roi::{self, RoiError};

    fn decode(bytes: &[u8], shape: Shape) -> Result<View, RoiError> {
        roi::decode(bytes, shape, None)
    }

    fn ramp(shape: Shape) -> View {
        View::new(shape, (0..shape.bytes()).map(|at| (at * 7 % 251) as u8).collect())
    }

    #[test]
    fn lossless_files_decode_to_the_same_view() {
        for shape in [Shape::rgb(5, 9), Shape { channels: 1, height: 3, width: 4 }, Shape::rgb(1, 1)] {
            let view = ramp(shape);
            assert_eq!(decode(&png(&view).unwrap(), shape).unwrap(), view);
            assert_eq!(decode(&webp_lossless(&view).unwrap(), shape).unwrap(), view);
        }
    }

    #[test]
    fn bytes_are_ordered_by_channel() {
        let mut file = Vec::new();
        PngEncoder::new(&mut file).write_image(&[1, 2, 3, 4, 5, 6], 2, 1, ExtendedColorType::Rgb8).unwrap();
        assert_eq!(decode(&file, Shape::rgb(1, 2)).unwrap().pixels, [1, 4, 2, 5, 3, 6]);
    }

    #[test]
    fn an_image_of_another_size_is_resized() {
        let large = View::new(Shape::rgb(8, 6), vec![77; 144]);
        let view = decode(&png(&large).unwrap(), Shape::rgb(4, 4)).unwrap();
        assert_eq!(view, View::new(Shape::rgb(4, 4), vec![77; 48]));
    }

    #[test]
    fn stronger_compression_gives_a_shorter_file() {
        let view = ramp(Shape::rgb(32, 32));
        assert!(jpeg_len(&view, 20).unwrap() < jpeg_len(&view, 95).unwrap());
        assert!(webp_len(&view, 20).unwrap() < webp_len(&view, 95).unwrap());
    }

    #[test]
    fn a_quality_out_of_range_is_refused() {
        let view = ramp(Shape::rgb(2, 2));
        assert!(
            jpeg_len(&view, 0).is_err() && jpeg_len(&view, 101).is_err() && webp_len(&view, 101).is_err()
        );
    }

    #[test]
    fn a_file_cut_anywhere_never_panics() {
        let shape = Shape::rgb(16, 16);
        for file in [png(&ramp(shape)).unwrap(), webp_lossless(&ramp(shape)).unwrap()] {
            for length in 0..file.len() {
                let _ = decode(&file[..length], shape);
            }
            assert!(decode(&file[..file.len() / 2], shape).is_err());
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused() {
        let wide = image::RgbImage::new(MAX_SIDE_PX + 1, 1);
        let mut file = Vec::new();
        PngEncoder::new(&mut file).write_image(&wide, MAX_SIDE_PX + 1, 1, ExtendedColorType::Rgb8).unwrap();
        let error = decode(&file, Shape::rgb(2, 2)).unwrap_err().to_string();
        assert!(error.contains("up to 2048x2048"), "{error}");
    }

    #[test]
    fn garbage_and_shapes_without_pixels_are_refused() {
        assert!(matches!(
            decode(b"not an image", Shape::rgb(2, 2)),
            Err(RoiError::Codec(CodecError::Decode { bytes: 12, .. }))
        ));
        assert!(matches!(decode(&[], Shape::rgb(0, 2)), Err(RoiError::Codec(CodecError::Shape(_)))));
        assert!(matches!(
            decode(&[], Shape { channels: 2, height: 1, width: 1 }),
            Err(RoiError::Codec(CodecError::Shape(_)))
        ));
    }
}
