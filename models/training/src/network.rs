//! The layers of a spec: a section on each device, on each edge and in the cloud, with the exits of the configuration.

use burn::tensor::Tensor;
use headwater_inference::manifest::{Aggregation, FeatureMap};
use headwater_kernels::pack_signs;
use headwater_protocol::ExitWord;

use crate::fused::{JoinRows, join};
use crate::layers::{Block, Layout, Pass, values};
use headwater_calibration::by_exit::ByExit;
use headwater_calibration::data::{Batch, SlotViews};
use headwater_spec::{LayerShape, SectionShapes, Spec};

/// The layers of a network. A [`State`](crate::layers::State) holds the values: parameters and running statistics.
#[derive(Clone, Debug)]
pub struct Network {
    /// The spec of the layers.
    pub spec: Spec,
    /// The section of each slot; empty if devices send their views.
    pub devices: Vec<ExitSection>,
    /// The section `local`; `None` unless the scores of the devices are concatenated.
    pub local: Option<Block>,
    /// The edges; empty in configurations without edges.
    pub edges: Vec<Edge>,
    /// The section `edge`; `None` unless the scores of several edges are concatenated.
    pub edge: Option<Block>,
    /// Layers of the cloud section.
    pub cloud: Vec<Block>,
    /// Place of each parameter and each running statistic in a [`State`](crate::layers::State).
    pub layout: Layout,
}

/// A section that gives scores and a map for the next tier.
#[derive(Clone, Debug)]
pub struct ExitSection {
    /// Blocks up to the map that the head reads.
    pub blocks: Vec<Block>,
    /// Blocks from the map that the head reads to the scores.
    pub head: Vec<Block>,
    /// The map for the next tier, the features: all channels of the map that the head reads, or the first channels.
    pub map: FeatureMap,
    /// Number of channels of the map that the head reads.
    channels: usize,
}

/// The layers of one section.
pub enum SectionLayers<'a> {
    /// A section with scores and a map.
    Exit(&'a ExitSection),
    /// A section with logits alone.
    Logits(&'a [Block]),
}

/// An edge: a section over the maps of some slots.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The section.
    pub section: ExitSection,
    /// Slots of the edge, in ascending order.
    pub slots: Vec<usize>,
}

/// Outputs of the network for a batch.
pub struct NetworkOutput {
    /// Output of each slot; `None` for a slot that sees no sample of the batch.
    pub devices: Vec<Option<SourceOutput>>,
    /// Output of each edge; `None` for an edge whose slots see no sample of the batch.
    pub edges: Vec<Option<SourceOutput>>,
    /// Logits of each exit of the configuration, `[batch, classes]`; meaningless for a sample that no slot sees.
    pub exits: ByExit<Tensor<2>>,
}

/// Input and outputs of a device or an edge, for the samples seen there.
pub struct SourceOutput {
    /// Indices of the seen samples in the batch, ascending.
    pub rows: Vec<u32>,
    /// Input of the section, `[rows, ..]`.
    pub input: Tensor<4>,
    /// Scores, `[rows, classes, 1, 1]`; those of a device are rounded to the levels of messages once a coding is fitted. `None` for a device without
    /// a section.
    pub scores: Option<Tensor<4>>,
    /// The map for the next tier, `[rows, channels, h, w]`.
    pub features: Tensor<4>,
}

impl Network {
    /// The layers that a spec describes.
    pub fn new(spec: Spec) -> Self {
        let mut layout = Layout::default();
        let shapes = &spec.shapes;
        let slots = 0..spec.network.slots();
        let devices = shapes.device.iter().flat_map(|device| slots.clone().map(move |slot| (slot, device)));
        let devices = devices
            .map(|(slot, device)| {
                ExitSection::new(&mut layout, &format!("device-{slot}"), device).with_settled_pixels()
            })
            .collect();
        let local = shapes.local.as_ref().map(|layer| Block::new(&mut layout, "local", layer));
        let edges = shapes.edges.iter().zip(&shapes.groups).enumerate().map(|(index, (edge, slots))| Edge {
            section: ExitSection::new(&mut layout, &format!("edge-{index}"), edge),
            slots: slots.clone(),
        });
        let edges = edges.collect();
        let edge = shapes.edge.as_ref().map(|layer| Block::new(&mut layout, "edge", layer));
        let cloud = chain(&mut layout, "cloud", &shapes.cloud);
        Self { devices, local, edges, edge, cloud, layout, spec }
    }

