//! The sections over joined maps: the edges' and the cloud's.

use headwater_protocol::Slot;

use super::maps::MapJoin;
use super::{SectionError, TierOutput, load, tier_outputs};
use crate::bundle::Bundle;
use crate::engine::{Engine, Input, Outputs, Section};
use crate::manifest::{FeatureMap, SectionManifest};

/// The section of an edge: the maps of its slots in, scores and a map for the cloud out.
pub struct EdgeSection {
    section: Box<dyn Section>,
    join: MapJoin,
    slots: Vec<Slot>,
    classes: usize,
    features: FeatureMap,
    /// Joined maps of a batch, reused.
    input: Vec<f32>,
    outputs: Outputs,
}

impl EdgeSection {
    /// The section of an edge.
    ///
    /// # Errors
    /// [`SectionError::NoEdge`] when the network has no such edge; or the bundle lacks the section, or the engine refuses the
    /// section.
    pub fn load(bundle: &Bundle, edge: usize, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        let tier = manifest.edge.as_ref();
        let edges = tier.map_or(0, |tier| tier.groups.len());
        let (Some(tier), true) = (tier, edge < edges) else {
            return Err(SectionError::NoEdge { edge, edges });
        };
        let slots = tier.groups[edge].clone();
        Ok(Self {
            section: load(bundle, &SectionManifest::edge_name(edge), engine)?,
            join: MapJoin::new(tier.aggregation, slots.len(), manifest.features),
            slots,
            classes: manifest.classes(),
            features: tier.features,
            input: Vec::new(),
            outputs: Outputs::default(),
        })
    }

    /// Slots of the edge, in the order of their maps.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Runs a batch.
    ///
    /// # Shapes
    /// - `features`: `[batch, slots of this edge, bytes of a map]`; maps of absent slots are ignored
    /// - `presence`: `[batch, slots of this edge]`
    ///
    /// # Errors
    /// [`SectionError::NoView`] for a sample without a present slot, [`SectionError::Length`] for a buffer of another length,
    /// [`SectionError::Aggregate`] for a map with NaN or infinity.
    pub fn run(
        &mut self,
        batch: usize,
        features: &[u8],
        presence: &[bool],
    ) -> Result<Vec<TierOutput>, SectionError> {
        self.join.batch(batch, features, presence, &mut self.input)?;
        self.section.run(batch, Input::Floats(&self.input), &mut self.outputs)?;
        Ok(tier_outputs(&self.outputs, self.classes, &self.features))
    }
}

/// The section of the cloud: the maps of devices or edges in, logits out.
pub struct CloudSection {
    section: Box<dyn Section>,
    join: MapJoin,
    /// Joined maps of a batch, reused.
    input: Vec<f32>,
    outputs: Outputs,
}

impl CloudSection {
    /// The cloud section of a network.
    ///
    /// # Errors
    /// When the bundle lacks the section, or the engine refuses the section.
    pub fn load(bundle: &Bundle, engine: &dyn Engine) -> Result<Self, SectionError> {
        let manifest = bundle.manifest();
        Ok(Self {
            section: load(bundle, "cloud", engine)?,
            join: MapJoin::new(manifest.cloud_aggregation, manifest.cloud_sources(), manifest.cloud_map()),
            input: Vec::new(),
            outputs: Outputs::default(),
        })
    }

    /// Logits `[batch, classes]` of a batch. The sources are the device slots, or the edges if the network has edges.
    ///
    /// # Shapes
    /// - `features`: `[batch, sources, bytes of a map]`; maps of absent sources are ignored
    /// - `presence`: `[batch, sources]`
    ///
    /// # Errors
    /// [`SectionError::NoView`] for a sample without a present source, [`SectionError::Length`] for a buffer of another length,
    /// [`SectionError::Aggregate`] for a map with NaN or infinity.
    pub fn run(
        &mut self,
        batch: usize,
        features: &[u8],
        presence: &[bool],
    ) -> Result<Vec<f32>, SectionError> {
        self.join.batch(batch, features, presence, &mut self.input)?;
        self.section.run(batch, Input::Floats(&self.input), &mut self.outputs)?;
        Ok(self.outputs.floats(0).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::TractEngine;
    use crate::manifest::Aggregation;
    use crate::testing::TinyNetwork;

    fn bundle(network: &TinyNetwork) -> Bundle {
        Bundle::from_bytes(&network.bundle()).unwrap()
    }

    #[test]
    fn the_cloud_ignores_absent_maps_and_names_a_sample_without_a_map() {
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
    fn a_section_that_the_bundle_lacks_is_named() {
        let whole = bundle(&TinyNetwork::default());
        let part = Bundle::from_bytes(&whole.only(&["device-0"]).unwrap()).unwrap();
        let error = CloudSection::load(&part, &TractEngine::new()).err().unwrap().to_string();
        assert!(error.contains("section cloud is not in this bundle"), "{error}");
    }
}
