//! `headwater-train train`.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::Args;
use headwater_calibration::data::{Parts, fingerprint_of_all};
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::memory;
use headwater_training::recipe::Recipe;
use headwater_training::run::{EvaluationParts, Folds, OtherParts, RunFolder, out_of_fold};
use headwater_training::scale_out::{Alone, Communicator};
use headwater_training::untrained;

use super::dataset::Dataset;
use super::init::Init;
use super::measured::Measured;
use super::output::{command_line, counted, print};
use super::progress::{Reporter, StatusLine};
use super::ranks::{check_rows, check_size, shards};
use super::{Failure, message_of, new, print_json, usage};

/// Arguments of `train`.
#[derive(Args)]
pub(crate) struct Train {
    /// Network spec (TOML): configuration, devices, blocks, exits, edges, cloud; see models/networks/. Without it spec and recipe are chosen from the
    /// data, as by `headwater-train new`, which writes them for editing.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    #[command(flatten)]
    dataset: Dataset,
    /// Recipe (TOML); models/recipes/default.toml when left out beside --network. docs/recipes.md explains every key.
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    /// Run folder; `runs/NAME` with the name of the network when left out. An unfinished run of the same spec, recipe, seed and data
    /// resumes from its newest checkpoint and ends with the same weights.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only resume a run that exists.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    init: Init,
    /// Epochs, instead of the recipe's: more is slower and better.
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Seed, instead of the recipe's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Threads that train, instead of the recipe's; or `mpi`: this process is one of the ranks that `mpirun` started, each with a shard of the
    /// train part (docs/scale-out.md).
    #[arg(long, value_name = "N|mpi", value_parser = workers)]
    workers: Option<Workers>,
    /// Threads of each rank, with --workers mpi.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Longest wait for another rank in seconds, with --workers mpi; then this rank ends, and with it the job.
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    rank_timeout_s: u64,
    /// Use the first N samples of the train part only; quick, and worse.
    #[arg(long, value_name = "N")]
    limit_train: Option<NonZero<usize>>,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Spec, recipe and data of a run.
struct Opened {
    spec: Spec,
    recipe: Recipe,
    parts: Parts,
}

/// Threads or ranks that train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workers {
    /// Threads of this process.
    Threads(usize),
    /// The ranks that `mpirun` started.
    Mpi,
}

fn workers(text: &str) -> Result<Workers, String> {
    match text.parse() {
        _ if text == "mpi" => Ok(Workers::Mpi),
        Ok(threads) => Ok(Workers::Threads(threads)),
        Err(_) => Err("expected a number of threads, or mpi".to_owned()),
    }
}

