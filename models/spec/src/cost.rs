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
    /// Largest number of bytes of one block's input and output together, 4 per value. If a map inside the block is larger than the output,
    /// it counts in place of the output.
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

    /// Estimated memory of training in bytes, for batches of `batch` samples on `workers` workers; [`u64::MAX`] if the estimate is larger.
    ///
    /// ```text
    /// a weight              16 bytes        itself, its gradient, two moments of the optimiser
    ///                       12 per worker   a copy, its gradient, the list of gradients
    /// a value of a layer    24 per sample   outputs of layer, batch norm and activation, each with its gradient
    /// a value inside a layer 8 per sample   such as the map before a pooling
    /// a pixel of a view      8 per sample   in the batch, and in the input of the network
    /// ```
    pub fn training_bytes(&self, batch: usize, workers: usize) -> u64 {
        let Shapes { device, local, edges, edge, cloud, .. } = &self.shapes;
        let of_layer = |layer: &LayerShape| {
            let BlockCost { parameters, intermediate, .. } =
                layer.block.kind().cost(layer.input, layer.output);
            // A layer has at most 2^24 values and a window at most 64 pixels a side, so `of_sample` does not overflow.
            let of_sample = 24 * layer.output.iter().product::<usize>() as u64 + 8 * intermediate;
            let of_weight = 12_u64.saturating_mul(workers as u64).saturating_add(16);
            parameters.saturating_mul(of_weight).saturating_add(of_sample.saturating_mul(batch as u64))
        };
        let of_section = |section: &SectionShapes| {
            section.blocks.iter().chain(&section.head).map(of_layer).fold(0, u64::saturating_add)
        };
        let devices = device.as_ref().map_or(0, of_section).saturating_mul(self.network.slots() as u64);
        let pixels = (self.network.slots() * self.network.view().iter().product::<usize>()) as u64;
        let views = (8 * pixels).saturating_mul(batch as u64);
        let rest = local.iter().chain(edge).chain(cloud).map(of_layer).chain([views]);
        edges.iter().map(of_section).chain(rest).fold(devices, u64::saturating_add)
    }
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
