//! Small networks as bundles for tests: real ONNX with weights from a seed, not trained.

mod onnx;

use headwater_map_coder::CONTEXTS;
use headwater_protocol::{Exit, Slot};

use crate::bundle::BundleWriter;
use crate::manifest::{
    Aggregation, Configuration, EdgeTier, FORMAT_VERSION, FeatureEncoding, FeatureMap, NetworkManifest,
    OutputKind, PixelScale, Preprocessing, ScoreEncoding, ScoreLevels, SectionManifest, Tier,
};
use crate::policy::Policy;

pub use onnx::OnnxGraph;

/// A network of any configuration. Devices and edges run a convolution, a pool, a sign if maps are bits, and a linear layer for the
/// scores; the cloud runs a convolution and a linear layer.
#[derive(Clone, Debug)]
pub struct TinyNetwork {
    /// DDNN configuration, `a` to `f`.
    pub configuration: Configuration,
    /// Number of device slots.
    pub slots: u8,
    /// Number of classes.
    pub classes: usize,
    /// Shape of a view, `[channels, height, width]`.
    pub view: [u32; 3],
    /// Filters of the device block.
    pub filters: u32,
    /// Join of the devices' scores for the exit `local`.
    pub local: Aggregation,
    /// Slots of each edge, in configurations that have edges.
    pub edges: Vec<Vec<u8>>,
    /// Join of the maps at each edge, and of the scores of the edges.
    pub edge: [Aggregation; 2],
    /// Join of the maps for the cloud.
    pub cloud: Aggregation,
    /// Encoding of the maps of devices and edges.
    pub encoding: FeatureEncoding,
    /// Encoding of the scores in summaries.
    pub scores: ScoreEncoding,
    /// True when devices send their maps entropy-coded.
    pub codes_maps: bool,
    /// Seed of the weights.
    pub seed: u64,
    /// The bundle's policy.
    pub policy: Policy,
}

impl Default for TinyNetwork {
    /// Three slots, four classes, views of 3x8x8, four filters, means at the local exit, concatenation at the cloud.
    fn default() -> Self {
        Self {
            configuration: Configuration::C,
            slots: 3,
            classes: 4,
            view: [3, 8, 8],
            filters: 4,
            local: Aggregation::Ap,
            edges: Vec::new(),
            edge: [Aggregation::Cc, Aggregation::Ap],
            cloud: Aggregation::Cc,
            encoding: FeatureEncoding::Bits,
            scores: ScoreEncoding::F32,
            codes_maps: false,
            seed: 1,
            policy: Policy::default(),
        }
    }
}

impl TinyNetwork {
    /// A network of that configuration: one slot in (b) and (d), else three; one edge in (d) and (e), two in (f).
    pub fn of(configuration: Configuration) -> Self {
        let slots = if configuration.has(Exit::DEVICE) { 1 } else { 3 };
        let edges = match configuration {
            Configuration::D => vec![vec![0]],
            Configuration::E => vec![vec![0, 1, 2]],
            Configuration::F => vec![vec![0, 2], vec![1]],
            Configuration::A | Configuration::B | Configuration::C => Vec::new(),
        };
        let has_section = configuration.has_device_section();
        let encoding = if has_section { FeatureEncoding::Bits } else { FeatureEncoding::Pixels };
        Self { configuration, slots, edges, encoding, ..Self::default() }
    }

    /// Bytes of the bundle.
    ///
    /// # Panics
    /// When the fields do not make a network.
    pub fn bundle(&self) -> Vec<u8> {
        self.writer().finish().expect("a network that holds")
    }

    /// A writer with every section, before it is finished.
    pub fn writer(&self) -> BundleWriter {
        self.with_manifest(self.manifest())
    }

    /// A writer with every section and a changed manifest, before it is finished.
    pub fn with_manifest(&self, manifest: NetworkManifest) -> BundleWriter {
        let sections: Vec<_> =
            manifest.sections.iter().map(|section| (section.name.clone(), self.onnx(section))).collect();
        let coded = manifest.sections.iter().filter(|section| self.codes_maps && section.slot.is_some());
        let coded: Vec<_> = coded.map(|section| section.name.clone()).collect();
        let writer = BundleWriter::new(manifest, self.policy.clone());
        let writer = sections.into_iter().fold(writer, |writer, (name, onnx)| writer.section(name, onnx));
        let table = vec![64; self.features().channels as usize * CONTEXTS];
        coded.into_iter().fold(writer, |writer, name| writer.contexts(name, table.clone()))
    }

