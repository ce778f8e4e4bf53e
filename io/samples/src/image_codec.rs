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

use std::borrow::Cow;
use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{
    DynamicImage, GenericImageView, GrayImage, ImageDecoder, ImageReader, Limits, RgbImage, RgbaImage,
    imageops,
};

use crate::image_structure::{Coding, Structure};
use crate::jpeg::{self, Fault, Markers};
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
/// Least width and height to which `thumbnail` reduces a large frame: with [`MAX_PIXELS`], its sums of pixels then fit 32 bits.
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

/// The pixels of a frame in the size of the file.
pub(crate) enum Whole<'a> {
    Decoded(DynamicImage),
    /// A JPEG of so many pixels that it is decoded at a scale that depends on the view.
    TooLarge(&'a Markers),
}

/// Left, top, width and height, in pixels.
pub(crate) type Rectangle = [u32; 4];

impl<'a> Frame<'a> {
    /// Finds the size of a frame. Refuses a file that is no image, is cut or exceeds the limits.
    pub(crate) fn open(file: &'a [u8]) -> Result<Self, CodecError> {
        let structure = Structure::parse(file).map_err(|fault| error_of(fault, file))?;
        let [width, height] = structure.size;
        let oversize = |reason| Err(CodecError::Oversize { width, height, reason });
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return oversize(format!("expected at most 64 megapixels ({MAX_PIXELS} pixels); scale it down"));
        }
        let (needed, kind) = structure.needed_bytes();
        if needed > MAX_DECODED_BYTES {
            let (limit, needed) = (MAX_DECODED_BYTES / 1_000_000, needed / 1_000_000);
            return oversize(format!(
                "expected one that decodes within {limit} MB, found a {kind} that needs {needed} MB; save it as baseline JPEG or scale it down"
            ));
        }
        Ok(Self { file, structure })
    }

    /// Width and height of the upright frame.
    pub(crate) fn size(&self) -> [u32; 2] {
        let [width, height] = self.structure.size;
        if is_transposed(self.structure.orientation) { [height, width] } else { [width, height] }
    }

    /// Decodes the frame, cuts out a region of the upright frame, and resizes it to `shape`, or keeps the region's size when `None`. Also returns the shape of the
    /// upright frame: one channel for grey, three for colour, and one more where it is transparent.
    pub(crate) fn view(
        &self,
        region: Option<Rectangle>,
        shape: Option<Shape>,
    ) -> Result<(View, Shape), CodecError> {
        let [width, height] = self.size();
        let region = region.unwrap_or([0, 0, width, height]);
        let kept = |channels| Shape { channels, height: region[3] as usize, width: region[2] as usize };
        // Without a shape, a region that is too large for a view is refused before decoding.
        check(shape.unwrap_or(kept(3)))?;
        let orientation = self.structure.orientation;
        let (image, cut_out) = self.decode(stored(region, self.structure.size, orientation), shape)?;
        let channels = if image.color().has_color() { 3 } else { 1 };
        let own_channels = channels + usize::from(is_transparent(&image));
        let own = Shape { channels: own_channels, height: height as usize, width: width as usize };
        Ok((fitted(Cow::Owned(image), cut_out, shape.unwrap_or(kept(channels)), orientation), own))
    }

    /// Turn that brings the stored image upright.
    pub(crate) fn orientation(&self) -> Orientation {
        self.structure.orientation
    }

    /// Decodes the whole frame as it is stored, unless it is too large for that.
    pub(crate) fn whole(&self) -> Result<Whole<'_>, CodecError> {
        let image = match &self.structure.coding {
            Coding::Other { end, .. } => decode_other(&self.file[..*end])?,
            Coding::Jpeg(markers)
                if jpeg::decoded_bytes(markers, 8) > MAX_FULL_BYTES && jpeg::is_reducible(markers) =>
            {
                return Ok(Whole::TooLarge(markers));
            }
            Coding::Jpeg(markers) => {
                jpeg::decode(self.file, markers).map_err(|fault| error_of(fault, self.file))?
            }
        };
        self.of_size(image).map(Whole::Decoded)
    }

    /// Decodes the frame, at a reduced scale if it is large. Also returns the region in the decoded image.
    fn decode(
        &self,
        region: Rectangle,
        shape: Option<Shape>,
    ) -> Result<(DynamicImage, Rectangle), CodecError> {
        let markers = match self.whole()? {
            Whole::Decoded(image) => return Ok((image, region)),
            Whole::TooLarge(markers) => markers,
        };
        let fits = |eighths: u32| jpeg::decoded_bytes(markers, eighths as usize) <= MAX_FULL_BYTES;
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

/// Width and height of the upright frame, by the first bytes of its file; `None` if these bytes do not tell the size.
pub(crate) fn size_by_head(head: &[u8]) -> Option<[u32; 2]> {
    let reader = ImageReader::new(Cursor::new(head)).with_guessed_format().ok()?;
    let mut decoder = reader.into_decoder().ok()?;
    let (width, height) = decoder.dimensions();
    Some(if is_transposed(decoder.orientation().ok()?) { [height, width] } else { [width, height] })
}

/// Returns true if an image has a pixel that is not opaque. An image with alpha that is not 8-bit RGBA always counts as transparent.
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

/// Returns true if the rows of the stored image are the columns of the upright image.
pub(crate) const fn is_transposed(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate90FlipH | Rotate270 | Rotate270FlipH)
}

/// A region of the upright frame as a region of the stored frame, whose width and height are given.
pub(crate) fn stored(region: Rectangle, [width, height]: [u32; 2], orientation: Orientation) -> Rectangle {
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
pub(crate) fn fitted(
    image: Cow<'_, DynamicImage>,
    region: Rectangle,
    shape: Shape,
    orientation: Orientation,
) -> View {
    let [left, top, width, height] = region;
    let (mut wide, mut high) = (shape.width as u32, shape.height as u32);
    if is_transposed(orientation) {
        (wide, high) = (high, wide);
    }
    // The triangle filter has four floats for each pixel of the rows that it has resized.
    let filter_bytes = 16 * u64::from(width) * u64::from(high);
    let cut_out = if filter_bytes.max(image.as_bytes().len() as u64) > MAX_FULL_BYTES {
        // `thumbnail` sums pixels in 32 bits, so a view smaller than this is made in two steps.
        let (wide, high) = (wide.max(SAFE_SIDE_PX).min(width), high.max(SAFE_SIDE_PX).min(height));
        Cow::Owned(DynamicImage::from(imageops::thumbnail(
            &*image.view(left, top, width, height),
            wide,
            high,
        )))
    } else if region == [0, 0, image.width(), image.height()] {
        image
    } else {
        Cow::Owned(image.crop_imm(left, top, width, height))
    };
    let mut image = if (cut_out.width(), cut_out.height()) == (wide, high) {
        cut_out.into_owned()
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
mod tests;
