//! The recipe: a TOML file with the settings of a training run.

mod scale_out;

use std::path::Path;

use headwater_inference::policy::Bound;
use headwater_protocol::{Exit, ExitWord};
use headwater_toml_file::{Mistake, with_lines};
use serde::{Deserialize, Serialize};

use headwater_calibration::data::Augment;
use headwater_calibration::promise::Target;
use headwater_spec::Spec;
use headwater_spec::file_error::{self, FileError};

pub use scale_out::{BatchOf, CompressionKind, RateScaling, Reduction, ScaleOutRecipe, Strategy};

/// The recipe used when none is named.
pub const DEFAULT: &str = include_str!("../../../recipes/default.toml");

/// Settings of a training run; docs/recipes.md explains every key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Passes over the train part.
    pub epochs: u32,
    /// Samples of one step, over all workers.
    pub batch: usize,
    /// Threads that train, each on an equal share of every batch. The number changes the result: batch norm sees a share.
    pub workers: usize,
    /// Seed of weights, order and augmentation.
    pub seed: u64,
    /// Optimiser and its schedule.
    pub optimiser: Optimiser,
    /// Loss that is minimised.
    pub loss: LossRecipe,
    /// Augmentation of the views.
    #[serde(default)]
    pub augment: Augment,
    /// Target of the thresholds.
    pub exit: ExitTarget,
    /// Checkpoints of the run.
    #[serde(default)]
    pub checkpoint: CheckpointRecipe,
    /// Shards of the train part in a run of one process, which then ends as one of so many ranks does; 1 when left out.
    // Not serialised when absent, as below: the identity of older runs stays, and older runs can resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
    /// How ranks train together; `None` in a run of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_out: Option<ScaleOutRecipe>,
}

/// Rule of an optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Adam.
    #[default]
    Adam,
    /// Stochastic gradient descent; `beta_1` is its momentum.
    Sgd,
}

/// Optimiser with warm-up and cosine.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Optimiser {
    /// The rule; Adam when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Largest step size.
    pub learning_rate: f32,
    /// Step size at the end of the cosine, as a share of the largest one.
    pub final_share: f32,
    /// Share of the run's steps over which the step size rises from 0; at most half of them.
    pub warm_up: f32,
    /// Decay of the mean of gradients (Adam), or momentum (stochastic gradient descent).
    pub beta_1: f32,
    /// Decay of the mean of squared gradients.
    pub beta_2: f32,
    /// Decoupled decay of float weights per step, times the step size.
    pub weight_decay: f32,
    /// Share of the new batch in the running batch norm statistics.
    pub statistics_momentum: f32,
}

/// Weights of the exits in the loss.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LossRecipe {
    /// Weight of each device's head where device heads are not exits (c, e, f), over the samples seen.
    #[serde(default = "a_fifth")]
    pub device: f32,
    /// Weight of the exit `device`, where a device decides (b, d); 1 when left out.
    // Not serialised when absent: the identity of older runs stays, and older runs can resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_exit: Option<f32>,
    /// Weight of the exit `local`.
    #[serde(default = "one")]
    pub local: f32,
    /// Weight of the exit `edge`; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<f32>,
    /// Weight of the exit `cloud`.
    #[serde(default = "one")]
    pub cloud: f32,
    /// Share of the label's probability spread over all classes, in `[0, 1)`.
    #[serde(default)]
    pub smoothing: f32,
    /// Share of the epochs, at the start, that train the exit `cloud` alone.
    #[serde(default)]
    pub cloud_first: f32,
    /// Weight of the estimated bits of a device's coded map, per bit; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_bits: Option<f32>,
    /// Distillation from deeper exits.
    pub distillation: Distillation,
}

/// Teacher of an exit in distillation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The exit `cloud`.
    #[default]
    Last,
    /// The exit after it: of device heads that are no exits the first one.
    Next,
}

/// Distillation: a deeper exit is the teacher of the exits before it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Distillation {
    /// Teacher; the exit `cloud` when left out.
    // Not serialised when absent: the identity of older runs stays, and older runs can resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<Teacher>,
    /// Weight for the exit `local`; 0 switches the term off.
    pub local: f32,
    /// Weight for each device's head where device heads are not exits (c, e, f).
    #[serde(default)]
    pub device: f32,
    /// Weight for the exit `device`; that of `local` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_exit: Option<f32>,
    /// Weight for the exit `edge`; that of `local` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<f32>,
    /// Divisor of both logits.
    pub temperature: f32,
}

