//! The recipe: a TOML file with the settings of a training run.

mod scale_out;

use std::path::Path;

use headwater_inference::policy::Bound;
use headwater_protocol::{ByExit, Exit};
use headwater_toml_file::{Mistake, check_range, table, with_lines};
use serde::{Deserialize, Serialize};

use headwater_calibration::data::Augment;
use headwater_calibration::promise::Target;
use headwater_calibration::tuning::choice::check_wrong;
use headwater_spec::Spec;
use headwater_spec::file_error::{self, FileError};

pub use scale_out::{BatchOf, CompressionKind, RateScaling, Reduction, ScaleOutRecipe, Strategy};

/// Text of the recipe that is used when none is named.
pub const DEFAULT: &str = include_str!("../../../recipes/default.toml");

table! {
    /// Settings of a training run; docs/recipes.md explains every key.
    Recipe {
        /// Passes over the train part.
        epochs: u32 = 20, 1..=100_000;
        /// Samples of one step, over all workers.
        batch: usize = 128, 1..=65_536;
        /// Threads that train, each on an equal share of every batch. The number changes the result: batch norm sees a share.
        workers: usize = 2, 1..=256;
        /// Seed of weights, order and augmentation.
        seed: u64 = 1;
        /// Shards of the train part in a run of one process, which then ends as one of so many ranks does.
        shards: usize = 1, 1..=4096;
        /// Optimiser and its schedule.
        optimiser: Optimiser = Optimiser::default();
        /// Loss that is minimised.
        loss: LossRecipe = LossRecipe::default();
        /// Augmentation of the views.
        augment: Augment = Augment::default();
        /// Target of the thresholds.
        exit: ExitTarget = ExitTarget::default();
        /// Checkpoints of the run.
        checkpoint: CheckpointRecipe = CheckpointRecipe::default();
        /// How ranks train together; `None` in a run of one process.
        scale_out: Option<ScaleOutRecipe> = None;
    }
}

/// Rule of an optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Adam.
    Adam,
    /// Stochastic gradient descent; `beta_1` is its momentum.
    Sgd,
}

table! {
    /// Optimiser with warm-up and cosine.
    #[derive(Copy)]
    Optimiser {
        /// The rule.
        algorithm: Algorithm = Algorithm::Adam;
        /// Largest step size.
        learning_rate: f32 = 2e-3, 1e-8..=10.0;
        /// Step size at the end of the cosine, as a share of the largest one.
        final_share: f32 = 0.005, 0.0..=1.0;
        /// Share of the run's steps over which the step size rises from 0; at most half of them.
        warm_up: f32 = 0.0256, 0.0..=0.5;
        /// Decay of the mean of gradients (Adam), or momentum (stochastic gradient descent).
        beta_1: f32 = 0.9, 0.0..=0.999_99;
        /// Decay of the mean of squared gradients.
        beta_2: f32 = 0.999, 0.0..=0.999_999;
        /// Decoupled decay of float weights per step, times the step size.
        weight_decay: f32 = 0.0, 0.0..=10.0;
        /// Share of the new batch in the running batch norm statistics.
        statistics_momentum: f32 = 0.05, 1e-6..=1.0;
    }
}

/// Usual weight of a sample of nothing (Hendrycks et al. 2019, "Deep Anomaly Detection with Outlier Exposure", for images).
const NONE_WEIGHT: f32 = 0.5;

/// True for the usual weight of samples of nothing, which is left out of the identity of a run, so that older runs keep their identity.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_usual(none: &f32) -> bool {
    none.to_bits() == NONE_WEIGHT.to_bits()
}

table! {
    /// Weights of the terms of the loss.
    LossRecipe {
        /// Weight of each device's head where device heads are not exits (c, e, f), over the samples seen.
        device: f32 = 0.2, 0.0..=1e3;
        /// Weights of exits; 1 for an exit that is left out.
        exits: ByExit<f32> = ByExit::default();
        /// Share of the label's probability spread over all classes, in `[0, 1)`.
        smoothing: f32 = 0.0, 0.0..=0.99;
        /// Share of the epochs, at the start, that train no exit but the last.
        cloud_first: f32 = 0.0, 0.0..=1.0;
        /// Weight of a sample of nothing in the terms against the labels, whose target is the uniform distribution.
        #[serde(skip_serializing_if = "is_usual")]
        none: f32 = NONE_WEIGHT, 0.0..=1e3;
        /// Weight of the estimated bits of a device's coded map, per bit.
        map_bits: f32 = 0.0, 0.0..=1.0;
        /// Distillation from deeper exits.
        distillation: Distillation = Distillation::default();
    }
}

