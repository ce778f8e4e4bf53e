//! `headwater-train table`.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use headwater_calibration::data::{AbsentView, Parts};
use headwater_calibration::number_file::write_whole;
use headwater_experiments::figures::RunFigures;
use headwater_experiments::page::{Origin, page, page_of_several};
use headwater_experiments::plan::{Collection, DataPlan, FromData, Plan, Row, Run};
use headwater_experiments::run::{LoadedParts, complete, groups, is_done, read};
use headwater_experiments::simple::{SimpleAnswers, by_presence_pattern, nearest_neighbours};
use headwater_protocol::Slot;
use headwater_samples::data_set::OpenOptions;
use headwater_spec::Unlabelled;
use headwater_training::joint::Event;
use headwater_training::recipe::Recipe;
use headwater_training::run::lock;
use headwater_training::single_camera::{plain_network, single_camera};
use parking_lot::Mutex;
use serde::Serialize;

use super::dataset::{Dataset, check_spec_fits, options_of};
use super::new::chosen_texts;
use super::output::{counted, print, print_error};
use super::output_files::check_output_file;
use super::progress::StatusLine;
use super::train::commit;
use super::views::ViewPlace;
use super::{Failure, cores, message_of, print_json, usage};

/// Arguments of `table`.
#[derive(Args)]
pub(crate) struct Table {
    /// Experiment (TOML): rows of networks and recipes, seeds, folds; or the files of several for one page; see experiments/ and docs/experiments.md.
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    /// Folder of all data sets: the experiment names a folder or file below it.
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", default_value = ".")]
    data_root: PathBuf,
    /// Folder of the runs: spec, recipe, checkpoints and logits of each; for several experiments a folder of each below it. Runs that are there are not
    /// trained again; one that was killed resumes from its newest checkpoint. `runs/tables/NAME` when left out.
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Page to write, with the figures of every run in a JSON file beside it. `docs/results/NAME.md` when left out.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs at the same time, each on the workers of its recipe; as many as the processor has room for when left out. The results are the same.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    #[command(flatten)]
    views: ViewPlace,
    /// Print the figures of every run as one JSON array; of several experiments, as an object with an array for each.
    #[arg(long)]
    json: bool,
}

impl Table {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let name = self.experiment.file_stem().unwrap_or_default();
        let out = self
            .out
            .clone()
            .unwrap_or_else(|| Path::new("docs/results").join(name).with_added_extension("md"));
        check_output_file(("--out", out.as_path()), None).map_err(Failure::usage)?;
        if out.extension().is_none_or(|extension| extension != "md") {
            return usage(format!("--out: expected a page, NAME.md, found {}", out.display()));
        }
        let collection = Collection::read(&self.experiment).map_err(Failure::usage)?;
        let alone = vec![self.experiment.clone()];
        let files = collection.as_ref().map_or(&alone, |collection| &collection.experiments);
        let read = |file: &PathBuf| Plan::read(file, &PlanData::of(self)).map_err(Failure::usage);
        let plans = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let folder = |plan: &Plan| match (&self.runs, &collection) {
            (None, _) => Path::new("runs/tables").join(&plan.name),
            (Some(folder), None) => folder.clone(),
            (Some(folder), Some(_)) => folder.join(&plan.name),
        };
        plans.iter().try_for_each(|plan| self.check(plan, &folder(plan)))?;
        let figures_file = out.with_extension("json");
        let origin = Origin {
            command: format!(
                "headwater-train table {} --data-root \"$HEADWATER_DATA\"",
                self.experiment.display()
            ),
            commit: commit(),
            machine: machine(),
            figures_file: figures_file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let (mut figures, mut pages) = (BTreeMap::new(), Vec::new());
        for plan in &plans {
            let (of_runs, simple) = self.figures(plan, &folder(plan))?;
            pages.push(page(plan, &of_runs, &simple, &origin));
            figures.insert(plan.name.clone(), of_runs);
        }
        let (figures, text) = match &collection {
            Some(Collection { title, about, .. }) => {
                (Figures::Several(&figures), page_of_several(title, about, &pages))
            }
            None => (Figures::One(figures.values().next()), pages.concat()),
        };
        let json = serde_json::to_string_pretty(&figures).context("figures as JSON")?;
        let written = |file: &Path| format!("writing {}", file.display());
        write_whole(&figures_file, json.as_bytes()).with_context(|| written(&figures_file))?;
        write_whole(&out, text.as_bytes()).with_context(|| written(&out))?;
        if self.json {
            return print_json(&figures);
        }
        print(&format!("{text}\nwritten: {}\n", out.display()))
    }