impl Train {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.workers == Some(Workers::Mpi) {
            if self.init.init.is_some() {
                return usage(
                    "--init: expected training in one process, found --workers mpi; leave one of the two out",
                );
            }
            return self.run_on_ranks();
        }
        let mut opened = self.opened()?;
        // `[scale_out]` concerns ranks alone, so a run of one process has the same identity with and without it.
        opened.recipe.scale_out = None;
        self.train(opened, &Alone)
    }

    /// Spec, recipe and data of the arguments. Without `--network` the spec, and without `--recipe` too the recipe, are chosen from the data.
    fn opened(&self) -> Result<Opened, Failure> {
        let (spec, chosen, parts) = match &self.network {
            Some(file) => {
                let (spec, parts) = self.dataset.read_spec(file)?;
                (spec, None, parts)
            }
            None => {
                let chosen = new::chosen_for_training(&self.dataset)?;
                (chosen.spec, Some(chosen.recipe), Some(chosen.parts))
            }
        };
        let mut recipe = match (chosen, &self.recipe) {
            (Some(chosen), None) => chosen,
            (_, file) => Recipe::read(file.as_deref()).map_err(Failure::usage)?,
        };
        recipe.epochs = self.epochs.unwrap_or(recipe.epochs);
        recipe.seed = self.seed.unwrap_or(recipe.seed);
        match self.workers {
            None => {}
            Some(Workers::Threads(threads)) => recipe.workers = threads,
            Some(Workers::Mpi) => recipe.workers = self.threads,
        }
        recipe.check(Path::new("command line")).map_err(Failure::usage)?;
        let file = self.recipe.as_deref().unwrap_or(Path::new("default recipe"));
        recipe.check_for(&spec, file).map_err(Failure::usage)?;
        let refused = |refusal: String| Failure::usage(anyhow::anyhow!("{}: {refusal}", spec.file.display()));
        memory::check(&spec, &recipe).map_err(refused)?;
        let parts = match parts {
            Some(parts) => parts,
            None => self.dataset.open_for(&spec)?,
        };
        let mut status = StatusLine::new();
        status.show(|| "exporting the untrained network, as a trial".to_owned());
        untrained::check(&spec, &recipe).map_err(refused)?;
        status.clear();
        Ok(Opened { spec, recipe, parts })
    }

    #[cfg(not(feature = "mpi"))]
    fn run_on_ranks(&self) -> Result<(), Failure> {
        usage(
            "--workers mpi: expected a headwater-train with MPI, found one without; build it with `cargo build --release -p headwater-train \
             --features mpi` (docs/scale-out.md)",
        )
    }

    /// Trains as one of the ranks that `mpirun` started.
    #[cfg(feature = "mpi")]
    fn run_on_ranks(&self) -> Result<(), Failure> {
        use super::mpi::Mpi;

        let ranks = Mpi::start(std::time::Duration::from_secs(self.rank_timeout_s))
            .map_err(|error| anyhow::anyhow!("--workers mpi: {error}"))?;
        let result = (|| {
            let mut opened = self.opened()?;
            opened.recipe.scale_out.get_or_insert_default();
            let data = (&opened.parts, self.limit_train(), self.dataset.identity());
            let agreed = super::agreement::check(&ranks, &opened.spec, &opened.recipe, data);
            if agreed.is_err() && ranks.rank() != 0 {
                // Every rank has the same error, and rank 0 prints it. The other ranks wait, since `mpirun` ends all ranks when one rank ends.
                std::thread::sleep(std::time::Duration::from_secs(2));
                std::process::exit(2);
            }
            agreed?;
            self.train(opened, &ranks)
        })();
        match result {
            Ok(()) => {
                ranks.finish();
                Ok(())
            }
            Err(failure) => Err(failure.on_rank(ranks.rank())),
        }
    }

    /// Trains a rank; a run of one process is one rank. Rank 0 shows progress, and chooses, measures and exports at the end.
    fn train(&self, opened: Opened, ranks: &dyn Communicator) -> Result<(), Failure> {
        let Opened { spec, recipe, parts } = opened;
        let usual = || PathBuf::from("runs").join(&spec.network.network.name);
        let out = &self.out.clone().unwrap_or_else(usual);
        let info = RunInfo::new(&spec, &recipe, self.dataset.identity(), self.limit_train());
        let fingerprint = Some(fingerprint_of_all(&parts, self.limit_train()));
        let info = RunInfo { commit: commit(), fingerprint, ..info };
        let mut experiment = Experiment::new(spec, recipe, info).context("starting the workers")?;
        self.init.start(&mut experiment)?;
        let (experiment, parts) = (&experiment, &parts);
        let (is_first, count) = (ranks.rank() == 0, ranks.ranks());
        let mut reporter = Reporter::new(experiment.recipe.epochs, None);
        let folder = if is_first {
            if self.resume && !out.join("run.json").exists() {
                return usage(format!("--resume: expected a run in {}, found none", out.display()));
            }
            RunFolder::create(out, experiment).map_err(Failure::usage)?
        } else {
            std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
            RunFolder { path: out.to_owned() }
        };
        let lock = is_first.then(|| folder.lock().map_err(Failure::usage));
        let _lock = lock.transpose()?;
        let (identity, shown) = (&experiment.info.identity, out.display());
        if is_first {
            reporter.status.line(&format!("run {identity} in {shown}: computing the views"));
        }
        let [train, validation] = shards(ranks, parts, self.limit_train(), experiment.recipe.workers)?;
        if count > 1 {
            check_size(experiment)?;
            check_rows(experiment, ranks, &train)?;
        }
        if is_first {
            let parameters = experiment.network.layout.parameter_count();
            let on_ranks = if count > 1 {
                folder.write("resume.txt", resume_text(count).as_bytes()).context("writing resume.txt")?;
                format!(" on this one of {count} ranks")
            } else {
                String::new()
            };
            let samples = counted(train.len(), "sample");
            reporter.status.line(&format!("training {parameters} parameters on {samples}{on_ranks}"));
        }
        let mut checkpoint =
            headwater_training::run::train(experiment, ranks, &folder, [&train, &validation], |event| {
                if is_first {
                    reporter.show(event);
                }
            })?;
        drop((train, validation));
        let best = checkpoint.progress.best;
        self.train_folds(experiment, ranks, &folder, (parts, best))?;
        if is_first {
            if let Some(best) = best {
                let epochs = experiment.recipe.epochs;
                let line = format!(
                    "epoch {best} of {epochs} is exported: the latest within one standard error of the best on validation"
                );
                reporter.status.line(&line);
            }
            reporter.status.line("choosing temperatures and thresholds, measuring the test part, exporting");
        }
        let data = (parts, self.dataset.identity());
        let evaluated = EvaluationParts::load(&folder, experiment, ranks, &mut checkpoint.state, data)?;
        if !is_first {
            return Ok(());
        }
        let measured = Measured::of(experiment, &checkpoint, &evaluated, parts)
            .and_then(|measured| measured.write(&folder))
            .map_err(|failure| self.with_what_stays(failure, out))?;
        let _ = std::fs::remove_file(folder.file("resume.txt"));
        let report = &measured.finished.exported.report;
        if self.json {
            print_json(report)?;
        } else {
            let (figures, bundle) = (measured.figures(), folder.file("bundle.hwb"));
            let seconds = report["seconds"].as_f64().unwrap_or_default();
            print(&format!("{figures}trained for {seconds:.0} s; {}\n", bundle.display()))?;
        }
        measured.print_warnings();
        Ok(())
    }

    /// The failure of the export after training, with what stays and how to go on.
    fn with_what_stays(&self, Failure { error, code }: Failure, out: &Path) -> Failure {
        let (error, out) = (message_of(&error), out.display().to_string());
        let words = ["headwater-train".to_owned(), "export".to_owned(), out.clone()];
        let command = command_line(words.into_iter().chain(self.dataset.arguments()));
        let error = anyhow::anyhow!(
            "{error}; the run and its weights stay in {out}: `{command}` goes on from there, without training again"
        );
        Failure { error, code }
    }

    fn limit_train(&self) -> Option<usize> {
        self.limit_train.map(NonZero::get)
    }

    /// Trains the networks of the folds to the epoch that the run exports, if thresholds come from out-of-fold logits and the run has none
    /// yet. Every rank must call this function; the logits are written to the folder of rank 0.
    fn train_folds(
        &self,
        experiment: &Experiment,
        ranks: &dyn Communicator,
        folder: &RunFolder,
        (parts, last): (&Parts, Option<u32>),
    ) -> Result<(), Failure> {
        let Some(folds) = folds(experiment, parts) else { return Ok(()) };
        let is_first = ranks.rank() == 0;
        let has = ranks.all_gather(&[u8::from(out_of_fold::is_in(folder))]);
        if has[0] == [1] {
            if is_first {
                let found = out_of_fold::read(folder, &experiment.info.identity);
                found.context("remove this file to train the folds again")?;
            }
            return Ok(());
        }
        let train = &parts.part(Part::Train, self.limit_train(), experiment.recipe.workers);
        let epochs = experiment.recipe.epochs;
        let mut reporter = Reporter::new(epochs, None);
        let mut shown = None;
        if is_first && ranks.ranks() > 1 {
            let (folds, ranks) = (folds.count(), ranks.ranks());
            let line = format!("{folds} folds on {ranks} ranks, side by side; this one shows its own");
            reporter.status.line(&line);
        }
        let logits = out_of_fold::train(experiment, ranks, train, (&folds, last), |fold, event| {
            if !is_first {
                return;
            }
            if shown.replace(fold) != Some(fold) {
                let name = format!("fold {} of {}", fold + 1, folds.count());
                let (kept, left_out) = (folds.kept(fold).len(), folds.left_out(fold).len());
                reporter = Reporter::new(epochs, Some(&name));
                reporter.status.line(&format!("{name}: training on {kept} samples, {left_out} are left out"));
            }
            reporter.show(event);
        })?;
        train.check_read()?;
        if is_first {
            out_of_fold::write(folder, &experiment.info.identity, train, &logits)
                .context("writing out-of-fold logits")?;
        }
        Ok(())
    }
}