/// Teacher of an exit in distillation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The last exit.
    Last,
    /// The next deeper exit; for device heads that are no exits, the first exit.
    Next,
}

table! {
    /// Distillation: a deeper exit is the teacher of the exits before it.
    Distillation {
        /// Teacher.
        teacher: Teacher = Teacher::Last;
        /// Weights for exits before the last; 1 for an exit that is left out, 0 for no teacher.
        exits: ByExit<f32> = ByExit::default();
        /// Weight for each device's head where device heads are not exits (c, e, f).
        device: f32 = 0.0, 0.0..=1e3;
        /// Divisor of both logits.
        temperature: f32 = 2.0, 0.01..=100.0;
    }
}

table! {
    /// Target of the thresholds: promised where the data has a calibration part of enough samples, else kept on the validation part.
    #[derive(Copy)]
    ExitTarget {
        /// Measure that is bounded.
        promise: Bound = Bound::Net;
        /// Largest loss of all exits together against the last exit, in points.
        loss_points: f64 = 0.5, 0.001..=99.0;
        /// Probability with which the promise holds over the draw of the calibration part.
        confidence: f64 = 0.95, 0.5..=0.999_999;
        /// Largest share of wrong ones among the answers given, in percent, by which the least confidence of an answer is chosen; left out,
        /// every answer is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        wrong: Option<f64> = None;
        /// Folds of the train part whose out-of-fold logits the thresholds come from; 0 for none. Left out, the data decides
        /// ([`crate::run::Folds::asked`]).
        folds: Option<u32> = None;
    }
}

/// Epoch whose weights are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportedEpoch {
    /// The latest epoch that is at most one standard error below the best one on the validation part
    /// ([`Checkpoint::keep_best`](crate::checkpoint::Checkpoint::keep_best)).
    Best,
    /// The last epoch.
    Last,
}

table! {
    /// Checkpoints of a run.
    #[derive(Copy)]
    CheckpointRecipe {
        /// Steps between checkpoints inside an epoch; one is written after every epoch too.
        steps: u32 = 400, 1..=1_000_000_000;
        /// Epoch whose weights are exported.
        export: ExportedEpoch = ExportedEpoch::Last;
    }
}

/// Range of the weight of an exit.
const WEIGHTS: std::ops::RangeInclusive<f32> = 0.0..=1e3;

/// Largest number of folds of a train part: each fold costs a training.
const MAX_FOLDS: u32 = 64;

impl From<ExitTarget> for Target {
    fn from(ExitTarget { promise, loss_points, confidence, .. }: ExitTarget) -> Self {
        Self { bound: promise, loss: loss_points / 100.0, confidence }
    }
}

impl Recipe {
    /// The settings `[scale_out]`; the default settings if the recipe has none.
    pub fn scale_out(&self) -> ScaleOutRecipe {
        self.scale_out.unwrap_or_default()
    }

    /// The recipe with batch and step size for all ranks together; a larger batch gets at least the warm-up of `[scale_out]`.
    #[must_use]
    pub fn on_ranks(&self, ranks: usize) -> Self {
        let scale_out = self.scale_out();
        let mut recipe = self.clone();
        recipe.batch = scale_out.batch(self.batch, ranks);
        recipe.optimiser.learning_rate *= scale_out.rate_factor(ranks);
        if recipe.batch != self.batch {
            recipe.optimiser.warm_up = recipe.optimiser.warm_up.max(scale_out.warm_up);
        }
        recipe
    }

    /// Number of steps, from the first, whose gradients ranks exchange uncompressed; at least 1. These steps include the warm-up: 1-bit Adam
    /// freezes the mean of squared gradients after the last of these steps, and the mean must not come from the warm-up alone.
    pub fn uncompressed_steps(&self, samples: usize) -> u64 {
        let steps = self.steps(samples);
        share_of(self.scale_out().uncompressed, steps).max(self.optimiser.warm_up_steps(steps)).max(1)
    }

