//! What the exits of a trained network say about a part of the data.

use crate::data::{Batch, Samples};
use crate::layers::{Pass, State};
use crate::loss::best;
use crate::network::Network;
use crate::training::{ExitShares, Workers};

/// Samples that run through the network at once.
const CHUNK: usize = 128;

/// Logits of every exit for every sample of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExitLogits {
    /// Number of classes.
    pub classes: usize,
    /// For each slot `[samples, classes]`; zeros where it does not see the sample.
    pub devices: Vec<Vec<f32>>,
    /// `[samples, classes]`; zeros where no slot sees the sample.
    pub local: Vec<f32>,
    /// `[samples, classes]`; zeros where no slot sees the sample.
    pub cloud: Vec<f32>,
}

impl ExitLogits {
    fn append(&mut self, other: Self) {
        self.classes = other.classes;
        self.devices.resize(other.devices.len(), Vec::new());
        self.devices.iter_mut().zip(other.devices).for_each(|(all, more)| all.extend(more));
        self.local.extend(other.local);
        self.cloud.extend(other.cloud);
    }
}

/// Runs all samples through the network, normalised by the running statistics.
pub fn evaluate(workers: &Workers, network: &Network, state: &State, samples: &Samples) -> ExitLogits {
    let share = samples.len().div_ceil(workers.count()).max(1);
    let parts: Vec<_> =
        (0..samples.len()).step_by(share).map(|start| start..(start + share).min(samples.len())).collect();
    let parts = workers.each(parts, |part| {
        let mut logits = ExitLogits::default();
        for start in part.clone().step_by(CHUNK) {
            let batch = Batch::plain(samples, start..(start + CHUNK).min(part.end));
            logits.append(chunk(network, state, &batch, samples.classes));
        }
        logits
    });
    let mut all = ExitLogits::default();
    parts.into_iter().for_each(|part| all.append(part));
    all
}

fn chunk(network: &Network, state: &State, batch: &Batch, classes: usize) -> ExitLogits {
    let zeros = vec![0.0; batch.len() * classes];
    let mut devices = vec![zeros.clone(); batch.views.len()];
    if batch.is_blank() {
        return ExitLogits { classes, devices, local: zeros.clone(), cloud: zeros };
    }
    let pass = Pass::inference(&network.layout, state);
    let answers = network.forward(&pass, batch);
    for ((all, scores), views) in devices.iter_mut().zip(&answers.devices).zip(&batch.views) {
        let Some(scores) = scores else { continue };
        let scores = values(scores.clone());
        for (row, scores) in views.rows.iter().zip(scores.chunks_exact(classes)) {
            all[*row as usize * classes..][..classes].copy_from_slice(scores);
        }
    }
    let seen = |mut logits: Vec<f32>| {
        for (row, present) in logits.chunks_exact_mut(classes).zip(&batch.present) {
            if *present == 0 {
                row.fill(0.0);
            }
        }
        logits
    };
    ExitLogits { classes, devices, local: seen(values(answers.local)), cloud: seen(values(answers.cloud)) }
}

fn values(tensor: burn::tensor::Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_to_vec::<f32>().expect("logits are f32")
}

/// Correct answers by exit.
#[derive(Clone, Debug, PartialEq)]
pub struct ExitCounts {
    /// Samples.
    pub samples: usize,
    /// For each slot: samples it sees, correct ones among them.
    pub devices: Vec<(usize, usize)>,
    /// Correct at the exit `local`.
    pub local: usize,
    /// Correct at the exit `cloud`.
    pub cloud: usize,
}

impl ExitCounts {
    /// Counts over a part.
    pub fn of(logits: &ExitLogits, samples: &Samples) -> Self {
        let hits = |logits: &[f32], only: &dyn Fn(usize) -> bool| {
            let rows = logits.chunks_exact(samples.classes).zip(&samples.labels).enumerate();
            rows.filter(|(sample, (row, label))| only(*sample) && best(row) == usize::from(**label)).count()
        };
        let devices = logits.devices.iter().enumerate().map(|(slot, scores)| {
            let sees = |sample: usize| samples.seen[sample] >> slot & 1 == 1;
            ((0..samples.len()).filter(|sample| sees(*sample)).count(), hits(scores, &sees))
        });
        Self {
            samples: samples.len(),
            devices: devices.collect(),
            local: hits(&logits.local, &|_| true),
            cloud: hits(&logits.cloud, &|_| true),
        }
    }

    /// The counts as shares.
    pub fn shares(&self) -> ExitShares {
        let share = |hits: usize, of: usize| hits as f64 / of.max(1) as f64;
        ExitShares {
            devices: self.devices.iter().map(|(seen, hits)| share(*hits, *seen)).collect(),
            local: share(self.local, self.samples),
            cloud: share(self.cloud, self.samples),
        }
    }
}
