//! A part of the data with its logits from the trained network, evaluated in this process or by all ranks of a run.

use headwater_protocol::SlotSet;
use headwater_samples::Part;

use crate::evaluation::evaluate;
use crate::experiment::Experiment;
use crate::layers::State;
use crate::scale_out::Communicator;
use crate::scale_out::exchange::slice_ranges;
use headwater_calibration::data::{AbsentView, Parts, Pixels, Samples};
use headwater_calibration::message::{Reader, put_u64};
use headwater_calibration::part_logits::PartLogits;

/// A part with the logits of the trained network.
pub struct EvaluatedPart {
    /// The samples; without pixels if the part was evaluated over ranks.
    pub samples: Samples,
    /// Logits of the samples.
    pub logits: PartLogits,
}

impl EvaluatedPart {
    /// Evaluates samples in this process.
    pub fn of(experiment: &Experiment, state: &State, samples: Samples) -> Self {
        Self { logits: evaluate(experiment, state, &samples), samples }
    }

    /// Evaluates a part of the data: each rank computes views and logits of a range of samples, and every rank gets all logits. Every
    /// rank must call this function.
    pub fn over_ranks(
        experiment: &Experiment,
        state: &State,
        ranks: &dyn Communicator,
        (parts, part): (&Parts, Part),
    ) -> Self {
        let count = parts.count(part, None);
        let of_rank: Vec<_> = slice_ranges(count, ranks.ranks()).collect();
        let own = of_rank[ranks.rank()].clone().map(|sample| sample as u32).collect();
        let own = Self::of(experiment, state, parts.shard(part, own, experiment.recipe.workers));
        let mut message = Vec::new();
        own.samples.seen.iter().for_each(|seen| put_u64(&mut message, seen.bits()));
        own.logits.put(&mut message);
        let (mut seen, mut logits) = (Vec::with_capacity(count), PartLogits::default());
        for (message, samples) in ranks.all_gather(&message).iter().zip(of_rank) {
            let mut reader = Reader(message);
            seen.extend(samples.clone().map(|_| SlotSet::from_bits(reader.u64())));
            // A rank without samples sends no logits.
            if !samples.is_empty() {
                logits.append(PartLogits::read(&mut reader));
            }
        }
        let samples = Samples {
            labels: parts.labels(part, None),
            groups: parts.groups(part, None),
            seen,
            pixels: Pixels::default(),
            absent: AbsentView::Absent,
            part_indices: Vec::new(),
            ..own.samples
        };
        Self { samples, logits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::RunInfo;
    use crate::recipe::Recipe;
    use crate::scale_out::in_process;
    use headwater_spec::Spec;

    #[test]
    fn ranks_find_the_logits_of_one_process_for_any_number_of_samples() {
        let parts = Parts::drawn(8, 11, 2);
        let spec = Spec::read("../networks/ddnn-c.toml".as_ref()).unwrap();
        let experiment =
            || Experiment::new(spec.clone(), Recipe::read(None).unwrap(), RunInfo::default()).unwrap();
        let alone = experiment();
        let state = alone.network.layout.initial(3);
        for part in [Part::Validation, Part::Test] {
            let whole = EvaluatedPart::of(&alone, &state, parts.part(part, None, 1));
            // The test part has two samples, so one of three ranks has none.
            let found = in_process::run(3, |rank| {
                EvaluatedPart::over_ranks(&experiment(), &state, rank, (&parts, part))
            });
            for EvaluatedPart { samples, logits } in found {
                assert_eq!(samples, whole.samples.clone().without_pixels());
                assert_eq!(logits, whole.logits);
            }
        }
    }
}
