//! The sections as the tiers use them: what a device runs, the local exit, what the cloud runs.

use headwater_kernels::packed_len;
use headwater_protocol::Slot;
use thiserror::Error;

use crate::aggregate::{self, AggregateError};
use crate::bundle::{Bundle, BundleError};
use crate::engine::{Engine, EngineError, Input, Outputs, Section};
use crate::manifest::{Aggregation, FeatureMap, SectionManifest};

/// A section that cannot be made ready, or an input that does not fit it.
#[derive(Debug, Error)]
pub enum SectionError {
    /// The bundle does not have it.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The engine refuses or fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Nobody is present, or a buffer has the wrong length.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// A sample of a batch in which no slot is present; the class prior answers those.
    #[error("sample {row} of the batch: expected at least one present slot, found none")]
    NoView {
        /// Position in the batch.
        row: usize,
    },
    /// An input of the wrong length.
    #[error("{what} of {batch} samples: expected {expected}, found {found}")]
    Length {
        /// Which input.
        what: &'static str,
        /// Samples.
        batch: usize,
        /// Elements expected.
        expected: usize,
        /// Elements found.
        found: usize,
    },
    /// Concatenation needs the section that follows it.
    #[error(
        "local exit: aggregation cc needs the section `local` of a bundle; without one only mp and ap work"
    )]
    NeedsSection,
}

/// What an end device runs: view in, scores and features out.
pub struct DeviceSection {
    section: Box<dyn Section>,
    outputs: Outputs,
    classes: usize,
    feature_bytes: usize,
}

/// What a device section gives for one view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceOutput {
    /// Scores, one a class.
    pub scores: Vec<f32>,
    /// Feature bits, packed.
    pub features: Vec<u8>,
}

impl DeviceSection {
    /// The section of a slot.
    ///
    /// # Errors
    /// When the bundle does not hold it or the engine refuses it.
    pub fn load(bundle: &Bundle, slot: Slot, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        Ok(Self {
            section: load(bundle, &SectionManifest::device_name(slot), engine)?,
            outputs: Outputs::new(),
            classes: manifest.classes(),
            feature_bytes: manifest.features.packed_bytes(),
        })
    }

    /// Runs `batch` views, `[batch, channels, height, width]` pixels.
    ///
    /// # Errors
    /// [`EngineError::Input`] when `views` has another length.
    pub fn run(&mut self, views: &[u8], batch: usize) -> Result<Vec<DeviceOutput>, SectionError> {
        self.section.run(batch, Input::Pixels(views), &mut self.outputs)?;
        // The manifest check puts scores first, features second.
        let scores = self.outputs.floats(0).chunks_exact(self.classes);
        let features = self.outputs.bits(1).chunks_exact(self.feature_bytes);
        let pairs = scores.zip(features);
        Ok(pairs.map(|(s, f)| DeviceOutput { scores: s.to_vec(), features: f.to_vec() }).collect())
    }
}

/// The exit over the devices' scores: aggregation and, for concatenation, the section that follows it.
pub struct LocalExit {
    join: Join,
    slots: usize,
    classes: usize,
}

enum Join {
    Max,
    Mean,
    Section { section: Box<dyn Section>, input: Vec<f32>, outputs: Outputs },
}

impl LocalExit {
    /// The local exit of a network.
    ///
    /// # Errors
    /// When concatenation asks for the section `local` and the bundle does not hold it or the engine refuses it.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        let (slots, classes) = (usize::from(manifest.slots), manifest.classes());
        match manifest.local_aggregation {
            Aggregation::Mp | Aggregation::Ap => Self::masked(manifest.local_aggregation, slots, classes),
            Aggregation::Cc => {
                let section = load(bundle, "local", engine)?;
                let input = vec![0.0; slots * classes + slots];
                let join = Join::Section { section, input, outputs: Outputs::new() };
                Ok(Self { join, slots, classes })
            }
        }
    }

    /// A local exit that needs no section: maximum or mean over the present slots.
    ///
    /// # Errors
    /// [`SectionError::NeedsSection`] for concatenation.
    pub fn masked(aggregation: Aggregation, slots: usize, classes: usize) -> Result<Self, SectionError> {
        let join = match aggregation {
            Aggregation::Mp => Join::Max,
            Aggregation::Ap => Join::Mean,
            Aggregation::Cc => return Err(SectionError::NeedsSection),
        };
        Ok(Self { join, slots, classes })
    }

    /// Logits of the local exit for one sample. Allocates nothing for maximum and mean.
    ///
    /// # Shapes
    /// - `scores`: `[slots, classes]`; rows of absent slots are not looked at
    /// - `present`: bit `i` set where slot `i` is present
    /// - `out`: `[classes]`
    ///
    /// # Errors
    /// [`AggregateError::NoView`] for an empty mask, [`AggregateError::Length`] for a buffer that does not fit.
    pub fn scores(&mut self, scores: &[f32], present: u64, out: &mut [f32]) -> Result<(), SectionError> {
        check_length("scores", 1, self.slots * self.classes, scores.len())?;
        check_length("logits", 1, self.classes, out.len())?;
        match &mut self.join {
            Join::Max => aggregate::max(scores, present, out)?,
            Join::Mean => aggregate::mean(scores, present, out)?,
            Join::Section { section, input, outputs } => {
                aggregate::concat(scores, self.slots, present, input)?;
                if input[scores.len()..].iter().all(|&mask| mask == 0.0) {
                    return Err(AggregateError::NoView.into());
                }
                section.run(1, Input::Floats(input), outputs)?;
                out.copy_from_slice(outputs.floats(0));
            }
        }
        Ok(())
    }
}

