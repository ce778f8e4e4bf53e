//! The ONNX of each section.

use super::onnx::Graph;
use crate::layers::{Block, Source, State};
use crate::network::Network;
use crate::spec::Spec;

/// ONNX files of a network by section name, device sections first.
pub fn onnx_sections(spec: &Spec, network: &Network, state: &State) -> Vec<(String, Vec<u8>)> {
    let source = Source { layout: &network.layout, state };
    let classes = spec.classes();
    let mut sections = Vec::new();
    for (slot, layers) in network.devices.iter().enumerate() {
        let mut graph = Graph::new(&format!("device-{slot}"));
        let view = graph.input("view", spec.network.device.input.get_ref());
        let features = layers.blocks.iter().fold(view, |x, block| block.export(&source, &mut graph, &x));
        let scores = layers.head.export(&source, &mut graph, &features);
        graph.output("scores", &scores, &[classes]);
        graph.output("features", &features, &spec.shapes.features);
        sections.push((format!("device-{slot}"), graph.finish()));
    }
    if let (Some(block), Some(input)) = (&network.local, spec.shapes.local_input) {
        sections.push(("local".into(), chain("local", "scores", &input[..1], &[block], &source, classes)));
    }
    let blocks: Vec<&Block> = network.cloud.iter().collect();
    sections.push((
        "cloud".into(),
        chain("cloud", "features", &spec.shapes.cloud_input, &blocks, &source, classes),
    ));
    sections
}

fn chain(
    name: &str,
    input: &str,
    shape: &[usize],
    blocks: &[&Block],
    source: &Source<'_>,
    classes: usize,
) -> Vec<u8> {
    let mut graph = Graph::new(name);
    let input = graph.input(input, shape);
    let logits = blocks.iter().fold(input, |x, block| block.export(source, &mut graph, &x));
    graph.output("logits", &logits, &[classes]);
    graph.finish()
}
