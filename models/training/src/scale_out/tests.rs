//! Strategies on ranks that are threads of one process: equality with other runs, and resuming.

use super::*;
use crate::checkpoint::{Checkpoint, EpochRecord};
use crate::experiment::{Experiment, RunInfo};
use crate::joint::{Diverged, Event, Trainer};
use crate::recipe::{
    Algorithm, BatchOf, CompressionKind, ExportedEpoch, Recipe, Reduction, ScaleOutRecipe, Strategy,
};
use crate::run::{self, Folds, RunFolder, out_of_fold};
use crate::single_camera::plain_network;
use crate::testing::{DDNN_C, network};
use headwater_calibration::data::{Parts, Samples};
use headwater_samples::Part;
use headwater_spec::Spec;
use std::path::PathBuf;

/// Samples of a step: divisible by two and three ranks.
const BATCH: usize = 48;

/// A run of one process, or of the ranks of a recipe.
struct Job {
    spec: Spec,
    recipe: Recipe,
    parts: Parts,
}

/// A run that was stopped, with the states of all ranks.
type Stopped = Vec<(Checkpoint, Option<RankState>)>;

impl Job {
    /// Six devices with binary sections.
    fn devices(scale_out: ScaleOutRecipe) -> Self {
        Self::new(network(DDNN_C).spec, Parts::drawn(300, 90, 10), scale_out)
    }

    /// A float network on one camera.
    fn float(scale_out: ScaleOutRecipe) -> Self {
        let parts = Parts::drawn(600, 60, 10).first_slot();
        let spec = plain_network(&parts.part(Part::Train, Some(1), 1)).unwrap();
        Self::new(spec, parts, scale_out)
    }

    fn new(spec: Spec, parts: Parts, scale_out: ScaleOutRecipe) -> Self {
        let mut recipe = Recipe::read(None).unwrap();
        (recipe.epochs, recipe.batch, recipe.workers) = (2, BATCH, 1);
        let steps = recipe.steps(parts.count(Part::Train, None));
        (recipe.optimiser.warm_up, recipe.checkpoint.steps) = (2.0 / steps as f32, 4);
        recipe.scale_out = Some(scale_out);
        Self { spec, recipe, parts }
    }

    fn epochs(mut self, epochs: u32) -> Self {
        self.recipe.epochs = epochs;
        self
    }

    fn gradient_descent(mut self) -> Self {
        let optimiser = &mut self.recipe.optimiser;
        (optimiser.algorithm, optimiser.beta_1, optimiser.learning_rate) = (Algorithm::Sgd, 0.0, 2e-3);
        self
    }

    fn experiment(&self, recipe: Recipe) -> Experiment {
        Experiment::new(self.spec.clone(), recipe, RunInfo::default()).unwrap()
    }

    fn shard(&self, part: Part, rank: &dyn Communicator) -> Samples {
        let groups = self.parts.groups(part, None);
        let mut shards = shards::divide(&groups, self.parts.count(part, None), rank.ranks());
        self.parts.shard(part, shards.swap_remove(rank.rank()), 1)
    }

    /// The same run in one process, with the threads of all ranks.
    fn threads(&self, ranks: usize) -> Checkpoint {
        let workers = ranks * self.recipe.workers;
        let recipe = Recipe { scale_out: None, workers, shards: ranks, ..self.recipe.clone() };
        let experiment = self.experiment(recipe);
        let [train, validation] = [Part::Train, Part::Validation].map(|part| self.parts.part(part, None, 2));
        let mut trainer = Trainer::new(&experiment, &Alone, [&train, &validation], None);
        trainer.run(|_| Ok::<(), Diverged>(())).unwrap();
        trainer.checkpoint
    }

    /// Runs on ranks to the end, or to the first checkpoint at or after step `stop`.
    fn ranks(&self, ranks: usize, from: Option<&Stopped>, stop: Option<u64>) -> Stopped {
        struct Stop;
        impl From<Diverged> for Stop {
            fn from(error: Diverged) -> Self {
                panic!("{error}");
            }
        }
        in_process::run(ranks, |rank| {
            let experiment = self.experiment(self.recipe.clone());
            let [train, validation] = [Part::Train, Part::Validation].map(|part| self.shard(part, rank));
            let from = from.cloned().map(|from| {
                let (checkpoints, states): (Vec<_>, Vec<_>) = from.into_iter().unzip();
                (checkpoints[0].clone(), states.into_iter().flatten().collect())
            });
            let mut trainer = Trainer::new(&experiment, rank, [&train, &validation], from);
            let mut saved = None;
            let result = trainer.run(|event| match event {
                Event::Checkpoint(checkpoint, state) => {
                    saved = Some((checkpoint.clone(), state));
                    if stop.is_some_and(|stop| checkpoint.progress.step >= stop) { Err(Stop) } else { Ok(()) }
                }
                _ => Ok(()),
            });
            assert_eq!(result.is_err(), stop.is_some());
            saved.unwrap()
        })
    }

