//! Parity: the comparison of an engine with the trained network. Export is refused without parity.

mod outputs;
mod reference;

use headwater_inference::sections::SectionError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::layers::{Layout, Parameter, ParameterKind};

pub use reference::Reference;

/// Tolerance of floats, relative for numbers above 1, in sections whose sums have at most [`SHORT_SUM`] summands: engines sum in another
/// order. In other sections the tolerance grows with the square root of the number of summands, as rounding does.
pub const FLOAT_TOLERANCE: f32 = 1e-4;
/// Largest fan-in, the number of summands of an output, at which [`FLOAT_TOLERANCE`] holds.
pub const SHORT_SUM: usize = 1024;
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
    /// Largest difference of a score, a logit or a float feature, relative for numbers above 1.
    pub largest_difference: f32,
    /// Feature bits compared.
    pub bits: u64,
    /// Bits that differ, each with an input of the sign within [`SIGN_TOLERANCE`] of 0; an unsent bit counts if its other sign explains the scores.
    pub bits_at_threshold: u64,
    /// Coded scores that have another level, each within the tolerance of floats of the middle between two levels.
    #[serde(default)]
    pub scores_between_levels: u64,
    /// Outputs of devices and edges in which engine and trained network differ in the class with the highest score.
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

/// Section and sample that are compared.
struct Place {
    /// Section and sample in words.
    name: String,
    /// Tolerance of the section's floats.
    tolerance: f32,
}

/// Tolerance of the floats of a section by the fan-in of its widest layer; `section` is the prefix of the names of its parameters.
fn tolerance(layout: &Layout, section: &str) -> f32 {
    let weights = layout.parameters.iter().filter(|parameter| {
        parameter.kind != ParameterKind::Offset
            && parameter.name.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
    });
    let fan_in = |weight: &Parameter| weight.shape.iter().skip(1).product::<usize>();
    let widest = weights.map(fan_in).max().unwrap_or_default();
    FLOAT_TOLERANCE * (widest as f32 / SHORT_SUM as f32).max(1.0).sqrt()
}

impl Parity {
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

    /// The error for a float of `scores`, `features` or `logits`.
    fn differs(&self, output: &str, at: &Place, expected: f32, found: f32) -> ParityError {
        ParityError::Differs(format!(
            "{output} of {}: expected {expected} as trained, found {found} in engine {}, more than {:.1e} times max(1, value) apart",
            at.name, self.engine, at.tolerance
        ))
    }

    fn compare_floats(
        &mut self,
        output: &str,
        at: &Place,
        expected: &[f32],
        found: &[f32],
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let difference = (expected - found).abs() / expected.abs().max(1.0);
            if difference.is_nan() || difference > at.tolerance {
                return Err(self.differs(output, at, expected, found));
            }
            self.largest_difference = self.largest_difference.max(difference);
        }
        Ok(())
    }

    /// Compares coded scores of an engine with the scores of the trained head before rounding to levels.
    fn compare_levels(
        &mut self,
        at: &Place,
        expected: &[f32],
        found: &[f32],
        round: impl Fn(f32) -> f32,
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let tolerance = at.tolerance * expected.abs().max(1.0);
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

    fn compare_bits(&mut self, at: &Place, before_sign: &[f32], packed: &[u8]) -> Result<(), ParityError> {
        self.bits += before_sign.len() as u64;
        for (bit, &expected) in before_sign.iter().enumerate() {
            if (expected >= 0.0) != (packed[bit / 8] >> (bit % 8) & 1 == 1) {
                if expected.abs() >= SIGN_TOLERANCE {
                    return Err(ParityError::Differs(format!(
                        "features of {}, bit {bit}: expected {expected:+} in front of the sign as trained, engine {} has the other sign",
                        at.name, self.engine
                    )));
                }
                self.bits_at_threshold += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DDNN_C, network};

    #[test]
    fn the_tolerance_of_a_section_grows_with_the_root_of_its_widest_fan_in() {
        let layout = network(DDNN_C).layout;
        // The head of a device reads 8 x 16 x 16 bits, the last layer of the cloud 64 x 4 x 4 floats; a mean of scores has no layer.
        let found = ["device-0", "device-5", "cloud", "local"].map(|section| tolerance(&layout, section));
        assert_eq!(found, [2f32, 2.0, 1.0, 1.0].map(|growth| 1e-4 * growth.sqrt()));
        let wide = r#"{ kind = "fc", outputs = 9216, activation = "relu" }, { kind = "fc" },"#;
        let layout = network(&DDNN_C.replace(r#"{ kind = "fc" },"#, wide)).layout;
        assert_eq!(tolerance(&layout, "cloud"), 1e-4 * 3.0);
    }
}