    /// Steps in one epoch: the number of samples divided by the batch, rounded to the nearest whole number, at least 1. With one shard, an
    /// epoch leaves out the samples beyond its steps, other samples each time; with more, a shard that ends begins again.
    pub fn steps_per_epoch(&self, samples: usize) -> u32 {
        ((samples + self.batch / 2) / self.batch).max(1) as u32
    }

    /// Steps of a run on a train part of `samples` samples.
    pub fn steps(&self, samples: usize) -> u64 {
        u64::from(self.epochs) * u64::from(self.steps_per_epoch(samples))
    }

    /// Epochs at the start that train no exit but the last.
    pub fn cloud_first_epochs(&self) -> u64 {
        share_of(self.loss.cloud_first, self.epochs.into())
    }

    /// The loss of an epoch, from 1, for a network with these exits: in the first [`cloud_first_epochs`](Self::cloud_first_epochs) the
    /// other exits and the device heads weigh nothing.
    pub fn loss_of_epoch(&self, epoch: u32, exits: &[Exit]) -> LossRecipe {
        let mut loss = self.loss.clone();
        if u64::from(epoch) > self.cloud_first_epochs() {
            return loss;
        }
        (loss.device, loss.distillation.device) = (0.0, 0.0);
        for exit in exits.iter().take(exits.len().saturating_sub(1)) {
            loss.exits.insert(*exit, 0.0);
            loss.distillation.exits.insert(*exit, 0.0);
        }
        loss
    }

    /// Reads a recipe file, or the default one for `None`.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, not TOML, unknown keys, or numbers out of range; every mistake is named.
    pub fn read(file: Option<&Path>) -> Result<Self, FileError> {
        match file {
            None => Self::parse(Path::new("default recipe"), DEFAULT),
            Some(file) => Self::parse(file, &file_error::read("recipe", file)?),
        }
    }

    /// Parses and checks the text of a recipe.
    ///
    /// # Errors
    /// See [`Recipe::read`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        let of_file = |mistakes| FileError::of(file, mistakes);
        let recipe: Self = headwater_toml_file::read(text).map_err(of_file)?;
        let mistakes = with_lines(text, recipe.mistakes());
        if mistakes.is_empty() { Ok(recipe) } else { Err(of_file(mistakes)) }
    }

    /// Checks that every term of the loss has something to act on in a network; `file` is for the message.
    ///
    /// # Errors
    /// [`FileError::Invalid`].
    pub fn check_for(&self, spec: &Spec, file: &Path) -> Result<(), FileError> {
        if self.loss.map_bits > 0.0 && !spec.codes_features() {
            let message = "loss.map_bits: expected a network that codes its maps (`features = \"coded\"` in its `[wire]`), found one that does not; \
                           leave the key out, or change the network";
            return Err(FileError::invalid(file, message.to_owned()));
        }
        Ok(())
    }

    /// Checks the ranges of all numbers; `file` is for the message.
    ///
    /// # Errors
    /// [`FileError::Invalid`] naming every mistake.
    pub fn check(&self, file: &Path) -> Result<(), FileError> {
        let mistakes = self.mistakes();
        if mistakes.is_empty() { Ok(()) } else { Err(FileError::of(file, mistakes)) }
    }

    fn mistakes(&self) -> Vec<Mistake> {
        let (loss, scale_out) = (&self.loss, self.scale_out());
        let mut mistakes = [
            self.out_of_range(""),
            self.optimiser.out_of_range("optimiser."),
            loss.out_of_range("loss."),
            loss.distillation.out_of_range("loss.distillation."),
            self.augment.out_of_range("augment."),
            self.exit.out_of_range("exit."),
            self.checkpoint.out_of_range("checkpoint."),
            scale_out.out_of_range("scale_out."),
        ]
        .concat();
        for (table, exits) in [("loss", &loss.exits), ("loss.distillation", &loss.distillation.exits)] {
            let key = |exit: Exit| format!("{table}.exits.{}", exit.name());
            mistakes.extend(exits.iter().filter_map(|(exit, found)| check_range(key(exit), found, &WEIGHTS)));
        }
        let share = scale_out.least_top_k_share()..=1.0;
        mistakes.extend(check_range("scale_out.top_k_share".to_owned(), &scale_out.top_k_share, &share));
        let (first, epochs) = (self.cloud_first_epochs(), self.epochs);
        if first > 0 && first >= u64::from(epochs) {
            let message = format!(
                "expected fewer than the {epochs} epochs, so that the other exits learn too, found {first}, to the nearest epoch"
            );
            mistakes.push(Mistake::of_key("loss.cloud_first", message));
        }
        if let Some(found) = self.exit.wrong.filter(|percent| check_wrong(*percent).is_err()) {
            let message = format!("expected 0.001 to 50 percent of the answers given, found {found}");
            mistakes.push(Mistake::of_key("exit.wrong", message));
        }
        if let Some(found) = self.exit.folds.filter(|folds| *folds == 1 || *folds > MAX_FOLDS) {
            let message = format!("expected 0 for none, or 2 to {MAX_FOLDS}, found {found}");
            mistakes.push(Mistake::of_key("exit.folds", message));
        }
        if !self.batch.is_multiple_of(self.shards.max(1)) {
            let message = format!("expected a multiple of shards ({}), found {}", self.shards, self.batch);
            mistakes.push(Mistake::of_key("batch", message));
        }
        if self.workers > self.batch {
            let message = format!("expected at most batch ({}), found {}", self.batch, self.workers);
            mistakes.push(Mistake::of_key("workers", message));
        }
        mistakes
    }
}

