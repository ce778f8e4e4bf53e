//! Export is refused unless the engine agrees with the trained network.

use std::ops::Range;

use headwater_inference::bundle::{Bundle, BundleError};
use headwater_inference::engine::{Engine, EngineError};
use headwater_inference::sections::{CloudSection, DeviceSection, ScoresExit, SectionError};
use headwater_kernels::{pack_signs, packed_len};
use headwater_protocol::Slot;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::{Batch, Samples};
use crate::layers::{Pass, State};
use crate::network::{DeviceLayers, Network};

/// Floats may differ by so much, relative to numbers above 1: engines sum in another order.
pub const FLOAT_TOLERANCE: f32 = 1e-4;
/// Bits may differ where the number in front of the sign is closer to 0 than this.
pub const SIGN_TOLERANCE: f32 = 1e-5;
/// Samples compared at export, and at once in a comparison of more.
pub const SAMPLES: usize = 256;

/// How an engine compares with the trained network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parity {
    /// Engine.
    pub engine: String,
    /// Samples compared.
    pub samples: usize,
    /// Largest difference of a score or logit.
    pub largest_difference: f32,
    /// Feature bits compared.
    pub bits: u64,
    /// Bits that differ, each within [`SIGN_TOLERANCE`] of the threshold.
    pub bits_at_threshold: u64,
    /// Views for which another class has the highest score.
    #[serde(default)]
    pub other_class: u64,
}

/// An engine that does not agree with the trained network.
#[derive(Debug, Error)]
pub enum ParityError {
    /// The engine refuses or fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sections do not fit together.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The bundle does not hold a section.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A float differs.
    #[error(
        "parity, {what}, sample {sample}: expected {expected} as trained, found {found} in engine {engine}"
    )]
    Float {
        /// Section and output.
        what: String,
        /// Position in the samples compared.
        sample: usize,
        /// As trained.
        expected: f32,
        /// In the engine.
        found: f32,
        /// Engine.
        engine: &'static str,
    },
    /// A bit differs that is not at the threshold.
    #[error(
        "parity, features of device {slot}, sample {sample}, bit {bit}: expected {expected:+} in front of the sign as trained, \
         engine {engine} has the other sign"
    )]
    Bit {
        /// Slot.
        slot: usize,
        /// Position in the samples compared.
        sample: usize,
        /// Position in the map.
        bit: usize,
        /// Number in front of the sign, as trained.
        expected: f32,
        /// Engine.
        engine: &'static str,
    },
}

/// What the trained network gives for some samples, section by section: every section of an engine is given
/// what the trained one gets, so that a difference is named where it arises.
pub struct Trained<'a> {
    samples: &'a Samples,
    /// The first of them.
    start: usize,
    count: usize,
    /// One a slot.
    devices: Vec<Views>,
    /// `[samples, slots, classes]`; zero where a slot sees nothing.
    scores: Vec<f32>,
    /// `[samples, slots, bytes of a map]`.
    maps: Vec<u8>,
    /// `[samples, classes]`.
    local: Vec<f32>,
    cloud: Vec<f32>,
}

/// What the trained section of one device gives, for each view it sees.
#[derive(Default)]
struct Views {
    /// The sample of each view, counted from the first.
    rows: Vec<u32>,
    /// `[views, classes]`.
    scores: Vec<f32>,
    /// The numbers in front of the signs of the features, `[views, bits]`.
    before_sign: Vec<f32>,
}

impl<'a> Trained<'a> {
    /// Runs the trained network on a range of samples, which are held in memory as floats.
    ///
    /// # Panics
    /// When `network` is not of a spec that the shape pass let through.
    pub fn new(network: &Network, state: &State, samples: &'a Samples, range: Range<usize>) -> Self {
        let batch = Batch::plain(samples, range.clone());
        let mut trained = Self {
            samples,
            start: range.start,
            count: range.len(),
            devices: Vec::new(),
            scores: Vec::new(),
            maps: Vec::new(),
            local: Vec::new(),
            cloud: Vec::new(),
        };
        if batch.is_blank() {
            return trained;
        }
        let pass = Pass::inference(&network.layout, state);
        trained.devices =
            (0..samples.slots).map(|slot| views(&pass, &network.devices[slot], &batch, slot)).collect();
        trained.lay_out();
        let answers = network.forward(&pass, &batch);
        (trained.local, trained.cloud) = (values(answers.local), values(answers.cloud));
        trained
    }

    /// Scores and maps in the order in which the sections behind the devices take them.
    fn lay_out(&mut self) {
        let (slots, classes) = (self.samples.slots, self.samples.classes);
        let bits = self.devices.iter().map(Views::bits).max().unwrap_or(0);
        let map_bytes = packed_len(bits);
        self.scores = vec![0.0; self.count * slots * classes];
        self.maps = vec![0; self.count * slots * map_bytes];
        for (slot, views) in self.devices.iter().enumerate() {
            for (row, &sample) in views.rows.iter().enumerate() {
                let at = sample as usize * slots + slot;
                self.scores[at * classes..][..classes]
                    .copy_from_slice(&views.scores[row * classes..][..classes]);
                pack_signs(
                    &views.before_sign[row * bits..][..bits],
                    &mut self.maps[at * map_bytes..][..map_bytes],
                );
            }
        }
    }

