//! The joint loss: the sum over every exit, and what the cloud exit teaches the exits in front of it.

use burn::tensor::Tensor;
use headwater_protocol::Exit;

use crate::by_exit::ByExit;
use crate::data::Batch;
use crate::fused::{soft_target_loss, softmax};
use crate::network::Answers;
use crate::recipe::LossRecipe;

/// The joint loss of a batch with what it is made of.
pub struct Loss {
    /// What is minimised, `[1]`; a mean over the samples of the batch.
    pub total: Tensor<1>,
    /// Its value, and correct answers by exit.
    pub figures: Figures,
}

/// Sums over samples; they add up over workers and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// Samples.
    pub samples: u64,
    /// Loss, summed over samples.
    pub loss: f64,
    /// Correct answers of each exit.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub correct: ByExit<u64>,
}

impl Figures {
    /// Adds those of other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.loss += other.loss;
        for (exit, more) in other.correct.iter() {
            *self.correct.slot(exit).get_or_insert(0) += more;
        }
    }
}

impl LossRecipe {
    /// The loss of what the exits say about a batch.
    ///
    /// A device that does not see the object has no part in its own loss (label -1 in DDNN's code); a sample that no device sees has
    /// no part in any: no exit fires for it.
    pub fn of(&self, answers: &Answers, batch: &Batch) -> Loss {
        let share = 1.0 / batch.len() as f32;
        let logits = answers.exits.map(|_, logits| values(logits));
        let cloud = &logits[Exit::Cloud];
        let classes = cloud.len() / batch.len();
        let labels = self.label_targets(&batch.labels, classes);
        let voting: Vec<f32> = batch.present.iter().map(|n| if *n > 0 { share } else { 0.0 }).collect();
        let scaled = |by: f32| voting.iter().map(|weight| weight * by).collect::<Vec<f32>>();
        let taught = &self.distillation;
        let lessons = self.lessons(cloud, classes);
        // The square keeps the size of the gradient as the temperature changes (Hinton et al. 2015, section 2).
        let heat = taught.temperature * taught.temperature;

        // Deepest first: the order of the terms is part of the result, and this is the one that runs have been made with.
        let of_labels = |exit| {
            let logits: &Tensor<2> = &answers.exits[exit];
            soft_target_loss(logits.clone(), &labels, &scaled(self.weight(exit)), 1.0)
        };
        let in_front = || answers.exits.iter().rev().filter(|(exit, _)| *exit != Exit::Cloud);
        let mut total = in_front().fold(of_labels(Exit::Cloud), |total, (exit, _)| total + of_labels(exit));
        for (exit, logits) in in_front().filter(|(exit, _)| taught.weight(*exit) > 0.0) {
            let weights = scaled(taught.weight(exit) * heat);
            total = total + soft_target_loss(logits.clone(), &lessons, &weights, taught.temperature);
        }
        // Where a device decides, its head is the exit `device` above.
        let heads = if answers.exits.get(Exit::Device).is_some() { &[][..] } else { &answers.devices };
        for given in heads.iter().flatten() {
            let Some(scores) = given.flat_scores() else { continue };
            let targets = |of: &[f32]| -> Vec<f32> {
                given.rows.iter().flat_map(|row| &of[*row as usize * classes..][..classes]).copied().collect()
            };
            let weights = |by: f32| vec![share * by; given.rows.len()];
            total = total + soft_target_loss(scores.clone(), &targets(&labels), &weights(self.device), 1.0);
            if taught.device > 0.0 {
                let weights = weights(taught.device * heat);
                total = total + soft_target_loss(scores, &targets(&lessons), &weights, taught.temperature);
            }
        }
        let figures = Figures {
            samples: batch.len() as u64,
            loss: f64::from(values(&total)[0]) * batch.len() as f64,
            correct: logits.map(|_, logits| correct(logits, &batch.labels)),
        };
        Loss { total, figures }
    }

    fn label_targets(&self, labels: &[u16], classes: usize) -> Vec<f32> {
        let rest = self.smoothing / classes as f32;
        let mut targets = vec![rest; labels.len() * classes];
        for (row, label) in targets.chunks_exact_mut(classes).zip(labels) {
            row[usize::from(*label)] += 1.0 - self.smoothing;
        }
        targets
    }

    fn lessons(&self, cloud: &[f32], classes: usize) -> Vec<f32> {
        cloud
            .chunks_exact(classes)
            .flat_map(|logits| softmax(logits, self.distillation.temperature))
            .collect()
    }
}

/// The class with the largest logit; the first of equals.
pub fn best(logits: &[f32]) -> usize {
    logits.iter().enumerate().fold(0, |best, (class, value)| if *value > logits[best] { class } else { best })
}

fn correct(logits: &[f32], labels: &[u16]) -> u64 {
    let rows = logits.chunks_exact(logits.len() / labels.len().max(1));
    rows.zip(labels).filter(|(row, label)| best(row) == usize::from(**label)).count() as u64
}

fn values<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec::<f32>().expect("tensors hold f32")
}
