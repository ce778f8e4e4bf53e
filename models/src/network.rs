//! The network of a spec: a section on each device, on each edge and in the cloud, with the exits of its configuration.

use burn::tensor::Tensor;
use headwater_inference::manifest::{Aggregation, Configuration, FeatureMap};
use headwater_protocol::Exit;

use crate::by_exit::ByExit;
use crate::data::{Batch, SlotViews};
use crate::fused::{Join, join};
use crate::layers::{Block, Builder, Layout, Pass, State};
use crate::spec::{LayerShape, SectionShapes, Spec};

/// The layers of a network; its numbers are a [`State`].
#[derive(Clone, Debug)]
pub struct Network {
    /// The section of each slot; none where devices send their views.
    pub devices: Vec<ExitSection>,
    /// The section `local`, when the scores of the devices are concatenated.
    pub local: Option<Block>,
    /// The edges; none in configurations without.
    pub edges: Vec<Edge>,
    /// The section `edge`, when the scores of several edges are concatenated.
    pub edge: Option<Block>,
    /// Layers of the cloud section.
    pub cloud: Vec<Block>,
    /// Where the numbers lie.
    pub layout: Layout,
    /// DDNN configuration.
    pub configuration: Configuration,
    /// The map that a device sends.
    pub features: FeatureMap,
    joins: Joins,
}

/// A section with a map for the next tier and scores of its own.
#[derive(Clone, Debug)]
pub struct ExitSection {
    /// Up to the features.
    pub blocks: Vec<Block>,
    /// From the features to the scores.
    pub head: Vec<Block>,
    /// The map for the next tier.
    pub map: FeatureMap,
}

/// An edge: its section and the slots it serves.
#[derive(Clone, Debug)]
pub struct Edge {
    /// What it runs.
    pub section: ExitSection,
    /// The slots, rising.
    pub slots: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Joins {
    local: Aggregation,
    edge: Aggregation,
    fusion: Aggregation,
    cloud: Aggregation,
}

/// What the network says about a batch.
pub struct Answers {
    /// What each slot gives; `None` when it sees nothing of the batch.
    pub devices: Vec<Option<Given>>,
    /// What each edge gives; `None` when none of its slots sees anything.
    pub edges: Vec<Option<Given>>,
    /// Logits of each exit of the configuration, `[batch, classes]`; those of a sample that nobody sees mean nothing.
    pub exits: ByExit<Tensor<2>>,
}

/// What a device or an edge takes and gives, for the samples of which it sees anything.
pub struct Given {
    /// Index in the batch of each of them, rising.
    pub rows: Vec<u32>,
    /// What its section takes, `[rows, ..]`.
    pub input: Tensor<4>,
    /// `[rows, classes, 1, 1]`; `None` for a device without a section.
    pub scores: Option<Tensor<4>>,
    /// The map for the next tier, `[rows, channels, h, w]`.
    pub features: Tensor<4>,
}

impl Network {
    /// The layers that a spec describes.
    pub fn new(spec: &Spec) -> Self {
        let mut builder = Builder::default();
        let shapes = &spec.shapes;
        let devices =
            shapes.device.iter().flat_map(|device| (0..spec.slots()).map(move |slot| (slot, device)));
        let devices = devices
            .map(|(slot, device)| ExitSection::new(&mut builder, &format!("device-{slot}"), device))
            .collect();
        let local = shapes.local.as_ref().map(|layer| Block::new(&mut builder, "local", layer));
        let edges = shapes.edges.iter().zip(&shapes.groups).enumerate().map(|(index, (edge, slots))| Edge {
            section: ExitSection::new(&mut builder, &format!("edge-{index}"), edge),
            slots: slots.clone(),
        });
        let edges = edges.collect();
        let edge = shapes.edge.as_ref().map(|layer| Block::new(&mut builder, "edge", layer));
        let cloud = chain(&mut builder, "cloud", &shapes.cloud);
        let tables = &spec.network;
        let joins = Joins {
            local: tables.local.as_ref().map_or(Aggregation::Mp, |local| local.get_ref().aggregation),
            edge: tables.edge.as_ref().map_or(Aggregation::Mp, |edge| edge.get_ref().aggregation),
            fusion: spec.fusion(),
            cloud: tables.cloud.aggregation,
        };
        let (layout, configuration) = (builder.finish(), spec.configuration());
        Self { devices, local, edges, edge, cloud, layout, configuration, features: shapes.features, joins }
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
        assert!(!batch.is_blank(), "a batch holds at least one view");
        let devices = batch.views.iter().enumerate();
        let devices: Vec<_> =
            devices.map(|(slot, views)| self.run_device(pass, slot, views, batch.shape)).collect();
        let edges: Vec<_> = self.edges.iter().map(|edge| self.run_edge(pass, edge, &devices)).collect();
        let exits = self.configuration.exits().iter().map(|&exit| {
            let logits = match exit {
                // One device: its scores, laid out over the batch.
                Exit::Device => joined(&devices, Part::Scores, Aggregation::Mp, batch.len()),
                Exit::Local => {
                    let scores = joined(&devices, Part::Scores, self.joins.local, batch.len());
                    self.local.iter().fold(scores, |x, block| block.forward(pass, x))
                }
                Exit::Edge => {
                    let scores = joined(&edges, Part::Scores, self.joins.fusion, batch.len());
                    self.edge.iter().fold(scores, |x, block| block.forward(pass, x))
                }
                Exit::Cloud => {
                    let sources = if edges.is_empty() { &devices } else { &edges };
                    let maps = joined(sources, Part::Features, self.joins.cloud, batch.len());
                    self.cloud.iter().fold(maps, |x, block| block.forward(pass, x))
                }
            };
            (exit, flat(logits))
        });
        let exits = exits.collect();
        Answers { devices, edges, exits }
    }

