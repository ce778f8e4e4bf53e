//! The target of a promise on the command line.

use clap::ValueEnum;
use headwater_calibration::promise::Target;
use headwater_calibration::tuning::choice::check_loss;
use headwater_inference::policy::Bound;

use super::Failure;

/// Bounds on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BoundName {
    Net,
    Losses,
}

/// Arguments that make a target.
pub(crate) struct PromiseTarget {
    pub(crate) bound: BoundName,
    pub(crate) loss_points: f64,
    pub(crate) confidence: f64,
    /// Promises that shall hold together.
    pub(crate) simultaneous: u32,
}

impl PromiseTarget {
    /// The target; the first argument that is out of range is named.
    pub(crate) fn check(&self) -> Result<Target, Failure> {
        let Self { bound, loss_points, confidence, simultaneous } = *self;
        let mistake = |text: String| Err(Failure::usage(anyhow::anyhow!(text)));
        check_loss(loss_points).map_err(Failure::usage)?;
        if !(0.5..1.0).contains(&confidence) {
            return mistake(format!("--confidence: expected 0.5 to below 1, found {confidence}"));
        }
        if simultaneous == 0 {
            return mistake("--simultaneous: expected 1 or more, found 0".into());
        }
        let confidence = confidence_of_each(confidence, simultaneous);
        Ok(Target { bound: bound.bound(), loss: loss_points / 100.0, confidence })
    }
}

/// Confidence of each of several promises that shall hold together.
pub(crate) fn confidence_of_each(confidence: f64, simultaneous: u32) -> f64 {
    1.0 - (1.0 - confidence) / f64::from(simultaneous)
}

impl BoundName {
    /// The bound.
    pub(crate) fn bound(self) -> Bound {
        match self {
            Self::Net => Bound::Net,
            Self::Losses => Bound::Losses,
        }
    }
}