    /// Makes the folder of the runs, and opens the data once for each kind of views that missing runs need: a row that does not fit is refused before
    /// anything is trained.
    fn check(&self, plan: &Plan, folder: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let open = missing_runs(plan, folder);
        let mut rows: BTreeSet<usize> = open.iter().map(|run| run.row).collect();
        let views = |row: usize| {
            let network = &plan.rows[row].spec.network;
            (network.slots(), network.preprocessing())
        };
        while let Some(first) = rows.first().copied() {
            let has_views = |row: &usize| views(*row) == views(first);
            let (same, others): (BTreeSet<usize>, BTreeSet<usize>) = rows.into_iter().partition(has_views);
            self.open(plan, open[0].fold, same)?;
            rows = others;
        }
        Ok(())
    }

    /// Trains the missing runs of an experiment. Returns the figures of all runs, and the answers of the baselines for each fold.
    fn figures(&self, plan: &Plan, folder: &Path) -> Result<(Vec<RunFigures>, Vec<SimpleAnswers>), Failure> {
        let lock = lock(folder, "these runs", "name another folder with --runs");
        let _lock = lock.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Failure::usage(error),
            _ => error.into(),
        })?;
        self.train(plan, folder)?;
        let folds = plan.folds().into_iter();
        let simple = folds.map(|fold| self.simple(plan, folder, fold)).collect::<Result<Vec<_>, _>>()?;
        let of_run = |run| Ok(RunFigures::of(plan, run, &read(plan, run, folder)?)?);
        let figures = plan.runs().into_iter().map(of_run).collect::<Result<Vec<_>, anyhow::Error>>()?;
        Ok((figures, simple))
    }

    /// Trains every run that is not done.
    fn train(&self, plan: &Plan, folder: &Path) -> Result<(), Failure> {
        let open = missing_runs(plan, folder);
        let progress = Progress::new(plan, open.len());
        let workers = plan.rows.iter().map(|row| row.recipe.workers).max().unwrap_or(1);
        let jobs = self.jobs.map_or((cores() / workers).max(1), NonZero::get);
        for runs in groups(plan, &open) {
            let rows: BTreeSet<usize> = runs.iter().map(|run| run.row).collect();
            let parts = self.open(plan, runs[0].fold, rows)?;
            let parts = LoadedParts::load(&parts, plan, plan.rows[runs[0].row].absent, cores());
            let queue = Mutex::new(runs.into_iter());
            let next = || queue.lock().next();
            let work = || {
                while let Some(run) = next() {
                    let started = Instant::now();
                    let notify = |event: &Event<'_>| progress.show(run, event);
                    let result = complete(plan, run, (folder, commit()), &parts, notify);
                    if let Err(error) = &result {
                        // Runs that have begun are finished; no further run begins.
                        print_error(&format!("{}: {error}", run.name(plan)));
                        queue.lock().by_ref().for_each(drop);
                    }
                    result.with_context(|| run.name(plan))?;
                    progress.done(run, started);
                }
                Ok::<(), anyhow::Error>(())
            };
            thread::scope(|scope| {
                let jobs: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
                // Every job ends before the first error is returned.
                let results: Vec<_> = jobs
                    .into_iter()
                    .map(|job| {
                        job.join()
                            .unwrap_or_else(|_| Err(anyhow::anyhow!("a run panicked; its message is above")))
                    })
                    .collect();
                results.into_iter().collect::<Result<(), _>>()
            })?;
        }
        Ok(())
    }

    /// The data of a fold with the views that all of these rows have, checked against the networks of the rows.
    fn open(&self, plan: &Plan, fold: Option<usize>, rows: BTreeSet<usize>) -> Result<Parts, Failure> {
        let rows: Vec<&Row> = rows.into_iter().map(|row| &plan.rows[row]).collect();
        let network = &rows[0].spec.network;
        let view = network.preprocessing();
        let folds = plan.data.folds;
        let options = OpenOptions { slots: Some(network.slots()), fold, folds, ..options_of(&view) };
        let parts = self.views.open((&plan.data.name, &self.data_root.join(&plan.data.path)), options)?;
        for row in rows {
            check_spec_fits(&format!("row {:?}", row.name), &row.spec.network, &parts)?;
        }
        Ok(parts)
    }

    /// Answers of the baselines for a fold, stored in a file below `folder`.
    fn simple(&self, plan: &Plan, folder: &Path, fold: Option<usize>) -> Result<SimpleAnswers, Failure> {
        let network = &plan.rows[0].spec.network;
        // Everything on which the answers depend: stored answers are used only if they were stored with the same text.
        let asked = format!(
            "{:?} {:?} {} part, fold {fold:?}, views {:?} of {} slots",
            plan.simple,
            plan.data,
            plan.part().name(),
            network.view(),
            network.slots()
        );
        let view = network.preprocessing();
        let is_framed = view.fit.is_some() || !view.regions.is_empty();
        let asked = if is_framed { format!("{asked}, {:?} {:?}", view.fit, view.regions) } else { asked };
        let file =
            folder.join(fold.map_or("simple.json".to_owned(), |fold| format!("simple-fold-{fold}.json")));
        let stored = std::fs::read(&file).ok();
        let stored: Option<(String, SimpleAnswers)> =
            stored.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some((_, answers)) = stored.filter(|(of, _)| *of == asked) {
            return Ok(answers);
        }
        let status = StatusLine::new();
        let parts = self.open(plan, fold, BTreeSet::from([0]))?;
        let parts = LoadedParts::load(&parts, plan, AbsentView::Absent, cores());
        let LoadedParts { train, evaluated, .. } = &parts;
        let mut answers = SimpleAnswers {
            labels: evaluated.labels.clone(),
            majority: headwater_inference::exit::argmax(&train.prior()),
            ..SimpleAnswers::default()
        };
        if plan.simple.nearest_neighbour > 0 {
            status.line("looking for nearest neighbours");
            answers.nearest_neighbour =
                nearest_neighbours(train, evaluated, plan.simple.nearest_neighbour, cores());
        }
        if plan.simple.presence_pattern {
            answers.presence_pattern = by_presence_pattern(train, evaluated);
        }
        if plan.simple.single_camera_epochs > 0 {
            let recipe = Recipe { epochs: plan.simple.single_camera_epochs, ..Recipe::read(None)? };
            let spec = plain_network(train)?;
            for slot in Slot::first(train.slots) {
                status.line(&format!("training on camera {slot} alone"));
                answers.cameras.push(single_camera(spec.clone(), &recipe, train, evaluated, slot)?);
            }
        }
        write_whole(&file, &serde_json::to_vec(&(asked, &answers))?)?;
        Ok(answers)
    }
}

