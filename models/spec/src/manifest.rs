//! The manifest `network.json` of a trained network.

use headwater_inference::manifest::{
    EdgeTier, FORMAT_VERSION, NetworkManifest, PixelScale, Preprocessing, SectionManifest,
};
use headwater_protocol::Slot;

use super::{NetworkSpec, SectionCost, Spec};

/// The manifest of a spec, without the hashes of the sections, which the bundle writer fills in.
pub fn manifest(spec: &Spec, class_prior: Vec<f32>) -> NetworkManifest {
    let tables = &spec.network;
    let mut manifest = NetworkManifest {
        exits: Vec::new(),
        format: FORMAT_VERSION,
        name: tables.network.name.clone(),
        configuration: tables.configuration(),
        labels: tables.network.labels.get_ref().clone(),
        class_prior,
        preprocessing: tables.preprocessing(),
        slots: tables.slots() as u8,
        scores: tables.scores(),
        // Score levels are fitted after training.
        score_levels: Vec::new(),
        features: spec.shapes.features,
        // This aggregation is not used without the exit `local`.
        local_aggregation: tables.local_aggregation(),
        edge: edge_tier(spec),
        cloud_aggregation: tables.cloud.aggregation,
        sections: Vec::new(),
        score_limits: std::collections::BTreeMap::new(),
        spec: serde_json::json!(tables),
    };
    let sections = manifest.expected_sections().into_iter().zip(spec.section_costs());
    let sections = sections.map(|(section, cost)| {
        let SectionCost { parameters, macs, .. } = cost;
        SectionManifest { parameters, macs, ..section }
    });
    manifest.sections = sections.collect();
    manifest
}

impl NetworkSpec {
    /// Conversion of frames to views.
    pub fn preprocessing(&self) -> Preprocessing {
        let [channels, height, width] = self.view().map(|n| n as u32);
        let (fit, regions) = (self.device.fit, self.device.regions.as_ref());
        let regions = regions.map_or_else(Vec::new, |regions| regions.get_ref().clone());
        Preprocessing { channels, height, width, scale: PixelScale::Unit, fit, regions }
    }
}

fn edge_tier(spec: &Spec) -> Option<EdgeTier> {
    let slots: Vec<Slot> = Slot::first(spec.network.slots()).collect();
    let group = |group: &Vec<usize>| group.iter().map(|slot| slots[*slot]).collect();
    Some(EdgeTier {
        groups: spec.shapes.groups.iter().map(group).collect(),
        aggregation: spec.network.edge_aggregation(),
        fusion: spec.network.fusion(),
        features: spec.shapes.edges.first()?.features,
    })
}
