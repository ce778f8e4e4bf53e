//! `network.json` of a trained network.

use headwater_inference::manifest::{
    FORMAT_VERSION, FeatureEncoding, FeatureMap, InputKind, NetworkManifest, OutputKind, PixelScale,
    Preprocessing, SectionInput, SectionManifest, SectionOutput, Tier,
};
use headwater_protocol::Slot;

use crate::spec::{SectionCost, Spec};

/// The manifest without the hashes of the sections, which the bundle writer fills in.
pub fn manifest(spec: &Spec, class_prior: Vec<f32>) -> NetworkManifest {
    let shapes = &spec.shapes;
    let cost = spec.cost();
    let view = spec.network.device.input.get_ref();
    let [channels, height, width] = view.map(|n| n as u32);
    let mut sections: Vec<SectionManifest> = Slot::first(spec.slots())
        .map(|slot| {
            let outputs = vec![
                output("scores", OutputKind::F32, &[spec.classes()]),
                output("features", OutputKind::Bits, &shapes.features),
            ];
            let name = SectionManifest::device_name(slot);
            section(name, (Tier::Device, Some(slot)), (InputKind::Pixels, view), outputs, cost.device)
        })
        .collect();
    let logits = || vec![output("logits", OutputKind::F32, &[spec.classes()])];
    if let Some(input) = shapes.local_input {
        let input = (InputKind::Floats, &input[..1]);
        sections.push(section("local".into(), (Tier::Edge, None), input, logits(), cost.local));
    }
    let input = (InputKind::Floats, &shapes.cloud_input[..]);
    sections.push(section("cloud".into(), (Tier::Cloud, None), input, logits(), cost.cloud));
    let [maps, rows, columns] = shapes.features.map(|n| n as u32);
    NetworkManifest {
        format: FORMAT_VERSION,
        name: spec.network.network.name.clone(),
        configuration: spec.network.network.configuration,
        labels: spec.network.network.labels.get_ref().clone(),
        class_prior,
        preprocessing: Preprocessing { channels, height, width, scale: PixelScale::Unit },
        slots: spec.slots() as u8,
        scores: spec.network.wire.scores,
        features: FeatureMap {
            channels: maps,
            height: rows,
            width: columns,
            encoding: FeatureEncoding::Bits,
        },
        local_aggregation: spec.network.local.aggregation,
        edge: None,
        cloud_aggregation: spec.network.cloud.aggregation,
        sections,
        spec: serde_json::json!(spec.network),
    }
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
