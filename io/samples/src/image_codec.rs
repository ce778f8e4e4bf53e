//! Frames to views and back: decoding, resizing, byte order CHW, and the size of an image as JPEG or WebP.
//!
//! No other module prepares pixels. A frame is turned upright as its Exif orientation says, and alpha is dropped. Every reader of frames, of the trainer
//! and of devices, has the same limits, and the same rule for what is damaged:
//!
//! | file | |
//! | --- | --- |
//! | ends early | [`CodecError::Cut`] |
//! | JPEG that lacks the end marker alone; baseline JPEG without Huffman tables | decoded |
//! | has more than [`MAX_PIXELS`], or needs too much memory | [`CodecError::Oversize`], before memory is taken |
//! | is no image, or is damaged otherwise | [`CodecError::Decode`] |

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, GenericImageView, GrayImage, ImageReader, Limits, RgbImage, RgbaImage, imageops};

use crate::image_structure::{Coding, Format, Structure};
use crate::jpeg::{self, Fault};
use crate::{Shape, View};

/// Longest file of a frame, in bytes.
pub const MAX_FILE_BYTES: u64 = 32 << 20;
/// Most pixels of a frame: 64 megapixels.
pub const MAX_PIXELS: u64 = 64 << 20;
/// Largest width and height of a view, in pixels.
pub const MAX_SIDE_PX: u32 = 2048;
/// Most memory for the pixels of a frame that is decoded and resized as it is. A larger JPEG is decoded at a reduced scale, and a larger frame of another
/// format is resized by the means of its pixels.
const MAX_FULL_BYTES: u64 = 40_000_000;
/// Side to which a frame of [`MAX_PIXELS`] can be resized by the means of its pixels at once.
const SAFE_SIDE_PX: u32 = 64;
/// Most memory for the pixels of a file that cannot be decoded at a reduced scale.
const MAX_DECODED_BYTES: u64 = 250_000_000;

/// Error of an image that cannot be decoded or encoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The file is no image, or is damaged. Replace the file.
    #[error("decode {bytes} bytes: expected PNG, JPEG or WebP: {reason}")]
    Decode {
        /// Length of the file.
        bytes: usize,
        /// Fault of the file.
        reason: String,
    },
    /// The file ends early. Copy the file again.
    #[error("decode {bytes} bytes: expected a whole image, found one that is cut; copy or download it again")]
    Cut {
        /// Length of the file.
        bytes: usize,
    },
    /// The image exceeds the limits. Scale the image down.
    #[error("oversize image of {width}x{height} pixels: {reason}")]
    Oversize {
        /// Columns, as stored.
        width: u32,
        /// Rows, as stored.
        height: u32,
        /// The limit, and what to do.
        reason: String,
    },
    /// The shape has other than one or three channels, or a side outside of the limits.
    #[error(
        "view of {0}: expected 1 (grey) or 3 (RGB) channels and sides of 1 to {MAX_SIDE_PX} pixels; ask for another shape"
    )]
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

/// A frame in a file, whose pixels are not decoded yet.
pub(crate) struct Frame<'a> {
    file: &'a [u8],
    structure: Structure,
}

/// Left, top, width and height, in pixels.
pub(crate) type Rectangle = [u32; 4];