    /// The layers of every section in the order of the manifest: devices, `local`, edges, `edge`, cloud.
    pub fn sections(&self) -> impl Iterator<Item = SectionLayers<'_>> {
        let devices = self.devices.iter().map(SectionLayers::Exit).chain(logits(&self.local));
        let edges =
            self.edges.iter().map(|edge| SectionLayers::Exit(&edge.section)).chain(logits(&self.edge));
        devices.chain(edges).chain([SectionLayers::Logits(&self.cloud)])
    }

    /// Runs the whole network.
    ///
    /// # Panics
    /// When no slot sees any sample of the batch ([`Batch::is_blank`]).
    pub fn forward(&self, pass: &Pass<'_>, batch: &Batch) -> NetworkOutput {
        assert!(!batch.is_blank(), "a batch has at least one view");
        let devices = self.devices(pass, batch);
        let edges: Vec<_> = self.edges.iter().map(|edge| self.run_edge(pass, edge, &devices)).collect();
        let join_all = |sources: &[Option<SourceOutput>], output, aggregation| {
            let sources: Vec<_> = sources.iter().map(Option::as_ref).collect();
            let rows: Vec<u32> = (0..batch.labels.len() as u32).collect();
            joined(&sources, output, aggregation, &rows)
        };
        let exits = self.spec.network.configuration().exits().iter().map(|&exit| {
            let logits = match exit.word() {
                // There is one device: the join puts its scores into the rows of the batch.
                ExitWord::Device => join_all(&devices, SourceOutput::scores, Aggregation::Mp),
                ExitWord::Local => {
                    let scores =
                        join_all(&devices, SourceOutput::scores, self.spec.network.local_aggregation());
                    run(pass, self.local.as_slice(), scores)
                }
                ExitWord::Edge => {
                    let scores = join_all(&edges, SourceOutput::scores, self.spec.network.fusion());
                    run(pass, self.edge.as_slice(), scores)
                }
                ExitWord::Cloud => {
                    let sources = if edges.is_empty() { &devices } else { &edges };
                    let maps = join_all(sources, SourceOutput::map, self.spec.network.cloud.aggregation);
                    run(pass, &self.cloud, maps)
                }
            };
            (exit, flat(logits))
        });
        let exits = exits.collect();
        NetworkOutput { devices, edges, exits }
    }

    /// Runs the section of each slot; `None` for a slot that sees no sample of the batch.
    pub fn devices(&self, pass: &Pass<'_>, batch: &Batch) -> Vec<Option<SourceOutput>> {
        (0..batch.views.len()).map(|slot| self.run_device(pass, batch, slot)).collect()
    }

    fn run_device(&self, pass: &Pass<'_>, batch: &Batch, slot: usize) -> Option<SourceOutput> {
        let (SlotViews { rows, pixels }, [channels, h, w]) = (batch.views[slot].clone(), batch.shape);
        if rows.is_empty() {
            return None;
        }
        let view = pass.tensor(pixels, [rows.len(), channels, h, w]);
        Some(match self.devices.get(slot) {
            Some(section) => section.run(pass, rows, view).with_coded_scores(pass, slot),
            None => SourceOutput { rows, input: view.clone(), scores: None, features: view },
        })
    }

    /// Runs an edge over the samples that at least one of its slots sees; `None` if there is no such sample.
    fn run_edge(
        &self,
        pass: &Pass<'_>,
        edge: &Edge,
        devices: &[Option<SourceOutput>],
    ) -> Option<SourceOutput> {
        let sources: Vec<_> = edge.slots.iter().map(|slot| devices[*slot].as_ref()).collect();
        let mut rows: Vec<u32> = sources.iter().flatten().flat_map(|source| &source.rows).copied().collect();
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() {
            return None;
        }
        let input = joined(&sources, SourceOutput::map, self.spec.network.edge_aggregation(), &rows);
        Some(edge.section.run(pass, rows, input))
    }
}

impl ExitSection {
    fn new(layout: &mut Layout, name: &str, shapes: &SectionShapes) -> Self {
        let blocks = chain(layout, name, &shapes.blocks);
        let head = format!("{name}.head");
        let head = match &shapes.head[..] {
            [layer] => vec![Block::new(layout, &head, layer)],
            layers => chain(layout, &head, layers),
        };
        let channels = shapes.blocks.last().map_or(0, |last| last.output[0]);
        Self { blocks, head, channels, map: shapes.features }
    }

    /// The section of a device. If blocks follow a first block `Convp`, no sum of pixels lies at a threshold of the first block.
    fn with_settled_pixels(mut self) -> Self {
        if let [Block::Convp(first), _, ..] = &mut self.blocks[..] {
            first.settle();
        }
        self
    }

    fn run(&self, pass: &Pass<'_>, rows: Vec<u32>, input: Tensor<4>) -> SourceOutput {
        let map = run(pass, &self.blocks, input.clone());
        let scores = self.scores(pass, map.clone());
        SourceOutput { rows, input, scores: Some(scores), features: self.sent(map) }
    }