/// Runs that are not done.
fn missing_runs(plan: &Plan, folder: &Path) -> Vec<Run> {
    plan.runs().into_iter().filter(|run| !is_done(plan, *run, folder)).collect()
}

/// Figures of every run: of one experiment, or of several by name.
#[derive(Serialize)]
#[serde(untagged)]
enum Figures<'a> {
    One(Option<&'a Vec<RunFigures>>),
    Several(&'a BTreeMap<String, Vec<RunFigures>>),
}

/// The data of one experiment, which is read once for all rows.
struct PlanData<'a> {
    table: &'a Table,
    labels: OnceCell<Result<Vec<String>, String>>,
    chosen: OnceCell<Result<[String; 2], String>>,
}

impl<'a> PlanData<'a> {
    fn of(table: &'a Table) -> Self {
        Self { table, labels: OnceCell::new(), chosen: OnceCell::new() }
    }
}

impl FromData for PlanData<'_> {
    fn labels(&self, data: &DataPlan, spec: &Unlabelled) -> Result<Vec<String>, String> {
        let read = || {
            let options = OpenOptions { slots: Some(spec.slots), ..options_of(&spec.view) };
            let folder = self.table.data_root.join(&data.path);
            let parts = self.table.views.open((&data.name, &folder), options);
            parts.map(|parts| parts.data.labels()).map_err(|failure| message_of(&failure.error))
        };
        self.labels.get_or_init(read).clone()
    }

    fn chosen(&self, data: &DataPlan) -> Result<[String; 2], String> {
        let read = || {
            let folder = self.table.data_root.join(&data.path);
            let dataset = Dataset::at(data.name.clone(), folder, self.table.views.clone());
            chosen_texts(&dataset).map_err(|failure| message_of(&failure.error))
        };
        self.chosen.get_or_init(read).clone()
    }
}

/// Progress of all runs.
struct Progress<'a> {
    plan: &'a Plan,
    runs: usize,
    started: Instant,
    state: Mutex<(StatusLine, usize)>,
}

impl<'a> Progress<'a> {
    fn new(plan: &'a Plan, runs: usize) -> Self {
        let status = StatusLine::new();
        let all = plan.runs().len();
        status.line(&format!("{}: {}, {runs} to train", plan.name, counted(all, "run")));
        Self { plan, runs, started: Instant::now(), state: Mutex::new((status, 0)) }
    }

    fn show(&self, run: Run, event: &Event<'_>) {
        let Event::Step { progress, steps_per_epoch } = event else { return };
        let mut state = self.state.lock();
        let (status, done) = &mut *state;
        status.show(|| {
            let (epoch, step) = (progress.epoch + 1, progress.step_in_epoch);
            let name = run.name(self.plan);
            format!("{done} of {} runs done; {name}: epoch {epoch} step {step}/{steps_per_epoch}", self.runs)
        });
    }

    fn done(&self, run: Run, started: Instant) {
        let mut state = self.state.lock();
        state.1 += 1;
        let (done, name) = (state.1, run.name(self.plan));
        let left = self.started.elapsed().as_secs_f64() / done as f64 * (self.runs - done) as f64;
        let (seconds, minutes) = (started.elapsed().as_secs(), (left / 60.0).ceil());
        state.0.line(&format!("[{done} of {}] {name}: {seconds} s; about {minutes} min left", self.runs));
    }
}

/// Processor and number of cores.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    format!("{name}, {} cores", cores())
}