/// A share of the steps or epochs of a run, rounded to the nearest whole number, halves up.
pub(crate) fn share_of(share: f32, all: u64) -> u64 {
    (f64::from(share) * all as f64).round() as u64
}

impl Optimiser {
    /// Steps of a run of `steps` over which the step size rises.
    pub fn warm_up_steps(&self, steps: u64) -> u64 {
        share_of(self.warm_up, steps).min(steps / 2)
    }
}

impl LossRecipe {
    /// Weight of an exit.
    pub fn weight(&self, exit: Exit) -> f32 {
        self.exits.get(exit).copied().unwrap_or(1.0)
    }
}

impl Distillation {
    /// Weight for an exit before the last one.
    pub fn weight(&self, exit: Exit) -> f32 {
        self.exits.get(exit).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_epochs_may_train_the_cloud_alone() {
        let text = DEFAULT.replace("[loss]", "[loss]\ncloud_first = 0.1\nmap_bits = 0.001");
        let recipe = Recipe::parse(Path::new("r.toml"), &text).unwrap();
        let further = Exit::from_name("cloud.1").unwrap();
        let alone = recipe.loss_of_epoch(2, &[Exit::LOCAL, Exit::CLOUD, further]);
        for exit in [Exit::LOCAL, Exit::CLOUD] {
            assert_eq!((alone.weight(exit), alone.distillation.weight(exit)), (0.0, 0.0));
        }
        assert_eq!((alone.device, alone.weight(further), alone.map_bits), (0.0, 1.0, 0.001));
        assert_eq!(recipe.loss_of_epoch(3, &[Exit::CLOUD]), recipe.loss);
        let error =
            Recipe::parse(Path::new("r.toml"), &text.replace("cloud_first = 0.1", "cloud_first = 0.98"))
                .unwrap_err();
        assert!(error.to_string().contains("expected fewer than the 20 epochs"), "{error}");
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let text = DEFAULT.replace("batch = 128", "batch = 0").replace("failout = ", "failout = 7 # ");
        let error = Recipe::parse(Path::new("r.toml"), &text).unwrap_err().to_string();
        assert!(error.starts_with("r.toml:4: batch: expected 1 to 65536, found 0\n"), "{error}");
        assert!(error.contains("augment.failout: expected 0 to 1, found 7"), "{error}");
    }

    #[test]
    fn the_shares_of_every_recipe_are_the_steps_that_its_runs_had() {
        // For the whole train part of `fashion-6cam`: epochs; then steps of the run, of the warm-up, without compression, and of the
        // warm-up on ranks that each have the batch of the recipe.
        for (name, epochs, expected) in [
            ("default", 20, [7820, 200, 200, 391]),
            ("few-bytes", 20, [7820, 200, 200, 391]),
            ("slow-link", 20, [7820, 200, 200, 391]),
            ("ddnn", 100, [39_100, 0, 1001, 1955]),
        ] {
            let file = format!("{}/../recipes/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let recipe = Recipe::read(Some(Path::new(&file))).unwrap();
            let steps = recipe.steps(50_000);
            let on_ranks = share_of(recipe.scale_out().warm_up, steps);
            let found =
                [steps, recipe.optimiser.warm_up_steps(steps), recipe.uncompressed_steps(50_000), on_ranks];
            assert_eq!((recipe.epochs, found), (epochs, expected), "{name}");
        }
        // With `warm_up = 0.5`, as in scripts/check/weights: 50 steps for most specs, three epochs of 24 for `eth80`.
        let half = Optimiser { warm_up: 0.5, ..Recipe::read(None).unwrap().optimiser };
        assert_eq!([50, 72, 51].map(|steps| half.warm_up_steps(steps)), [25, 36, 25]);
    }

    #[test]
    fn keys_that_are_left_out_are_those_of_the_default_recipe() {
        let augment = Augment { failout: 0.1, erase_share: 0.2, ..Augment::default() };
        assert_eq!(Recipe { augment, ..Recipe::default() }, Recipe::read(None).unwrap());
    }

    #[test]
    fn a_term_for_coded_maps_needs_a_network_that_codes_them() {
        let text = DEFAULT.replace("[loss]", "[loss]\nmap_bits = 0.001");
        let recipe = Recipe::parse(Path::new("r.toml"), &text).unwrap();
        let coded = include_str!("../../../networks/ddnn-c.toml");
        let check = |text: &str| {
            let spec = Spec::parse(Path::new("network.toml"), text).unwrap();
            recipe.check_for(&spec, Path::new("r.toml")).map_err(|error| error.to_string())
        };
        assert_eq!(check(coded), Ok(()));
        let error = check(&coded.replace("\"coded\"", "\"bits\"")).unwrap_err();
        assert!(
            error.starts_with("r.toml: loss.map_bits: expected a network that codes its maps"),
            "{error}"
        );
    }

    #[test]
    fn keys_about_nothing_and_wrong_answers_change_no_run_that_leaves_them_out() {
        let recipe = |text: &str| Recipe::parse(Path::new("r.toml"), text);
        let json = serde_json::json!(Recipe::default());
        assert!(json["loss"].get("none").is_none() && json["exit"].get("wrong").is_none(), "{json}");
        let stated = recipe("loss.none = 1.0\nexit.wrong = 2.0\n").unwrap();
        assert_eq!((stated.loss.none, stated.exit.wrong), (1.0, Some(2.0)));
        assert_eq!(serde_json::json!(stated)["loss"]["none"], 1.0);
        let refused = recipe("exit.wrong = 51.0\n").unwrap_err().to_string();
        assert!(refused.contains("r.toml:1: exit.wrong: expected 0.001 to 50 percent"), "{refused}");
    }

    #[test]
    fn folds_are_none_or_at_least_two() {
        let with = |folds: &str| {
            let text = DEFAULT.replace("confidence = 0.95", &format!("folds = {folds}\nconfidence = 0.95"));
            Recipe::parse(Path::new("r.toml"), &text).map(|recipe| recipe.exit.folds)
        };
        assert_eq!([with("0").unwrap(), with("4").unwrap()], [Some(0), Some(4)]);
        for folds in ["1", "65"] {
            let error = with(folds).unwrap_err().to_string();
            assert!(
                error.contains(&format!("exit.folds: expected 0 for none, or 2 to 64, found {folds}")),
                "{error}"
            );
        }
    }

    #[test]
    fn weights_of_exits_may_be_left_out_or_chosen() {
        let text = "loss.exits = { device = 0.7, \"cloud.1\" = 0.5 }\nloss.distillation.exits.cloud = 0.25\n";
        let loss = Recipe::parse(Path::new("r.toml"), text).unwrap().loss;
        let exits = ["device", "cloud", "cloud.1"].map(|name| Exit::from_name(name).unwrap());
        assert_eq!(exits.map(|exit| loss.weight(exit)), [0.7, 1.0, 0.5]);
        assert_eq!(exits.map(|exit| loss.distillation.weight(exit)), [1.0, 0.25, 1.0]);
        for (from, to, expected) in [
            ("0.7", "-1.0", "r.toml:1: loss.exits.device: expected 0 to 1000, found -1"),
            ("device", "sky", "expected device, local, edge or cloud"),
        ] {
            let error = Recipe::parse(Path::new("r.toml"), &text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
