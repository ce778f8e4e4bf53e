//! The manifest `network.json` of a trained network.

use headwater_inference::manifest::{
    Aggregation, EdgeTier, FORMAT_VERSION, FeatureEncoding, FeatureMap, InputKind, NetworkManifest,
    OutputKind, PixelScale, Preprocessing, SectionInput, SectionManifest, SectionOutput, Tier,
};
use headwater_protocol::Slot;

use crate::spec::{LayerShape, SectionCost, Spec};

/// The manifest of a spec; the bundle writer fills in the hashes of the sections.
pub fn manifest(spec: &Spec, class_prior: Vec<f32>) -> NetworkManifest {
    let shapes = &spec.shapes;
    let tables = &spec.network;
    let [channels, height, width] = spec.view().map(|n| n as u32);
    NetworkManifest {
        format: FORMAT_VERSION,
        name: tables.network.name.clone(),
        configuration: spec.configuration(),
        labels: tables.network.labels.get_ref().clone(),
        class_prior,
        preprocessing: Preprocessing { channels, height, width, scale: PixelScale::Unit },
        slots: spec.slots() as u8,
        scores: tables.wire.scores,
        features: shapes.features,
        // Unused without the exit `local`.
        local_aggregation: tables.local.as_ref().map_or(Aggregation::Mp, |it| it.get_ref().aggregation),
        edge: edge_tier(spec),
        cloud_aggregation: tables.cloud.aggregation,
        sections: sections(spec),
        spec: serde_json::json!(tables),
    }
}

fn edge_tier(spec: &Spec) -> Option<EdgeTier> {
    let edge = spec.network.edge.as_ref()?.get_ref();
    let slots: Vec<Slot> = Slot::first(spec.slots()).collect();
    let group = |group: &Vec<usize>| group.iter().map(|slot| slots[*slot]).collect();
    Some(EdgeTier {
        groups: spec.shapes.groups.iter().map(group).collect(),
        aggregation: edge.aggregation,
        fusion: spec.fusion(),
        features: spec.shapes.edges.first()?.features,
    })
}

/// Device sections first, by slot; then `local`, the edges, `edge`, `cloud`.
pub(super) fn sections(spec: &Spec) -> Vec<SectionManifest> {
    let (shapes, cost, classes) = (&spec.shapes, spec.cost(), spec.classes());
    let scores_and_map = |map: &FeatureMap| {
        let kind = if map.encoding == FeatureEncoding::Bits { OutputKind::Bits } else { OutputKind::F32 };
        vec![output("scores", OutputKind::F32, &[classes]), output("features", kind, &map.shape())]
    };
    let logits = || vec![output("logits", OutputKind::F32, &[classes])];
    let floats = |shape: &[usize]| SectionInput { kind: InputKind::Floats, shape: shape.to_vec() };
    let exit = |name: &str, layer: &LayerShape, cost| {
        section(name.into(), Tier::Edge, floats(&layer.input[..1]), logits(), cost)
    };
    let mut sections = Vec::new();
    if let Some(device) = &shapes.device {
        sections.extend(Slot::first(spec.slots()).map(|slot| {
            let input = SectionInput { kind: InputKind::Pixels, shape: device.input.to_vec() };
            let (name, outputs) = (SectionManifest::device_name(slot), scores_and_map(&device.features));
            SectionManifest { slot: Some(slot), ..section(name, Tier::Device, input, outputs, cost.device) }
        }));
    }
    sections.extend(shapes.local.iter().map(|layer| exit("local", layer, cost.local)));
    for (index, (edge, cost)) in shapes.edges.iter().zip(&cost.edges).enumerate() {
        let (name, outputs) = (SectionManifest::edge_name(index), scores_and_map(&edge.features));
        sections.push(section(name, Tier::Edge, floats(&edge.input), outputs, *cost));
    }
    sections.extend(shapes.edge.iter().map(|layer| exit("edge", layer, cost.edge)));
    sections.push(section("cloud".into(), Tier::Cloud, floats(&shapes.cloud_input), logits(), cost.cloud));
    sections
}

fn section(
    name: String,
    tier: Tier,
    input: SectionInput,
    outputs: Vec<SectionOutput>,
    cost: SectionCost,
) -> SectionManifest {
    let SectionCost { parameters, macs, .. } = cost;
    let (sha256, packed_sha256) = (String::new(), None);
    SectionManifest { name, tier, slot: None, input, outputs, parameters, macs, sha256, packed_sha256 }
}

fn output(name: &str, kind: OutputKind, shape: &[usize]) -> SectionOutput {
    SectionOutput { name: name.to_owned(), kind, shape: shape.to_vec() }
}
