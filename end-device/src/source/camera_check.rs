//! Check for a camera that is frozen, dark or covered. Its frames would give the same answer for ever, so they answer no sample.
//!
//! | the latest frames | the camera |
//! | --- | --- |
//! | are equal, byte for byte | is frozen: the noise of a sensor makes frames of a still scene differ |
//! | have views without contrast | is dark or covered |
//!
//! The camera stays in this state until a frame differs or has contrast, or until the camera is away (ten faults in a row without a frame).
//! The counts of equal frames and flat views are kept meanwhile: a camera that comes back with the same frame is frozen at once.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

use headwater_samples::View;
use headwater_samples::roi::Fit;
use headwater_transport::LogLimit;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::faults::{FrameFault, Missing};
use crate::report::SharedReport;
use crate::settings::SourceSettings;

/// Largest number of log lines in a minute about a camera that is frozen and not frozen in turns.
const MAX_LINES: u32 = 10;

/// Check of a camera's frames; clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct CameraCheck {
    /// Number of frames in a row after which the camera is frozen, dark or covered.
    frames: u64,
    /// Standard deviation of a view, in levels of 255, below which the view has no contrast.
    min_deviation: f64,
    /// True when views have a black border, which does not count as contrast.
    in_letterbox: bool,
    runs: Arc<Mutex<Runs>>,
}

#[derive(Debug)]
struct Runs {
    latest: Option<u64>,
    /// Number of the latest frames in a row that are equal.
    equal: u64,
    /// Number of the latest views in a row without contrast.
    flat: u64,
    log: LogLimit,
}

impl CameraCheck {
    /// The check of the settings; `None` if `frozen_frames` is 0.
    pub(crate) fn of(settings: &SourceSettings, fit: Fit) -> Option<Self> {
        (settings.frozen_frames > 0).then(|| {
            let runs = Runs { latest: None, equal: 0, flat: 0, log: LogLimit::new(MAX_LINES) };
            let min_deviation = settings.frozen_deviation as f64;
            let (frames, in_letterbox) = (settings.frozen_frames, fit == Fit::Letterbox);
            Self { frames, min_deviation, in_letterbox, runs: Arc::new(Mutex::new(runs)) }
        })
    }

    /// Returns the view, or the fault of a frozen, dark or covered camera; `frame` is the hash of the frame's bytes.
    pub(super) fn pass(&self, frame: u64, view: View, report: &SharedReport) -> Result<View, Missing> {
        let mut runs = self.runs.lock();
        runs.equal = if runs.latest.replace(frame) == Some(frame) { runs.equal + 1 } else { 1 };
        runs.flat = if deviation(&view, self.in_letterbox) < self.min_deviation { runs.flat + 1 } else { 0 };
        let Self { frames, min_deviation, .. } = self;
        let frozen = if runs.equal >= *frames {
            Some(format!("the latest {frames} frames are equal: the camera is frozen"))
        } else if runs.flat >= *frames {
            Some(format!(
                "the standard deviation of the latest {frames} views is below {min_deviation}: the camera is dark or covered"
            ))
        } else {
            None
        };
        if report.set_frozen(frozen.clone())
            && let Some(not_logged) = runs.log.take(Instant::now())
        {
            let device = report.device();
            match &frozen {
                Some(reason) => warn!(device, reason, not_logged, "frames answer nothing from now on"),
                None => info!(device, not_logged, "frames answer again"),
            }
        }
        frozen.map_or(Ok(view), |reason| Err((FrameFault::FROZEN, reason)))
    }
}

/// Hash of a frame's bytes or of a path.
pub(super) fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Standard deviation of the channel that varies most, in levels of 255: a covered camera may see one colour. In a letterbox black pixels do
/// not count.
fn deviation(view: &View, in_letterbox: bool) -> f64 {
    let area = view.shape.height * view.shape.width;
    let of_channel = |pixels: &[u8]| {
        let black = pixels.iter().filter(|pixel| in_letterbox && **pixel == 0).count();
        // Black pixels add nothing to the sums.
        let count = (pixels.len() - black).max(1) as f64;
        let sum: u64 = pixels.iter().map(|pixel| u64::from(*pixel)).sum();
        let squares: u64 = pixels.iter().map(|pixel| u64::from(*pixel).pow(2)).sum();
        let mean = sum as f64 / count;
        (squares as f64 / count - mean * mean).max(0.0).sqrt()
    };
    view.pixels.chunks_exact(area.max(1)).map(of_channel).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use headwater_samples::Shape;

    use super::*;

    const FRAMES: u64 = 3;

    struct Camera {
        check: CameraCheck,
        report: SharedReport,
    }

    impl Camera {
        fn new() -> Self {
            let mut settings = headwater_settings::defaults::<SourceSettings>();
            settings.frozen_frames = FRAMES;
            Self { check: CameraCheck::of(&settings, Fit::Stretch).unwrap(), report: SharedReport::default() }
        }

        fn answers(&self, pixels: [u8; 6]) -> bool {
            let view = View::new(Shape::rgb(1, 2), pixels.to_vec());
            let is_passed = self.check.pass(hash_of(&pixels), view, &self.report).is_ok();
            assert_eq!(is_passed, self.report.frozen().is_none());
            is_passed
        }
    }

    #[test]
    fn equal_frames_answer_nothing_until_one_differs() {
        let camera = Camera::new();
        let frame = [0, 100, 0, 100, 0, 100];
        assert_eq!([0; 4].map(|_| camera.answers(frame)), [true, true, false, false]);
        assert!(camera.report.frozen().unwrap().contains("3 frames are equal"));
        assert!(camera.answers([1, 100, 0, 100, 0, 100]) && camera.answers(frame));
    }

    #[test]
    fn a_still_scene_with_the_noise_of_a_sensor_is_not_frozen() {
        let camera = Camera::new();
        assert!((0..50).all(|at| camera.answers([0, 100 + at % 2, 0, 100, 0, 100])));
    }

    #[test]
    fn the_border_of_a_letterbox_is_no_contrast() {
        let boxed = |inner: [u8; 2]| {
            View::new(Shape { channels: 1, height: 3, width: 2 }, [[0; 2], inner, [0; 2]].concat())
        };
        assert!(deviation(&boxed([90, 91]), false) > 40.0 && deviation(&boxed([90, 91]), true) < 1.0);
        assert!(deviation(&boxed([30, 90]), true) > 20.0);
        assert!(deviation(&boxed([0, 0]), true).abs() < 1e-9);
    }

    #[test]
    fn views_without_contrast_answer_nothing_whatever_their_colour() {
        for [red, green, blue] in [[0, 0, 0], [200, 90, 10]] {
            let camera = Camera::new();
            let dark = |noise: u8| [red + noise, red, green, green + noise, blue, blue];
            assert_eq!([0, 1, 2, 3].map(|at| camera.answers(dark(at % 3))), [true, true, false, false]);
            assert!(camera.report.frozen().unwrap().contains("dark or covered"));
            assert!(camera.answers([red, red + 4, green, green, blue, blue]));
        }
    }
}
