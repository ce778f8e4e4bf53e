//! Region of interest: the part of a frame that becomes the view.
//!
//! The frame is the upright one, as viewers show it.
//!
//! ```text
//! frame --- cut out the region ---> --- resize ---> view
//! ```

use std::fmt;
use std::str::FromStr;

use image::metadata::Orientation;

use crate::image_codec::{self, CodecError, Frame};
use crate::{Shape, View};

/// Rectangle in a frame, written as `"x,y,w,h"`, all in pixels or all in percent of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roi {
    unit: Unit,
    /// Left, top, width, height, in pixels or in thousandths of a percent.
    sides: [u32; 4],
}

/// Unit of the four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pixels,
    /// Percent of the frame, stored in thousandths: 100,000 is the whole side.
    Percent,
}

/// Whole side in thousandths of a percent.
const WHOLE: u32 = 100_000;

/// Error of a region that cannot be parsed or cut out, or of a frame that gives no view.
#[derive(Debug, thiserror::Error)]
pub enum RoiError {
    /// The text is not four numbers, either all in pixels or all in percent.
    #[error(
        "roi: expected \"x,y,w,h\" in pixels or in percent (\"10%,0%,50%,100%\"), w and h above 0, found {0:?}"
    )]
    Text(String),
    /// Start and length together exceed 100 % of a side, whatever the size of the frame.
    #[error("roi {0}: expected at most 100% from left to right and from top to bottom")]
    BeyondWhole(Roi),
    /// The region is outside this frame.
    #[error("roi {roi}: outside the frame, which is {width}x{height} pixels")]
    Outside {
        /// Region.
        roi: Roi,
        /// Columns of the frame.
        width: u32,
        /// Rows of the frame.
        height: u32,
    },
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

impl Roi {
    /// Rectangle in an upright frame of this size: left, top, width, height in pixels. Width and height are at least one pixel.
    ///
    /// # Errors
    /// [`RoiError::Outside`] with the frame's size.
    pub fn within(self, width: u32, height: u32) -> Result<[u32; 4], RoiError> {
        let [left, top, wide, high] = self.sides;
        let (across, down) = match self.unit {
            Unit::Pixels => ((left, wide), (top, high)),
            Unit::Percent => (span(left, wide, width), span(top, high, height)),
        };
        let fits = |(start, length): (u32, u32), side: u32| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= side)
        };
        if fits(across, width) && fits(down, height) {
            Ok([across.0, down.0, across.1, down.1])
        } else {
            Err(RoiError::Outside { roi: self, width, height })
        }
    }
}

/// Start and length in pixels. Both ends are rounded to the nearest pixel, and the length is at least one, so no region fits into a side
/// of 0 pixels.
fn span(start: u32, length: u32, side: u32) -> (u32, u32) {
    let at = |thousandths: u32| {
        ((u64::from(thousandths) * u64::from(side) + u64::from(WHOLE) / 2) / u64::from(WHOLE)) as u32
    };
    let first = at(start).min(side.saturating_sub(1));
    (first, at(start.saturating_add(length)).saturating_sub(first).max(1))
}

/// Decodes PNG, JPEG or WebP, cuts out the region, resizes to `shape`, and orders the bytes CHW.
///
/// # Errors
/// [`RoiError::Codec`] for a file that is no image, [`RoiError::Outside`] for a region outside the frame.
pub fn decode(bytes: &[u8], shape: Shape, roi: Option<Roi>) -> Result<View, RoiError> {
    image_codec::check(shape)?;
    let frame = Frame::open(bytes)?;
    let [width, height] = frame.size();
    let region = roi.map(|roi| roi.within(width, height)).transpose()?;
    Ok(frame.view(region, Some(shape))?.0)
}

/// Cuts and resizes a raw frame of `width` by `height` pixels to a view, as [`decode`] does with a decoded one.
///
/// # Errors
/// [`RoiError::RawLength`] for a wrong number of bytes, [`RoiError::Outside`], [`RoiError::Codec`] for a shape that no image has.
pub fn from_raw(
    pixels: Vec<u8>,
    format: RawFormat,
    [width, height]: [u32; 2],
    shape: Shape,
    roi: Option<Roi>,
) -> Result<View, RoiError> {
    image_codec::check(shape)?;
    let (expected, found) = (format.bytes(width, height), pixels.len());
    let image = image_codec::from_bytes(pixels, format.channels(), [width, height]);
    let image = image.ok_or(RoiError::RawLength { width, height, expected, found })?;
    let region = roi.map_or(Ok([0, 0, width, height]), |roi| roi.within(width, height))?;
    Ok(image_codec::fitted(image, region, shape, Orientation::NoTransforms))
}

impl FromStr for Roi {
    type Err = RoiError;

