//! The section of an edge, between devices and cloud.

use headwater_protocol::Slot;

use super::maps::{MapJoin, encoded};
use super::{SectionError, load};
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

/// Output of an edge section for one sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeOutput {
    /// Scores, one per class.
    pub scores: Vec<f32>,
    /// The map for the cloud, in its wire encoding.
    pub features: Vec<u8>,
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
            outputs: Outputs::new(),
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
    /// [`SectionError::NoView`] for a sample without a present slot, [`SectionError::Length`] for an input of another length.
    pub fn run(
        &mut self,
        batch: usize,
        features: &[u8],
        presence: &[bool],
    ) -> Result<Vec<EdgeOutput>, SectionError> {
        self.join.batch(batch, features, presence, &mut self.input)?;
        self.section.run(batch, Input::Floats(&self.input), &mut self.outputs)?;
        // The manifest check puts scores first, features second.
        let scores = self.outputs.floats(0).chunks_exact(self.classes);
        let features = encoded(&self.features, &self.outputs, 1);
        let pairs = scores.zip(features.chunks_exact(self.features.packed_bytes()));
        Ok(pairs.map(|(s, f)| EdgeOutput { scores: s.to_vec(), features: f.to_vec() }).collect())
    }
}
