//! From a frame to a view: the region of interest is cut out and fitted into the view, alike in training and on devices.
//!
//! Regions refer to the upright frame, as viewers show it.

pub use headwater_protocol::{Fit, Framing, RegionError, Roi};

use std::borrow::Cow;

use headwater_protocol::Placement;
use image::DynamicImage;
use image::metadata::Orientation;

use crate::image_codec::{self, CodecError, Frame, Whole};
use crate::{Shape, View};

/// Error of a frame that gives no view.
#[derive(Debug, thiserror::Error)]
pub enum RoiError {
    /// The region is outside the frame.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The number of raw bytes differs from the size of the frame.
    #[error("raw frame of {width}x{height}: expected {expected} bytes, found {found}")]
    RawLength {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes of a frame of this size.
        expected: usize,
        /// Given bytes.
        found: usize,
    },
    /// The frame cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// Pixel format of a raw frame, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawFormat {
    /// Red, green and blue, one byte each.
    Rgb24,
    /// One byte per pixel.
    Gray,
}

impl RawFormat {
    /// Bytes of a frame of `width` by `height` pixels.
    #[must_use]
    pub const fn bytes(self, width: u32, height: u32) -> usize {
        self.channels() * width as usize * height as usize
    }

    const fn channels(self) -> usize {
        match self {
            Self::Rgb24 => 3,
            Self::Gray => 1,
        }
    }
}

/// A frame that gives one view or several. The frame is decoded once, unless it is so large that the scale of decoding depends on the view.
pub struct DecodedFrame<'a>(Pixels<'a>);

enum Pixels<'a> {
    /// The image as it is stored.
    Whole(DynamicImage, Orientation),
    Large(Frame<'a>),
}

impl<'a> DecodedFrame<'a> {
    /// Decodes PNG, JPEG or WebP.
    ///
    /// # Errors
    /// [`CodecError`] for a file that is no image, is cut or exceeds the limits.
    pub fn of_file(file: &'a [u8]) -> Result<Self, CodecError> {
        let frame = Frame::open(file)?;
        let whole = match frame.whole()? {
            Whole::Decoded(image) => Some(image),
            Whole::TooLarge(_) => None,
        };
        Ok(Self(match whole {
            Some(image) => Pixels::Whole(image, frame.orientation()),
            None => Pixels::Large(frame),
        }))
    }

    /// A raw frame of `width` by `height` pixels.
    ///
    /// # Errors
    /// [`RoiError::RawLength`] for a wrong number of bytes.
    pub fn of_raw(pixels: Vec<u8>, format: RawFormat, [width, height]: [u32; 2]) -> Result<Self, RoiError> {
        let (expected, found) = (format.bytes(width, height), pixels.len());
        let image = image_codec::from_bytes(pixels, format.channels(), [width, height]);
        let image = image.ok_or(RoiError::RawLength { width, height, expected, found })?;
        Ok(Self(Pixels::Whole(image, Orientation::NoTransforms)))
    }

    /// Width and height of the upright frame.
    pub fn size(&self) -> [u32; 2] {
        match &self.0 {
            Pixels::Whole(image, orientation) if image_codec::is_transposed(*orientation) => {
                [image.height(), image.width()]
            }
            Pixels::Whole(image, _) => [image.width(), image.height()],
            Pixels::Large(frame) => frame.size(),
        }
    }

    /// Cuts out the region, fits it into a view of `shape`, and orders the bytes CHW.
    ///
    /// # Errors
    /// [`RoiError::Region`] for a region outside the frame, [`RoiError::Codec`] for a shape that no image has, and for a large frame that
    /// cannot be decoded.
    pub fn view(&self, shape: Shape, framing: Framing) -> Result<View, RoiError> {
        image_codec::check(shape)?;
        let (region, inner) = placed(framing, self.size(), shape)?;
        let view = match &self.0 {
            Pixels::Whole(image, orientation) => {
                let region = image_codec::stored(region, [image.width(), image.height()], *orientation);
                image_codec::fitted(Cow::Borrowed(image), region, inner, *orientation)
            }
            Pixels::Large(frame) => frame.view(Some(region), Some(inner))?.0,
        };
        Ok(in_middle(view, shape))
    }
}