/// What the cloud runs: the devices' feature bits in, logits out.
pub struct CloudSection {
    section: Box<dyn Section>,
    aggregation: Aggregation,
    slots: usize,
    features: FeatureMap,
    input_len: usize,
    /// Aggregated maps of a batch, reused.
    input: Vec<f32>,
    outputs: Outputs,
}

impl CloudSection {
    /// The cloud section of a network.
    ///
    /// # Errors
    /// When the bundle does not hold it or the engine refuses it.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        let input_len = manifest.section("cloud").map_or(0, SectionManifest::input_len);
        Ok(Self {
            section: load(bundle, "cloud", engine)?,
            aggregation: manifest.cloud_aggregation,
            slots: usize::from(manifest.slots),
            features: manifest.features,
            input_len,
            input: Vec::new(),
            outputs: Outputs::new(),
        })
    }

    /// Logits `[batch, classes]` of a batch.
    ///
    /// # Shapes
    /// - `features`: `[batch, slots, ceil(bits / 8)]`; maps of absent slots are not looked at
    /// - `presence`: `[batch, slots]`
    ///
    /// # Errors
    /// [`SectionError::NoView`] for a sample with nobody present, [`SectionError::Length`] for an input that does not fit.
    pub fn run(
        &mut self,
        batch: usize,
        features: &[u8],
        presence: &[bool],
    ) -> Result<Vec<f32>, SectionError> {
        let bytes = self.features.packed_bytes();
        debug_assert_eq!(bytes, packed_len(self.features.bits()));
        let of_batch = |elements: usize| batch.saturating_mul(self.slots).saturating_mul(elements);
        check_length("features", batch, of_batch(bytes), features.len())?;
        check_length("presence", batch, of_batch(1), presence.len())?;

        self.input.resize(batch * self.input_len, 0.0);
        let maps = features.chunks_exact(self.slots * bytes);
        let rows =
            maps.zip(presence.chunks_exact(self.slots)).zip(self.input.chunks_exact_mut(self.input_len));
        for (row, ((maps, presence), input)) in rows.enumerate() {
            let present = aggregate::mask_from(presence);
            if present == 0 {
                return Err(SectionError::NoView { row });
            }
            match self.aggregation {
                Aggregation::Mp => aggregate::max_of_bits(maps, present, input)?,
                Aggregation::Ap => aggregate::mean_of_bits(maps, present, input)?,
                Aggregation::Cc => {
                    let plane = self.features.bits_per_channel();
                    aggregate::concat_bits(maps, self.slots, plane, present, input)?;
                }
            }
        }
        self.section.run(batch, Input::Floats(&self.input), &mut self.outputs)?;
        Ok(self.outputs.floats(0).to_vec())
    }
}

fn load(bundle: &Bundle, name: &str, engine: &dyn Engine) -> Result<Box<dyn Section>, SectionError> {
    let section = bundle.section(name)?;
    Ok(engine.load(section.manifest, &section.onnx)?)
}

