//! `headwater-train train`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::Args;
use headwater_models::data::Parts;
use headwater_models::network::Network;
use headwater_models::recipe::Recipe;
use headwater_models::run::{Finished, Held, RunFolder, RunInfo, finish, train};
use headwater_models::spec::Spec;
use headwater_models::training::{Checkpoint, Workers};
use headwater_samples::Part;

use super::dataset::Dataset;
use super::outcome;
use super::progress::Reporter;
use super::{Failure, print_json};

/// Arguments of `train`.
#[derive(Args)]
pub(crate) struct Train {
    /// Network spec (TOML): configuration, devices, blocks, exits, edges, cloud; see models/networks/.
    #[arg(long, value_name = "FILE")]
    network: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Recipe (TOML); without it the one compiled in, models/recipes/default.toml, where every key is explained.
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Run folder; `runs/NAME` with the name of the network without it. An unfinished run of the same spec, recipe, seed and data goes on from its newest
    /// checkpoint and ends with the same weights.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only go on with a run that is there already.
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
    limit_train: Option<usize>,
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
        fits(&spec, &parts)?;
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&spec.network.network.name));
        if self.resume && !out.join("run.json").exists() {
            let out = out.display();
            return Err(Failure::usage(anyhow::anyhow!("--resume: expected a run in {out}, found none")));
        }
        let info = RunInfo::new(&spec, &recipe, &self.dataset.identity(), self.limit_train, commit());
        let folder = RunFolder::open(&out, &spec, &recipe, &info).map_err(Failure::usage)?;
        let workers = Workers::new(recipe.workers).context("starting the workers")?;
        let mut reporter = Reporter::new(recipe.epochs);
        reporter.line(&format!("run {} in {}: making the views", info.identity, out.display()));
        let samples = parts.part(Part::Train, self.limit_train, recipe.workers);
        let validation = parts.part(Part::Validation, None, recipe.workers);
        let network = Network::new(&spec);
        let parameters = network.layout.parameter_count();
        reporter.line(&format!("training {parameters} parameters on {} samples", samples.len()));
        let at = train(
            &folder,
            &info.identity,
            (&network, &recipe, &workers),
            (&samples, &validation),
            |notice| {
                reporter.show(&notice);
            },
        )?;
        let class_prior = samples.prior();
        drop(samples);
        reporter.line(
            "choosing temperatures and thresholds on the validation part, measuring the test part, exporting",
        );
        let test = parts.part(Part::Test, None, recipe.workers);
        let held = Held { validation: &validation, test: &test, class_prior };
        let finished = ship(&folder, (&spec, &recipe, &info), (&network, &workers), &at, held)?;
        if self.json {
            return print_json(&finished.exported.report);
        }
        outcome::print("validation", &finished.validation);
        outcome::print("test", &finished.test);
        println!("trained for {:.0} s; {}", at.progress.seconds, folder.file("bundle.hwb").display());
        Ok(())
    }
}

/// Chooses the policy, measures, writes `bundle.hwb` and `report.json` into the run folder.
pub(crate) fn ship(
    folder: &RunFolder,
    what: (&Spec, &Recipe, &RunInfo),
    with: (&Network, &Workers),
    at: &Checkpoint,
    held: Held<'_>,
) -> Result<Finished, Failure> {
    let finished = finish(what, with, (&at.state, &at.progress), held)?;
    folder.write("bundle.hwb", &finished.exported.bytes).context("writing bundle.hwb")?;
    let report = serde_json::to_vec_pretty(&finished.exported.report).context("writing report.json")?;
    folder.write("report.json", &report).context("writing report.json")?;
    Ok(finished)
}

/// The data must be what the spec was written for.
pub(crate) fn fits(spec: &Spec, parts: &Parts) -> Result<(), Failure> {
    let mistakes = [
        ("device.count", spec.slots().to_string(), parts.slots().to_string()),
        ("device.input", format!("{:?}", spec.view()), format!("{:?}", parts.shape())),
        (
            "network.labels",
            format!("{:?}", spec.network.network.labels.get_ref()),
            format!("{:?}", parts.labels()),
        ),
    ];
    let mistakes: Vec<String> = mistakes
        .iter()
        .filter(|(_, spec, data)| spec != data)
        .map(|(key, spec, data)| format!("{key}: expected {data} as in the data, found {spec}"))
        .collect();
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(anyhow::anyhow!("{}: {}", spec.file.display(), mistakes.join("; "))))
}

/// The commit of the working folder, with a mark when it has changes; `None` without git.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "HEAD"]).filter(|hash| !hash.is_empty())?;
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|status| !status.is_empty());
    Some(if changed { format!("{hash} with changes") } else { hash })
}
