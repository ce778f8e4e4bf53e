//! The ONNX file of each section.

use headwater_inference::manifest::{SectionManifest, Tier};

use super::TrainedNetwork;
use super::manifest::sections;
use super::onnx::{Graph, Value};
use crate::layers::{Block, BlockNumbers, TrainedState};
use crate::network::SectionLayers;

/// ONNX files of a network by section name, device sections first.
pub fn onnx_sections(network: &TrainedNetwork<'_>) -> Vec<(String, Vec<u8>)> {
    let trained = network.trained();
    let sections = sections(network.spec).into_iter().zip(network.layers.sections());
    sections.map(|(section, layers)| (section.name.clone(), onnx(&section, &layers, &trained))).collect()
}

fn onnx(section: &SectionManifest, layers: &SectionLayers<'_>, trained: &TrainedState<'_>) -> Vec<u8> {
    let mut graph = Graph::new(&section.name);
    let name = match (section.tier, layers) {
        (Tier::Device, _) => "view",
        // An input cannot be `features` where that is the name of an output.
        (Tier::Edge, SectionLayers::Exit(_)) => "maps",
        (Tier::Edge, SectionLayers::Logits(_)) => "scores",
        (Tier::Cloud, _) => "features",
    };
    let input = graph.input(name, &section.input.shape);
    let mut chain = |input: Value, blocks: &[Block]| {
        blocks.iter().fold(input, |x, block| lower(&mut graph, &block.numbers(trained), &x))
    };
    let values = match layers {
        SectionLayers::Exit(section) => {
            let features = chain(input, &section.blocks);
            vec![chain(features.clone(), &section.head), features]
        }
        SectionLayers::Logits(blocks) => vec![chain(input, blocks)],
    };
    for (output, value) in section.outputs.iter().zip(&values) {
        graph.output(&output.name, value, &output.shape);
    }
    graph.finish()
}

fn lower(graph: &mut Graph, block: &BlockNumbers, x: &Value) -> Value {
    match block {
        BlockNumbers::Convp(block) => block.onnx(graph, x),
        BlockNumbers::Conv(block) => block.onnx(graph, x),
        BlockNumbers::Pool(block) => block.onnx(graph, x),
        BlockNumbers::Fc(block) => block.onnx(graph, x),
    }
}
