//! `headwater-train train`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::Args;
use headwater_models::data::{Parts, Samples};
use headwater_models::experiment::{Experiment, RunInfo};
use headwater_models::recipe::Recipe;
use headwater_models::run::{
    EvaluationParts, Finished, Folds, OtherParts, RunFolder, finish, out_of_fold, train,
};
use headwater_models::spec::Spec;
use headwater_models::training::Checkpoint;
use headwater_samples::Part;

use super::dataset::Dataset;
use super::output::print;
use super::progress::Reporter;
use super::{Failure, part_report, print_json};

/// Arguments of `train`.
#[derive(Args)]
pub(crate) struct Train {
    /// Network spec (TOML): configuration, devices, blocks, exits, edges, cloud; see models/networks/.
    #[arg(long, value_name = "FILE")]
    network: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Recipe (TOML); models/recipes/default.toml when left out, where every key is explained.
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Run folder; `runs/NAME` with the name of the network when left out. An unfinished run of the same spec, recipe, seed and data
    /// resumes from its newest checkpoint and ends with the same weights.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only resume a run that exists.
    #[arg(long)]
    resume: bool,
    /// Epochs, instead of the recipe's: more is slower and better.
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Seed, instead of the recipe's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use the first N samples of the train part only; quick, and worse.
    #[arg(long, value_name = "N")]
    limit_train: Option<NonZero<usize>>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Train {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let spec = Spec::read(&self.network).map_err(Failure::usage)?;
        let mut recipe = Recipe::read(self.recipe.as_deref()).map_err(Failure::usage)?;
        recipe.epochs = self.epochs.unwrap_or(recipe.epochs);
        recipe.seed = self.seed.unwrap_or(recipe.seed);
        recipe.check(Path::new("command line")).map_err(Failure::usage)?;
        let parts = self.dataset.open_for(&spec)?;
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&spec.network.network.name));
        if self.resume && !out.join("run.json").exists() {
            let out = out.display();
            return Err(Failure::usage(anyhow::anyhow!("--resume: expected a run in {out}, found none")));
        }
        let info = RunInfo::new(&spec, &recipe, self.dataset.identity(), self.limit_train());
        let info = RunInfo { commit: commit(), ..info };
        let experiment = Experiment::new(spec, recipe, info).context("starting the workers")?;
        let folder = RunFolder::create(&out, &experiment).map_err(Failure::usage)?;
        let finished = self.train(&experiment, &folder, &parts)?;
        if self.json {
            return print_json(&finished.exported.report);
        }
        let seconds = finished.exported.report["seconds"].as_f64().unwrap_or_default();
        let bundle = folder.file("bundle.hwb");
        let figures = part_report::both(&finished);
        print(&format!("{figures}trained for {seconds:.0} s; {}\n", bundle.display()))
    }

    fn limit_train(&self) -> Option<usize> {
        self.limit_train.map(NonZero::get)
    }

    fn train(&self, experiment: &Experiment, folder: &RunFolder, parts: &Parts) -> Result<Finished, Failure> {
        let threads = experiment.recipe.workers;
        let mut reporter = Reporter::new(experiment.recipe.epochs);
        let (identity, out) = (&experiment.info.identity, folder.path.display());
        reporter.status.line(&format!("run {identity} in {out}: computing the views"));
        let samples = parts.part(Part::Train, self.limit_train(), threads);
        let validation = parts.part(Part::Validation, None, threads);
        self.train_folds(experiment, folder, &samples, parts)?;
        let parameters = experiment.network.layout.parameter_count();
        reporter.status.line(&format!("training {parameters} parameters on {} samples", samples.len()));
        let checkpoint = train(experiment, folder, &samples, &validation, |event| reporter.show(event))?;
        drop((samples, validation));
        reporter.status.line("choosing temperatures and thresholds, measuring the test part, exporting");
        export(folder, experiment, &checkpoint, parts, self.dataset.identity())
    }

    /// Trains the networks of the folds, where thresholds come from them and the run has not trained them yet.
    fn train_folds(
        &self,
        experiment: &Experiment,
        folder: &RunFolder,
        train: &Samples,
        parts: &Parts,
    ) -> Result<(), Failure> {
        let folds = folds(experiment, train, parts).filter(|_| !out_of_fold::is_in(folder));
        let Some(folds) = folds else { return Ok(()) };
        let epochs = experiment.recipe.epochs;
        let mut reporter = Reporter::new(epochs);
        let mut shown = None;
        let logits = out_of_fold::train(experiment, train, &folds, |fold, event| {
            if shown.replace(fold) != Some(fold) {
                let name = format!("fold {} of {}", fold + 1, folds.count());
                let (kept, left_out) = (folds.kept(fold).len(), folds.left_out(fold).len());
                reporter = Reporter::new(epochs).of_fold(name.clone());
                reporter.status.line(&format!("{name}: training on {kept} samples, {left_out} are left out"));
            }
            reporter.show(event);
        })?;
        out_of_fold::write(folder, &experiment.info.identity, train, &logits)
            .context("writing out-of-fold logits")?;
        Ok(())
    }
}

/// The folds whose networks give the thresholds of a run; `None` where they come from the validation part.
pub(crate) fn folds(experiment: &Experiment, train: &Samples, parts: &Parts) -> Option<Folds> {
    let [validation, calibration] = [Part::Validation, Part::Calibration].map(|part| parts.data.len(part));
    Folds::of(experiment.recipe.exit, train, OtherParts { validation, calibration })
}

/// Chooses the policy, measures, writes `bundle.hwb` and `report.json` into the run folder. `data` is the name of the data set with its split.
pub(crate) fn export(
    folder: &RunFolder,
    experiment: &Experiment,
    checkpoint: &Checkpoint,
    parts: &Parts,
    data: String,
) -> Result<Finished, Failure> {
    let parts = EvaluationParts::load(folder, experiment, parts, data)?;
    let finished = finish(experiment, checkpoint, &parts)?;
    folder.write("bundle.hwb", &finished.exported.bytes).context("writing bundle.hwb")?;
    let report = serde_json::to_vec_pretty(&finished.exported.report).context("writing report.json")?;
    folder.write("report.json", &report).context("writing report.json")?;
    Ok(finished)
}

/// Commit of the working folder, marked when the folder has changes; `None` without git.
pub(crate) fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "HEAD"]).filter(|hash| !hash.is_empty())?;
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|status| !status.is_empty());
    Some(if changed { format!("{hash} with changes") } else { hash })
}