    fn from_str(text: &str) -> Result<Self, RoiError> {
        let wrong = || RoiError::Text(text.chars().take(60).collect());
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let parts: [&str; 4] = parts.try_into().map_err(|_| wrong())?;
        let unit = if parts.iter().all(|part| part.ends_with('%')) { Unit::Percent } else { Unit::Pixels };
        let mut sides = [0; 4];
        for (side, part) in sides.iter_mut().zip(parts) {
            *side = match unit {
                Unit::Pixels => part.parse().ok(),
                Unit::Percent => part.strip_suffix('%').and_then(thousandths),
            }
            .ok_or_else(wrong)?;
        }
        let [left, top, width, height] = sides;
        if width == 0 || height == 0 {
            return Err(wrong());
        }
        let roi = Self { unit, sides };
        let is_beyond = |start: u32, length: u32| start.saturating_add(length) > WHOLE;
        if unit == Unit::Percent && (is_beyond(left, width) || is_beyond(top, height)) {
            return Err(RoiError::BeyondWhole(roi));
        }
        Ok(roi)
    }
}

/// Parses a percentage up to 100: `12.5` gives 12,500. Digits after the third decimal are rounded.
fn thousandths(text: &str) -> Option<u32> {
    let percent: f64 = text.trim().parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 1000.0).round() as u32)
}

impl fmt::Display for Roi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = self.sides.map(|side| match self.unit {
            Unit::Pixels => side.to_string(),
            Unit::Percent => format!("{}%", f64::from(side) / 1000.0),
        });
        f.write_str(&sides.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, frame: [u32; 2], expected: [u32; 4]) {
        let roi: Roi = text.parse().unwrap();
        assert_eq!(roi.within(frame[0], frame[1]).unwrap(), expected, "{roi}");
    }

    #[test]
    fn pixels_and_percents_name_rectangles() {
        check("10, 20,30,40", [40, 60], [10, 20, 30, 40]);
        check("10%,0%,50%,100%", [640, 480], [64, 0, 320, 480]);
        check("33.333%,0%,33.334%,100%", [3, 1], [1, 0, 1, 1]);
        check("99.999%,0%,0.001%,1%", [10, 10], [9, 0, 1, 1]);
    }

    #[test]
    fn text_without_a_region_is_refused() {
        for text in
            ["", "1,2,3", "1,2,3,4,5", "1,2,0,4", "10%,0%,50%,100", "-1,0,1,1", "a,b,c,d", "nan%,0%,1%,1%"]
        {
            assert!(matches!(text.parse::<Roi>(), Err(RoiError::Text(_))), "{text}");
        }
        assert!(matches!("60%,0%,50%,100%".parse::<Roi>(), Err(RoiError::BeyondWhole(_))));
    }

    #[test]
    fn a_region_outside_the_frame_is_refused_with_its_size() {
        for text in ["31,0,2,1", "0,32,1,1", "4294967295,0,4294967295,1"] {
            let error = text.parse::<Roi>().unwrap().within(32, 32).unwrap_err().to_string();
            assert!(error.contains("32x32") && error.contains(text), "{error}");
        }
        assert!("0%,0%,1%,1%".parse::<Roi>().unwrap().within(0, 5).is_err());
    }

    #[test]
    fn a_region_is_cut_before_the_frame_is_resized() {
        // Left half black, right half white: the right half alone has no grey edge.
        let frame: Vec<u8> = (0..8 * 4).map(|at| if at % 8 < 4 { 0 } else { 255 }).collect();
        let shape = Shape { channels: 1, height: 2, width: 2 };
        let right = Some("50%,0%,50%,100%".parse().unwrap());
        let view = from_raw(frame.clone(), RawFormat::Gray, [8, 4], shape, right).unwrap();
        assert_eq!(view.pixels, [255; 4]);
        let file = image_codec::png(&View::new(Shape { channels: 1, height: 4, width: 8 }, frame)).unwrap();
        assert_eq!(decode(&file, shape, right).unwrap(), view);
        let (whole, _) = Frame::open(&file).unwrap().view(None, Some(shape)).unwrap();
        assert_eq!(decode(&file, shape, None).unwrap(), whole);
    }

    #[test]
    fn raw_pixels_are_ordered_by_channel_and_a_wrong_length_is_refused() {
        let shape = Shape::rgb(1, 2);
        let view = from_raw(vec![1, 2, 3, 4, 5, 6], RawFormat::Rgb24, [2, 1], shape, None).unwrap();
        assert_eq!(view.pixels, [1, 4, 2, 5, 3, 6]);
        for size in [[3, 1], [0, 1], [2, 0]] {
            let error = from_raw(vec![0; 6], RawFormat::Rgb24, size, shape, None).unwrap_err();
            assert!(matches!(error, RoiError::RawLength { found: 6, .. }), "{error}");
        }
    }
}
