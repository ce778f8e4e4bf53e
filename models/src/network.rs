//! The network of a spec: six (or any number of) device sections, the local exit, the cloud section; configuration (c).

use burn::tensor::Tensor;
use headwater_inference::manifest::Aggregation;

use crate::data::Batch;
use crate::fused::{Join, join};
use crate::layers::{Block, Builder, Convp, Fc, Layout, Pass, State};
use crate::spec::{BlockSpec, FcActivation, FcSpec, LayerShape, Spec};

/// The layers of a network; its numbers are a [`State`].
#[derive(Clone, Debug)]
pub struct Network {
    /// Layers of each slot.
    pub devices: Vec<DeviceLayers>,
    /// The section `local`, when scores are concatenated.
    pub local: Option<Block>,
    /// Layers of the cloud section.
    pub cloud: Vec<Block>,
    /// Where the numbers lie.
    pub layout: Layout,
    local_aggregation: Aggregation,
    cloud_aggregation: Aggregation,
}

/// Layers of one device section.
#[derive(Clone, Debug)]
pub struct DeviceLayers {
    /// Up to the features.
    pub blocks: Vec<Block>,
    /// From the features to the scores.
    pub head: Block,
}

/// What every exit says about a batch.
pub struct Answers {
    /// Scores of each slot over the rows it sees, `[rows, classes]`; `None` when it sees none.
    pub devices: Vec<Option<Tensor<2>>>,
    /// Logits of the exit `local`, `[batch, classes]`.
    pub local: Tensor<2>,
    /// Logits of the exit `cloud`, `[batch, classes]`.
    pub cloud: Tensor<2>,
}

/// What one device section gives for its rows.
pub struct DeviceAnswer {
    /// `[rows, classes, 1, 1]`.
    pub scores: Tensor<4>,
    /// Signs `[rows, filters, h, w]`.
    pub features: Tensor<4>,
}

impl Network {
    /// The layers that a spec describes.
    pub fn new(spec: &Spec) -> Self {
        let mut builder = Builder::default();
        let shapes = &spec.shapes;
        let devices = (0..spec.slots())
            .map(|slot| DeviceLayers {
                blocks: chain(&mut builder, &format!("device-{slot}"), &shapes.device),
                head: Block::new(&mut builder, &format!("device-{slot}.head"), &shapes.head),
            })
            .collect();
        let local = shapes.local_input.map(|input| {
            let fc = FcSpec { outputs: None, binary: false, activation: FcActivation::None };
            let output = [spec.classes(), 1, 1];
            Block::new(&mut builder, "local", &LayerShape { block: BlockSpec::Fc(fc), input, output })
        });
        let cloud = chain(&mut builder, "cloud", &shapes.cloud);
        Self {
            devices,
            local,
            cloud,
            layout: builder.finish(),
            local_aggregation: spec.network.local.aggregation,
            cloud_aggregation: spec.network.cloud.aggregation,
        }
    }

    /// First numbers, from `seed`.
    pub fn initial(&self, seed: u64) -> State {
        self.layout.initial(seed)
    }

    /// Runs the whole network.
    ///
    /// # Panics
    /// When no device sees anything of the batch ([`Batch::is_blank`]): no exit fires then.
    pub fn forward(&self, pass: &Pass<'_>, batch: &Batch) -> Answers {
        let mut place = Join { batch: batch.len(), slots: self.devices.len(), rows: Vec::new() };
        let (mut scores, mut features, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, (layers, views)) in self.devices.iter().zip(&batch.views).enumerate() {
            if views.rows.is_empty() {
                devices.push(None);
                continue;
            }
            place.rows.extend(views.rows.iter().map(|row| (*row, slot as u32)));
            let [channels, h, w] = batch.shape;
            let pixels = pass.tensor(views.pixels.clone(), [views.rows.len(), channels, h, w]);
            let answer = layers.forward(pass, pixels);
            devices.push(Some(flat(answer.scores.clone())));
            scores.push(answer.scores);
            features.push(answer.features);
        }
        assert!(!scores.is_empty(), "a batch holds at least one view");
        let mut local = join(Tensor::cat(scores, 0), self.local_aggregation, &place);
        if let Some(block) = &self.local {
            local = block.forward(pass, local);
        }
        let mut cloud = join(Tensor::cat(features, 0), self.cloud_aggregation, &place);
        for block in &self.cloud {
            cloud = block.forward(pass, cloud);
        }
        Answers { devices, local: flat(local), cloud: flat(cloud) }
    }
}

impl DeviceLayers {
    /// Runs one device section over its rows.
    pub fn forward(&self, pass: &Pass<'_>, pixels: Tensor<4>) -> DeviceAnswer {
        let features = self.blocks.iter().fold(pixels, |x, block| block.forward(pass, x));
        DeviceAnswer { scores: self.head.forward(pass, features.clone()), features }
    }

    /// The last binary block and the blocks in front of it.
    pub fn last_convp(&self) -> Option<(&[Block], &Convp)> {
        match self.blocks.split_last() {
            Some((Block::Convp(last), before)) => Some((before, last)),
            _ => None,
        }
    }
}

fn chain(builder: &mut Builder, section: &str, shapes: &[LayerShape]) -> Vec<Block> {
    let blocks = shapes.iter().enumerate();
    blocks.map(|(index, shape)| Block::new(builder, &format!("{section}.{index}"), shape)).collect()
}

fn flat(x: Tensor<4>) -> Tensor<2> {
    let [batch, classes, ..] = x.dims();
    x.reshape([batch, classes])
}

/// The head of a device section is fully connected; the shape pass refuses anything else.
impl Block {
    /// The layer itself when it is fully connected.
    pub fn as_fc(&self) -> Option<&Fc> {
        match self {
            Self::Fc(layer) => Some(layer),
            _ => None,
        }
    }
}
