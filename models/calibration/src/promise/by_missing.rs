//! Promises by number of slots without a view: samples with different numbers of such slots are tested separately.
//!
//! ```text
//! slots without a view     0          1          2          more
//! path                     own        own        common     -         own if validation has enough samples
//! calibration samples      n0         n1         n2         -
//! certificate              thresholds thresholds none       none      none: every sample goes to the last exit
//! ```
//! Each certificate alone holds at the confidence of the target: the calibration samples with one number of slots without a view are
//! a random draw of such samples. All certificates hold together if each is tested at its share of the risk.

use headwater_inference::policy::MissingCount;

use super::outcomes::{Outcomes, Thresholds};
use super::path::{Step, path};
use super::{CalibrationPart, PromiseError, Target};

/// Least number of validation samples with the same number of slots without a view for which that number has a path of its own.
pub const LEAST_FOR_PATH: usize = 300;

/// Numbers of slots without a view that get a certificate: 0 to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// Slots of the network.
    pub slots: u32,
    /// Largest number of slots without a view that gets a certificate; below `slots`.
    pub most: u32,
}

/// Path of each number of slots without a view, fixed on the validation part.
#[derive(Clone, Debug, PartialEq)]
pub struct Paths {
    slots: u32,
    /// Element `m` is for `m` slots without a view.
    by_missing: Vec<Vec<Step>>,
}

/// Result of the calibration samples with one number of slots without a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// Number of slots without a view, and the number of calibration samples that have it.
    pub count: MissingCount,
    /// The thresholds for which the target is promised, or the reason why nothing is promised.
    pub result: Certified,
}

/// Result of the tests of one number of slots without a view.
#[derive(Clone, Debug, PartialEq)]
pub enum Certified {
    /// The target is promised for these thresholds, one for each exit before the last one.
    Promised(Thresholds),
    /// Too few samples or groups to show the target, even without a loss.
    TooFew {
        /// Least number of independent samples or groups.
        least: u64,
    },
    /// The strictest thresholds of the path fail their test.
    LosesTooMuch,
}

impl Paths {
    /// The paths over a validation part; `common` is the path over all samples of the part.
    pub fn new(common: &[Step], validation: &Outcomes, target: &Target, range: MissingRange) -> Self {
        let of_count = |missing: u32| {
            let samples = validation.with_present(range.slots - missing);
            let own = (samples.len() >= LEAST_FOR_PATH)
                .then(|| path(&validation.subset(&samples), target.bound))
                .filter(|path| !path.is_empty());
            own.unwrap_or_else(|| common.to_vec())
        };
        Self { slots: range.slots, by_missing: (0..=range.most).map(of_count).collect() }
    }

    /// One certificate for each number of slots without a view, from 0; the part must have one mask per sample.
    ///
    /// # Errors
    /// [`PromiseError`] when the part allows no promise for any number. Too few samples of one number give [`Certified::TooFew`].
    pub fn certify(
        &self,
        target: &Target,
        part: &CalibrationPart,
        seed: u64,
    ) -> Result<Vec<Certificate>, PromiseError> {
        let [outcomes] = part.masks.as_slice() else {
            return Err(PromiseError::SeveralMasks(part.masks.len()));
        };
        let certificate = |(path, missing): (&Vec<Step>, u32)| {
            let part = part.subset(&outcomes.with_present(self.slots - missing));
            let samples = part.masks.first().map_or(0, Outcomes::len) as u32;
            let result = match target.last_step(path, &part, seed) {
                Ok(Some(step)) => Certified::Promised(path[step].thresholds.clone()),
                Ok(None) => Certified::LosesTooMuch,
                Err(PromiseError::TooFew { least, .. }) => Certified::TooFew { least },
                Err(
                    error @ (PromiseError::GroupedLosses
                    | PromiseError::SeveralMasks(_)
                    | PromiseError::GroupTooLarge { .. }),
                ) => return Err(error),
            };
            Ok(Certificate { count: MissingCount { missing, samples, groups: part.units.groups() }, result })
        };
        self.by_missing.iter().zip(0..).map(certificate).collect()
    }
}
