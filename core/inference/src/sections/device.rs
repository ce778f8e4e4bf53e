//! The section of an end device.

use headwater_protocol::Slot;

use super::{ScoreCoder, SectionError, TierOutput, check_length, load, tier_outputs};
use crate::bundle::{Bundle, BundleError};
use crate::engine::{Engine, Input, Outputs, Section};
use crate::manifest::{FeatureMap, SectionManifest};

/// The section of an end device: view in, scores and features out.
///
/// In configuration (a) devices have no section: the view itself takes the place of the features, and there are no scores.
pub struct DeviceSection {
    section: Option<Box<dyn Section>>,
    outputs: Outputs,
    classes: usize,
    features: FeatureMap,
    scores: ScoreCoder,
}

impl DeviceSection {
    /// The section of a slot.
    ///
    /// # Errors
    /// When the bundle lacks the section, or the engine refuses the section.
    pub fn load(bundle: &Bundle, slot: Slot, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        manifest.check_runs().map_err(BundleError::from)?;
        let has_section = manifest.configuration.has_device_section();
        let load = || load(bundle, &SectionManifest::device_name(slot), engine);
        Ok(Self {
            section: has_section.then(load).transpose()?,
            outputs: Outputs::default(),
            classes: manifest.classes(),
            features: manifest.features,
            scores: ScoreCoder::of(manifest, slot),
        })
    }

    /// True when a run of one view takes less time than handing the view to another thread.
    pub fn is_brief(&self) -> bool {
        self.section.as_ref().is_none_or(|section| section.is_brief())
    }

    /// Runs `batch` views, `[batch, channels, height, width]` pixels. Scores are rounded to the levels that messages carry.
    ///
    /// # Errors
    /// [`EngineError::Input`](crate::engine::EngineError::Input) or [`SectionError::Length`] when `views` has another length.
    pub fn run(&mut self, views: &[u8], batch: usize) -> Result<Vec<TierOutput>, SectionError> {
        let Some(section) = &mut self.section else {
            let bytes = self.features.packed_bytes();
            check_length("views", batch, batch.saturating_mul(bytes), views.len())?;
            let output = |view: &[u8]| TierOutput { scores: Vec::new(), features: view.to_vec() };
            return Ok(views.chunks_exact(bytes).map(output).collect());
        };
        section.run(batch, Input::Pixels(views), &mut self.outputs)?;
        let mut outputs = tier_outputs(&self.outputs, self.classes, &self.features);
        outputs.iter_mut().for_each(|output| self.scores.round(&mut output.scores));
        Ok(outputs)
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