impl<'a> Frame<'a> {
    /// Finds the size of a frame. Refuses a file that is no image, is cut or exceeds the limits.
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, CodecError> {
        let bytes = file.len();
        let format = Format::of(file).ok_or_else(|| match Format::is_cut(file) {
            true => CodecError::Cut { bytes },
            false => CodecError::Decode { bytes, reason: format!("found {}", other_format(file)) },
        })?;
        let structure = Structure::parse(format, file).map_err(|fault| error_of(fault, file))?;
        let frame = Self { file, structure };
        let [width, height] = frame.structure.size;
        let oversize = |reason| Err(CodecError::Oversize { width, height, reason });
        let pixels = u64::from(width) * u64::from(height);
        if pixels > MAX_PIXELS {
            return oversize(format!("expected at most 64 megapixels ({MAX_PIXELS} pixels); scale it down"));
        }
        let needed = match &frame.structure.coding {
            Coding::Jpeg(markers) if jpeg::is_reducible(markers) => 0,
            Coding::Jpeg(markers) => jpeg::decoded_bytes(markers, 8),
            Coding::Other { pixel_bytes } => pixels * pixel_bytes,
        };
        if needed > MAX_DECODED_BYTES {
            let (limit, needed) = (MAX_DECODED_BYTES / 1_000_000, needed / 1_000_000);
            let kind = match format {
                Format::Jpeg => "progressive or CMYK JPEG",
                Format::Png => "PNG",
                Format::WebP => "WebP",
            };
            return oversize(format!(
                "expected one that decodes within {limit} MB, found a {kind} that needs {needed} MB; save it as baseline JPEG or scale it down"
            ));
        }
        Ok(frame)
    }

    /// Width and height of the upright frame.
    pub(crate) fn size(&self) -> [u32; 2] {
        let [width, height] = self.structure.size;
        if is_transposed(self.structure.orientation) { [height, width] } else { [width, height] }
    }

    /// Decodes the frame, cuts out a region of the upright frame, and resizes it to `shape`, or keeps its size when `None`. Also returns the shape of the
    /// upright frame: one channel for grey, three for colour, and one more where it is transparent.
    pub(crate) fn view(
        &self,
        region: Option<Rectangle>,
        shape: Option<Shape>,
    ) -> Result<(View, Shape), CodecError> {
        let [width, height] = self.size();
        // A frame without a shape is not decoded where no view can have its size.
        check(shape.unwrap_or(Shape::rgb(height as usize, width as usize)))?;
        let orientation = self.structure.orientation;
        let region = stored(region.unwrap_or([0, 0, width, height]), self.structure.size, orientation);
        let (image, region) = self.decode(region, shape)?;
        let channels = if image.color().has_color() { 3 } else { 1 };
        let opaque = Shape { channels, height: height as usize, width: width as usize };
        let own = Shape { channels: channels + usize::from(is_transparent(&image)), ..opaque };
        Ok((fitted(image, region, shape.unwrap_or(opaque), orientation), own))
    }

    /// Decodes the frame, at a reduced scale where it is large. Returns also the region in it.
    fn decode(
        &self,
        region: Rectangle,
        shape: Option<Shape>,
    ) -> Result<(DynamicImage, Rectangle), CodecError> {
        let markers = match &self.structure.coding {
            Coding::Jpeg(markers) => markers,
            Coding::Other { .. } => return Ok((self.of_size(decode_other(self.file)?)?, region)),
        };
        let fits = |eighths: u32| jpeg::decoded_bytes(markers, eighths as usize) <= MAX_FULL_BYTES;
        if fits(8) || !jpeg::is_reducible(markers) {
            let image = jpeg::decode(self.file, markers).map_err(|fault| error_of(fault, self.file))?;
            return Ok((self.of_size(image)?, region));
        }
        let [left, top, width, height] = region;
        let shape = shape.map_or([width, height], |shape| [shape.width as u32, shape.height as u32]);
        let is_enough = |eighths: u32| {
            let sides = [width, height].map(|side| side * eighths / 8);
            sides.iter().min() >= shape.iter().max()
        };
        let eighths = [1, 2, 4].into_iter().filter(|eighths| *eighths == 1 || fits(*eighths));
        // The smallest scale that has the pixels of the view, or the largest one that fits.
        let eighths = eighths.fold(1, |best, more| if is_enough(best) { best } else { more });
        let image = jpeg::reduced(self.file, markers, eighths as usize);
        let image = image.map_err(|fault| error_of(fault, self.file))?;
        let span = |start: u32, length: u32| {
            let first = start * eighths / 8;
            (first, ((start + length) * eighths).div_ceil(8) - first)
        };
        let ((left, width), (top, height)) = (span(left, width), span(top, height));
        Ok((image, [left, top, width, height]))
    }

