//! Parity: the comparison of an engine with the trained network. Export is refused without parity.

mod outputs;
mod reference;

use headwater_inference::sections::SectionError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use reference::Reference;

/// Tolerance of floats, relative for numbers above 1: engines sum in another order.
pub const FLOAT_TOLERANCE: f32 = 1e-4;
/// Tolerance of bits: a bit may differ if the trained input of the sign is closer to 0 than this.
pub const SIGN_TOLERANCE: f32 = 1e-5;
/// Samples compared at export, and per chunk in a larger comparison.
pub const COMPARED_SAMPLES: usize = 256;

/// Comparison of an engine with the trained network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Name of the engine.
    pub engine: String,
    /// Samples compared.
    pub samples: usize,
    /// Largest difference of a score, a logit or a float feature.
    pub largest_difference: f32,
    /// Feature bits compared.
    pub bits: u64,
    /// Bits that differ, each with an input of the sign within [`SIGN_TOLERANCE`] of 0.
    pub bits_at_threshold: u64,
    /// Coded scores that have another level, each within [`FLOAT_TOLERANCE`] of the middle between two levels.
    #[serde(default)]
    pub scores_between_levels: u64,
    /// Views for which engine and trained network differ in the class with the highest score.
    #[serde(default)]
    pub other_class: u64,
}

/// An engine that does not agree with the trained network.
#[derive(Debug, Error)]
pub enum ParityError {
    /// The engine refuses or fails, or the bundle lacks a section.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// A float differs, or a bit whose trained input of the sign is not within [`SIGN_TOLERANCE`] of 0.
    #[error("parity, {0}")]
    Differs(String),
}

impl Parity {
    /// This comparison together with the comparison of another part of the network on the same samples.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self { samples: self.samples, ..self.and(other) }
    }

    /// This comparison together with the comparison of the same engine on other samples.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            engine: self.engine,
            samples: self.samples + other.samples,
            largest_difference: self.largest_difference.max(other.largest_difference),
            bits: self.bits + other.bits,
            bits_at_threshold: self.bits_at_threshold + other.bits_at_threshold,
            scores_between_levels: self.scores_between_levels + other.scores_between_levels,
            other_class: self.other_class + other.other_class,
        }
    }

    /// The error for a float of `scores`, `features` or `logits`; `at` names section and sample.
    fn differs(&self, output: &str, at: &str, expected: f32, found: f32) -> ParityError {
        ParityError::Differs(format!(
            "{output} of {at}: expected {expected} as trained, found {found} in engine {}",
            self.engine
        ))
    }

    fn compare_floats(
        &mut self,
        output: &str,
        at: &str,
        expected: &[f32],
        found: &[f32],
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let difference = (expected - found).abs() / expected.abs().max(1.0);
            if difference.is_nan() || difference > FLOAT_TOLERANCE {
                return Err(self.differs(output, at, expected, found));
            }
            self.largest_difference = self.largest_difference.max(difference);
        }
        Ok(())
    }

    /// Compares coded scores of an engine with the scores of the trained head before rounding to levels.
    fn compare_levels(
        &mut self,
        at: &str,
        expected: &[f32],
        found: &[f32],
        round: impl Fn(f32) -> f32,
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let tolerance = FLOAT_TOLERANCE * expected.abs().max(1.0);
            let rounded = round(expected);
            // Levels are exact: equal levels are equal floats.
            if rounded == found {
                continue;
            }
            if ![-tolerance, tolerance].iter().any(|off| round(expected + off) == found) {
                return Err(self.differs("scores", at, rounded, found));
            }
            self.scores_between_levels += 1;
        }
        Ok(())
    }

    fn compare_bits(&mut self, at: &str, before_sign: &[f32], packed: &[u8]) -> Result<(), ParityError> {
        self.bits += before_sign.len() as u64;
        for (bit, &expected) in before_sign.iter().enumerate() {
            if (expected >= 0.0) != (packed[bit / 8] >> (bit % 8) & 1 == 1) {
                if expected.abs() >= SIGN_TOLERANCE {
                    return Err(ParityError::Differs(format!(
                        "features of {at}, bit {bit}: expected {expected:+} in front of the sign as trained, engine {} has the other sign",
                        self.engine
                    )));
                }
                self.bits_at_threshold += 1;
            }
        }
        Ok(())
    }
}