/// The folds whose networks give the thresholds of a run; `None` if thresholds do not come from out-of-fold logits.
pub(crate) fn folds(experiment: &Experiment, parts: &Parts) -> Option<Folds> {
    let calibration = parts.data.len(Part::Calibration);
    let groups: BTreeSet<u32> = parts.groups(Part::Validation, None).into_iter().collect();
    let validation = if groups.is_empty() { parts.data.len(Part::Validation) } else { groups.len() };
    let limit = experiment.info.limit_train;
    let (labels, groups) = (parts.labels(Part::Train, limit), parts.groups(Part::Train, limit));
    let others = OtherParts { validation, calibration };
    Folds::divide(&labels, &groups, Folds::asked(experiment.recipe.exit, !groups.is_empty(), others))
}

/// Text of `resume.txt`: the command that goes on with an unfinished run on ranks.
fn resume_text(ranks: usize) -> String {
    let folder = std::env::current_dir().unwrap_or_default().display().to_string();
    format!(
        "This run is not finished. The command that began it goes on from the last checkpoint, with the same hosts and options of mpirun, or as a job of \
         Slurm again; another number of ranks is fine:\n\n    cd {}\n    mpirun -n {ranks} {}\n",
        command_line([folder]),
        command_line(std::env::args())
    )
}

/// Commit of the folder that holds the program, marked when the folder has changes; `None` without git.
pub(crate) fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(program.parent()?).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "HEAD"]).filter(|hash| !hash.is_empty())?;
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|status| !status.is_empty());
    Some(if changed { format!("{hash} with changes") } else { hash })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Arguments, Command as OfProgram};

    #[test]
    fn an_export_that_is_refused_says_where_the_weights_are_and_how_to_go_on() {
        let words = ["headwater-train", "train", "--network", "n.toml", "--data", "drawn", "--data-dir", "."];
        let OfProgram::Train(train) = Arguments::parse_from(words).command else { panic!("train") };
        let refused = Failure::from(anyhow::anyhow!("export refused: parity"));
        let failure = train.with_what_stays(refused, Path::new("my run"));
        assert_eq!(
            failure.error.to_string(),
            "export refused: parity; the run and its weights stay in my run: `headwater-train export 'my run' --data drawn --data-dir .` goes on \
             from there, without training again"
        );
    }
}
