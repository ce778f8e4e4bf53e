//! What the exits of a trained network say about a part of the data.

use crate::by_exit::ByExit;
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
    /// For each slot `[samples, classes]`; zeros where it does not see the sample. None where devices have no section.
    pub devices: Vec<Vec<f32>>,
    /// `[samples, classes]` of each exit; zeros where no slot sees the sample.
    pub exits: ByExit<Vec<f32>>,
}

impl ExitLogits {
    fn append(&mut self, other: Self) {
        self.classes = other.classes;
        self.devices.resize(other.devices.len(), Vec::new());
        self.devices.iter_mut().zip(other.devices).for_each(|(all, more)| all.extend(more));
        for (exit, more) in other.exits.iter() {
            self.exits.slot(exit).get_or_insert_default().extend(more);
        }
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
    let mut devices = vec![zeros.clone(); network.devices.len()];
    if batch.is_blank() {
        let exits = network.configuration.exits().iter().map(|exit| (*exit, zeros.clone()));
        return ExitLogits { classes, devices, exits: exits.collect() };
    }
    let pass = Pass::inference(&network.layout, state);
    let answers = network.forward(&pass, batch);
    for (all, given) in devices.iter_mut().zip(&answers.devices) {
        let Some((given, scores)) = given.as_ref().and_then(|given| Some((given, given.flat_scores()?)))
        else {
            continue;
        };
        for (row, scores) in given.rows.iter().zip(values(scores).chunks_exact(classes)) {
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
    ExitLogits { classes, devices, exits: answers.exits.map(|_, logits| seen(values(logits.clone()))) }
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
    /// Correct at each exit.
    pub exits: ByExit<usize>,
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
            exits: logits.exits.map(|_, logits| hits(logits, &|_| true)),
        }
    }

    /// The counts as shares.
    pub fn shares(&self) -> ExitShares {
        let share = |hits: usize, of: usize| hits as f64 / of.max(1) as f64;
        ExitShares {
            devices: self.devices.iter().map(|(seen, hits)| share(*hits, *seen)).collect(),
            exits: self.exits.map(|_, hits| share(*hits, self.samples)),
        }
    }
}
