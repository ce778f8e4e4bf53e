//! The ONNX file of each section.

use headwater_inference::manifest::SectionManifest;

use super::TrainedNetwork;
use super::onnx::{Graph, Value};
use crate::layers::{Block, BlockNumbers};
use crate::network::{ExitSection, SectionNumbers};
use crate::spec::LayerShape;

/// ONNX files of a network by section name, device sections first.
pub fn onnx_sections(network: &TrainedNetwork<'_>) -> Vec<(String, Vec<u8>)> {
    let (layers, shapes) = (network.layers, &network.spec.shapes);
    let mut sections = Vec::new();
    for (slot, section) in layers.devices.iter().enumerate() {
        sections.push(network.exit_section(format!("device-{slot}"), "view", &network.spec.view(), section));
    }
    let exit = |name: &str, block: &Option<Block>, layer: &Option<LayerShape>| {
        let (block, layer) = (block.as_ref()?, layer.as_ref()?);
        Some(network.logits_section(name, "scores", &layer.input[..1], std::slice::from_ref(block)))
    };
    sections.extend(exit("local", &layers.local, &shapes.local));
    for (index, (edge, shapes)) in layers.edges.iter().zip(&shapes.edges).enumerate() {
        // The input cannot be `features`, which is the name of an output.
        let name = SectionManifest::edge_name(index);
        sections.push(network.exit_section(name, "maps", &shapes.input, &edge.section));
    }
    sections.extend(exit("edge", &layers.edge, &shapes.edge));
    sections.push(network.logits_section("cloud", "features", &shapes.cloud_input, &layers.cloud));
    sections
}

impl TrainedNetwork<'_> {
    /// A section with scores and a map.
    fn exit_section(
        &self,
        name: String,
        input: &str,
        shape: &[usize],
        section: &ExitSection,
    ) -> (String, Vec<u8>) {
        let SectionNumbers { blocks, head } = section.numbers(&self.trained());
        let mut graph = Graph::new(&name);
        let input = graph.input(input, shape);
        let features = chain(&mut graph, input, blocks);
        let scores = chain(&mut graph, features.clone(), head);
        graph.output("scores", &scores, &[self.spec.classes()]);
        graph.output("features", &features, &section.map.shape());
        (name, graph.finish())
    }

    /// A section with logits alone.
    fn logits_section(
        &self,
        name: &str,
        input: &str,
        shape: &[usize],
        blocks: &[Block],
    ) -> (String, Vec<u8>) {
        let mut graph = Graph::new(name);
        let input = graph.input(input, shape);
        let logits = chain(&mut graph, input, blocks.iter().map(|block| block.numbers(&self.trained())));
        graph.output("logits", &logits, &[self.spec.classes()]);
        (name.to_owned(), graph.finish())
    }
}

fn chain(graph: &mut Graph, input: Value, blocks: impl IntoIterator<Item = BlockNumbers>) -> Value {
    blocks.into_iter().fold(input, |x, block| match block {
        BlockNumbers::Convp(block) => block.onnx(graph, &x),
        BlockNumbers::Conv(block) => block.onnx(graph, &x),
        BlockNumbers::Pool(block) => block.onnx(graph, &x),
        BlockNumbers::Fc(block) => block.onnx(graph, &x),
    })
}
