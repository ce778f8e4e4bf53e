//! Warnings: findings about a finished run that its figures alone do not show, each with advice.

use headwater_calibration::data::Samples;
use headwater_calibration::part_logits::{Count, ExitCounts, PartLogits};
use headwater_calibration::promise::binomial::{at_most, interval};
use headwater_calibration::tuning::TEMPERATURES;
use headwater_inference::exit::argmax;
use headwater_inference::policy::Policy;
use headwater_protocol::{ByExit, Exit};
use serde::Serialize;

use crate::checkpoint::Progress;
use crate::experiment::Experiment;
use crate::recipe::ExportedEpoch;

/// Probability of error of every test and every interval.
const RISK: f64 = 0.05;

/// Widest interval of an accuracy, as a share, by which epochs, thresholds and recipes can be chosen.
const WIDEST: f64 = 0.1;

/// Number of samples at which no interval of an accuracy is wider than [`WIDEST`].
const ENOUGH: u64 = 410;

/// Smallest gap between train and validation accuracy, as a share, that is called overfitting.
const LEAST_GAP: f64 = 0.05;

/// A class with so many times fewer samples than the most frequent class is named.
const IMBALANCE: usize = 3;

/// A finding about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Short name, for scripts.
    pub code: &'static str,
    /// The finding, and advice.
    pub text: String,
}

/// The train part of a run.
#[derive(Clone, Copy, Debug)]
pub struct TrainPart<'a> {
    /// Number of samples that show a class.
    pub samples: usize,
    /// Number of independent samples that show a class: samples of one group count as one.
    pub units: usize,
    /// Share of each class.
    pub class_prior: &'a [f32],
}

/// The warnings of a finished run; `validation` is the validation part with the logits of the exported network.
pub fn of_run(
    experiment: &Experiment,
    progress: &Progress,
    train: TrainPart<'_>,
    (logits, validation): (&PartLogits, &Samples),
    policy: &Policy,
) -> Vec<Warning> {
    let labels = experiment.network.spec.network.network.labels.get_ref();
    let of_class = |share: &f32| (f64::from(*share) * train.samples as f64).round() as usize;
    let imbalance = of_imbalance(labels, &train.class_prior.iter().map(of_class).collect::<Vec<_>>());
    let shown = validation.len() - validation.of_nothing();
    if shown == 0 {
        let text = "the data has no validation part: the last epoch was exported, and nothing was measured to choose epoch, temperatures or \
                    thresholds by; give the data a part `val`, or `--split 80,10,10`";
        let missing = Warning { code: "no_validation", text: text.to_owned() };
        return imbalance.into_iter().chain([missing]).collect();
    }
    // Samples of one group are not independent, so a group counts as one sample.
    let units = validation.group_count_with_class().unwrap_or(shown) as u64;
    let counts = ExitCounts::of(logits, validation, train.class_prior).exits;
    let right = |count: &Count| count.right * units / count.samples.max(1);
    let counts = counts.map(|_, count| Count { right: right(count), samples: units });
    let frequent = argmax(train.class_prior);
    let of_frequent = validation.labels.iter().filter(|label| **label == frequent).count();
    let floors = [1.0 / labels.len() as f64, of_frequent as f64 / shown as f64];
    let temperatures = counts.map(|exit, _| f64::from(policy.of(exit).temperature.get()));
    let guessing = of_guessing(&counts, floors, progress.step);
    let found = [of_temperatures(&temperatures), of_small_validation(&counts)];
    let overfitting = of_overfitting(experiment.recipe.checkpoint.export, progress, train.units, &counts);
    guessing.into_iter().chain(found.into_iter().chain([overfitting, imbalance]).flatten()).collect()
}

/// Exits that are not shown to be better than `chance`, and other exits that are not shown to be better than `frequent`, the accuracy of
/// always answering the most frequent class.
fn of_guessing(counts: &ByExit<Count>, [chance, frequent]: [f64; 2], steps: u64) -> Vec<Warning> {
    let kinds = [
        ("chance_level", chance, 0.0, "guessing"),
        ("class_prior", frequent, chance, "always answering the most frequent class"),
    ];
    let warning = |(code, floor, below, than): (&'static str, f64, f64, &str)| {
        let found = counts.iter().filter(|(_, count)| !is_above(**count, floor) && is_above(**count, below));
        let found: Vec<String> = found.map(|(exit, count)| accuracy(exit, *count)).collect();
        let text = format!(
            "{}: that is not shown to be more than {than}, which has {:.1} % (exact binomial test at {:.0} %); the run had {steps} steps: give it \
             more (--epochs), another optimiser.learning_rate, or views in which the classes can be told apart",
            found.join(", "),
            100.0 * floor,
            100.0 * RISK
        );
        (!found.is_empty()).then_some(Warning { code, text })
    };
    kinds.into_iter().filter_map(warning).collect()
}

