//! Limits of the scores that a section can give.
//!
//! The scores of a packed section are integers: for each class a dot product of ±1 with ±1, times a factor, plus an offset. The limits
//! are computed from these numbers. Other sections have the limits that the export recorded in `network.json`.

use headwater_kernels::{CodePath, OwnedSection, PackedError};
use thiserror::Error;

use crate::bundle::Bundle;

/// Largest distance of a valid score beyond its limit: absolute for limits up to 1, relative above. Float engines round, and the packed form
/// rounds the batch norm of the trained head; export allows 1e-4 between the two, and more only for sums of over 1,024 terms.
pub const LIMIT_TOLERANCE: f32 = 1e-3;

/// Least and largest score of each class that one section can give.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreLimits {
    /// Least and largest score of each class.
    classes: Vec<[f32; 2]>,
}

/// A score that the section cannot give.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("score of class {class}: expected {least} to {largest}, which the section can give, found {found}")]
pub struct OutsideLimits {
    /// Index of the class.
    pub class: usize,
    /// Least score of the class.
    pub least: f32,
    /// Largest score of the class.
    pub largest: f32,
    /// The score.
    pub found: f32,
}

impl ScoreLimits {
    /// Limits of a section of a bundle: the lowest and highest level if scores are sent as levels, else computed from the packed form, else
    /// as recorded at export. `None` if the bundle has none of these.
    pub fn of_section(bundle: &Bundle, name: &str) -> Option<Self> {
        let manifest = bundle.manifest();
        let slot = manifest.section(name).and_then(|section| section.slot);
        if let (Some(count), Some(slot)) = (manifest.scores.levels(), slot) {
            let levels = manifest.score_levels.get(slot.index())?;
            let limits = [levels.score(0), levels.score((count - 1) as u8)];
            return Some(Self::recorded(limits, manifest.classes()));
        }
        let packed = bundle.packed_section(name).and_then(|bytes| Self::of_packed(bytes).ok());
        let recorded = || Some(Self::recorded(*manifest.score_limits.get(name)?, manifest.classes()));
        packed.or_else(recorded)
    }

    /// The same limits, least and largest score, for every class.
    pub fn recorded(limits: [f32; 2], classes: usize) -> Self {
        Self { classes: vec![limits; classes] }
    }

    /// Limits of a packed section.
    ///
    /// # Errors
    /// [`PackedError`] naming the fault of the bytes.
    pub fn of_packed(bytes: &[u8]) -> Result<Self, PackedError> {
        let section = OwnedSection::load(bytes, CodePath::best())?;
        let scale = section.plan().scale();
        let limits = section.score_limits();
        let classes = limits.map(|scores| [*scores.start(), *scores.end()].map(|score| score as f32 * scale));
        Ok(Self { classes: classes.collect() })
    }

    /// Least and largest score of each class.
    pub fn classes(&self) -> &[[f32; 2]] {
        &self.classes
    }

