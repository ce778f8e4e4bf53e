//! The joint loss: a sum of terms over the exits and the device heads.
//!
//! A term is a function and an entry in `TERMS`.

use burn::tensor::{Tensor, TensorData};
use headwater_inference::exit::argmax;
use headwater_inference::manifest::FeatureMap;
use headwater_map_coder::MapCounts;
use headwater_protocol::{Exit, Slot, SlotSet};
use headwater_samples::NO_CLASS;

use crate::fused::{soft_target_loss, softmax};
use crate::layers::values;
use crate::network::{NetworkOutput, SourceOutput};
use crate::recipe::{LossRecipe, Teacher};
use headwater_calibration::by_exit::ByExit;
use headwater_calibration::data::Batch;
use headwater_calibration::message::{Reader, put_u64};
use headwater_spec::Spec;

/// All terms of the joint loss. The order of the terms is part of the result, as in every float sum.
const TERMS: [fn(&TermInputs<'_>) -> Vec<Tensor<1>>; 4] =
    [exit_labels, exit_distillation, device_heads, map_bits];

/// The joint loss of a batch.
pub struct Loss {
    /// The minimised value, `[1]`: sum of the terms. A term over an exit is a mean over the samples of the batch, a term over a device a
    /// mean over its views.
    pub total: Tensor<1>,
    /// The loss summed over the samples, and correct answers by exit.
    pub sums: LossSums,
}

/// Sums over samples, added up over workers and steps.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LossSums {
    /// Number of samples.
    pub samples: u64,
    /// Loss, summed over samples.
    pub loss: f64,
    /// Number of correct answers of each exit.
    #[serde(flatten, with = "headwater_calibration::by_exit::plain")]
    pub correct: ByExit<u64>,
}

/// Inputs of every term.
struct TermInputs<'a> {
    recipe: &'a LossRecipe,
    output: &'a NetworkOutput,
    batch: &'a Batch,
    classes: usize,
    /// The last exit.
    last: Exit,
    /// The map of the devices; `None` in a network that does not code maps.
    coded_map: Option<FeatureMap>,
    /// Target distribution of the labels, `[batch, classes]`.
    labels: Vec<f32>,
    /// Class probabilities of each exit at the distillation temperature, `[batch, classes]`.
    soft_targets: ByExit<Vec<f32>>,
}

impl LossSums {
    /// Appends the sums to a message: samples, loss, and right answers of these exits; `u64::MAX` for an exit without a count, as in a
    /// share of the batch without any view.
    pub fn put(&self, exits: &[Exit], message: &mut Vec<u8>) {
        put_u64(message, self.samples);
        put_u64(message, self.loss.to_bits());
        for exit in exits {
            put_u64(message, self.correct.get(*exit).copied().unwrap_or(u64::MAX));
        }
    }

    /// Reads the sums that [`put`](Self::put) appended for the same exits.
    pub fn read(exits: &[Exit], message: &mut Reader<'_>) -> Self {
        let mut sums =
            Self { samples: message.u64(), loss: f64::from_bits(message.u64()), ..Self::default() };
        for exit in exits {
            let hits = message.u64();
            if hits != u64::MAX {
                sums.correct.insert(*exit, hits);
            }
        }
        sums
    }

    /// Adds the sums over other samples.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.loss += other.loss;
        for (exit, more) in other.correct.iter() {
            *self.correct.get_or_insert_with(exit, u64::default) += more;
        }
    }
}

