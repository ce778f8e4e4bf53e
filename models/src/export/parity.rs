//! Export is refused unless the engine agrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError};
use headwater_inference::engine::{Engine, EngineError};
use headwater_inference::sections::{CloudSection, DeviceSection, LocalExit, SectionError};
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
/// Samples compared.
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

/// Compares a bundle with the trained network, device sections in the first engine and the others in the second, on the first [`SAMPLES`] of `samples`, section by section: every section
/// gets what the trained network gives it, so that a difference is named where it arises.
///
/// # Errors
/// [`ParityError`] with the first difference that is too large.
///
/// # Panics
/// When `network` is not of a spec that the shape pass let through.
pub fn compare(
    bundle: &Bundle,
    (engine, behind): (&dyn Engine, &dyn Engine),
    network: &Network,
    state: &State,
    samples: &Samples,
) -> Result<Parity, ParityError> {
    let count = samples.len().min(SAMPLES);
    let mut parity = Parity { engine: engine.name().into(), samples: count, ..Parity::default() };
    let batch = Batch::plain(samples, 0..count);
    if batch.is_blank() {
        return Ok(parity);
    }
    let pass = Pass::inference(&network.layout, state);
    let (slots, classes) = (samples.slots, samples.classes);
    let map_bytes = bundle.manifest().features.packed_bytes();
    let mut trained_scores = vec![0.0; count * slots * classes];
    let mut trained_maps = vec![0u8; count * slots * map_bytes];
    for (slot, (layers, views)) in network.devices.iter().zip(&batch.views).enumerate() {
        if views.rows.is_empty() {
            continue;
        }
        let trained = device(&pass, layers, &batch, slot);
        let id = Slot::first(slots).nth(slot).expect("the network has that slot");
        let mut section = DeviceSection::load(bundle, id, engine)?;
        let pixels: Vec<u8> = views
            .rows
            .iter()
            .flat_map(|row| samples.view(*row as usize, slot).unwrap_or_default())
            .copied()
            .collect();
        let bits = trained.before_sign.len() / views.rows.len();
        for (row, answer) in section.run(&pixels, views.rows.len())?.iter().enumerate() {
            let sample = views.rows[row] as usize;
            let scores = &trained.scores[row * classes..][..classes];
            parity.floats(
                &format!("scores of device {slot}"),
                sample,
                scores,
                &answer.scores,
                engine.name(),
            )?;
            let before = &trained.before_sign[row * bits..][..bits];
            parity.compare_bits((slot, sample), before, &answer.features, engine.name())?;
            let at = sample * slots + slot;
            trained_scores[at * classes..][..classes].copy_from_slice(scores);
            let map = &mut trained_maps[at * map_bytes..][..map_bytes];
            for (bit, value) in before.iter().enumerate() {
                map[bit / 8] |= u8::from(*value >= 0.0) << (bit % 8);
            }
        }
    }
    let answers = network.forward(&pass, &batch);
    let (local, cloud) = (values(answers.local), values(answers.cloud));
    let mut exit = LocalExit::load(bundle, behind)?;
    let mut section = CloudSection::load(bundle, behind)?;
    let mut logits = vec![0.0; classes];
    for sample in (0..count).filter(|sample| samples.seen[*sample] != 0) {
        let seen = samples.seen[sample];
        let scores = &trained_scores[sample * slots * classes..][..slots * classes];
        exit.scores(scores, u64::from(seen), &mut logits)?;
        parity.floats(
            "logits of local",
            sample,
            &local[sample * classes..][..classes],
            &logits,
            behind.name(),
        )?;
        let presence: Vec<bool> = (0..slots).map(|slot| seen >> slot & 1 == 1).collect();
        let found =
            section.run(1, &trained_maps[sample * slots * map_bytes..][..slots * map_bytes], &presence)?;
        parity.floats(
            "logits of cloud",
            sample,
            &cloud[sample * classes..][..classes],
            &found,
            behind.name(),
        )?;
    }
    Ok(parity)
}

impl Parity {
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

/// What a trained device section gives: scores, and the numbers in front of the signs of the features.
struct Trained {
    scores: Vec<f32>,
    before_sign: Vec<f32>,
}

fn device(pass: &Pass<'_>, layers: &DeviceLayers, batch: &Batch, slot: usize) -> Trained {
    let views = &batch.views[slot];
    let [channels, h, w] = batch.shape;
    let pixels = pass.tensor(views.pixels.clone(), [views.rows.len(), channels, h, w]);
    let (before, last) = layers.last_convp().expect("the shape pass wants a convp last");
    let x = before.iter().fold(pixels.clone(), |x, block| block.forward(pass, x));
    let before_sign = last.before_sign(pass, x);
    let answer = layers.forward(pass, pixels);
    let flat =
        |tensor: burn::tensor::Tensor<4>| tensor.into_data().try_to_vec::<f32>().expect("tensors hold f32");
    Trained { scores: flat(answer.scores), before_sign: flat(before_sign) }
}

fn values(tensor: burn::tensor::Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_to_vec::<f32>().expect("logits are f32")
}