    /// The checkpoint at the end of a run on ranks; all ranks must end with the same weights and statistics.
    fn end(&self, ranks: usize) -> Checkpoint {
        let found = self.ranks(ranks, None, None);
        let first = &found[0].0;
        let is_same = |found: &Checkpoint| found.state == first.state && found.best == first.best;
        assert!(found.iter().all(|(checkpoint, _)| is_same(checkpoint)), "ranks differ");
        found.into_iter().next().unwrap().0
    }
}

fn local_steps(every: u32) -> ScaleOutRecipe {
    ScaleOutRecipe { strategy: Strategy::LocalSteps, every, ..ScaleOutRecipe::default() }
}

/// Largest difference of a weight between two checkpoints, relative to the largest weight of `a`.
fn difference(a: &Checkpoint, b: &Checkpoint) -> f32 {
    let largest = a.state.parameters.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let pairs = a.state.parameters.iter().zip(&b.state.parameters);
    pairs.fold(0.0f32, |most, (a, b)| most.max((a - b).abs())) / largest
}

#[test]
fn synchronous_ranks_equal_as_many_threads_bit_for_bit() {
    let job = Job::devices(ScaleOutRecipe::default());
    for ranks in [2, 3] {
        let (threads, found) = (job.threads(ranks), job.end(ranks));
        assert_eq!(found.state.parameters, threads.state.parameters, "weights of {ranks} ranks");
        assert_eq!(found.state.statistics, threads.state.statistics, "statistics of {ranks} ranks");
        assert_eq!(found.moments, threads.moments);
        // Only the last epoch is compared: before it, a run of one process has running statistics, ranks have exact ones.
        let last = |checkpoint: &Checkpoint| checkpoint.progress.epochs.last().unwrap().clone();
        assert_eq!(last(&found).validation, last(&threads).validation);
    }
}

#[test]
fn ranks_of_two_threads_equal_twice_as_many_threads() {
    let mut job = Job::devices(ScaleOutRecipe::default()).epochs(1);
    job.recipe.workers = 2;
    assert_eq!(job.end(2).state, job.threads(2).state);
}

#[test]
fn all_reduce_differs_by_rounding_alone() {
    let all_reduce = ScaleOutRecipe { reduction: Reduction::AllReduce, ..ScaleOutRecipe::default() };
    // 52 steps, 13 per epoch. Adam divides a gradient by its own size, so a difference by rounding could become a step of full size.
    let found = difference(
        &Job::float(all_reduce).epochs(4).gradient_descent().end(3),
        &Job::float(ScaleOutRecipe::default()).epochs(4).gradient_descent().end(3),
    );
    assert!(found <= 1e-5, "{found}");
}

#[test]
fn one_local_step_of_gradient_descent_and_the_plain_mean_equal_synchronous_training() {
    let plain = ScaleOutRecipe { outer_rate: 1.0, outer_momentum: 0.0, ..local_steps(1) };
    let found = difference(
        &Job::float(plain).gradient_descent().end(2),
        &Job::float(ScaleOutRecipe::default()).gradient_descent().end(2),
    );
    assert!(found <= 1e-5, "{found}");
}

#[test]
fn a_run_repeats_bit_for_bit_and_a_resumed_one_ends_with_the_same_weights() {
    let recipes = [
        local_steps(3),
        ScaleOutRecipe { compression: CompressionKind::Int8, ..local_steps(2) },
        ScaleOutRecipe {
            compression: CompressionKind::TopK,
            top_k_share: 0.1,
            // 2 of 12 steps.
            uncompressed: 0.17,
            ..ScaleOutRecipe::default()
        },
        ScaleOutRecipe {
            compression: CompressionKind::OneBit,
            uncompressed: 0.25,
            ..ScaleOutRecipe::default()
        },
    ];
    for recipe in recipes {
        let job = Job::devices(recipe);
        let whole = job.end(2);
        assert_eq!(job.end(2).state, whole.state, "{recipe:?}");
        let stopped = job.ranks(2, None, Some(4));
        assert!(stopped[0].0.progress.step < whole.progress.step);
        let resumed = job.ranks(2, Some(&stopped), None);
        assert_eq!(resumed[0].0.state, whole.state, "{recipe:?}");
    }
}

