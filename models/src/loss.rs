//! The joint loss: the sum over every exit, and what the cloud exit teaches the exits in front of it.

use burn::tensor::Tensor;

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
    /// Correct answers of the exit `local`.
    pub local: u64,
    /// Correct answers of the exit `cloud`.
    pub cloud: u64,
}

impl Figures {
    /// Adds those of other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.loss += other.loss;
        self.local += other.local;
        self.cloud += other.cloud;
    }
}

impl LossRecipe {
    /// The loss of what the exits say about a batch.
    ///
    /// A device that does not see the object has no part in its own loss (label -1 in DDNN's code); a sample that no device sees has
    /// no part in any: no exit fires for it.
    pub fn of(&self, answers: &Answers, batch: &Batch) -> Loss {
        let share = 1.0 / batch.len() as f32;
        let cloud = values(&answers.cloud);
        let classes = cloud.len() / batch.len();
        let labels = self.label_targets(&batch.labels, classes);
        let voting: Vec<f32> = batch.present.iter().map(|n| if *n > 0 { share } else { 0.0 }).collect();
        let scaled = |by: f32| voting.iter().map(|weight| weight * by).collect::<Vec<f32>>();

        let mut total = soft_target_loss(answers.cloud.clone(), &labels, &scaled(self.cloud), 1.0)
            + soft_target_loss(answers.local.clone(), &labels, &scaled(self.local), 1.0);
        let taught = &self.distillation;
        let lessons = self.lessons(&cloud, classes);
        // The square keeps the size of the gradient as the temperature changes (Hinton et al. 2015, section 2).
        let heat = taught.temperature * taught.temperature;
        if taught.local > 0.0 {
            let weights = scaled(taught.local * heat);
            total = total + soft_target_loss(answers.local.clone(), &lessons, &weights, taught.temperature);
        }
        for (scores, views) in answers.devices.iter().zip(&batch.views) {
            let Some(scores) = scores else { continue };
            let targets = |of: &[f32]| -> Vec<f32> {
                views.rows.iter().flat_map(|row| &of[*row as usize * classes..][..classes]).copied().collect()
            };
            let weights = |by: f32| vec![share * by; views.rows.len()];
            total = total + soft_target_loss(scores.clone(), &targets(&labels), &weights(self.device), 1.0);
            if taught.device > 0.0 {
                let weights = weights(taught.device * heat);
                total = total
                    + soft_target_loss(scores.clone(), &targets(&lessons), &weights, taught.temperature);
            }
        }
        let loss = values(&total)[0];
        let figures = Figures {
            samples: batch.len() as u64,
            loss: f64::from(loss) * batch.len() as f64,
            local: correct(&values(&answers.local), &batch.labels),
            cloud: correct(&cloud, &batch.labels),
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