/// Target of the thresholds: promised where the data has a calibration part of enough samples, else kept on the validation part.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExitTarget {
    /// Measure that is bounded.
    pub promise: Bound,
    /// Largest loss of all exits together against the last exit, in points.
    pub loss_points: f64,
    /// Probability with which the promise holds over the draw of the calibration part.
    pub confidence: f64,
    /// Folds of the train part whose out-of-fold logits the thresholds come from; 0 for none. Left out, the data decides
    /// ([`crate::run::Folds::asked`]).
    // Not serialised when absent: the identity of older runs stays, and older runs can resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
}

/// Most folds of a train part: each costs a training.
const MAX_FOLDS: u32 = 64;

impl From<ExitTarget> for Target {
    fn from(ExitTarget { promise, loss_points, confidence, .. }: ExitTarget) -> Self {
        Self { bound: promise, loss: loss_points / 100.0, confidence }
    }
}

impl Recipe {
    /// How ranks train together.
    pub fn scale_out(&self) -> ScaleOutRecipe {
        self.scale_out.unwrap_or_default()
    }

    /// The recipe with the batch and step size of all ranks.
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

    /// Steps that ranks exchange uncompressed. At the end of the warm-up the mean of squared gradients, which 1-bit Adam freezes, is no longer that of
    /// small steps.
    pub fn uncompressed_steps(&self, samples: usize) -> u64 {
        let steps = self.steps(samples);
        share_of(self.scale_out().uncompressed, steps).max(self.optimiser.warm_up_steps(steps)).max(1)
    }

    /// Steps in one epoch, to the nearest whole batch. Of one shard what is left over is left out, other samples in each epoch; more shards begin again.
    pub fn steps_per_epoch(&self, samples: usize) -> u32 {
        ((samples + self.batch / 2) / self.batch).max(1) as u32
    }

    /// Steps of a run on a train part of so many samples.
    pub fn steps(&self, samples: usize) -> u64 {
        u64::from(self.epochs) * u64::from(self.steps_per_epoch(samples))
    }

    /// Epochs at the start that train the exit `cloud` alone.
    pub fn cloud_first_epochs(&self) -> u64 {
        share_of(self.loss.cloud_first, self.epochs.into())
    }

    /// The loss of an epoch, counted from 0.
    pub fn loss_of_epoch(&self, epoch: u32) -> LossRecipe {
        if u64::from(epoch) >= self.cloud_first_epochs() {
            return self.loss;
        }
        let distillation = Distillation {
            teacher: None,
            local: 0.0,
            device: 0.0,
            device_exit: None,
            edge: None,
            temperature: self.loss.distillation.temperature,
        };
        LossRecipe {
            device: 0.0,
            device_exit: Some(0.0),
            local: 0.0,
            edge: Some(0.0),
            distillation,
            ..self.loss
        }
    }
}

/// A share of the steps or epochs of a run, to the nearest whole one; a half counts as one.
pub(crate) fn share_of(share: f32, all: u64) -> u64 {
    (f64::from(share) * all as f64).round() as u64
}

impl Optimiser {
    /// Steps of a run of `steps` over which the step size rises.
    pub fn warm_up_steps(&self, steps: u64) -> u64 {
        share_of(self.warm_up, steps).min(steps / 2)
    }

    /// The rule.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm.unwrap_or_default()
    }
}

impl LossRecipe {
    /// Weight of an exit.
    pub fn weight(&self, exit: Exit) -> f32 {
        match exit.word() {
            ExitWord::Device => self.device_exit.unwrap_or(1.0),
            ExitWord::Local => self.local,
            ExitWord::Edge => self.edge.unwrap_or(1.0),
            ExitWord::Cloud => self.cloud,
        }
    }
}

impl Distillation {
    /// The teacher.
    pub fn teacher(&self) -> Teacher {
        self.teacher.unwrap_or_default()
    }

    /// Weight for an exit; the last one has no teacher.
    pub fn weight(&self, exit: Exit) -> f32 {
        match exit.word() {
            ExitWord::Device => self.device_exit.unwrap_or(self.local),
            ExitWord::Local => self.local,
            ExitWord::Edge => self.edge.unwrap_or(self.local),
            ExitWord::Cloud => 0.0,
        }
    }
}

fn a_fifth() -> f32 {
    0.2
}

fn one() -> f32 {
    1.0
}

/// Checkpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointRecipe {
    /// Steps between checkpoints inside an epoch; one is written after every epoch too.
    pub steps: u32,
}

impl Default for CheckpointRecipe {
    fn default() -> Self {
        Self { steps: 400 }
    }
}