#[test]
fn ranks_agree_on_the_best_epoch_and_so_does_a_resumed_run() {
    let mut job = Job::devices(local_steps(3)).epochs(3);
    job.recipe.checkpoint.export = ExportedEpoch::Best;
    let whole = job.end(2);
    let scores: Vec<f64> = whole.progress.epochs.iter().map(EpochRecord::score).collect();
    let highest = scores.iter().copied().fold(0.0, f64::max);
    // 90 samples over both ranks, with one right and one wrong sample added.
    let right = (90.0 * highest + 1.0) / 92.0;
    let error = (right * (1.0 - right) / 92.0).sqrt();
    let latest = scores.iter().rposition(|score| *score >= highest - error).unwrap();
    assert_eq!(whole.progress.best, Some(latest as u32 + 1), "{scores:?}");
    assert!(whole.best.is_some());
    let stopped = job.ranks(2, None, Some(4));
    let resumed = &job.ranks(2, Some(&stopped), None)[0].0;
    assert_eq!((&resumed.best, resumed.progress.best), (&whole.best, whole.progress.best));
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    for recipe in
        [ScaleOutRecipe::default(), ScaleOutRecipe { compression: CompressionKind::OneBit, ..local_steps(2) }]
    {
        let job = Job::devices(recipe);
        let stopped = job.ranks(2, None, Some(4));
        let resumed = job.ranks(3, Some(&stopped), None);
        let progress = &resumed[0].0.progress;
        assert_eq!((progress.epoch, progress.scale_out.ranks), (2, 3));
        assert!(resumed.iter().all(|(checkpoint, _)| checkpoint.state == resumed[0].0.state));
    }
}

#[test]
fn steps_stay_counted_when_the_number_of_ranks_grows_and_an_epoch_has_fewer_steps() {
    let job = Job::devices(ScaleOutRecipe { batch: BatchOf::EachRank, ..ScaleOutRecipe::default() });
    let stopped = job.ranks(2, None, Some(4));
    let resumed = job.ranks(4, Some(&stopped), None);
    let (before, after) = (&stopped[0].0.progress, &resumed[0].0.progress);
    assert!(after.step > before.step, "files are numbered by steps: {} after {}", after.step, before.step);
    assert_eq!(after.epoch, job.recipe.epochs);
    let rates: Vec<f32> = after.epochs.iter().map(|epoch| epoch.learning_rate).collect();
    let end = job.recipe.optimiser.final_share * job.recipe.optimiser.learning_rate * 2.0;
    assert!((rates.last().unwrap() - end).abs() < 1e-3 * end, "{rates:?} ends at {end}");
}

#[test]
fn a_run_goes_on_from_the_newest_checkpoint_that_all_ranks_have() {
    let mut job = Job::devices(ScaleOutRecipe { compression: CompressionKind::Int8, ..local_steps(2) });
    job.recipe.checkpoint.steps = 2;
    let folders: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let run = || {
        in_process::run(2, |rank| {
            let experiment = job.experiment(job.recipe.clone());
            let [train, validation] = [Part::Train, Part::Validation].map(|part| job.shard(part, rank));
            let folder = RunFolder { path: folders[rank.rank()].path().to_owned() };
            let mut resumed = None;
            let end = run::train(&experiment, rank, &folder, [&train, &validation], |event| {
                if let Event::Resumed { progress, skipped } = event {
                    resumed = Some((progress.step, skipped.len()));
                }
            });
            end.map(|end| (end.state, resumed)).map_err(|error| error.to_string())
        })
    };
    let files = |rank: usize, extension: &str| -> Vec<PathBuf> {
        let files = std::fs::read_dir(folders[rank].path()).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<PathBuf> =
            files.filter(|file| file.extension().is_some_and(|found| found == extension)).collect();
        files.sort();
        files
    };
    let whole = run();
    let (state, _) = whole[0].as_ref().unwrap();
    assert_eq!((files(0, "hwck").len(), files(0, "hwrank").len(), files(1, "hwrank").len()), (2, 2, 2));

    std::fs::remove_file(&files(1, "hwrank")[1]).unwrap();
    let again = run();
    let (end, resumed) = again[0].as_ref().unwrap();
    let (step, skipped) = resumed.unwrap();
    assert!(files(0, "hwck")[0].display().to_string().contains(&format!("{step:09}")) && skipped == 1);
    assert_eq!(end, state, "the steps after it are the same again");

    files(1, "hwrank").iter().for_each(|file| std::fs::write(file, "torn").unwrap());
    let error = run().remove(0).unwrap_err();
    assert!(error.contains("found no whole one of rank 1"), "{error}");
}