    /// Scores `[rows, classes, 1, 1]` before rounding to levels, computed anew from `output`.
    pub fn exact_scores(&self, pass: &Pass<'_>, output: &SourceOutput) -> Tensor<4> {
        let map = if self.sends_all() {
            output.features.clone()
        } else {
            run(pass, &self.blocks, output.input.clone())
        };
        self.scores(pass, map)
    }

    /// Scores `[rows, classes, 1, 1]` from `map`, the map that the head reads.
    pub fn scores(&self, pass: &Pass<'_>, map: Tensor<4>) -> Tensor<4> {
        run(pass, &self.head, map)
    }

    /// Shape of the map that the head reads.
    pub fn head_map(&self) -> [usize; 3] {
        let [_, h, w] = self.map.shape();
        [self.channels, h, w]
    }

    /// True when all channels of the map that the head reads are sent.
    pub fn sends_all(&self) -> bool {
        let [sent, ..] = self.map.shape();
        sent == self.channels
    }

    /// The channels of `map` that are sent.
    fn sent(&self, map: Tensor<4>) -> Tensor<4> {
        let [sent, ..] = self.map.shape();
        if self.sends_all() { map } else { map.narrow(1, 0, sent) }
    }

    /// Inputs of the signs of the map that the head reads, normalised by the running statistics; `None` if that map has floats.
    pub fn before_sign(&self, pass: &Pass<'_>, input: Tensor<4>) -> Option<Tensor<4>> {
        let (last, before) = self.blocks.split_last()?;
        last.layer().before_sign(pass, run(pass, before, input))
    }
}

impl SourceOutput {
    /// The output with its scores rounded to the levels that messages carry; unchanged if no coding is fitted.
    fn with_coded_scores(mut self, pass: &Pass<'_>, slot: usize) -> Self {
        let coding = pass.trained.state.coding.as_ref();
        if let (Some(coding), Some(scores)) = (coding, &self.scores) {
            let (mut rounded, shape) = (values(scores), scores.dims());
            coding.round(slot, &mut rounded);
            self.scores = Some(pass.tensor(rounded, shape));
        }
        self
    }

    /// Scores, `[rows, classes]`; `None` for a device without a section.
    pub fn flat_scores(&self) -> Option<Tensor<2>> {
        self.scores.clone().map(flat)
    }

    /// The packed map of each view.
    pub fn packed_maps(&self, map: &FeatureMap) -> Vec<Vec<u8>> {
        let pack = |signs: &[f32]| {
            let mut bits = vec![0; map.packed_bytes()];
            pack_signs(signs, &mut bits);
            bits
        };
        values(&self.features).chunks_exact(map.elements()).map(pack).collect()
    }

    fn scores(&self) -> Tensor<4> {
        self.scores.clone().expect("the cloud has the only exit where devices send views")
    }

    fn map(&self) -> Tensor<4> {
        self.features.clone()
    }
}

/// The section that computes an exit from concatenated scores, if there is one.
fn logits(block: &Option<Block>) -> impl Iterator<Item = SectionLayers<'_>> {
    block.iter().map(|block| SectionLayers::Logits(std::slice::from_ref(block)))
}

/// Joins the outputs of the sources for the samples `rows` of the batch; `rows` ascend.
fn joined(
    sources: &[Option<&SourceOutput>],
    output: fn(&SourceOutput) -> Tensor<4>,
    aggregation: Aggregation,
    rows: &[u32],
) -> Tensor<4> {
    let mut join_rows = JoinRows { batch: rows.len(), slots: sources.len(), rows: Vec::new() };
    let mut maps = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        let joined_row = |row: &u32| rows.partition_point(|other| other < row) as u32;
        join_rows.rows.extend(source.rows.iter().map(|row| (joined_row(row), index as u32)));
        maps.push(output(source));
    }
    join(Tensor::cat(maps, 0), aggregation, join_rows)
}

fn chain(layout: &mut Layout, section: &str, shapes: &[LayerShape]) -> Vec<Block> {
    let blocks = shapes.iter().enumerate();
    blocks.map(|(index, shape)| Block::new(layout, &format!("{section}.{index}"), shape)).collect()
}

fn run(pass: &Pass<'_>, blocks: &[Block], x: Tensor<4>) -> Tensor<4> {
    blocks.iter().fold(x, |x, block| block.layer().forward(pass, x))
}

fn flat(x: Tensor<4>) -> Tensor<2> {
    let [batch, classes, ..] = x.dims();
    x.reshape([batch, classes])
}