impl Recipe {
    /// Reads a recipe file, or the default one for `None`.
    ///
    /// # Errors
    /// [`FileError`]: unreadable, not TOML, or numbers out of range (all are named).
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
        let recipe: Self = headwater_toml_file::read(text)
            .map_err(|mistakes| FileError::of(file, mistakes.into_iter().map(replaced).collect()))?;
        let mistakes = with_lines(text, recipe.mistakes());
        if mistakes.is_empty() { Ok(recipe) } else { Err(FileError::of(file, mistakes)) }
    }

    /// Checks that every term of the loss has something to act on in a network; `file` is for the message.
    ///
    /// # Errors
    /// [`FileError::Invalid`].
    pub fn check_for(&self, spec: &Spec, file: &Path) -> Result<(), FileError> {
        let has_term = self.loss.map_bits.is_some_and(|weight| weight > 0.0);
        if has_term && !spec.codes_features() {
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
        let mut mistakes = Vec::new();
        let distillation = &self.loss.distillation;
        let mut number = |key: &str, found: f32, low: f32, high: f32| {
            if !(low..=high).contains(&found) {
                mistakes.push(Mistake::of_key(key, format!("expected {low} to {high}, found {found}")));
            }
        };
        number("epochs", self.epochs as f32, 1.0, 1e5);
        number("batch", self.batch as f32, 1.0, 65_536.0);
        number("workers", self.workers as f32, 1.0, 256.0);
        number("optimiser.learning_rate", self.optimiser.learning_rate, 1e-8, 10.0);
        number("optimiser.final_share", self.optimiser.final_share, 0.0, 1.0);
        number("optimiser.warm_up", self.optimiser.warm_up, 0.0, 0.5);
        number("optimiser.beta_1", self.optimiser.beta_1, 0.0, 0.999_99);
        number("optimiser.beta_2", self.optimiser.beta_2, 0.0, 0.999_999);
        number("optimiser.weight_decay", self.optimiser.weight_decay, 0.0, 10.0);
        number("optimiser.statistics_momentum", self.optimiser.statistics_momentum, 1e-6, 1.0);
        number("loss.device", self.loss.device, 0.0, 1e3);
        number("loss.device_exit", self.loss.weight(Exit::DEVICE), 0.0, 1e3);
        number("loss.local", self.loss.local, 0.0, 1e3);
        number("loss.edge", self.loss.weight(Exit::EDGE), 0.0, 1e3);
        number("loss.cloud", self.loss.cloud, 0.0, 1e3);
        number("loss.smoothing", self.loss.smoothing, 0.0, 0.99);
        number("loss.cloud_first", self.loss.cloud_first, 0.0, 1.0);
        number("loss.map_bits", self.loss.map_bits.unwrap_or(0.0), 0.0, 1.0);
        number("loss.distillation.local", distillation.local, 0.0, 1e3);
        number("loss.distillation.device", distillation.device, 0.0, 1e3);
        number("loss.distillation.device_exit", distillation.device_exit.unwrap_or(0.0), 0.0, 1e3);
        number("loss.distillation.edge", distillation.edge.unwrap_or(0.0), 0.0, 1e3);
        number("loss.distillation.temperature", distillation.temperature, 0.01, 100.0);
        number("augment.failout", self.augment.failout, 0.0, 1.0);
        number("augment.shift", self.augment.shift as f32, 0.0, 64.0);
        number("augment.exposure", self.augment.exposure, 0.0, 1.0);
        number("augment.affine", self.augment.affine.unwrap_or(0.0), 0.0, 0.9);
        number("augment.flip", self.augment.flip.unwrap_or(0.0), 0.0, 1.0);
        number("augment.erase", self.augment.erase, 0.0, 1.0);
        number("augment.erase_share", self.augment.erase_share, 0.0, 1.0);
        number("exit.loss_points", self.exit.loss_points as f32, 0.001, 99.0);
        number("exit.confidence", self.exit.confidence as f32, 0.5, 0.999_999);
        number("checkpoint.steps", self.checkpoint.steps as f32, 1.0, 1e9);
        number("shards", self.shards.unwrap_or(1) as f32, 1.0, 4096.0);
        for (key, found, low, high) in self.scale_out().ranges() {
            number(key, found, low, high);
        }
        let (first, epochs) = (self.cloud_first_epochs(), self.epochs);
        if first > 0 && first >= u64::from(epochs) {
            let message = format!(
                "expected fewer than the {epochs} epochs, so that the other exits learn too, found {first}, to the nearest epoch"
            );
            mistakes.push(Mistake::of_key("loss.cloud_first", message));
        }
        if let Some(found) = self.exit.folds.filter(|folds| *folds == 1 || *folds > MAX_FOLDS) {
            let message = format!("expected 0 for none, or 2 to {MAX_FOLDS}, found {found}");
            mistakes.push(Mistake::of_key("exit.folds", message));
        }
        if let Some(shards) = self.shards.filter(|shards| !self.batch.is_multiple_of(*shards)) {
            let message = format!("expected a multiple of shards ({shards}), found {}", self.batch);
            mistakes.push(Mistake::of_key("batch", message));
        }
        if self.workers > self.batch {
            let message = format!("expected at most batch ({}), found {}", self.batch, self.workers);
            mistakes.push(Mistake::of_key("workers", message));
        }
        mistakes
    }
}

