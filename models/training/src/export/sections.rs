//! The ONNX file of each section.

use headwater_inference::manifest::{NetworkManifest, SectionManifest, Tier};

use super::TrainedNetwork;
use crate::layers::{Block, TrainedState};
use crate::network::SectionLayers;
use crate::onnx::{Graph, Value};

/// ONNX files of a network, in the order of the sections in its manifest.
pub fn onnx_sections(network: &TrainedNetwork<'_>, manifest: &NetworkManifest) -> Vec<Vec<u8>> {
    let sections = manifest.sections.iter().zip(network.layers.sections());
    sections.map(|(section, layers)| onnx(section, &layers, &network.trained())).collect()
}

fn onnx(section: &SectionManifest, layers: &SectionLayers<'_>, trained: &TrainedState<'_>) -> Vec<u8> {
    let mut graph = Graph::new(&section.name);
    let name = match (section.tier, layers) {
        (Tier::Device, _) => "view",
        // The input of an edge cannot be named `features`: its output has that name.
        (Tier::Edge, SectionLayers::Exit(_)) => "maps",
        (Tier::Edge, SectionLayers::Logits(_)) => "scores",
        (Tier::Cloud, _) => "features",
    };
    let input = graph.input(name, &section.input.shape);
    let mut chain = |input: Value, blocks: &[Block]| {
        blocks.iter().fold(input, |x, block| block.layer().onnx(trained, &mut graph, &x))
    };
    let values = match layers {
        SectionLayers::Exit(section) => {
            let map = chain(input, &section.blocks);
            let scores = chain(map.clone(), &section.head);
            let [sent, ..] = section.map.shape();
            vec![scores, if section.sends_all() { map } else { graph.first_channels(&map, sent) }]
        }
        SectionLayers::Logits(blocks) => vec![chain(input, blocks)],
    };
    for (output, value) in section.outputs.iter().zip(&values) {
        graph.output(&output.name, value, &output.shape);
    }
    graph.finish()
}