impl LossRecipe {
    /// The loss of the network's output for a batch.
    ///
    /// A sample that a device does not see has no part in the loss of that device's head (label -1 in DDNN's code). A sample that no
    /// slot sees has no part in the terms over exits.
    ///
    /// # Panics
    /// When the batch is empty, or the network has no exit.
    pub fn of(&self, spec: &Spec, output: &NetworkOutput, batch: &Batch) -> Loss {
        let logits = output.exits.map(|_, logits| values(logits));
        let (last, of_last) = logits.iter().next_back().expect("every network has an exit");
        let classes = of_last.len() / batch.labels.len();
        let inputs = TermInputs {
            recipe: self,
            output,
            batch,
            classes,
            last,
            coded_map: spec.codes_features().then_some(spec.shapes.features),
            labels: self.label_targets(&batch.labels, classes),
            soft_targets: logits.map(|_, logits| self.soft_targets(logits, classes)),
        };
        let terms = TERMS.iter().flat_map(|term| term(&inputs));
        let total = terms.reduce(|total, term| total + term).expect("every network has an exit");
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
            match row.get_mut(usize::from(*label)) {
                Some(target) => *target += 1.0 - self.smoothing,
                // The target of a sample of nothing is the uniform distribution (Hendrycks et al. 2019, section 3).
                None => row.fill(1.0 / classes as f32),
            }
        }
        targets
    }

    fn soft_targets(&self, logits: &[f32], classes: usize) -> Vec<f32> {
        let rows = logits.chunks_exact(classes);
        rows.flat_map(|logits| softmax(logits, self.distillation.temperature)).collect()
    }

    /// Factor of distillation terms: the squared temperature keeps the size of the gradient as the temperature changes (Hinton et al.
    /// 2015, section 2).
    fn distillation_scale(&self) -> f32 {
        self.distillation.temperature * self.distillation.temperature
    }
}

impl TermInputs<'_> {
    /// Share of one sample in a mean over the batch.
    fn share(&self) -> f32 {
        1.0 / self.batch.labels.len() as f32
    }

    /// Weight of each sample in a term over an exit; 0 for a sample that no slot sees.
    fn sample_weights(&self, weight: f32) -> Vec<f32> {
        let share = |seen: &SlotSet| if seen.is_empty() { 0.0 } else { self.share() };
        self.batch.seen.iter().map(|seen| share(seen) * weight).collect()
    }

    /// Factor of a sample in the terms against the labels.
    fn label_factor(&self, row: usize) -> f32 {
        if self.batch.labels[row] == NO_CLASS { self.recipe.none } else { 1.0 }
    }

    /// Soft targets from the teacher of `exit`; if `exit` is `None`, from the teacher of the device heads, which are no exits.
    fn teacher_of(&self, exit: Option<Exit>) -> &[f32] {
        let deeper = |teacher: &Exit| exit.is_none_or(|exit| *teacher > exit);
        let teacher = match self.recipe.distillation.teacher {
            Teacher::Last => self.last,
            Teacher::Next => self.soft_targets.iter().map(|(exit, _)| exit).find(deeper).unwrap_or(self.last),
        };
        &self.soft_targets[teacher]
    }

    /// Exits and their logits, deepest first.
    fn exits(&self) -> impl Iterator<Item = (Exit, &Tensor<2>)> {
        self.output.exits.iter().rev()
    }
}

/// Cross-entropy of every exit against the labels.
fn exit_labels(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let term = |(exit, logits): (Exit, &Tensor<2>)| {
        let mut weights = inputs.sample_weights(inputs.recipe.weight(exit));
        weights.iter_mut().enumerate().for_each(|(row, weight)| *weight *= inputs.label_factor(row));
        soft_target_loss(logits.clone(), &inputs.labels, &weights, 1.0)
    };
    inputs.exits().map(term).collect()
}

/// Distillation: cross-entropy of the exits before the last against the soft targets of their teacher.
fn exit_distillation(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let distillation = &inputs.recipe.distillation;
    let exits = inputs.exits().skip(1).filter(|(exit, _)| distillation.weight(*exit) > 0.0);
    let term = |(exit, logits): (Exit, &Tensor<2>)| {
        let weights = inputs.sample_weights(distillation.weight(exit) * inputs.recipe.distillation_scale());
        soft_target_loss(logits.clone(), inputs.teacher_of(Some(exit)), &weights, distillation.temperature)
    };
    exits.map(term).collect()
}

/// Cross-entropy and distillation of the device heads; none if the device head is an exit (b, d).
fn device_heads(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let mut terms = Vec::new();
    // A device that decides has the exit `device`, which the terms over exits cover.
    if inputs.output.exits.get(Exit::DEVICE).is_some() {
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
        // The term is a mean over the views with a label, so a device that sees few samples weighs as much as a device that sees all. A
        // black image has no label.
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
        let mut label_weights = weights(recipe.device);
        let rows = label_weights.iter_mut().zip(&device.rows);
        rows.for_each(|(weight, row)| *weight *= inputs.label_factor(*row as usize));
        terms.push(soft_target_loss(scores.clone(), &targets(&inputs.labels), &label_weights, 1.0));
        if distillation.device > 0.0 {
            let weights = weights(distillation.device * recipe.distillation_scale());
            let targets = targets(inputs.teacher_of(None));
            terms.push(soft_target_loss(scores, &targets, &weights, distillation.temperature));
        }
    }
    terms
}