#[test]
fn a_rank_without_validation_samples_trains_with_the_others() {
    let mut job = Job::devices(ScaleOutRecipe::default()).epochs(1);
    job.parts = Parts::drawn(300, 2, 10);
    let record = job.end(3).progress.epochs.remove(0);
    assert_eq!(record.validation, job.threads(3).progress.epochs.remove(0).validation);
}

#[test]
fn every_strategy_and_compression_learns() {
    let synchronous = ScaleOutRecipe { uncompressed: 0.15, ..ScaleOutRecipe::default() };
    for strategy in [synchronous, local_steps(4)] {
        for compression in
            [CompressionKind::None, CompressionKind::Int8, CompressionKind::OneBit, CompressionKind::TopK]
        {
            let recipe = ScaleOutRecipe { compression, top_k_share: 0.1, ..strategy };
            let found = Job::float(recipe).epochs(3).end(2);
            let losses: Vec<f64> = found.progress.epochs.iter().map(|epoch| epoch.loss).collect();
            assert!(losses[2] < 0.8 * losses[0], "{recipe:?}: {losses:?}");
        }
    }
}

#[test]
fn a_rank_goes_on_from_what_its_messages_left_out() {
    let recipe = ScaleOutRecipe { compression: CompressionKind::OneBit, ..local_steps(2) };
    let job = Job::devices(recipe);
    let layout = &job.experiment(job.recipe.clone()).network.layout;
    let stopped = job.ranks(2, None, Some(4));
    in_process::run(2, |ranks| {
        let (mut checkpoint, state) = stopped[ranks.rank()].clone();
        let states: Vec<RankState> = stopped.iter().filter_map(|(_, state)| state.clone()).collect();
        let exchanged = checkpoint.state.parameters.clone();
        let plan = RankPlan { batch: BATCH, uncompressed_steps: 1, exits: &[] };
        let mut rank = Rank::new(ranks, recipe, (layout, &exchanged), plan);
        rank.resume(&mut checkpoint, &states);
        rank.begin_step(&mut checkpoint.state);
        let left_out = state.unwrap().sent_residual;
        assert!(left_out.iter().any(|number| *number != 0.0));
        for ((before, now), left_out) in exchanged.iter().zip(&checkpoint.state.parameters).zip(left_out) {
            assert_eq!(*now, before - 2.0 * left_out);
        }
        // The residual is in the weights now, and must not be sent again.
        assert!(rank.state(&checkpoint).unwrap().sent_residual.iter().all(|number| *number == 0.0));
    });
}

#[test]
fn the_folds_of_ranks_are_those_of_one_process() {
    let job = Job::float(ScaleOutRecipe::default()).epochs(1);
    let experiment = job.experiment(job.recipe.clone());
    let train = job.parts.part(Part::Train, None, 1);
    let folds = Folds::divide(&train.labels, &train.groups, 4).unwrap();
    let alone = out_of_fold::train(&experiment, &Alone, &train, (&folds, None), |_, _| {}).unwrap();
    let found = in_process::run(3, |rank| {
        let experiment = job.experiment(job.recipe.clone());
        out_of_fold::train(&experiment, rank, &train, (&folds, None), |_, _| {}).unwrap()
    });
    assert!(found.iter().all(|logits| *logits == alone));
}

#[test]
fn compressed_local_steps_send_a_thousandth_of_the_bytes() {
    let bytes = |recipe: ScaleOutRecipe| {
        let job = Job::devices(recipe).epochs(1);
        let experiment = job.experiment(job.recipe.clone());
        let layout = &experiment.network.layout;
        let vector = vec![0.5; layout.parameter_count()];
        let sent = in_process::run(2, |rank| {
            let mut exchange = exchange::Exchange::new(rank, compression::of(&recipe), layout);
            match recipe.compression {
                CompressionKind::None => exchange.sum_in_order(std::slice::from_ref(&vector), &[]),
                _ => exchange.sum_compressed(&vector, &[]),
            };
            rank.sent_bytes()
        });
        sent.iter().sum::<u64>() as f64
    };
    let every_step = bytes(ScaleOutRecipe::default());
    let one_bit = bytes(ScaleOutRecipe { compression: CompressionKind::OneBit, ..local_steps(50) }) / 50.0;
    let int8 = bytes(ScaleOutRecipe { compression: CompressionKind::Int8, ..local_steps(260) }) / 260.0;
    assert!(
        every_step / one_bit >= 1000.0 && every_step / int8 >= 1000.0,
        "{} and {}",
        every_step / one_bit,
        every_step / int8
    );
}
