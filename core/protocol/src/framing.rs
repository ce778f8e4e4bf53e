//! Conversion of a frame to a view: the region that is cut out, and its fit into the view. Training and devices use this same code.
//!
//! ```text
//! stretch            crop                letterbox
//! +----------+       +--+----+--+        +----------+
//! |          |       |  |    |  |        |..........|  black
//! |  region  |       |  |    |  |        |  region  |
//! |          |       |  |    |  |        |..........|  black
//! +----------+       +--+----+--+        +----------+
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Rectangle in an upright frame, written as `"x,y,w,h"`, all in pixels or all in percent of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Roi {
    unit: Unit,
    /// Left, top, width, height, in pixels or in thousandths of a percent.
    sides: [u32; 4],
}

/// Unit of the numbers of a [`Roi`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Pixels,
    /// Percent of the frame, stored in thousandths: 100,000 is the whole side.
    Percent,
}

/// Whole side in thousandths of a percent.
const WHOLE: u32 = 100_000;

/// Fit of a region into the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The region is stretched, whatever the ratio of its sides.
    #[default]
    Stretch,
    /// The largest part in the middle of the region that has the view's ratio of sides; the rest is cut off.
    Crop,
    /// The whole region in the middle of the view, with its own ratio of sides; the rest of the view is black.
    Letterbox,
}

/// Conversion of a frame to a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framing {
    /// Region of the frame; the whole frame if `None`.
    pub roi: Option<Roi>,
    /// Fit of the region into the view.
    pub fit: Fit,
}

/// Place of the pixels of a frame in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Left, top, width and height in the upright frame.
    pub region: [u32; 4],
    /// Width and height of the region in the view. The region lies in the middle of the view.
    pub size: [u32; 2],
}

/// Error of a region that cannot be parsed or cut out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The text is not four numbers, either all in pixels or all in percent, or width or height is 0.
    #[error(
        "roi: expected \"x,y,w,h\" in pixels or in percent (\"10%,0%,50%,100%\"), w and h above 0, found {0:?}"
    )]
    Text(String),
    /// Start and length together exceed 100 % of a side, whatever the size of the frame.
    #[error("roi {0}: expected at most 100% from left to right and from top to bottom")]
    BeyondWhole(Roi),
    /// The region reaches beyond the frame.
    #[error("roi {roi}: outside the frame, which is {width}x{height} pixels")]
    Outside {
        /// Region.
        roi: Roi,
        /// Columns of the frame.
        width: u32,
        /// Rows of the frame.
        height: u32,
    },
}

impl Roi {
    /// Rectangle in an upright frame of this size: left, top, width, height in pixels. Width and height are at least one pixel.
    ///
    /// # Errors
    /// [`RegionError::Outside`] if the rectangle reaches beyond the frame.
    pub fn within(self, width: u32, height: u32) -> Result<[u32; 4], RegionError> {
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
            Err(RegionError::Outside { roi: self, width, height })
        }
    }
}

/// Start and length in pixels. Both ends are rounded to the nearest pixel, and the length is at least one, so no region fits into a side
/// of 0 pixels.
fn span(start: u32, length: u32, side: u32) -> (u32, u32) {
    let at = |thousandths: u32| scaled(thousandths, side, WHOLE);
    let first = at(start).min(side.saturating_sub(1));
    (first, at(start.saturating_add(length)).saturating_sub(first).max(1))
}