/// True when the count shows a probability above `floor` by a binomial test; always true for a `floor` of 0.
fn is_above(count: Count, floor: f64) -> bool {
    if floor <= 0.0 || floor >= 1.0 || count.right == 0 {
        return floor <= 0.0;
    }
    1.0 - at_most(count.right - 1, count.samples, floor) <= RISK
}

/// Exits whose temperature lies at a bound.
fn of_temperatures(temperatures: &ByExit<f64>) -> Option<Warning> {
    let [least, largest] = TEMPERATURES;
    let inside = 1.01 * least..=0.99 * largest;
    let at_bound = temperatures.iter().filter(|(_, found)| !inside.contains(*found));
    let found: Vec<String> = at_bound.map(|(exit, found)| format!("{} {found:.2}", exit.name())).collect();
    let text = format!(
        "temperature at its bound ({least} to {largest}): exit {}; its confidences do not say how often it is right, so its thresholds mean \
         little: give the validation part more samples, or train the exit better first",
        found.join(", ")
    );
    (!found.is_empty()).then_some(Warning { code: "temperature_bound", text })
}

/// A validation part that leaves the accuracy of the last exit open.
fn of_small_validation(counts: &ByExit<Count>) -> Option<Warning> {
    let (exit, count) = counts.iter().next_back()?;
    let [low, high] = interval(count.right, count.samples, 1.0 - RISK);
    let text = format!(
        "validation part of {} independent samples: {} are right, in truth {}; too few to choose epoch, thresholds or recipe by: give it more \
         ({ENOUGH} are always enough), or take thresholds from folds of the train part (exit.folds)",
        count.samples,
        accuracy(exit, *count),
        range([low, high])
    );
    (high - low > WIDEST).then_some(Warning { code: "small_validation", text })
}

/// The exit with the widest gap of at least [`LEAST_GAP`] between train and validation accuracy, whose intervals do not overlap.
fn of_overfitting(
    export: ExportedEpoch,
    progress: &Progress,
    train_units: usize,
    counts: &ByExit<Count>,
) -> Option<Warning> {
    let record = progress.exported()?;
    let units = train_units as u64;
    let gaps = counts.iter().filter_map(|(exit, validation)| {
        let share = *record.train.get(exit)?;
        let train = Count { right: (share * units as f64).round() as u64, samples: units };
        let [of_train, of_validation] =
            [train, *validation].map(|count| interval(count.right, count.samples, 1.0 - RISK));
        let gap = share - validation.right as f64 / validation.samples as f64;
        (gap >= LEAST_GAP && of_train[0] > of_validation[1]).then_some((gap, exit, train, *validation))
    });
    let (_, exit, train, validation) = gaps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let interval_of = |count: Count| range(interval(count.right, count.samples, 1.0 - RISK));
    let best = match export {
        ExportedEpoch::Best => "",
        ExportedEpoch::Last => ", checkpoint.export = \"best\"",
    };
    let text = format!(
        "overfitting at exit {}: in epoch {} {:.1} % of the train part are right ({}), {:.1} % of validation ({}); more train samples, changes of \
         them ([augment]), loss.smoothing, optimiser.weight_decay{best} or fewer filters help",
        exit.name(),
        record.epoch,
        percent(train),
        interval_of(train),
        percent(validation),
        interval_of(validation)
    );
    Some(Warning { code: "overfitting", text })
}

/// Classes with far fewer train samples than the most frequent one; `counts` has the samples of each class.
pub fn of_imbalance(labels: &[String], counts: &[usize]) -> Option<Warning> {
    let (frequent, most) = labels.iter().zip(counts).max_by_key(|(_, count)| **count)?;
    let rare = labels.iter().zip(counts).filter(|(_, count)| **count * IMBALANCE <= *most);
    let mut rare: Vec<(&String, &usize)> = rare.collect();
    rare.sort_by_key(|(_, count)| **count);
    let (_, least) = rare.first()?;
    let named: Vec<String> = rare.iter().take(3).map(|(label, count)| format!("{label} {count}")).collect();
    let further = rare.len().saturating_sub(named.len());
    let further = if further > 0 { format!(" and {further} further classes") } else { String::new() };
    let ratio = match **least {
        0 => "none".to_owned(),
        least => format!("{:.1} times fewer", *most as f64 / least as f64),
    };
    let text = format!(
        "class imbalance in the train part: {frequent} has {most} samples, {}{further} ({ratio}); answers lean towards frequent classes, and the \
         mean accuracy hides the rare ones: add samples of them, and look at the figures of each class",
        named.join(", ")
    );
    Some(Warning { code: "class_imbalance", text })
}