    /// The network's manifest.
    pub fn manifest(&self) -> NetworkManifest {
        let [channels, height, width] = self.view;
        let mut manifest = NetworkManifest {
            exits: Vec::new(),
            format: FORMAT_VERSION,
            name: "tiny".into(),
            configuration: self.configuration,
            labels: (0..self.classes).map(|class| format!("class {class}")).collect(),
            class_prior: vec![1.0 / self.classes as f32; self.classes],
            preprocessing: Preprocessing {
                channels,
                height,
                width,
                scale: PixelScale::Unit,
                fit: None,
                regions: Vec::new(),
            },
            slots: self.slots,
            scores: self.scores,
            score_levels: self.score_levels(),
            features: self.features(),
            local_aggregation: self.local,
            edge: self.edge_tier(),
            cloud_aggregation: self.cloud,
            sections: Vec::new(),
            score_limits: std::collections::BTreeMap::new(),
            spec: serde_json::json!({ "made_by": "TinyNetwork" }),
        };
        let sections = manifest.expected_sections().into_iter();
        manifest.sections =
            sections.map(|section| SectionManifest { parameters: 1000, macs: 1000, ..section }).collect();
        manifest
    }

    /// A view of noise; the same number gives the same view.
    pub fn view_of(&self, number: u64) -> Vec<u8> {
        let bytes: u32 = self.view.iter().product();
        let mut random = Random(number.wrapping_mul(77) ^ 5);
        (0..bytes).map(|_| (random.next() >> 32) as u8).collect()
    }

    /// Levels over the range of most scores.
    fn score_levels(&self) -> Vec<ScoreLevels> {
        let Some(count) = self.scores.levels() else { return Vec::new() };
        let levels = ScoreLevels { least: -8.0, step: 16.0 / f32::from(count - 1) };
        vec![levels; usize::from(self.slots)]
    }

    fn features(&self) -> FeatureMap {
        let [channels, height, width] = self.view;
        if self.encoding == FeatureEncoding::Pixels {
            return FeatureMap { channels, height, width, encoding: self.encoding };
        }
        let [height, width] = [pooled(height), pooled(width)];
        FeatureMap { channels: self.filters, height, width, encoding: self.encoding }
    }

    fn edge_tier(&self) -> Option<EdgeTier> {
        let map = self.features();
        let slot = |slot: &u8| Slot::new(*slot).expect("a slot");
        (!self.edges.is_empty()).then(|| EdgeTier {
            groups: self.edges.iter().map(|group| group.iter().map(slot).collect()).collect(),
            aggregation: self.edge[0],
            fusion: self.edge[1],
            features: FeatureMap { height: pooled(map.height), width: pooled(map.width), ..map },
        })
    }

    fn onnx(&self, section: &SectionManifest) -> Vec<u8> {
        let salt = section.name.bytes().fold(self.seed, |salt, byte| salt.wrapping_mul(31) + u64::from(byte));
        let mut random = Random(salt);
        let shape = &section.input.shape;
        let mut graph = OnnxGraph::new(shape);
        if section.tier == Tier::Cloud {
            let x = graph.conv("x", [4, shape[0], 3, 3], &mut || random.small(), 1);
            let x = graph.node("Relu", &[&x], &[]);
            let elements = 4 * shape[1] * shape[2];
            let logits = graph.linear(&x, [self.classes, elements], &mut || random.small());
            return graph.finish(&[&logits]);
        }
        let [_, features] = &section.outputs[..] else {
            let logits = graph.linear("x", [self.classes, shape[0]], &mut || random.small());
            return graph.finish(&[&logits]);
        };
        let x = graph.conv("x", [features.shape[0], shape[0], 3, 3], &mut || random.sign(), 1);
        let x = graph.max_pool(&x);
        let map = if features.kind == OutputKind::Bits { graph.sign(&x) } else { x };
        let scores = graph.linear(&map, [self.classes, features.elements()], &mut || random.small());
        graph.finish(&[&scores, &map])
    }
}

/// Side of a map after a pool of 3x3, stride 2, pad 1.
fn pooled(side: u32) -> u32 {
    (side - 1) / 2 + 1
}

/// `SplitMix64`: enough for made-up weights.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn sign(&mut self) -> f32 {
        if self.next() >> 63 == 1 { 1.0 } else { -1.0 }
    }

    fn small(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }
}