    /// Refuses a decoded image of another size than the head of the file says.
    fn of_size(&self, image: DynamicImage) -> Result<DynamicImage, CodecError> {
        let size = [image.width(), image.height()];
        if size == self.structure.size {
            return Ok(image);
        }
        let reason = format!("a head of {:?} pixels and an image of {size:?}", self.structure.size);
        Err(error_of(Fault::Broken(reason), self.file))
    }
}

/// Whether an image has a pixel that is not opaque. One of other than four bytes a pixel counts as transparent if it has alpha.
fn is_transparent(image: &DynamicImage) -> bool {
    let has_hole =
        |pixels: &RgbaImage| pixels.as_raw().iter().skip(3).step_by(4).any(|alpha| *alpha < u8::MAX);
    image.color().has_alpha() && image.as_rgba8().is_none_or(has_hole)
}

/// Error of a JPEG or of the structure of any image.
fn error_of(fault: Fault, file: &[u8]) -> CodecError {
    match fault {
        Fault::Cut => CodecError::Cut { bytes: file.len() },
        Fault::Broken(reason) => CodecError::Decode { bytes: file.len(), reason },
    }
}

/// Format of a file that is not decoded, by its first bytes.
fn other_format(file: &[u8]) -> String {
    let name = match file.trim_ascii_start() {
        [b'G', b'I', b'F', b'8', ..] => "a GIF",
        [b'B', b'M', ..] => "a BMP",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "a TIFF",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "a HEIC, AVIF or video",
        [b'<', ..] => "a page or an SVG",
        text if text.starts_with(b"version https://git-lfs") => {
            "a pointer of Git LFS: `git lfs pull` gets the file"
        }
        _ => return format!("none of them, but {:02x?}", &file[..file.len().min(8)]),
    };
    name.to_owned()
}

/// Whether rows of the stored image are columns of the upright one.
const fn is_transposed(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate90FlipH | Rotate270 | Rotate270FlipH)
}

