//! What a network costs: parameters, multiply-accumulates, memory, bytes per link.

use serde::Serialize;

use super::{BlockSpec, LayerShape, Spec};

/// Costs of a network, worked out from its shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// One device section, head included.
    pub device: SectionCost,
    /// The section `local`; zero unless scores are concatenated.
    pub local: SectionCost,
    /// The cloud section.
    pub cloud: SectionCost,
    /// Bytes per device and sample.
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

/// Body bytes of one device for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkBytes {
    /// Scores, always sent: `4|C|`.
    pub scores: u64,
    /// Features, sent on request: `f o / 8`.
    pub features: u64,
    /// The raw view, for comparison.
    pub raw: u64,
}

impl Spec {
    /// What the network costs.
    pub fn cost(&self) -> Cost {
        let shapes = &self.shapes;
        let classes = self.classes();
        let mut local = SectionCost::default();
        if let Some([inputs, ..]) = shapes.local_input {
            local.parameters = (inputs * classes + classes) as u64;
            local.macs = (inputs * classes) as u64;
            local.memory_bytes = 4 * (inputs + classes) as u64;
        }
        Cost {
            device: total(shapes.device.iter().chain([&shapes.head])),
            local,
            cloud: total(&shapes.cloud),
            link: LinkBytes {
                scores: 4 * classes as u64,
                features: len(shapes.features).div_ceil(8),
                raw: len(*self.network.device.input.get_ref()),
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
                (taps * channels + 2 * channels, taps * output, output)
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

impl super::FcSpec {
    /// Whether batch norm follows instead of a bias.
    pub fn has_norm(&self) -> bool {
        self.binary || self.activation != super::FcActivation::None
    }
}

fn len(shape: [usize; 3]) -> u64 {
    shape.iter().product::<usize>() as u64
}