/// Decodes PNG, JPEG or WebP, cuts out the region, fits it into a view of `shape`, and orders the bytes CHW.
///
/// # Errors
/// [`RoiError::Codec`] for a file that is no image or a shape that no image has; [`RoiError::Region`] for a region outside the frame.
pub fn decode(bytes: &[u8], shape: Shape, framing: Framing) -> Result<View, RoiError> {
    Ok(decode_to(bytes, Some(shape), framing)?.0)
}

/// Decodes as [`decode`] does; without a shape the region keeps its size. Also returns the shape of the upright frame, as [`Frame::view`] does.
pub(crate) fn decode_to(
    bytes: &[u8],
    shape: Option<Shape>,
    framing: Framing,
) -> Result<(View, Shape), RoiError> {
    shape.map_or(Ok(()), image_codec::check)?;
    let frame = Frame::open(bytes)?;
    let size = frame.size();
    let Some(shape) = shape else {
        let region = framing.roi.map(|roi| roi.within(size[0], size[1])).transpose()?;
        return Ok(frame.view(region, None)?);
    };
    let (region, inner) = placed(framing, size, shape)?;
    let (view, own) = frame.view(Some(region), Some(inner))?;
    Ok((in_middle(view, shape), own))
}

/// The region of a frame, and the shape that the region gets in a view of `shape`.
fn placed(framing: Framing, frame: [u32; 2], shape: Shape) -> Result<([u32; 4], Shape), RegionError> {
    let view = [shape.width, shape.height].map(|side| side as u32);
    let Placement { region, size } = framing.place(frame, view)?;
    let [width, height] = size.map(|side| side as usize);
    Ok((region, Shape { height, width, ..shape }))
}

/// Puts a view in the middle of a black view of `shape`.
fn in_middle(view: View, shape: Shape) -> View {
    if view.shape == shape {
        return view;
    }
    let Shape { height, width, .. } = view.shape;
    let (top, left) = ((shape.height - height) / 2, (shape.width - width) / 2);
    let mut pixels = vec![0; shape.bytes()];
    for (row, from) in view.pixels.chunks_exact(width).enumerate() {
        let (channel, row) = (row / height, row % height);
        let at = (channel * shape.height + top + row) * shape.width + left;
        pixels[at..][..width].copy_from_slice(from);
    }
    View::new(shape, pixels)
}