/// A region of the upright frame as a region of the stored one, whose size is given.
fn stored(region: Rectangle, [width, height]: [u32; 2], orientation: Orientation) -> Rectangle {
    use Orientation::{FlipHorizontal, FlipVertical, Rotate90, Rotate180, Rotate270, Rotate270FlipH};
    let [left, top, wide, high] = match region {
        [left, top, wide, high] if is_transposed(orientation) => [top, left, high, wide],
        region => region,
    };
    let is_mirrored_across = matches!(orientation, FlipHorizontal | Rotate180 | Rotate270 | Rotate270FlipH);
    let is_mirrored_down = matches!(orientation, FlipVertical | Rotate180 | Rotate90 | Rotate270FlipH);
    [
        if is_mirrored_across { width - left - wide } else { left },
        if is_mirrored_down { height - top - high } else { top },
        wide,
        high,
    ]
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

/// Cuts a region out of an image, resizes it to a checked `shape`, and turns it upright.
pub(crate) fn fitted(image: DynamicImage, region: Rectangle, shape: Shape, orientation: Orientation) -> View {
    let [left, top, width, height] = region;
    let (mut wide, mut high) = (shape.width as u32, shape.height as u32);
    if is_transposed(orientation) {
        (wide, high) = (high, wide);
    }
    // The triangle filter has four floats for each pixel of the rows that it has resized.
    let filter_bytes = 16 * u64::from(width) * u64::from(high);
    let cut_out = if filter_bytes.max(image.as_bytes().len() as u64) > MAX_FULL_BYTES {
        // The sums of this filter have 32 bits, so it goes down to some pixels first.
        let (wide, high) = (wide.max(SAFE_SIDE_PX).min(width), high.max(SAFE_SIDE_PX).min(height));
        imageops::thumbnail(&*image.view(left, top, width, height), wide, high).into()
    } else if region == [0, 0, image.width(), image.height()] {
        image
    } else {
        image.crop_imm(left, top, width, height)
    };
    let mut image = if (cut_out.width(), cut_out.height()) == (wide, high) {
        cut_out
    } else {
        cut_out.resize_exact(wide, high, FilterType::Triangle)
    };
    image.apply_orientation(orientation);
    let interleaved =
        if shape.channels == 1 { image.into_luma8().into_raw() } else { image.into_rgb8().into_raw() };
    View::new(shape, planes(&interleaved, shape.channels))
}

/// Decodes a PNG or WebP.
fn decode_other(file: &[u8]) -> Result<DynamicImage, CodecError> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::new(Cursor::new(file));
    reader.limits(limits);
    let image = reader.with_guessed_format().map_err(image::ImageError::from).and_then(ImageReader::decode);
    image.map_err(|error| error_of(Fault::Broken(error.to_string()), file))
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
        // Only the head of the file tells a size; there are no pixels.
        let mut file = png(&ramp(Shape::rgb(1, 1))).unwrap();
        file[16..24].copy_from_slice(&[0, 0, 32, 0, 0, 0, 32, 1]);
        let error = decode(&file, Shape::rgb(2, 2)).unwrap_err().to_string();
        for word in ["8192x8193", "64 megapixels", "scale it down"] {
            assert!(error.contains(word), "{error}");
        }
        // Sixteen bits a channel: 8 bytes a pixel.
        file[16..26].copy_from_slice(&[0, 0, 23, 112, 0, 0, 23, 112, 16, 6]);
        let error = decode(&file, Shape::rgb(2, 2)).unwrap_err().to_string();
        assert!(error.contains("within 250 MB, found a PNG that needs 288 MB"), "{error}");
    }

    /// Exif data with an orientation, in both orders of bytes.
    fn exif(orientation: u8, is_big: bool) -> Vec<u8> {
        if is_big {
            [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[orientation, 0, 0, 0, 0, 0, 0][..]]
                .concat()
        } else {
            [b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0, 0, 0, 0, 0][..]]
                .concat()
        }
    }

    fn png_chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let named = [&kind[..], body].concat();
        let mut sum = flate2::Crc::new();
        sum.update(&named);
        [&(body.len() as u32).to_be_bytes()[..], &named, &sum.sum().to_be_bytes()].concat()
    }

    fn png_with(exif: &[u8], file: &[u8]) -> Vec<u8> {
        // Behind the header, which ends at byte 33.
        [&file[..33], &png_chunk(b"eXIf", exif), &file[33..]].concat()
    }

    fn jpeg_with(exif: &[u8], file: &[u8]) -> Vec<u8> {
        let length = (exif.len() as u16 + 8).to_be_bytes();
        [&file[..2], &[0xff, 0xe1], &length, b"Exif\0\0", exif, &file[2..]].concat()
    }

    fn webp_with(exif: &[u8], file: &[u8], size: [u32; 2]) -> Vec<u8> {
        let chunk = |kind: &[u8; 4], body: &[u8]| {
            [kind, &(body.len() as u32).to_le_bytes()[..], body, &[0][..body.len() % 2]].concat()
        };
        let sides = size.map(|side| (side - 1).to_le_bytes());
        let head = [&[8, 0, 0, 0], &sides[0][..3], &sides[1][..3]].concat();
        let chunks = [b"WEBP", &chunk(b"VP8X", &head)[..], &file[12..], &chunk(b"EXIF", exif)].concat();
        [b"RIFF", &(chunks.len() as u32).to_le_bytes()[..], &chunks].concat()
    }

    /// Value of a pixel of an upright view, at the position of the stored frame.
    fn upright(view: &View, orientation: u8, [x, y]: [usize; 2], [width, height]: [usize; 2]) -> u8 {
        // Where the first row and the first column of the stored frame are (Exif 2.32, 4.6.5).
        let (x, y, wide) = match orientation {
            2 => (width - 1 - x, y, width),
            3 => (width - 1 - x, height - 1 - y, width),
            4 => (x, height - 1 - y, width),
            5 => (y, x, height),
            6 => (height - 1 - y, x, height),
            7 => (height - 1 - y, width - 1 - x, height),
            8 => (y, width - 1 - x, height),
            _ => (x, y, width),
        };
        view.pixels[y * wide + x]
    }

    #[test]
    fn a_frame_is_turned_upright_in_every_format() {
        let grey = Shape { channels: 1, height: 3, width: 5 };
        let stored = View::new(grey, (0..15).map(|at| at * 16).collect());
        let (png, webp) = (png(&stored).unwrap(), webp_lossless(&stored).unwrap());
        let mut jpeg = Vec::new();
        image_of(&stored).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 100)).unwrap();
        for orientation in 0..=9 {
            let is_turned = (5..=8).contains(&orientation);
            let shape = if is_turned { Shape { height: 5, width: 3, ..grey } } else { grey };
            for is_big in [false, true] {
                let exif = exif(orientation, is_big);
                let with_head = [b"Exif\0\0", &exif[..]].concat();
                for (file, tolerance) in [
                    (png_with(&exif, &png), 0),
                    (webp_with(&exif, &webp, [5, 3]), 0),
                    (webp_with(&with_head, &webp, [5, 3]), 0),
                    (jpeg_with(&exif, &jpeg), 8),
                ] {
                    let view = decode(&file, shape).unwrap();
                    for at in 0..15 {
                        let found = upright(&view, orientation, [at % 5, at / 5], [5, 3]);
                        assert!(
                            found.abs_diff(stored.pixels[at]) <= tolerance,
                            "{orientation}: {found} at {at} of {stored:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_region_is_one_of_the_upright_frame() {
        let grey = Shape { channels: 1, height: 3, width: 5 };
        let png = png(&View::new(grey, (0..15).collect())).unwrap();
        for orientation in 1..=8 {
            let file = png_with(&exif(orientation, false), &png);
            let frame = Frame::open(&file).unwrap();
            let [width, height] = frame.size();
            let (whole, _) = frame.view(None, None).unwrap();
            let region = [1, 0, width - 1, height - 1];
            let shape = Shape { channels: 1, height: region[3] as usize, width: region[2] as usize };
            let (view, own) = frame.view(Some(region), Some(shape)).unwrap();
            assert_eq!(own, whole.shape);
            let rows = whole.pixels.chunks(width as usize).take(shape.height);
            assert_eq!(
                view.pixels,
                rows.flat_map(|row| &row[1..]).copied().collect::<Vec<_>>(),
                "{orientation}"
            );
        }
    }

    #[test]
    fn a_file_that_ends_early_is_cut_in_every_format() {
        let view = ramp(Shape::rgb(16, 16));
        for file in [png(&view).unwrap(), webp_lossless(&view).unwrap()] {
            for length in 0..file.len() {
                let error = decode(&file[..length], view.shape).unwrap_err();
                assert!(
                    matches!(error, RoiError::Codec(CodecError::Cut { bytes }) if bytes == length),
                    "{length}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_frame_above_the_size_of_a_view_is_decoded_and_needs_a_shape() {
        let wide = image::GrayImage::from_fn(2560, 8, |x, _| image::Luma([if x < 1280 { 0 } else { 200 }]));
        let mut file = Vec::new();
        PngEncoder::new(&mut file).write_image(&wide, 2560, 8, ExtendedColorType::L8).unwrap();
        let halves = Shape { channels: 1, height: 1, width: 2 };
        let pixels = decode(&file, halves).unwrap().pixels;
        assert!(pixels[0] < 60 && pixels[1] > 140, "{pixels:?}");
        let error = Frame::open(&file).unwrap().view(None, None).unwrap_err().to_string();
        assert!(error.contains("sides of 1 to 2048") && error.contains("another shape"), "{error}");
    }

    #[test]
    fn images_of_every_colour_and_depth_are_taken() {
        use image::{ImageBuffer, Luma, LumaA, Rgb, Rgba};
        use std::io::Write;

        let (shape, deep) = (Shape::rgb(2, 2), 77 * 257);
        for image in [
            DynamicImage::ImageLuma16(ImageBuffer::from_pixel(2, 2, Luma([deep]))),
            DynamicImage::ImageLumaA8(ImageBuffer::from_pixel(2, 2, LumaA([77, 9]))),
            DynamicImage::ImageLumaA16(ImageBuffer::from_pixel(2, 2, LumaA([deep, 9]))),
            DynamicImage::ImageRgb16(ImageBuffer::from_pixel(2, 2, Rgb([deep; 3]))),
            DynamicImage::ImageRgba8(ImageBuffer::from_pixel(2, 2, Rgba([77, 77, 77, 0]))),
            DynamicImage::ImageRgba16(ImageBuffer::from_pixel(2, 2, Rgba([deep; 4]))),
        ] {
            let mut file = Vec::new();
            image.write_with_encoder(PngEncoder::new(&mut file)).unwrap();
            assert_eq!(decode(&file, shape).unwrap().pixels, [77; 12], "{:?}", image.color());
        }
        let mut rows = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        rows.write_all(&[0, 0, 1]).unwrap();
        let palette = [
            &b"\x89PNG\r\n\x1a\n"[..],
            &png_chunk(b"IHDR", &[0, 0, 0, 2, 0, 0, 0, 1, 8, 3, 0, 0, 0]),
            &png_chunk(b"PLTE", &[10, 20, 30, 40, 50, 60]),
            &png_chunk(b"IDAT", &rows.finish().unwrap()),
            &png_chunk(b"IEND", b""),
        ]
        .concat();
        assert_eq!(decode(&palette, Shape::rgb(1, 2)).unwrap().pixels, [10, 40, 20, 50, 30, 60]);
    }

    #[test]
    fn a_jpeg_of_four_inks_is_taken() {
        let grey = View::new(Shape { channels: 1, height: 8, width: 8 }, vec![128; 64]);
        let mut jpeg = Vec::new();
        image_of(&grey).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 90)).unwrap();
        let at = |kind: u8| jpeg.windows(2).position(|marker| marker == [0xff, kind]).unwrap();
        let (frame, scan) = (at(0xc0), at(0xda));
        let inks = [
            &jpeg[..frame],
            &[0xff, 0xc0, 0, 20, 8, 0, 8, 0, 8, 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0],
            &jpeg[frame + 13..scan],
            // Four blocks, each with the mean of the one before: half of each ink.
            &[0xff, 0xda, 0, 14, 4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0, 0x28, 0xa2, 0x8a, 0xff, 0xd9],
        ]
        .concat();
        let pixels = decode(&inks, Shape::rgb(8, 8)).unwrap().pixels;
        assert!(pixels.iter().all(|pixel| (60..=68).contains(pixel)), "{pixels:?}");
    }

    #[test]
    fn an_animation_gives_its_first_picture() {
        let mut config = webp::WebPConfig::new().unwrap();
        config.lossless = 1;
        let pictures = [[200, 0, 0], [0, 0, 200]].map(|colour: [u8; 3]| colour.repeat(16));
        let mut encoder = webp::AnimEncoder::new(4, 4, &config);
        for (picture, time_ms) in pictures.iter().zip([0, 100]) {
            encoder.add_frame(webp::AnimFrame::from_rgb(picture, 4, 4, time_ms));
        }
        let pixels = decode(&encoder.encode(), Shape::rgb(4, 4)).unwrap().pixels;
        assert_eq!(pixels, [[200; 16], [0; 16], [0; 16]].concat());
    }

    #[test]
    fn a_png_with_a_wrong_byte_is_refused_or_the_same() {
        let view = ramp(Shape::rgb(9, 7));
        let file = png(&view).unwrap();
        let mut refused = 0;
        for at in 8..file.len() {
            let mut turned = file.clone();
            turned[at] ^= 1 << (at % 8);
            match decode(&turned, view.shape) {
                Ok(found) => assert_eq!(found, view, "byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > file.len() / 2, "{refused} of {}", file.len());
    }

    #[test]
    fn bits_that_are_turned_never_panic() {
        let view = ramp(Shape::rgb(9, 7));
        let webp = webp_with(&exif(6, false), &webp_lossless(&view).unwrap(), [7, 9]);
        for file in [png_with(&exif(5, true), &png(&view).unwrap()), webp] {
            for at in 0..file.len() {
                let mut turned = file.clone();
                turned[at] ^= 1 << (at % 8);
                let _ = decode(&turned, view.shape);
            }
        }
    }

    #[test]
    fn a_large_frame_is_resized_by_the_means_of_its_pixels() {
        let half = |x: u32| if x < 1024 { [0, 50, 100] } else { [200, 150, 100] };
        let large = image::RgbImage::from_fn(2048, 6656, |x, _| image::Rgb(half(x)));
        let turned = |shape| fitted(large.clone().into(), [0, 0, 2048, 6656], shape, Orientation::Rotate90);
        let view = turned(Shape::rgb(128, 64));
        assert_eq!(view.pixels[..64 * 64], [0; 64 * 64]);
        assert_eq!(view.pixels[64 * 64..128 * 64], [200; 64 * 64]);
        assert_eq!(turned(Shape::rgb(1, 1)).pixels, [100; 3]);
    }

    /// A JPEG of `side` by `side` grey pixels: each MCU is the mean of the one before it, in two bits and the four of "no more".
    fn large_jpeg(side: u16) -> Vec<u8> {
        let small = View::new(Shape { channels: 1, height: 8, width: 8 }, vec![128; 64]);
        let mut jpeg = Vec::new();
        image_of(&small).unwrap().write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, 90)).unwrap();
        let frame = jpeg.windows(2).position(|marker| marker == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[side.to_be_bytes(), side.to_be_bytes()].concat());
        let scan = jpeg.windows(2).position(|marker| marker == [0xff, 0xda]).unwrap();
        let data = scan + 2 + usize::from(u16::from_be_bytes([jpeg[scan + 2], jpeg[scan + 3]]));
        let blocks = usize::from(side).div_ceil(8).pow(2);
        // 00 1010 four times is three bytes.
        let data_of_blocks = [0x28, 0xa2, 0x8a].repeat(blocks.div_ceil(4));
        [&jpeg[..data], &data_of_blocks, &[0xff, 0xd9]].concat()
    }

    #[test]
    fn a_large_jpeg_is_decoded_at_a_reduced_scale_and_one_beyond_the_limit_is_oversize() {
        let shape = Shape { channels: 1, height: 4, width: 4 };
        assert_eq!(decode(&large_jpeg(8192), shape).unwrap().pixels, [128; 16]);
        let error = decode(&large_jpeg(8200), shape).unwrap_err();
        assert!(matches!(error, RoiError::Codec(CodecError::Oversize { width: 8200, .. })), "{error}");
    }

    #[test]
    fn garbage_and_shapes_without_pixels_are_refused() {
        assert!(matches!(
            decode(b"not an image", Shape::rgb(2, 2)),
            Err(RoiError::Codec(CodecError::Decode { bytes: 12, .. }))
        ));
        for (file, found) in [
            (&b"GIF89a, which is another format"[..], "a GIF"),
            (b"\n<!DOCTYPE html>", "a page"),
            (b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
            (&[0; 40], "none of them, but [00, "),
        ] {
            let error = decode(file, Shape::rgb(2, 2)).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
        assert!(matches!(decode(&[], Shape::rgb(0, 2)), Err(RoiError::Codec(CodecError::Shape(_)))));
        assert!(matches!(
            decode(&[], Shape { channels: 2, height: 1, width: 1 }),
            Err(RoiError::Codec(CodecError::Shape(_)))
        ));
    }
}
