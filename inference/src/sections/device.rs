//! What an end device runs.

use headwater_protocol::Slot;

use super::{SectionError, load};
use crate::bundle::Bundle;
use crate::engine::{Engine, Input, Outputs, Section};
use crate::manifest::SectionManifest;

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

    /// Whether a run of one view is over before it could have been handed to another thread and back.
    pub fn is_brief(&self) -> bool {
        self.section.is_brief()
    }

    /// Runs `batch` views, `[batch, channels, height, width]` pixels.
    ///
    /// # Errors
    /// [`EngineError::Input`](crate::engine::EngineError::Input) when `views` has another length.
    pub fn run(&mut self, views: &[u8], batch: usize) -> Result<Vec<DeviceOutput>, SectionError> {
        self.section.run(batch, Input::Pixels(views), &mut self.outputs)?;
        // The manifest check puts scores first, features second.
        let scores = self.outputs.floats(0).chunks_exact(self.classes);
        let features = self.outputs.bits(1).chunks_exact(self.feature_bytes);
        let pairs = scores.zip(features);
        Ok(pairs.map(|(s, f)| DeviceOutput { scores: s.to_vec(), features: f.to_vec() }).collect())
    }
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
}