/// Estimated bits of the coded maps, a mean over the views of each device: `-log2 p(bit | context)`, with `p` counted over the maps of
/// this batch. The cost is linear in the sign, between the cost of -1 and of +1, so the gradient draws each bit to the value that its
/// context predicts. The effect of a bit on the contexts of other bits is left out.
fn map_bits(inputs: &TermInputs<'_>) -> Vec<Tensor<1>> {
    let weight = inputs.recipe.map_bits;
    let Some(map) = inputs.coded_map.filter(|_| weight > 0.0) else { return Vec::new() };
    let shape = map.coder_shape().expect("the spec was checked");
    let views = inputs.output.devices.iter().flatten().filter(|device| !device.rows.is_empty());
    let term = |device: &SourceOutput| {
        let maps = device.packed_maps(&map);
        let mut counts = MapCounts::new(shape);
        maps.iter().for_each(|map| counts.add(map).expect("maps of the network's shape"));
        let (mut slopes, mut middle) = (Vec::with_capacity(maps.len() * map.elements()), 0.0);
        for map in &maps {
            let visit = |[zeros, ones]: [u64; 2]| {
                let [zero, one] = [zeros, ones].map(|count| (count as f32 + 0.4).log2());
                let all = ((zeros + ones) as f32 + 0.8).log2();
                // Half the difference between the costs of a one and of a zero (`all - one`, `all - zero`), and the mean of both costs.
                slopes.push(0.5 * (zero - one));
                middle += f64::from(all - 0.5 * (zero + one));
            };
            counts.at_each_bit(map, visit).expect("maps of the network's shape");
        }
        let share = weight / maps.len() as f32;
        let slopes =
            Tensor::from_data(TensorData::new(slopes, device.features.dims()), &device.features.device());
        ((device.features.clone() * slopes).sum() + middle as f32) * share
    };
    views.map(term).collect()
}

fn correct(logits: &[f32], labels: &[u16]) -> u64 {
    let rows = logits.chunks_exact(logits.len() / labels.len().max(1));
    rows.zip(labels).filter(|(row, label)| argmax(row) == **label).count() as u64
}

#[cfg(test)]
mod tests {
    use headwater_samples::Part;

    use super::*;
    use crate::layers::{Pass, TrainedState};
    use crate::recipe::{Distillation, Recipe};
    use crate::testing::{DDNN_C, network};
    use headwater_calibration::data::Parts;

    #[test]
    fn device_heads_learn_from_the_last_exit_or_from_the_one_after_them() {
        let network = network(DDNN_C);
        let samples = Parts::drawn(16, 4, 4).part(Part::Train, None, 1);
        let batch = Batch::plain(&samples, 0..16);
        let state = network.layout.initial(3);
        let output =
            network.forward(&Pass::training(TrainedState { layout: &network.layout, state: &state }), &batch);
        let recipe = Recipe::read(None).unwrap().loss;
        // Losses with the last and with the next exit as the teacher; `device` is the weight of distillation for the device heads.
        let losses = |device: f32| {
            [Teacher::Last, Teacher::Next].map(|teacher| {
                let distillation = Distillation { teacher, device, ..recipe.distillation.clone() };
                values(
                    &LossRecipe { distillation, ..recipe.clone() }.of(&network.spec, &output, &batch).total,
                )[0]
            })
        };
        let ([last, next], [last_of_heads, next_of_heads]) = (losses(0.0), losses(1.0));
        // The exit after `local` is the last one, so both teachers are the cloud.
        assert_eq!(last, next);
        // Loss of distillation of the heads from `teacher`: the cross-entropy of each head as a mean over its views, summed over the heads, times the
        // squared temperature.
        let distance = |teacher: Exit| -> f32 {
            let temperature = recipe.distillation.temperature;
            let teacher = values(&output.exits[teacher]);
            let heads = output.devices.iter().flatten().map(|device| {
                let scores = values(&device.flat_scores().unwrap());
                let of_view = |(row, scores): (&u32, &[f32])| -> f32 {
                    let target = softmax(&teacher[*row as usize * 10..][..10], temperature);
                    target
                        .iter()
                        .zip(softmax(scores, temperature))
                        .map(|(target, of)| -target * of.ln())
                        .sum()
                };
                device.rows.iter().zip(scores.chunks(10)).map(of_view).sum::<f32>() / device.rows.len() as f32
            });
            heads.sum::<f32>() * temperature * temperature
        };
        for (found, expected) in [(last_of_heads - last, Exit::CLOUD), (next_of_heads - next, Exit::LOCAL)] {
            let expected = distance(expected);
            assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
        }
    }

