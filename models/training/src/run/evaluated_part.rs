//! A part of the data with its logits from the trained network, evaluated in this process or by all ranks of a run.

use headwater_samples::Part;

use crate::evaluation::evaluate;
use crate::experiment::Experiment;
use crate::layers::State;
use crate::scale_out::Communicator;
use crate::scale_out::exchange::slice_ranges;
use headwater_calibration::data::{Parts, Samples};
use headwater_calibration::logits_file;
use headwater_calibration::part_logits::{EvaluatedPart, PartLogits};

/// The samples with their logits, computed in this process.
pub fn evaluated(experiment: &Experiment, state: &State, samples: Samples) -> EvaluatedPart {
    EvaluatedPart { logits: evaluate(experiment, state, &samples), samples }
}

/// A part of the data without its views, evaluated by all ranks: each computes views and logits of a range of samples, and every rank
/// gets all logits. Every rank must call this function.
pub fn evaluated_by_ranks(
    experiment: &Experiment,
    state: &State,
    ranks: &dyn Communicator,
    (parts, part): (&Parts, Part),
) -> EvaluatedPart {
    let own = slice_ranges(parts.count(part, None), ranks.ranks()).nth(ranks.rank());
    let own = own.into_iter().flatten().map(|sample| sample as u32).collect();
    let own = evaluated(experiment, state, parts.shard(part, own, experiment.recipe.workers));
    let (mut seen, mut logits) = (Vec::new(), PartLogits::default());
    for of_rank in of_all_ranks(&own, ranks) {
        seen.extend(of_rank.samples.seen);
        logits.append(of_rank.logits);
    }
    let Samples { shape, slots, classes, .. } = own.samples;
    let (labels, groups) = (parts.labels(part, None), parts.groups(part, None));
    let samples = Samples { shape, slots, classes, labels, groups, seen, ..Samples::default() };
    EvaluatedPart { samples, logits }
}

/// Evaluated parts of the ranks that have samples, in the order of ranks, without views.
pub(super) fn of_all_ranks(own: &EvaluatedPart, ranks: &dyn Communicator) -> Vec<EvaluatedPart> {
    let message = match own.samples.is_empty() {
        true => Vec::new(),
        false => logits_file::encode("", &own.samples, &own.logits),
    };
    let all = ranks.all_gather(&message);
    let messages = all.iter().filter(|message| !message.is_empty());
    let read = |message: &Vec<u8>| logits_file::decode("", message).expect("ranks send whole messages");
    messages.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale_out::in_process;
    use crate::testing::{DDNN_C, experiment};

    #[test]
    fn ranks_find_the_logits_of_one_process_for_any_number_of_samples() {
        let parts = Parts::drawn(8, 11, 2);
        let alone = experiment(DDNN_C);
        let state = alone.network.layout.initial(3);
        for part in [Part::Validation, Part::Test] {
            let whole = evaluated(&alone, &state, parts.part(part, None, 1));
            // The test part has two samples, so one of three ranks has none.
            let found = in_process::run(3, |rank| {
                evaluated_by_ranks(&experiment(DDNN_C), &state, rank, (&parts, part))
            });
            for EvaluatedPart { samples, logits } in found {
                assert_eq!(samples, whole.samples.clone().without_pixels());
                assert_eq!(logits, whole.logits);
            }
        }
    }
}