/// Text such as `cloud 18.3 %`.
fn accuracy(exit: Exit, count: Count) -> String {
    format!("{} {:.1} %", exit.name(), percent(count))
}

fn percent(count: Count) -> f64 {
    100.0 * count.right as f64 / count.samples.max(1) as f64
}

/// Text such as `12.0 to 27.1 %`.
fn range([low, high]: [f64; 2]) -> String {
    format!("{:.1} to {:.1} %", 100.0 * low, 100.0 * high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::EpochRecord;
    use headwater_calibration::part_logits::ExitShares;

    fn counts(right: u64, samples: u64) -> ByExit<Count> {
        ByExit::from_iter([(Exit::CLOUD, Count { right, samples })])
    }

    fn codes(found: impl IntoIterator<Item = Warning>) -> Vec<&'static str> {
        found.into_iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn an_exit_at_chance_or_no_better_than_the_most_frequent_class_is_named() {
        let found = |right, frequent| codes(of_guessing(&counts(right, 60), [1.0 / 3.0, frequent], 40));
        // At least 27 of 60 at a third have a probability of 4.0 %, at least 26 one of 6.8 %.
        assert_eq!(found(26, 0.3), ["chance_level"]);
        assert_eq!(found(27, 0.3), [""; 0]);
        assert_eq!(found(27, 0.5), ["class_prior"]);
        assert_eq!(found(0, 1.0), ["chance_level"]);
        assert_eq!(found(60, 1.0), ["class_prior"], "a part of one class shows nothing");
        let text = of_guessing(&counts(11, 60), [1.0 / 3.0; 2], 40).remove(0).text;
        assert!(text.starts_with("cloud 18.3 %: ") && text.contains("40 steps"), "{text}");
    }

    #[test]
    fn a_temperature_at_its_bound_is_named() {
        let found = |value| codes(of_temperatures(&ByExit::from_iter([(Exit::LOCAL, value)])));
        assert_eq!([found(0.02), found(49.9)], [["temperature_bound"]; 2]);
        assert_eq!([found(0.1), found(20.0)], [[""; 0]; 2]);
    }

    #[test]
    fn a_validation_part_of_which_every_interval_is_narrow_is_large_enough() {
        assert_eq!(codes(of_small_validation(&counts(ENOUGH / 2, ENOUGH))), [""; 0]);
        let warning = of_small_validation(&counts(35, 40)).unwrap();
        assert!(warning.text.contains("73.2 to 95.8 %"), "{warning:?}");
    }

    #[test]
    fn a_gap_between_train_and_validation_is_overfitting_if_the_intervals_do_not_meet() {
        let record = |share: f64| EpochRecord {
            epoch: 7,
            loss: 0.1,
            train: ByExit::from_iter([(Exit::CLOUD, share)]),
            validation: ExitShares { devices: Vec::new(), exits: ByExit::default() },
            validation_loss: None,
            learning_rate: 0.1,
        };
        let of_units = |units, share, validation| {
            let progress = Progress { epochs: vec![record(share)], ..Progress::default() };
            codes(of_overfitting(ExportedEpoch::Last, &progress, units, &validation))
        };
        let found = |share, validation| of_units(300, share, validation);
        assert_eq!(found(0.99, counts(80, 100)), ["overfitting"]);
        assert_eq!(found(0.99, counts(8, 10)), [""; 0], "ten samples show no gap");
        assert_eq!(found(0.99, counts(9600, 10_000)), [""; 0], "three points are little");
        assert_eq!(of_units(5, 0.99, counts(80, 100)), [""; 0], "five groups of the train part show no gap");
    }

    #[test]
    fn classes_with_a_third_of_the_samples_or_less_are_named() {
        let labels = ["good", "dent", "scratch"].map(str::to_owned);
        let found = |counts: [usize; 3]| of_imbalance(&labels, &counts);
        assert_eq!(found([50, 30, 20]), None);
        let text = found([80, 15, 5]).unwrap().text;
        assert!(text.contains("good has 80 samples, scratch 5, dent 15 (16.0 times fewer)"), "{text}");
        let text = found([60, 40, 0]).unwrap().text;
        assert!(text.contains("scratch 0 (none)"), "{text}");
    }
}