    #[test]
    fn a_sample_of_nothing_is_drawn_to_every_class_alike_with_a_weight_of_its_own() {
        let network = network(DDNN_C);
        let mut samples = Parts::drawn(2, 4, 4).part(Part::Train, None, 1);
        let state = network.layout.initial(3);
        let recipe = Recipe::read(None).unwrap().loss;
        let distillation = Distillation { device: 0.0, ..recipe.distillation };
        let exits: ByExit<f32> = [(Exit::LOCAL, 0.0), (Exit::CLOUD, 0.0)].into_iter().collect();
        let recipe =
            LossRecipe { device: 0.0, distillation: Distillation { exits, ..distillation }, ..recipe };
        let mut loss = |label: u16, none: f32| {
            samples.labels = vec![0, label];
            let batch = Batch::plain(&samples, 0..2);
            let pass = Pass::training(TrainedState { layout: &network.layout, state: &state });
            let output = network.forward(&pass, &batch);
            let loss = LossRecipe { none, ..recipe.clone() }.of(&network.spec, &output, &batch);
            let logits = output.exits.map(|_, logits| values(logits));
            (values(&loss.total)[0], loss.sums.correct, logits)
        };
        let (without, correct, logits) = loss(NO_CLASS, 0.0);
        let (with, ..) = loss(NO_CLASS, 0.5);
        // Cross-entropy of the second sample against the uniform distribution over ten classes. The sample is half of the batch and has half the weight.
        let uniform =
            |logits: &[f32]| softmax(&logits[10..], 1.0).iter().map(|p| -p.ln() / 10.0).sum::<f32>();
        let of_exit = |(exit, logits): (Exit, &Vec<f32>)| 0.25 * recipe.weight(exit) * uniform(logits);
        let expected: f32 = logits.iter().map(of_exit).sum();
        assert!((with - without - expected).abs() < 1e-3 * expected, "{with} {without} {expected}");
        assert!(correct.iter().all(|(_, correct)| *correct <= 1), "{correct:?}");
        assert_eq!(loss(1, 0.0).0, loss(1, 0.5).0, "samples with a class have no part in it");
    }

    #[test]
    fn the_term_of_coded_maps_is_the_information_of_their_bits_in_their_contexts() {
        let network = network(DDNN_C);
        let samples = Parts::drawn(16, 4, 4).part(Part::Train, None, 1);
        let batch = Batch::plain(&samples, 0..16);
        let state = network.layout.initial(3);
        let pass = Pass::training(TrainedState { layout: &network.layout, state: &state });
        let output = network.forward(&pass, &batch);
        let plain = Recipe::read(None).unwrap().loss;
        let with = LossRecipe { map_bits: 0.01, ..plain.clone() };
        let [plain, with] =
            [plain, with].map(|loss| values(&loss.of(&network.spec, &output, &batch).total)[0]);
        let map = network.spec.shapes.features;
        let mut expected = 0.0;
        for device in output.devices.iter().flatten() {
            let maps = device.packed_maps(&map);
            let mut counts = MapCounts::new(map.coder_shape().unwrap());
            maps.iter().for_each(|map| counts.add(map).unwrap());
            let mut bits = 0.0;
            for packed in &maps {
                let mut at = 0;
                let visit = |[zeros, ones]: [u64; 2]| {
                    let one = (ones as f64 + 0.4) / ((zeros + ones) as f64 + 0.8);
                    bits -= if packed[at / 8] >> (at % 8) & 1 == 1 { one } else { 1.0 - one }.log2();
                    at += 1;
                };
                counts.at_each_bit(packed, visit).unwrap();
            }
            expected += 0.01 * bits / maps.len() as f64;
        }
        let found = f64::from(with - plain);
        assert!(expected > 1.0 && (found - expected).abs() < 1e-3 * expected, "{expected} {found}");
    }
}
