//! Figures of a part by class: confusions and accuracies of each exit and of the answers given, and the wrong answers.

use std::collections::BTreeMap;

use headwater_inference::cascade::ExitAnswer;
use headwater_inference::policy::Policy;
use headwater_protocol::Exit;
use headwater_samples::{NO_CLASS, NONE_NAME, Part};
use serde::Serialize;

use crate::account::{Claims, answers};
use crate::by_exit::ByExit;
use crate::data::{Parts, Samples};
use crate::part_logits::PartLogits;
use crate::promise::binomial;

/// Largest number of wrong answers in a report; the most confident ones are listed.
pub const MAX_WRONG: usize = 1000;

/// Largest number of classes for which a report has confusion matrices.
const MAX_MATRIX: usize = 100;

/// Confusions, accuracies and wrong answers of a part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// Class names: rows and columns of matrices.
    pub labels: Vec<String>,
    /// The answers given, each at the exit where its sample leaves.
    pub given: Confusion,
    /// The answers of each exit to all samples.
    pub exits: ByExit<Confusion>,
    /// Wrong answers given, the most confident first.
    pub wrong: Vec<WrongAnswer>,
    /// Number of further wrong answers, which are not listed.
    pub wrong_left_out: usize,
}

/// Answers by true class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confusion {
    /// Figures of each class.
    pub classes: Vec<ClassFigures>,
    /// `[true class, class given]`: number of samples; left out for more than 100 classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matrix: Vec<Vec<u64>>,
}

/// Right answers to the samples of a class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Samples.
    pub samples: u64,
    /// Right answers.
    pub right: u64,
    /// Samples that get no answer, since the policy does not claim the answer.
    pub undecided: u64,
    /// Share of right answers; `None` without samples.
    pub accuracy: Option<f64>,
    /// Exact 95 % interval of the accuracy (Clopper and Pearson 1934), as if the samples were independent.
    pub interval: [f64; 2],
}

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WrongAnswer {
    /// Index of the sample in its part.
    pub sample: usize,
    /// Files of the sample's views, by slot; empty if views have no files of their own.
    pub files: Vec<String>,
    /// True class.
    pub label: String,
    /// Class given.
    pub given: String,
    /// Exit where the sample left.
    pub exit: Exit,
    /// Confidence at that exit.
    pub confidence: f32,
}

impl ClassReport {
    /// The report of a part under a policy, with the [`MAX_WRONG`] most confident wrong answers, without names of files.
    ///
    /// # Panics
    /// When `logits` has fewer samples than `samples`.
    pub fn of(
        logits: &PartLogits,
        samples: &Samples,
        class_prior: &[f32],
        policy: &Policy,
        labels: &[String],
    ) -> Self {
        let answers = answers(logits, samples, class_prior, policy);
        let claims =
            policy.claim_above.map(|least| (least, Claims::of(logits, samples, class_prior, policy)));
        let is_claimed =
            |sample| claims.as_ref().is_none_or(|(least, claims)| claims.is_given(sample, *least));
        let class = |(sample, answer): (usize, &ExitAnswer)| {
            if is_claimed(sample) { answer.assessment.class } else { NO_CLASS }
        };
        let given: Vec<u16> = answers.iter().enumerate().map(class).collect();
        let exits = logits
            .exits
            .map(|exit, _| Confusion::of(&logits.classes_given(exit, samples, class_prior), samples, labels));
        let wrong = (0..samples.len()).filter(|sample| is_wrong(samples.labels[*sample], given[*sample]));
        let wrong = wrong.map(|sample| WrongAnswer {
            sample: samples.part_index(sample),
            files: Vec::new(),
            label: name_of(labels, samples.labels[sample]),
            given: name_of(labels, given[sample]),
            exit: answers[sample].exit,
            confidence: answers[sample].assessment.confidence,
        });
        let mut wrong: Vec<WrongAnswer> = wrong.collect();
        wrong.sort_by(|one, other| other.confidence.total_cmp(&one.confidence));
        let wrong_left_out = wrong.len().saturating_sub(MAX_WRONG);
        wrong.truncate(MAX_WRONG);
        let given = Confusion::of(&given, samples, labels);
        Self { labels: labels.to_vec(), given, exits, wrong, wrong_left_out }
    }

    /// Adds the file names of the samples with wrong answers.
    #[must_use]
    pub fn with_files(mut self, parts: &Parts, part: Part) -> Self {
        for WrongAnswer { sample, files, .. } in &mut self.wrong {
            let of_slots = (0..parts.slots).filter_map(|slot| parts.data.file_name(part, *sample, slot));
            *files = of_slots.collect();
        }
        self
    }
}

impl Confusion {
    /// The confusion of the classes `given` to samples.
    fn of(given: &[u16], samples: &Samples, labels: &[String]) -> Self {
        let mut counts: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for pair in samples.labels.iter().copied().zip(given.iter().copied()) {
            *counts.entry(pair).or_default() += 1;
        }
        let mut classes = vec![[0u64; 3]; labels.len()];
        for ((label, given), count) in &counts {
            // Samples that show no class have no row.
            let Some([samples, right, undecided]) = classes.get_mut(usize::from(*label)) else { continue };
            *samples += count;
            *right += if label == given { *count } else { 0 };
            *undecided += if *given == NO_CLASS { *count } else { 0 };
        }
        let row = |label: u16| {
            let given = 0..labels.len() as u16;
            given.map(|given| counts.get(&(label, given)).copied().unwrap_or_default()).collect::<Vec<u64>>()
        };
        let rows = if labels.len() > MAX_MATRIX { 0 } else { labels.len() as u16 };
        Self {
            classes: classes.into_iter().map(ClassFigures::of).collect(),
            matrix: (0..rows).map(row).collect(),
        }
    }
}