    fn run_device(
        &self,
        pass: &Pass<'_>,
        slot: usize,
        views: &SlotViews,
        [channels, h, w]: [usize; 3],
    ) -> Option<Given> {
        if views.rows.is_empty() {
            return None;
        }
        let rows = views.rows.clone();
        let view = pass.tensor(views.pixels.clone(), [rows.len(), channels, h, w]);
        Some(match self.devices.get(slot) {
            Some(section) => section.run(pass, rows, view),
            None => Given { rows, input: view.clone(), scores: None, features: view },
        })
    }

    /// Runs an edge over the samples of which one of its slots sees anything; for the others it is absent.
    fn run_edge(&self, pass: &Pass<'_>, edge: &Edge, devices: &[Option<Given>]) -> Option<Given> {
        let sources: Vec<Option<&Given>> = edge.slots.iter().map(|slot| devices[*slot].as_ref()).collect();
        let mut rows: Vec<u32> = sources.iter().flatten().flat_map(|given| &given.rows).copied().collect();
        rows.sort_unstable();
        rows.dedup();
        if rows.is_empty() {
            return None;
        }
        let at = |row: u32| rows.partition_point(|other| *other < row) as u32;
        let input = join_at(&sources, Part::Features, self.joins.edge, rows.len(), at);
        Some(edge.section.run(pass, rows, input))
    }
}

impl ExitSection {
    fn new(builder: &mut Builder, name: &str, shapes: &SectionShapes) -> Self {
        let blocks = chain(builder, name, &shapes.blocks);
        let head = format!("{name}.head");
        let head = match &shapes.head[..] {
            [layer] => vec![Block::new(builder, &head, layer)],
            layers => chain(builder, &head, layers),
        };
        Self { blocks, head, map: shapes.features }
    }

    fn run(&self, pass: &Pass<'_>, rows: Vec<u32>, input: Tensor<4>) -> Given {
        let features = self.blocks.iter().fold(input.clone(), |x, block| block.forward(pass, x));
        let scores = self.scores(pass, features.clone());
        Given { rows, input, scores: Some(scores), features }
    }

    /// Scores `[rows, classes, 1, 1]` of features.
    pub fn scores(&self, pass: &Pass<'_>, features: Tensor<4>) -> Tensor<4> {
        self.head.iter().fold(features, |x, block| block.forward(pass, x))
    }

    /// The numbers whose signs are the features, by the running statistics; `None` where the features are floats.
    pub fn before_sign(&self, pass: &Pass<'_>, input: Tensor<4>) -> Option<Tensor<4>> {
        let (last, before) = self.blocks.split_last()?;
        last.before_sign(pass, before.iter().fold(input, |x, block| block.forward(pass, x)))
    }
}

impl Given {
    /// Scores, `[rows, classes]`; `None` for a device without a section.
    pub fn flat_scores(&self) -> Option<Tensor<2>> {
        self.scores.clone().map(flat)
    }
}

/// What is joined.
#[derive(Clone, Copy)]
enum Part {
    Scores,
    Features,
}

impl Part {
    fn of(self, given: &Given) -> Tensor<4> {
        match (self, &given.scores) {
            (Self::Scores, Some(scores)) => scores.clone(),
            (Self::Scores, None) => unreachable!("no exit is in front of the cloud where devices send views"),
            (Self::Features, _) => given.features.clone(),
        }
    }
}

/// Joins what the sources give over a batch.
fn joined(sources: &[Option<Given>], part: Part, aggregation: Aggregation, batch: usize) -> Tensor<4> {
    let sources: Vec<_> = sources.iter().map(Option::as_ref).collect();
    join_at(&sources, part, aggregation, batch, |row| row)
}

/// Joins what the sources give over `batch` samples; `at` says where a row of the whole batch lies among them.
fn join_at(
    sources: &[Option<&Given>],
    part: Part,
    aggregation: Aggregation,
    batch: usize,
    at: impl Fn(u32) -> u32,
) -> Tensor<4> {
    let mut place = Join { batch, slots: sources.len(), rows: Vec::new() };
    let mut maps = Vec::new();
    for (slot, given) in sources.iter().enumerate() {
        let Some(given) = given else { continue };
        place.rows.extend(given.rows.iter().map(|row| (at(*row), slot as u32)));
        maps.push(part.of(given));
    }
    join(Tensor::cat(maps, 0), aggregation, &place)
}

fn chain(builder: &mut Builder, section: &str, shapes: &[LayerShape]) -> Vec<Block> {
    let blocks = shapes.iter().enumerate();
    blocks.map(|(index, shape)| Block::new(builder, &format!("{section}.{index}"), shape)).collect()
}

fn flat(x: Tensor<4>) -> Tensor<2> {
    let [batch, classes, ..] = x.dims();
    x.reshape([batch, classes])
}