/// Width and height of the upright image in a file, which is not decoded.
///
/// # Errors
/// [`RoiError::Codec`] for a file that is no image, is cut or exceeds the limits.
pub fn size(file: &[u8]) -> Result<[u32; 2], RoiError> {
    Ok(Frame::open(file)?.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_raw(
        pixels: Vec<u8>,
        format: RawFormat,
        size: [u32; 2],
        (shape, framing): (Shape, Framing),
    ) -> Result<View, RoiError> {
        DecodedFrame::of_raw(pixels, format, size)?.view(shape, framing)
    }

    #[test]
    fn a_region_is_cut_before_the_frame_is_resized() {
        // Left half black, right half white: the right half alone has no grey edge.
        let frame: Vec<u8> = (0..8 * 4).map(|at| if at % 8 < 4 { 0 } else { 255 }).collect();
        let shape = Shape { channels: 1, height: 2, width: 2 };
        let right = Framing { roi: Some("50%,0%,50%,100%".parse().unwrap()), fit: Fit::Stretch };
        let view = from_raw(frame.clone(), RawFormat::Gray, [8, 4], (shape, right)).unwrap();
        assert_eq!(view.pixels, [255; 4]);
        let file = image_codec::png(&View::new(Shape { channels: 1, height: 4, width: 8 }, frame)).unwrap();
        assert_eq!(decode(&file, shape, right).unwrap(), view);
        let (whole, _) = Frame::open(&file).unwrap().view(None, Some(shape)).unwrap();
        assert_eq!(decode(&file, shape, Framing::default()).unwrap(), whole);
    }

    #[test]
    fn a_letterbox_is_black_around_the_whole_region_and_a_crop_loses_its_ends() {
        // Columns of 10, 20, ..., 80; a view of four by four pixels.
        let frame: Vec<u8> = (0..8 * 4).map(|at| (at % 8 + 1) * 10).collect();
        let (shape, size) = (Shape { channels: 1, height: 4, width: 4 }, [8, 4]);
        let of = |fit| {
            let framing = Framing { roi: None, fit };
            from_raw(frame.clone(), RawFormat::Gray, size, (shape, framing)).unwrap().pixels
        };
        let letterbox = of(Fit::Letterbox);
        assert_eq!((&letterbox[..4], &letterbox[12..]), (&[0; 4][..], &[0; 4][..]));
        let stretched = of(Fit::Stretch);
        assert_eq!(letterbox[4..8], stretched[..4], "the whole width");
        assert_eq!(of(Fit::Crop), [30, 40, 50, 60].repeat(4));
        // Of several channels each has its own black rows.
        let colours = vec![9; 3 * 8 * 4];
        let framing = Framing { roi: None, fit: Fit::Letterbox };
        let view = from_raw(colours, RawFormat::Rgb24, size, (Shape::rgb(4, 4), framing)).unwrap();
        assert_eq!(view.pixels, [[0; 4], [9; 4], [9; 4], [0; 4]].concat().repeat(3));
    }

    #[test]
    fn a_file_and_raw_pixels_of_one_frame_give_one_view_for_every_fit_and_region() {
        let own = Shape::rgb(30, 50);
        let frame = View::new(own, (0..own.bytes()).map(|at| (at * 7 % 251) as u8).collect());
        let area = own.height * own.width;
        let pixel = |at: usize| [0, 1, 2].map(|channel| frame.pixels[channel * area + at]);
        let interleaved: Vec<u8> = (0..area).flat_map(pixel).collect();
        let file = image_codec::png(&frame).unwrap();
        let decoded = DecodedFrame::of_file(&file).unwrap();
        for fit in [Fit::Stretch, Fit::Crop, Fit::Letterbox] {
            for roi in [None, Some("5,3,20,27"), Some("50%,0%,50%,100%"), Some("0%,90%,100%,10%")] {
                let framing = Framing { roi: roi.map(|roi| roi.parse().unwrap()), fit };
                for shape in [Shape::rgb(16, 16), Shape { channels: 1, height: 9, width: 32 }] {
                    let raw = from_raw(interleaved.clone(), RawFormat::Rgb24, [50, 30], (shape, framing));
                    let raw = raw.unwrap();
                    assert_eq!(raw.shape, shape);
                    assert_eq!(decode(&file, shape, framing).unwrap(), raw, "{framing} to {shape}");
                    assert_eq!(decoded.view(shape, framing).unwrap(), raw, "{framing} to {shape}");
                }
            }
        }
        let outside = Framing { roi: Some("40,0,20,5".parse().unwrap()), fit: Fit::Crop };
        let error = decode(&file, Shape::rgb(4, 4), outside).unwrap_err().to_string();
        assert!(error.contains("40,0,20,5") && error.contains("50x30"), "{error}");
    }

    #[test]
    fn raw_pixels_are_ordered_by_channel_and_a_wrong_length_is_refused() {
        let shape = Shape::rgb(1, 2);
        let view =
            from_raw(vec![1, 2, 3, 4, 5, 6], RawFormat::Rgb24, [2, 1], (shape, Framing::default())).unwrap();
        assert_eq!(view.pixels, [1, 4, 2, 5, 3, 6]);
        for size in [[3, 1], [0, 1], [2, 0]] {
            let error =
                from_raw(vec![0; 6], RawFormat::Rgb24, size, (shape, Framing::default())).unwrap_err();
            assert!(matches!(error, RoiError::RawLength { found: 6, .. }), "{error}");
        }
    }
}
