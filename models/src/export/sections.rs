//! The ONNX of each section.

use headwater_inference::manifest::SectionManifest;

use super::onnx::Graph;
use crate::layers::{Block, Source, State};
use crate::network::{ExitSection, Network};
use crate::spec::Spec;

/// ONNX files of a network by section name, device sections first.
pub fn onnx_sections(spec: &Spec, network: &Network, state: &State) -> Vec<(String, Vec<u8>)> {
    let source = Source { layout: &network.layout, state };
    let (shapes, classes) = (&spec.shapes, spec.classes());
    let two = |name: String, input: &str, shape: &[usize], section: &ExitSection| {
        let onnx = two_outputs((&name, input, shape), section, &source, classes);
        (name, onnx)
    };
    let mut sections = Vec::new();
    for (slot, section) in network.devices.iter().enumerate() {
        sections.push(two(format!("device-{slot}"), "view", &spec.view(), section));
    }
    if let (Some(block), Some(layer)) = (&network.local, &shapes.local) {
        let onnx = chain("local", "scores", &layer.input[..1], [block], &source, classes);
        sections.push(("local".into(), onnx));
    }
    for (index, (edge, shapes)) in network.edges.iter().zip(&shapes.edges).enumerate() {
        // Not `features`, which is the name of an output.
        sections.push(two(SectionManifest::edge_name(index), "maps", &shapes.input, &edge.section));
    }
    if let (Some(block), Some(layer)) = (&network.edge, &shapes.edge) {
        let onnx = chain("edge", "scores", &layer.input[..1], [block], &source, classes);
        sections.push(("edge".into(), onnx));
    }
    let onnx = chain("cloud", "features", &shapes.cloud_input, &network.cloud, &source, classes);
    sections.push(("cloud".into(), onnx));
    sections
}

/// A section with scores and a map.
fn two_outputs(
    (name, input, shape): (&str, &str, &[usize]),
    section: &ExitSection,
    source: &Source<'_>,
    classes: usize,
) -> Vec<u8> {
    let mut graph = Graph::new(name);
    let input = graph.input(input, shape);
    let features = section.blocks.iter().fold(input, |x, block| block.export(source, &mut graph, &x));
    let scores = section.head.iter().fold(features.clone(), |x, block| block.export(source, &mut graph, &x));
    graph.output("scores", &scores, &[classes]);
    graph.output("features", &features, &section.map.shape());
    graph.finish()
}

fn chain<'b>(
    name: &str,
    input: &str,
    shape: &[usize],
    blocks: impl IntoIterator<Item = &'b Block>,
    source: &Source<'_>,
    classes: usize,
) -> Vec<u8> {
    let mut graph = Graph::new(name);
    let input = graph.input(input, shape);
    let logits = blocks.into_iter().fold(input, |x, block| block.export(source, &mut graph, &x));
    graph.output("logits", &logits, &[classes]);
    graph.finish()
}