    /// Checks the scores of one sample, `[classes]`.
    ///
    /// # Errors
    /// [`OutsideLimits`] for the first score beyond its limits by more than [`LIMIT_TOLERANCE`], or NaN.
    pub fn check(&self, scores: &[f32]) -> Result<(), OutsideLimits> {
        for (class, (&[least, largest], &found)) in self.classes.iter().zip(scores).enumerate() {
            let margin = |limit: f32| LIMIT_TOLERANCE * limit.abs().max(1.0);
            if !(least - margin(least)..=largest + margin(largest)).contains(&found) {
                return Err(OutsideLimits { class, least, largest, found });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_kernels::{Affine, BlockParts, Convp, HeadParts, InputKind, Map, Threshold, Window, write};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::TinyNetwork;

    const SCALE: f32 = 0.25;

    /// A section over 1x2x2 pixels. Feature `i` says whether pixel `i` is bright, so some input gives each feature map.
    fn packed(weights: &[bool], classes: &[Affine]) -> Vec<u8> {
        let window = Window { kernel: 1, stride: 1, pad: 0 };
        let input = Map { channels: 1, height: 2, width: 2 };
        let shape = Convp { input, filters: 1, conv: window, pool: window };
        let thresholds = [Threshold { from: 128, flipped: false }];
        let block = BlockParts { shape, weights: &[true], thresholds: &thresholds };
        let head = HeadParts { weights, classes, scale: SCALE };
        let mut bytes = Vec::new();
        write(InputKind::Pixels, &[block], &head, block.shape.filters, |part| bytes.extend_from_slice(part))
            .unwrap();
        bytes
    }

    fn affine() -> impl Strategy<Value = Affine> {
        (-1000i32..1000, -5000i32..5000).prop_map(|(factor, offset)| Affine { factor, offset })
    }

    proptest! {
        #[test]
        fn every_score_lies_within_the_limits_and_some_input_reaches_each(
            weights in prop::collection::vec(any::<bool>(), 12),
            classes in prop::collection::vec(affine(), 3),
        ) {
            let bytes = packed(&weights, &classes);
            let limits = ScoreLimits::of_packed(&bytes).unwrap();
            let mut section = OwnedSection::load(&bytes, CodePath::best()).unwrap();
            let mut reached = [[f32::INFINITY, f32::NEG_INFINITY]; 3];
            for bright in 0..16u8 {
                let pixels = [0, 1, 2, 3].map(|pixel| (bright >> pixel & 1) * 255);
                let scores: Vec<f32> = section.run(&pixels).0.iter().map(|&score| score as f32 * SCALE).collect();
                prop_assert_eq!(limits.check(&scores), Ok(()));
                for ([least, largest], score) in reached.iter_mut().zip(scores) {
                    (*least, *largest) = (least.min(score), largest.max(score));
                }
            }
            prop_assert_eq!(&reached[..], limits.classes());
        }
    }

    #[test]
    fn a_score_beyond_its_limits_is_named_with_its_class() {
        let classes = [Affine { factor: 2, offset: 0 }, Affine { factor: -2, offset: 4 }];
        let limits = ScoreLimits::of_packed(&packed(&[true; 8], &classes)).unwrap();
        assert_eq!(limits.classes(), [[-2.0, 2.0], [-1.0, 3.0]]);
        assert_eq!(limits.check(&[-2.0, 3.0]), Ok(()));
        // A float engine rounds, so a score slightly beyond its limits is accepted.
        assert_eq!(limits.check(&[2.0001, -1.0001]), Ok(()));
        for found in [1e30, 3.01, -1.01, f32::INFINITY] {
            let error = limits.check(&[0.0, found]).unwrap_err();
            assert_eq!(error, OutsideLimits { class: 1, least: -1.0, largest: 3.0, found });
        }
        assert!(limits.check(&[f32::NAN, 0.0]).is_err());
        let message = limits.check(&[0.0, 1e3]).unwrap_err().to_string();
        assert_eq!(message, "score of class 1: expected -1 to 3, which the section can give, found 1000");
    }

    #[test]
    fn a_section_without_a_packed_form_has_the_recorded_limits_or_none() {
        let network = TinyNetwork::default();
        let bundle = Bundle::from_bytes(&network.bundle()).unwrap();
        assert_eq!(ScoreLimits::of_section(&bundle, "device-0"), None);
        let mut manifest = network.manifest();
        manifest.score_limits.insert("device-0".into(), [-1.5, 2.0]);
        let bundle = Bundle::from_bytes(&network.with_manifest(manifest).finish().unwrap()).unwrap();
        let limits = ScoreLimits::of_section(&bundle, "device-0").unwrap();
        assert_eq!(limits.classes(), [[-1.5, 2.0]; 4]);
        assert_eq!(ScoreLimits::of_section(&bundle, "device-1"), None);
        assert_eq!(ScoreLimits::of_section(&bundle, "none"), None);
    }
}