    /// Compares the device sections of a bundle in an engine.
    ///
    /// # Errors
    /// [`ParityError`] with the first difference that is too large.
    pub fn compare_devices(&self, bundle: &Bundle, engine: &dyn Engine) -> Result<Parity, ParityError> {
        let mut parity = self.parity(engine);
        for (slot, (id, views)) in Slot::first(self.samples.slots).zip(&self.devices).enumerate() {
            if views.rows.is_empty() {
                continue;
            }
            let mut section = DeviceSection::load(bundle, id, engine)?;
            let seen = views.rows.iter().flat_map(|&row| self.samples.view(self.start + row as usize, slot));
            let pixels: Vec<u8> = seen.flatten().copied().collect();
            let (classes, bits) = (self.samples.classes, views.bits());
            for (row, answer) in section.run(&pixels, views.rows.len())?.iter().enumerate() {
                let sample = self.start + views.rows[row] as usize;
                let scores = &views.scores[row * classes..][..classes];
                let what = format!("scores of device {slot}");
                parity.floats(&what, sample, scores, &answer.scores, engine.name())?;
                parity.other_class += u64::from(best(scores) != best(&answer.scores));
                let before = &views.before_sign[row * bits..][..bits];
                parity.compare_bits((slot, sample), before, &answer.features, engine.name())?;
            }
        }
        Ok(parity)
    }

    /// Compares what is behind the devices, exit `local` and the cloud section, in an engine.
    ///
    /// # Errors
    /// [`ParityError`] with the first difference that is too large.
    pub fn compare_behind(&self, bundle: &Bundle, engine: &dyn Engine) -> Result<Parity, ParityError> {
        let mut parity = self.parity(engine);
        if self.devices.is_empty() {
            return Ok(parity);
        }
        let (slots, classes) = (self.samples.slots, self.samples.classes);
        let map_bytes = self.maps.len() / (self.count * slots);
        let mut exit = ScoresExit::local(bundle, engine)?.ok_or(SectionError::NeedsSection)?;
        let mut section = CloudSection::load(bundle, engine)?;
        let mut logits = vec![0.0; classes];
        for sample in 0..self.count {
            let (seen, at) = (self.samples.seen[self.start + sample], self.start + sample);
            if seen == 0 {
                continue;
            }
            let of = |values: &[f32]| values[sample * classes..][..classes].to_vec();
            let scores = &self.scores[sample * slots * classes..][..slots * classes];
            exit.scores(scores, u64::from(seen), &mut logits)?;
            parity.floats("logits of local", at, &of(&self.local), &logits, engine.name())?;
            let presence: Vec<bool> = (0..slots).map(|slot| seen >> slot & 1 == 1).collect();
            let maps = &self.maps[sample * slots * map_bytes..][..slots * map_bytes];
            let found = section.run(1, maps, &presence)?;
            parity.floats("logits of cloud", at, &of(&self.cloud), &found, engine.name())?;
        }
        Ok(parity)
    }

    fn parity(&self, engine: &dyn Engine) -> Parity {
        Parity { engine: engine.name().into(), samples: self.count, ..Parity::default() }
    }
}

impl Views {
    /// Bits of a map; 0 where nothing is seen.
    fn bits(&self) -> usize {
        self.before_sign.len().checked_div(self.rows.len()).unwrap_or(0)
    }
}

impl Parity {
    /// This and what another part of the network gave on the same samples in the same engine.
    #[must_use]
    pub fn with(self, other: &Self) -> Self {
        Self { samples: self.samples, ..self.and(other) }
    }

    /// This and what the same engine gave on other samples.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            engine: self.engine,
            samples: self.samples + other.samples,
            largest_difference: self.largest_difference.max(other.largest_difference),
            bits: self.bits + other.bits,
            bits_at_threshold: self.bits_at_threshold + other.bits_at_threshold,
            other_class: self.other_class + other.other_class,
        }
    }

    fn floats(
        &mut self,
        what: &str,
        sample: usize,
        expected: &[f32],
        found: &[f32],
        engine: &'static str,
    ) -> Result<(), ParityError> {
        for (&expected, &found) in expected.iter().zip(found) {
            let difference = (expected - found).abs() / expected.abs().max(1.0);
            if difference.is_nan() || difference > FLOAT_TOLERANCE {
                return Err(ParityError::Float { what: what.to_owned(), sample, expected, found, engine });
            }
            self.largest_difference = self.largest_difference.max(difference);
        }
        Ok(())
    }

    fn compare_bits(
        &mut self,
        (slot, sample): (usize, usize),
        before_sign: &[f32],
        packed: &[u8],
        engine: &'static str,
    ) -> Result<(), ParityError> {
        self.bits += before_sign.len() as u64;
        for (bit, expected) in before_sign.iter().enumerate() {
            if (*expected >= 0.0) != (packed[bit / 8] >> (bit % 8) & 1 == 1) {
                if expected.abs() >= SIGN_TOLERANCE {
                    return Err(ParityError::Bit { slot, sample, bit, expected: *expected, engine });
                }
                self.bits_at_threshold += 1;
            }
        }
        Ok(())
    }
}

fn views(pass: &Pass<'_>, layers: &DeviceLayers, batch: &Batch, slot: usize) -> Views {
    let views = &batch.views[slot];
    if views.rows.is_empty() {
        return Views::default();
    }
    let [channels, h, w] = batch.shape;
    let pixels = pass.tensor(views.pixels.clone(), [views.rows.len(), channels, h, w]);
    let (before, last) = layers.last_convp().expect("the shape pass wants a convp last");
    let x = before.iter().fold(pixels.clone(), |x, block| block.forward(pass, x));
    let before_sign = last.before_sign(pass, x);
    let answer = layers.forward(pass, pixels);
    Views { rows: views.rows.clone(), scores: values(answer.scores), before_sign: values(before_sign) }
}

fn values<const D: usize>(tensor: burn::tensor::Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec::<f32>().expect("tensors hold f32")
}

/// The class with the highest score, the first of equal ones.
fn best(scores: &[f32]) -> usize {
    (1..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
}
