//! Small made-up networks as real bundles: real ONNX, weights from a seed, nothing trained. For tests only.

mod onnx;

use headwater_protocol::Slot;

use crate::bundle::BundleWriter;
use crate::manifest::{
    Aggregation, Configuration, FORMAT_VERSION, FeatureMap, InputKind, NetworkManifest, OutputKind,
    PixelScale, Preprocessing, ScoreEncoding, SectionInput, SectionManifest, SectionOutput, Tier,
};
use crate::policy::Policy;

pub use onnx::OnnxGraph;

/// A network of configuration (c): convolution, pool and sign on each device; convolution and a layer in the cloud.
#[derive(Clone, Debug)]
pub struct TinyNetwork {
    /// Device slots.
    pub slots: u8,
    /// Classes.
    pub classes: usize,
    /// View, `[channels, height, width]`.
    pub view: [u32; 3],
    /// Filters of the device block.
    pub filters: u32,
    /// Join of the scores.
    pub local: Aggregation,
    /// Join of the feature maps.
    pub cloud: Aggregation,
    /// Of the weights.
    pub seed: u64,
    /// Shipped policy.
    pub policy: Policy,
}

impl Default for TinyNetwork {
    /// Three slots, four classes, views of 3x8x8, four filters, means at the local exit, concatenation at the cloud.
    fn default() -> Self {
        Self {
            slots: 3,
            classes: 4,
            view: [3, 8, 8],
            filters: 4,
            local: Aggregation::Ap,
            cloud: Aggregation::Cc,
            seed: 1,
            policy: Policy::default(),
        }
    }
}

impl TinyNetwork {
    /// The bundle file.
    ///
    /// # Panics
    /// When the fields do not make a network.
    pub fn bundle(&self) -> Vec<u8> {
        self.writer().finish().expect("a network that holds")
    }

    /// A writer that has everything a bundle needs.
    pub fn writer(&self) -> BundleWriter {
        let manifest = self.manifest();
        let sections: Vec<_> =
            manifest.sections.iter().map(|section| (section.name.clone(), self.onnx(section))).collect();
        let writer = BundleWriter::new(manifest, self.policy.clone());
        sections.into_iter().fold(writer, |writer, (name, onnx)| writer.section(name, onnx))
    }

    /// What the bundle says of the network.
    pub fn manifest(&self) -> NetworkManifest {
        let [channels, height, width] = self.view;
        NetworkManifest {
            format: FORMAT_VERSION,
            name: "tiny".into(),
            configuration: Configuration::C,
            labels: (0..self.classes).map(|class| format!("class {class}")).collect(),
            class_prior: vec![1.0 / self.classes as f32; self.classes],
            preprocessing: Preprocessing { channels, height, width, scale: PixelScale::Unit },
            slots: self.slots,
            scores: ScoreEncoding::F32,
            features: self.features(),
            local_aggregation: self.local,
            cloud_aggregation: self.cloud,
            sections: self.sections(),
            spec: serde_json::json!({ "made_by": "TinyNetwork" }),
        }
    }

    /// A view that looks like noise, the same for the same number.
    pub fn view_of(&self, number: u64) -> Vec<u8> {
        let bytes: u32 = self.view.iter().product();
        let mut random = Random(number.wrapping_mul(77) ^ 5);
        (0..bytes).map(|_| (random.next() >> 32) as u8).collect()
    }

    fn features(&self) -> FeatureMap {
        // Pool 3x3, stride 2, pad 1.
        let pooled = |side: u32| (side - 1) / 2 + 1;
        FeatureMap { channels: self.filters, height: pooled(self.view[1]), width: pooled(self.view[2]) }
    }

    fn sections(&self) -> Vec<SectionManifest> {
        let map = self.features();
        let [f, h, w] = [map.channels, map.height, map.width].map(|n| n as usize);
        let (slots, classes) = (usize::from(self.slots), self.classes);
        let section = |name: String, tier, slot, kind, shape: Vec<usize>, outputs| SectionManifest {
            name,
            tier,
            slot,
            input: SectionInput { kind, shape },
            outputs,
            parameters: 1000,
            macs: 1000,
            sha256: String::new(),
            packed_sha256: None,
        };
        let output = |name: &str, kind, shape| SectionOutput { name: name.into(), kind, shape };
        let logits = || vec![output("logits", OutputKind::F32, vec![classes])];

        let mut sections = Vec::new();
        for slot in Slot::first(slots) {
            let outputs = vec![
                output("scores", OutputKind::F32, vec![classes]),
                output("features", OutputKind::Bits, vec![f, h, w]),
            ];
            let shape = self.view.map(|n| n as usize).to_vec();
            let name = SectionManifest::device_name(slot);
            sections.push(section(name, Tier::Device, Some(slot), InputKind::Pixels, shape, outputs));
        }
        if self.local == Aggregation::Cc {
            let shape = vec![slots * classes + slots];
            sections.push(section("local".into(), Tier::Edge, None, InputKind::Floats, shape, logits()));
        }
        let channels = if self.cloud == Aggregation::Cc { slots * f + slots } else { f };
        let shape = vec![channels, h, w];
        sections.push(section("cloud".into(), Tier::Cloud, None, InputKind::Floats, shape, logits()));
        sections
    }

    fn onnx(&self, section: &SectionManifest) -> Vec<u8> {
        let salt = section.name.bytes().fold(self.seed, |salt, byte| salt.wrapping_mul(31) + u64::from(byte));
        let mut random = Random(salt);
        let shape = &section.input.shape;
        let mut graph = OnnxGraph::new(shape);
        match section.tier {
            Tier::Device => {
                let f = self.filters as usize;
                let x = graph.conv("x", [f, shape[0], 3, 3], &mut || random.sign(), 1);
                let x = graph.max_pool(&x);
                let features = graph.sign(&x);
                let bits = self.features().bits();
                let scores = graph.linear(&features, [self.classes, bits], &mut || random.small());
                graph.finish(&[&scores, &features])
            }
            Tier::Edge => {
                let logits = graph.linear("x", [self.classes, shape[0]], &mut || random.small());
                graph.finish(&[&logits])
            }
            Tier::Cloud => {
                let x = graph.conv("x", [4, shape[0], 3, 3], &mut || random.small(), 1);
                let x = graph.node("Relu", &[&x], &[]);
                let elements = 4 * shape[1] * shape[2];
                let logits = graph.linear(&x, [self.classes, elements], &mut || random.small());
                graph.finish(&[&logits])
            }
        }
    }
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
