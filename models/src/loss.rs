//! The joint loss: a sum of terms over the exits and the device heads.
//!
//! A term is a function and an entry in `TERMS`.

use burn::tensor::Tensor;
use headwater_inference::exit::argmax;
use headwater_protocol::{Exit, Slot, SlotSet};

use crate::by_exit::ByExit;
use crate::data::Batch;
use crate::fused::{soft_target_loss, softmax};
use crate::layers::values;
use crate::network::NetworkOutput;
use crate::recipe::LossRecipe;

/// All terms of the joint loss. The order of the terms is part of the result, as in every float sum.
const TERMS: [fn(&TermInputs<'_>) -> Vec<Tensor<1>>; 3] = [exit_labels, exit_distillation, device_heads];

/// The joint loss of a batch.
pub struct Loss {
    /// The minimised value, `[1]`: a mean over the samples of the batch.
    pub total: Tensor<1>,
    /// The loss summed over the samples, and correct answers by exit.
    pub sums: LossSums,
}

/// Sums over samples, added up over workers and steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LossSums {
    /// Samples.
    pub samples: u64,
    /// Loss, summed over samples.
    pub loss: f64,
    /// Number of correct answers of each exit.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub correct: ByExit<u64>,
}

/// Inputs of every term.
struct TermInputs<'a> {
    recipe: &'a LossRecipe,
    output: &'a NetworkOutput,
    batch: &'a Batch,
    classes: usize,
    /// Target distribution of the labels, `[batch, classes]`.
    labels: Vec<f32>,
    /// Class probabilities of the cloud exit at the distillation temperature, `[batch, classes]`.
    soft_targets: Vec<f32>,
}

impl LossSums {
    /// Adds the sums over other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.loss += other.loss;
        for (exit, more) in other.correct.iter() {
            *self.correct.slot(exit).get_or_insert(0) += more;
        }
    }
}

impl LossRecipe {
    /// The loss of the network's output for a batch.
    ///
    /// A device that does not see the object has no part in its own loss (label -1 in DDNN's code). A sample that no slot sees has no
    /// part in any term.
    ///
    /// # Panics
    /// When the network has no exit `cloud`.
    pub fn of(&self, output: &NetworkOutput, batch: &Batch) -> Loss {
        let logits = output.exits.map(|_, logits| values(logits));
        let cloud = &logits[Exit::Cloud];
        let classes = cloud.len() / batch.labels.len();
        let inputs = TermInputs {
            recipe: self,
            output,
            batch,
            classes,
            labels: self.label_targets(&batch.labels, classes),
            soft_targets: self.soft_targets(cloud, classes),
        };
        let terms = TERMS.iter().flat_map(|term| term(&inputs));
        let total = terms.reduce(|total, term| total + term).expect("every network has the exit `cloud`");
        let sums = LossSums {
            samples: batch.labels.len() as u64,
            loss: f64::from(values(&total)[0]) * batch.labels.len() as f64,
            correct: logits.map(|_, logits| correct(logits, &batch.labels)),
        };
        Loss { total, sums }
    }

    fn label_targets(&self, labels: &[u16], classes: usize) -> Vec<f32> {
        let rest = self.smoothing / classes as f32;
        let mut targets = vec![rest; labels.len() * classes];
        for (row, label) in targets.chunks_exact_mut(classes).zip(labels) {
            row[usize::from(*label)] += 1.0 - self.smoothing;
        }
        targets
    }

    fn soft_targets(&self, cloud: &[f32], classes: usize) -> Vec<f32> {
        let rows = cloud.chunks_exact(classes);
        rows.flat_map(|logits| softmax(logits, self.distillation.temperature)).collect()
    }

    /// The squared temperature keeps the size of the gradient as the temperature changes (Hinton et al. 2015, section 2).
    fn distillation_scale(&self) -> f32 {
        self.distillation.temperature * self.distillation.temperature
    }
}

impl TermInputs<'_> {
    /// Share of one sample in the mean.
    fn share(&self) -> f32 {
        1.0 / self.batch.labels.len() as f32
    }

    /// Weight of each sample in a term over an exit; 0 for a sample that no slot sees.
    fn sample_weights(&self, weight: f32) -> Vec<f32> {
        let share = |seen: &SlotSet| if seen.is_empty() { 0.0 } else { self.share() };
        self.batch.seen.iter().map(|seen| share(seen) * weight).collect()
    }

    /// Exits and their logits, deepest first.
    fn exits(&self) -> impl Iterator<Item = (Exit, &Tensor<2>)> {
        self.output.exits.iter().rev()
    }
}

/// Cross-entropy of every exit against the labels.
fn exit_labels(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let term = |(exit, logits): (Exit, &Tensor<2>)| {
        let weights = inputs.sample_weights(inputs.recipe.weight(exit));
        soft_target_loss(logits.clone(), &inputs.labels, &weights, 1.0)
    };
    inputs.exits().map(term).collect()
}

/// Distillation: cross-entropy of the exits before the cloud against the cloud's soft targets.
fn exit_distillation(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let distillation = &inputs.recipe.distillation;
    // The weight of the cloud itself is 0.
    let exits = inputs.exits().filter(|(exit, _)| distillation.weight(*exit) > 0.0);
    let term = |(exit, logits): (Exit, &Tensor<2>)| {
        let weights = inputs.sample_weights(distillation.weight(exit) * inputs.recipe.distillation_scale());
        soft_target_loss(logits.clone(), &inputs.soft_targets, &weights, distillation.temperature)
    };
    exits.map(term).collect()
}

/// Cross-entropy and distillation of the device heads, where device heads are not exits (c, e, f).
fn device_heads(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let mut terms = Vec::new();
    // A device that decides has the exit `device`, which the terms over exits cover.
    if inputs.output.exits.get(Exit::Device).is_some() {
        return terms;
    }
    let (recipe, classes) = (inputs.recipe, inputs.classes);
    let distillation = &recipe.distillation;
    for (slot, device) in Slot::first(inputs.output.devices.len()).zip(&inputs.output.devices) {
        let Some(device) = device else { continue };
        let Some(scores) = device.flat_scores() else { continue };
        let targets = |of: &[f32]| -> Vec<f32> {
            device.rows.iter().flat_map(|row| &of[*row as usize * classes..][..classes]).copied().collect()
        };
        // A mean over the views with a label: a device that sees little weighs as much as one that sees everything. A black image has none.
        let has_label = |row: &u32| inputs.batch.seen[*row as usize].contains(slot);
        let labelled = device.rows.iter().filter(|row| has_label(row)).count();
        if labelled == 0 {
            continue;
        }
        let weights = |weight: f32| -> Vec<f32> {
            device
                .rows
                .iter()
                .map(|row| if has_label(row) { weight / labelled as f32 } else { 0.0 })
                .collect()
        };
        terms.push(soft_target_loss(scores.clone(), &targets(&inputs.labels), &weights(recipe.device), 1.0));
        if distillation.device > 0.0 {
            let weights = weights(distillation.device * recipe.distillation_scale());
            let targets = targets(&inputs.soft_targets);
            terms.push(soft_target_loss(scores, &targets, &weights, distillation.temperature));
        }
    }
    terms
}

fn correct(logits: &[f32], labels: &[u16]) -> u64 {
    let rows = logits.chunks_exact(logits.len() / labels.len().max(1));
    rows.zip(labels).filter(|(row, label)| argmax(row) == **label).count() as u64
}