impl ClassFigures {
    fn of([samples, right, undecided]: [u64; 3]) -> Self {
        Self {
            samples,
            right,
            undecided,
            accuracy: (samples > 0).then(|| right as f64 / samples as f64),
            interval: binomial::interval(right, samples, 0.95),
        }
    }
}

/// Returns true for a wrong answer. `NO_CLASS` in `given` means that no answer is given, which is not wrong.
fn is_wrong(label: u16, given: u16) -> bool {
    given != NO_CLASS && given != label
}

fn name_of(labels: &[String], class: u16) -> String {
    labels.get(usize::from(class)).map_or(NONE_NAME, String::as_str).to_owned()
}

#[cfg(test)]
mod tests {
    use headwater_inference::policy::{Confidence, ExitThreshold, Threshold};
    use headwater_protocol::SlotSet;

    use super::*;

    /// Report of samples with these labels and logits, under a policy without `claim_above`.
    fn report(labels: &[u16], device: &[[f32; 2]], cloud: &[[f32; 2]]) -> ClassReport {
        report_of(labels, device, cloud, None)
    }

    fn report_of(
        labels: &[u16],
        device: &[[f32; 2]],
        cloud: &[[f32; 2]],
        claim_above: Option<Confidence>,
    ) -> ClassReport {
        let samples = Samples {
            shape: [1, 1, 1],
            slots: 1,
            classes: 2,
            labels: labels.to_vec(),
            seen: vec![SlotSet::first(1); labels.len()],
            ..Samples::default()
        };
        let exits = [(Exit::DEVICE, device.concat()), (Exit::CLOUD, cloud.concat())];
        let logits = PartLogits { classes: 2, exits: exits.into_iter().collect(), ..PartLogits::default() };
        let mut policy = Policy { claim_above, ..Policy::default() };
        policy.of_mut(Exit::DEVICE).threshold = Threshold::One(ExitThreshold::new(0.5).unwrap());
        ClassReport::of(&logits, &samples, &[0.5, 0.5], &policy, &["car".into(), "bus".into()])
    }

    #[test]
    fn wrong_answers_are_listed_by_confidence_with_their_exit_and_counted_by_class() {
        // The first three samples leave at the device; the last one leaves in the cloud.
        let device = [[9.0, 0.0], [0.0, 9.0], [0.0, 20.0], [0.0, 0.0]];
        let report = report(&[0, 0, 0, 1], &device, &[[0.0, 9.0], [9.0, 0.0], [9.0, 0.0], [1.0, 0.0]]);
        let of_wrong = |wrong: &WrongAnswer| (wrong.sample, wrong.given.clone(), wrong.exit);
        let expected = [(2, "bus", Exit::DEVICE), (1, "bus", Exit::DEVICE), (3, "car", Exit::CLOUD)];
        let expected = expected.map(|(sample, given, exit)| (sample, given.to_owned(), exit));
        assert_eq!(report.wrong.iter().map(of_wrong).collect::<Vec<_>>(), expected);
        assert_eq!(report.given.matrix, [[1, 2], [1, 0]]);
        assert_eq!(report.exits[Exit::CLOUD].matrix, [[2, 1], [1, 0]]);
        let [car, bus] = [0, 1].map(|class| report.given.classes[class]);
        assert_eq!((car.samples, car.right, bus.accuracy), (3, 1, Some(0.0)));
        let [low, high] = car.interval;
        assert!((low - 0.0084).abs() < 1e-3 && (high - 0.9057).abs() < 1e-3, "{low} to {high}");
    }

    #[test]
    fn a_report_says_how_many_wrong_answers_it_leaves_out() {
        let wrong = MAX_WRONG + 3;
        let logits = vec![[0.0, 9.0]; wrong];
        let report = report(&vec![0; wrong], &logits, &logits);
        assert_eq!((report.wrong.len(), report.wrong_left_out), (MAX_WRONG, 3));
    }

    #[test]
    fn an_answer_that_the_policy_does_not_claim_is_undecided_and_not_wrong() {
        let logits = [[0.0, 0.1], [0.0, 0.1], [0.0, 9.0]];
        let least = Some(Confidence::new(0.5).unwrap());
        let report = report_of(&[0, NO_CLASS, 0], &[[0.0; 2]; 3], &logits, least);
        let car = report.given.classes[0];
        assert_eq!((car.samples, car.right, car.undecided), (2, 0, 1));
        assert_eq!(report.wrong.iter().map(|wrong| wrong.sample).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_sample_of_no_class_is_a_wrong_answer_and_has_no_row() {
        let report = report(&[NO_CLASS], &[[9.0, 0.0]], &[[9.0, 0.0]]);
        assert_eq!((report.wrong[0].label.as_str(), &report.given.matrix), ("_none", &vec![vec![0; 2]; 2]));
    }
}