/// `number * by / of`, rounded to the nearest.
fn scaled(number: u32, by: u32, of: u32) -> u32 {
    let of = u64::from(of.max(1));
    let scaled = (u64::from(number) * u64::from(by) + of / 2) / of;
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

impl Framing {
    /// Place of a frame of `width` by `height` pixels in a view of `wide` by `high` pixels.
    ///
    /// # Errors
    /// [`RegionError::Outside`] if the region reaches beyond the frame.
    pub fn place(self, [width, height]: [u32; 2], [wide, high]: [u32; 2]) -> Result<Placement, RegionError> {
        let region = self.roi.map_or(Ok([0, 0, width, height]), |roi| roi.within(width, height))?;
        let [left, top, across, down] = region;
        let is_wider = u64::from(across) * u64::from(high) > u64::from(down) * u64::from(wide);
        Ok(match (self.fit, is_wider) {
            (Fit::Stretch, _) => Placement { region, size: [wide, high] },
            (Fit::Crop, true) => {
                let part = scaled(down, wide, high).clamp(1, across.max(1));
                let region = [left + across.saturating_sub(part) / 2, top, part, down];
                Placement { region, size: [wide, high] }
            }
            (Fit::Crop, false) => {
                let part = scaled(across, high, wide).clamp(1, down.max(1));
                let region = [left, top + down.saturating_sub(part) / 2, across, part];
                Placement { region, size: [wide, high] }
            }
            (Fit::Letterbox, true) => {
                Placement { region, size: [wide, scaled(down, wide, across).clamp(1, high.max(1))] }
            }
            (Fit::Letterbox, false) => {
                Placement { region, size: [scaled(across, high, down).clamp(1, wide.max(1)), high] }
            }
        })
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.roi {
            Some(roi) => write!(f, "region {roi}, {}", self.fit),
            None => write!(f, "whole frames, {}", self.fit),
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Roi {
    type Err = RegionError;

    fn from_str(text: &str) -> Result<Self, RegionError> {
        let wrong = || RegionError::Text(text.chars().take(60).collect());
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
            return Err(RegionError::BeyondWhole(roi));
        }
        Ok(roi)
    }
}

impl TryFrom<String> for Roi {
    type Error = RegionError;

    fn try_from(text: String) -> Result<Self, RegionError> {
        text.parse()
    }
}

impl From<Roi> for String {
    fn from(roi: Roi) -> Self {
        roi.to_string()
    }
}

/// Parses a percentage up to 100: `12.5` gives 12,500. Digits after the third decimal are rounded. `None` for any other text.
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
            assert!(matches!(text.parse::<Roi>(), Err(RegionError::Text(_))), "{text}");
        }
        assert!(matches!("60%,0%,50%,100%".parse::<Roi>(), Err(RegionError::BeyondWhole(_))));
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
    fn a_region_is_text_in_a_file_and_comes_back() {
        for text in ["10,20,30,40", "33.333%,0%,12.5%,100%"] {
            let roi: Roi = text.parse().unwrap();
            let json = serde_json::to_string(&roi).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Roi>(&json).unwrap(), roi);
        }
        assert!(serde_json::from_str::<Roi>("\"1,2,3\"").unwrap_err().to_string().contains("\"x,y,w,h\""));
    }

    #[track_caller]
    fn check_place(fit: Fit, frame: [u32; 2], view: [u32; 2], expected: ([u32; 4], [u32; 2])) {
        let Placement { region, size } = Framing { roi: None, fit }.place(frame, view).unwrap();
        assert_eq!((region, size), expected, "{fit} of {frame:?} in {view:?}");
    }

    #[test]
    fn a_fit_keeps_the_ratio_of_sides_unless_it_stretches() {
        check_place(Fit::Stretch, [640, 480], [96, 96], ([0, 0, 640, 480], [96, 96]));
        check_place(Fit::Crop, [640, 480], [96, 96], ([80, 0, 480, 480], [96, 96]));
        check_place(Fit::Crop, [480, 641], [96, 48], ([0, 200, 480, 240], [96, 48]));
        check_place(Fit::Letterbox, [640, 480], [96, 96], ([0, 0, 640, 480], [96, 72]));
        check_place(Fit::Letterbox, [480, 640], [96, 96], ([0, 0, 480, 640], [72, 96]));
        for fit in [Fit::Stretch, Fit::Crop, Fit::Letterbox] {
            check_place(fit, [320, 160], [64, 32], ([0, 0, 320, 160], [64, 32]));
        }
    }

    #[test]
    fn the_narrowest_region_keeps_a_pixel() {
        check_place(Fit::Letterbox, [10_000, 1], [32, 32], ([0, 0, 10_000, 1], [32, 1]));
        check_place(Fit::Letterbox, [1, 10_000], [32, 32], ([0, 0, 1, 10_000], [1, 32]));
        check_place(Fit::Crop, [10_000, 1], [32, 64], ([4999, 0, 1, 1], [32, 64]));
        check_place(Fit::Crop, [1, 10_000], [64, 1], ([0, 4999, 1, 1], [64, 1]));
    }

    #[test]
    fn a_region_is_fitted_and_not_its_frame() {
        let roi = Some("50%,0%,50%,100%".parse().unwrap());
        let found = Framing { roi, fit: Fit::Crop }.place([200, 50], [10, 10]).unwrap();
        assert_eq!(found, Placement { region: [125, 0, 50, 50], size: [10, 10] });
        assert!(
            Framing { roi: Some("0,0,9,9".parse().unwrap()), fit: Fit::Crop }.place([8, 8], [4, 4]).is_err()
        );
    }
}
