//! `network.json` of a trained network.

use headwater_inference::manifest::{
    Aggregation, EdgeTier, FORMAT_VERSION, FeatureEncoding, FeatureMap, InputKind, NetworkManifest,
    OutputKind, PixelScale, Preprocessing, SectionInput, SectionManifest, SectionOutput, Tier,
};
use headwater_protocol::Slot;

use crate::spec::{LayerShape, SectionCost, Spec};

/// The manifest without the hashes of the sections, which the bundle writer fills in.
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
        // Not looked at without the exit `local`.
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
fn sections(spec: &Spec) -> Vec<SectionManifest> {
    let (shapes, cost, classes) = (&spec.shapes, spec.cost(), spec.classes());
    let given = |map: &FeatureMap| {
        let kind = if map.encoding == FeatureEncoding::Bits { OutputKind::Bits } else { OutputKind::F32 };
        vec![output("scores", OutputKind::F32, &[classes]), output("features", kind, &map.shape())]
    };
    let logits = || vec![output("logits", OutputKind::F32, &[classes])];
    let exit = |name: &str, layer: &LayerShape, cost| {
        let input = (InputKind::Floats, &layer.input[..1]);
        section(name.into(), (Tier::Edge, None), input, logits(), cost)
    };
    let mut sections = Vec::new();
    if let Some(device) = &shapes.device {
        sections.extend(Slot::first(spec.slots()).map(|slot| {
            let input = (InputKind::Pixels, &device.input[..]);
            let name = SectionManifest::device_name(slot);
            section(name, (Tier::Device, Some(slot)), input, given(&device.features), cost.device)
        }));
    }
    sections.extend(shapes.local.iter().map(|layer| exit("local", layer, cost.local)));
    for (index, (edge, cost)) in shapes.edges.iter().zip(&cost.edges).enumerate() {
        let input = (InputKind::Floats, &edge.input[..]);
        let name = SectionManifest::edge_name(index);
        sections.push(section(name, (Tier::Edge, None), input, given(&edge.features), *cost));
    }
    sections.extend(shapes.edge.iter().map(|layer| exit("edge", layer, cost.edge)));
    let input = (InputKind::Floats, &shapes.cloud_input[..]);
    sections.push(section("cloud".into(), (Tier::Cloud, None), input, logits(), cost.cloud));
    sections
}

fn section(
    name: String,
    (tier, slot): (Tier, Option<Slot>),
    (kind, shape): (InputKind, &[usize]),
    outputs: Vec<SectionOutput>,
    cost: SectionCost,
) -> SectionManifest {
    let input = SectionInput { kind, shape: shape.to_vec() };
    let SectionCost { parameters, macs, .. } = cost;
    SectionManifest {
        name,
        tier,
        slot,
        input,
        outputs,
        parameters,
        macs,
        sha256: String::new(),
        packed_sha256: None,
    }
}

fn output(name: &str, kind: OutputKind, shape: &[usize]) -> SectionOutput {
    SectionOutput { name: name.to_owned(), kind, shape: shape.to_vec() }
}
