//! Export is refused unless the engine agrees with the trained network.

mod trained;

use headwater_inference::bundle::BundleError;
use headwater_inference::engine::EngineError;
use headwater_inference::sections::SectionError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use trained::Trained;

/// Floats may differ by so much, relative to numbers above 1: engines sum in another order.
pub const FLOAT_TOLERANCE: f32 = 1e-4;
/// Bits may differ where the number in front of the sign is closer to 0 than this.
pub const SIGN_TOLERANCE: f32 = 1e-5;
/// Samples compared at export, and at once in a comparison of more.
pub const SAMPLES: usize = 256;

/// How an engine compares with the trained network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Engine.
    pub engine: String,
    /// Samples compared.
    pub samples: usize,
    /// Largest difference of a score, a logit or a feature that travels as a float.
    pub largest_difference: f32,
    /// Feature bits compared.
    pub bits: u64,
    /// Bits that differ, each within [`SIGN_TOLERANCE`] of the threshold.
    pub bits_at_threshold: u64,
    /// Views for which another class has the highest score.
    #[serde(default)]
    pub other_class: u64,
}

/// An engine that does not agree with the trained network.
#[derive(Debug, Error)]
pub enum ParityError {
    /// The engine refuses or fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sections do not fit together.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The bundle does not hold a section.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A float differs.
    #[error(
        "parity, {what}, sample {sample}: expected {expected} as trained, found {found} in engine {engine}"
    )]
    Float {
        /// Section and output.
        what: String,
        /// Position in the samples compared.
        sample: usize,
        /// As trained.
        expected: f32,
        /// In the engine.
        found: f32,
        /// Engine.
        engine: &'static str,
    },
    /// A bit differs that is not at the threshold.
    #[error(
        "parity, features of {section}, sample {sample}, bit {bit}: expected {expected:+} in front of the sign as trained, \
         engine {engine} has the other sign"
    )]
    Bit {
        /// Section.
        section: String,
        /// Position in the samples compared.
        sample: usize,
        /// Position in the map.
        bit: usize,
        /// Number in front of the sign, as trained.
        expected: f32,
        /// Engine.
        engine: &'static str,
    },
}

impl Parity {
    /// This and what another part of the network gave on the same samples in the same engine.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self { samples: self.samples, ..self.and(other) }
    }

    /// This and what the same engine gave on other samples.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            engine: self.engine,
            samples: self.samples + other.samples,
            largest_difference: self.largest_difference.max(other.largest_difference),
            bits: self.bits + other.bits,
            bits_at_threshold: self.bits_at_threshold + other.bits_at_threshold,
            other_class: self.other_class + other.other_class,
        }
    }

    fn floats(
        &mut self,
        what: &str,
        sample: usize,
        expected: &[f32],
        found: &[f32],
        engine: &'static str,
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let difference = (expected - found).abs() / expected.abs().max(1.0);
            if difference.is_nan() || difference > FLOAT_TOLERANCE {
                return Err(ParityError::Float { what: what.to_owned(), sample, expected, found, engine });
            }
            self.largest_difference = self.largest_difference.max(difference);
        }
        Ok(())
    }

    fn compare_bits(
        &mut self,
        (section, sample): (&str, usize),
        before_sign: &[f32],
        packed: &[u8],
        engine: &'static str,
    ) -> Result<(), ParityError> {
        self.bits += before_sign.len() as u64;
        for (bit, expected) in before_sign.iter().enumerate() {
            if (*expected >= 0.0) != (packed[bit / 8] >> (bit % 8) & 1 == 1) {
                if expected.abs() >= SIGN_TOLERANCE {
                    let section = section.to_owned();
                    return Err(ParityError::Bit { section, sample, bit, expected: *expected, engine });
                }
                self.bits_at_threshold += 1;
            }
        }
        Ok(())
    }
}
