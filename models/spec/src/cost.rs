//! Costs of the sections of a network: parameters, multiply-accumulates, memory.

use serde::Serialize;

use super::blocks::BlockCost;
use super::{LayerShape, SectionShapes, Shapes, Spec};

/// Costs of the sections of a network, from their shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// One device section, head included; zero if devices have no section.
    pub device: SectionCost,
    /// The section `local`; zero unless scores are concatenated.
    pub local: SectionCost,
    /// The section of each edge, head included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<SectionCost>,
    /// The section `edge`; zero unless the scores of several edges are concatenated.
    pub edge: SectionCost,
    /// The cloud section.
    pub cloud: SectionCost,
}

/// Cost of one section for one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SectionCost {
    /// Trainable parameters.
    pub parameters: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Bytes of a block's input and output together, 4 per value, for the block with the most; a larger map inside the block counts
    /// instead of its output.
    pub memory_bytes: u64,
}

impl Spec {
    /// Costs of the network's sections.
    pub fn cost(&self) -> Cost {
        let Shapes { device, local, edges, edge, cloud, .. } = &self.shapes;
        let of_section = |section: &SectionShapes| total(section.blocks.iter().chain(&section.head));
        Cost {
            device: device.as_ref().map(of_section).unwrap_or_default(),
            local: total(local),
            edges: edges.iter().map(of_section).collect(),
            edge: total(edge),
            cloud: total(cloud),
        }
    }

    /// Costs of the sections in the order of the manifest: devices, `local`, edges, `edge`, cloud.
    pub fn section_costs(&self) -> impl Iterator<Item = SectionCost> {
        let (cost, shapes) = (self.cost(), &self.shapes);
        let slots = if shapes.device.is_some() { self.network.slots() } else { 0 };
        let devices =
            std::iter::repeat_n(cost.device, slots).chain(shapes.local.is_some().then_some(cost.local));
        let edges = cost.edges.into_iter().chain(shapes.edge.is_some().then_some(cost.edge));
        devices.chain(edges).chain([cost.cloud])
    }
}

impl Spec {
    /// Estimated memory of training with batches of so many samples, in bytes: weights with their gradients and the optimiser's two moments,
    /// and the values between the layers with their gradients. [`u64::MAX`] stands for more than it can say.
    pub fn training_bytes(&self, batch: usize) -> u64 {
        let Shapes { device, local, edges, edge, cloud, .. } = &self.shapes;
        let of_section =
            |section: &SectionShapes| training_bytes(section.blocks.iter().chain(&section.head), batch);
        let devices = device.as_ref().map_or(0, of_section).saturating_mul(self.network.slots() as u64);
        let rest = [training_bytes(local, batch), training_bytes(edge, batch), training_bytes(cloud, batch)];
        edges.iter().map(of_section).chain(rest).fold(devices, u64::saturating_add)
    }
}

fn training_bytes<'a>(layers: impl IntoIterator<Item = &'a LayerShape>, batch: usize) -> u64 {
    let of_layer = |layer: &LayerShape| {
        let values =
            |shape: [usize; 3]| shape.iter().fold(1, |all: u64, side| all.saturating_mul(*side as u64));
        let BlockCost { parameters, intermediate, .. } = layer.block.kind().cost(layer.input, layer.output);
        let between = values(layer.output).saturating_add(intermediate).saturating_mul(batch as u64);
        parameters.saturating_mul(16).saturating_add(between.saturating_mul(8))
    };
    layers.into_iter().map(of_layer).fold(0, u64::saturating_add)
}

fn total<'a>(layers: impl IntoIterator<Item = &'a LayerShape>) -> SectionCost {
    layers.into_iter().map(LayerShape::cost).fold(SectionCost::default(), |all, layer| SectionCost {
        parameters: all.parameters + layer.parameters,
        macs: all.macs + layer.macs,
        memory_bytes: all.memory_bytes.max(layer.memory_bytes),
    })
}

impl LayerShape {
    fn cost(&self) -> SectionCost {
        let [input, output] = [self.input, self.output].map(|shape| shape.iter().product::<usize>() as u64);
        let BlockCost { parameters, macs, intermediate } = self.block.kind().cost(self.input, self.output);
        SectionCost { parameters, macs, memory_bytes: 4 * (input + intermediate.max(output)) }
    }
}
