//! What a network costs: parameters, multiply-accumulates, memory, bytes per link.

use serde::Serialize;

use super::{BlockSpec, LayerShape, SectionShapes, Shapes, Spec};

/// Costs of a network, worked out from its shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// One device section, head included; zero where devices have none.
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
    /// Bytes per device, or edge, and sample.
    pub link: LinkBytes,
}

/// Cost of one section for one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SectionCost {
    /// Trainable parameters.
    pub parameters: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Bytes of the largest input and output that live at the same time, as `f32`.
    pub memory_bytes: u64,
}

/// Body bytes for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// Scores of one device: `4|C|`; 0 where devices have no section.
    pub scores: u64,
    /// Map of one device, `f o / 8` for signs; its view where devices have no section.
    pub features: u64,
    /// The raw view, for comparison.
    pub raw: u64,
    /// Scores and map of one edge; 0 without edges.
    pub edge: u64,
}

impl Spec {
    /// What the network costs.
    pub fn cost(&self) -> Cost {
        let Shapes { device, features, local, edges, edge, cloud, .. } = &self.shapes;
        let scores = 4 * self.classes() as u64;
        let of_section = |section: &SectionShapes| total(section.blocks.iter().chain(&section.head));
        let of_edge = |edge: &SectionShapes| scores + edge.features.packed_bytes() as u64;
        Cost {
            device: device.as_ref().map(of_section).unwrap_or_default(),
            local: total(local),
            edges: edges.iter().map(of_section).collect(),
            edge: total(edge),
            cloud: total(cloud),
            link: LinkBytes {
                scores: if device.is_some() { scores } else { 0 },
                features: features.packed_bytes() as u64,
                raw: len(self.view()),
                edge: edges.first().map_or(0, of_edge),
            },
        }
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
        let (input, output) = (len(self.input), len(self.output));
        let channels = self.output[0] as u64;
        let (parameters, macs, held) = match &self.block {
            BlockSpec::Convp(spec) => {
                let window = spec.conv_window();
                let positions = (window.positions(self.input[1]) * window.positions(self.input[2])) as u64;
                let taps = (self.input[0] * spec.kernel * spec.kernel) as u64;
                (taps * channels + 2 * channels, taps * channels * positions, channels * positions)
            }
            BlockSpec::Conv(spec) => {
                let taps = (self.input[0] * spec.kernel * spec.kernel) as u64;
                let behind = if spec.norm { 2 * channels } else { channels };
                (taps * channels + behind, taps * output, output)
            }
            BlockSpec::Pool(_) => (0, 0, output),
            BlockSpec::Fc(spec) => {
                let behind = if spec.has_norm() { 2 * channels } else { channels };
                (input * channels + behind, input * channels, output)
            }
        };
        SectionCost { parameters, macs, memory_bytes: 4 * (input + held.max(output)) }
    }
}

fn len(shape: [usize; 3]) -> u64 {
    shape.iter().product::<usize>() as u64
}