fn check_length(what: &'static str, batch: usize, expected: usize, found: usize) -> Result<(), SectionError> {
    if expected == found { Ok(()) } else { Err(SectionError::Length { what, batch, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TractEngine;
    use crate::testing::TinyNetwork;

    fn bundle(network: &TinyNetwork) -> Bundle {
        Bundle::from_bytes(&network.bundle()).unwrap()
    }

    #[test]
    fn a_device_gives_scores_and_features_for_each_view() {
        let network = TinyNetwork::default();
        let bundle = bundle(&network);
        let mut device = DeviceSection::load(&bundle, Slot::new(2).unwrap(), &TractEngine::new()).unwrap();
        let views = [network.view_of(1), network.view_of(2)];
        let outputs = device.run(&views.concat(), 2).unwrap();
        assert_eq!(outputs.len(), 2);
        for (output, view) in outputs.iter().zip(&views) {
            assert_eq!(
                (output.scores.len(), output.features.len()),
                (4, bundle.manifest().features.packed_bytes())
            );
            assert_eq!(device.run(view, 1).unwrap()[0].features, output.features);
        }
        assert_ne!(outputs[0], outputs[1]);
        assert!(device.run(&views[0][1..], 1).is_err());
    }

    #[test]
    fn slots_have_weights_of_their_own() {
        let network = TinyNetwork::default();
        let bundle = bundle(&network);
        let view = network.view_of(1);
        let outputs: Vec<_> = Slot::first(2)
            .map(|slot| {
                DeviceSection::load(&bundle, slot, &TractEngine::new()).unwrap().run(&view, 1).unwrap()
            })
            .collect();
        assert_ne!(outputs[0], outputs[1]);
    }

    #[test]
    fn the_local_exit_joins_those_present() {
        let scores = [1.0, 5.0, 9.0, 9.0, 3.0, 1.0];
        let mut out = [0.0; 2];
        LocalExit::masked(Aggregation::Mp, 3, 2).unwrap().scores(&scores, 0b101, &mut out).unwrap();
        assert_eq!(out, [3.0, 5.0]);
        LocalExit::masked(Aggregation::Ap, 3, 2).unwrap().scores(&scores, 0b101, &mut out).unwrap();
        assert_eq!(out, [2.0, 3.0]);
        assert!(matches!(LocalExit::masked(Aggregation::Cc, 3, 2), Err(SectionError::NeedsSection)));
    }

    #[test]
    fn a_local_exit_with_a_section_does_not_look_at_absent_scores() {
        let network = TinyNetwork { local: Aggregation::Cc, ..TinyNetwork::default() };
        let mut local = LocalExit::load(&bundle(&network), &TractEngine::new()).unwrap();
        let (mut clean, mut stale) = ([0.0; 4], [0.0; 4]);
        let mut scores = [0.5; 12];
        scores[4..8].fill(0.0);
        local.scores(&scores, 0b101, &mut clean).unwrap();
        scores[4..8].fill(77.0);
        local.scores(&scores, 0b101, &mut stale).unwrap();
        assert_eq!(clean, stale);
        assert!(clean.iter().any(|&logit| logit != 0.0));
    }

    #[test]
    fn nobody_present_is_said_whatever_the_aggregation() {
        for aggregation in [Aggregation::Mp, Aggregation::Ap, Aggregation::Cc] {
            let network = TinyNetwork { local: aggregation, ..TinyNetwork::default() };
            let mut local = LocalExit::load(&bundle(&network), &TractEngine::new()).unwrap();
            // Slot 3 does not exist.
            let error = local.scores(&[0.0; 12], 0b1000, &mut [0.0; 4]).unwrap_err();
            assert!(matches!(error, SectionError::Aggregate(AggregateError::NoView)), "{error}");
            assert!(local.scores(&[0.0; 11], 1, &mut [0.0; 4]).is_err());
            assert!(local.scores(&[0.0; 12], 1, &mut [0.0; 3]).is_err());
        }
    }

    #[test]
    fn the_cloud_does_not_look_at_absent_maps_and_names_a_sample_without_any() {
        for aggregation in [Aggregation::Mp, Aggregation::Ap, Aggregation::Cc] {
            let network = TinyNetwork { cloud: aggregation, ..TinyNetwork::default() };
            let bundle = bundle(&network);
            let mut cloud = CloudSection::load(&bundle, &TractEngine::new()).unwrap();
            let bytes = bundle.manifest().features.packed_bytes();
            let mut features = vec![0x5a; 3 * bytes];
            let clean = cloud.run(1, &features, &[true, false, true]).unwrap();
            features[bytes..2 * bytes].fill(0xff);
            assert_eq!(cloud.run(1, &features, &[true, false, true]).unwrap(), clean);
            assert_eq!(clean.len(), 4);

            let two = [features.clone(), features.clone()].concat();
            let error = cloud.run(2, &two, &[true, false, true, false, false, false]).unwrap_err();
            assert!(matches!(error, SectionError::NoView { row: 1 }), "{error}");
            let error = cloud.run(2, &features, &[true; 6]).unwrap_err().to_string();
            assert!(error.contains("features of 2 samples: expected"), "{error}");
            assert!(cloud.run(1, &features, &[true; 2]).is_err());
            assert!(cloud.run(usize::MAX, &features, &[true; 3]).is_err());
            assert!(cloud.run(0, &[], &[]).unwrap().is_empty());
        }
    }

    #[test]
    fn a_section_the_bundle_does_not_hold_is_named() {
        let whole = bundle(&TinyNetwork::default());
        let part = Bundle::from_bytes(&whole.only(&["device-0"]).unwrap()).unwrap();
        let error = CloudSection::load(&part, &TractEngine::new()).err().unwrap().to_string();
        assert!(error.contains("section cloud is not in this bundle"), "{error}");
    }
}