/// Keys of steps and epochs that are shares of the run now.
const REPLACED: [(&str, &str); 4] = [
    ("optimiser.warm_up_steps", "`warm_up = 0.0256` are 200 of 7,820 steps"),
    ("loss.cloud_first_epochs", "`cloud_first = 0.1` are 2 of 20 epochs"),
    ("scale_out.warm_up_epochs", "`warm_up = 0.05` is 1 of 20 epochs"),
    ("scale_out.uncompressed_steps", "`uncompressed = 0.0256` are 200 of 7,820 steps"),
];

/// A mistake that says by what a former key is replaced.
fn replaced(mistake: Mistake) -> Mistake {
    match REPLACED.iter().find(|(key, _)| *key == mistake.key) {
        Some((_, example)) => Mistake { text: format!("expected a share of the run: {example}"), ..mistake },
        None => mistake,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_recipe_is_valid() {
        Recipe::read(None).unwrap();
    }

    #[test]
    fn the_first_epochs_may_train_the_cloud_alone() {
        let text = DEFAULT.replace("[loss]", "[loss]\ncloud_first = 0.1\nmap_bits = 0.001");
        let recipe = Recipe::parse(Path::new("r.toml"), &text).unwrap();
        let alone = recipe.loss_of_epoch(1);
        for exit in [Exit::DEVICE, Exit::LOCAL, Exit::EDGE] {
            assert_eq!((alone.weight(exit), alone.distillation.weight(exit)), (0.0, 0.0));
        }
        assert_eq!((alone.device, alone.cloud, alone.map_bits), (0.0, 1.0, Some(0.001)));
        assert_eq!(recipe.loss_of_epoch(2), recipe.loss);
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
        // Of the whole train part of `fashion-6cam`: epochs, and steps of the run, of the warm-up, uncompressed, of the warm-up on ranks with batches of
        // their own.
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
        // Every spec in scripts/check/weights: 50 steps, of `eth80` three epochs of 24.
        let half = Optimiser { warm_up: 0.5, ..Recipe::read(None).unwrap().optimiser };
        assert_eq!([50, 72, 51].map(|steps| half.warm_up_steps(steps)), [25, 36, 25]);
    }

    #[test]
    fn a_count_of_steps_or_epochs_is_refused_with_the_share_that_replaces_it() {
        for (key, example) in REPLACED {
            let (table, name) = key.split_once('.').unwrap();
            let text = DEFAULT.replace(&format!("# [{table}]"), &format!("[{table}]"));
            let text = text.replace(&format!("\n[{table}]"), &format!("\n[{table}]\n{name} = 2 #"));
            let error = Recipe::parse(Path::new("r.toml"), &text).unwrap_err().to_string();
            assert!(error.ends_with(&format!("{key}: expected a share of the run: {example}")), "{error}");
        }
    }

    #[test]
    fn a_recipe_without_the_newer_weights_keeps_the_identity_of_its_run() {
        let recipe = Recipe::read(None).unwrap();
        let written = serde_json::to_string(&recipe.loss).unwrap();
        assert!(!written.contains("edge") && !written.contains("device_exit"), "{written}");
        assert!(!serde_json::to_string(&recipe).unwrap().contains("folds"));
        assert_eq!(Exit::FIRST.map(|exit| recipe.loss.weight(exit)), [1.0; 4]);
        assert_eq!(Exit::FIRST.map(|exit| recipe.loss.distillation.weight(exit)), [1.0, 1.0, 1.0, 0.0]);
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
        let text = DEFAULT
            .replace("device = 0.2 ", "device_exit = 0.7 # ")
            .replace("local = 1.0\ncloud", "edge = 0.5\ncloud");
        let loss = Recipe::parse(Path::new("r.toml"), &text).unwrap().loss;
        assert_eq!((loss.device, Exit::FIRST.map(|exit| loss.weight(exit))), (0.2, [0.7, 1.0, 0.5, 1.0]));
    }
}
