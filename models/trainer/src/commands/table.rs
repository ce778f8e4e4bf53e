//! `headwater-train table`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use headwater_calibration::data::{AbsentView, Parts};
use headwater_calibration::number_file::write_whole;
use headwater_experiments::figures::RunFigures;
use headwater_experiments::page::{Origin, page};
use headwater_experiments::plan::{Plan, Run};
use headwater_experiments::run::{LoadedParts, complete, groups, is_done, read};
use headwater_experiments::simple::{SimpleAnswers, by_presence_pattern, nearest_neighbours};
use headwater_protocol::Slot;
use headwater_samples::data_set::OpenOptions;
use headwater_training::joint::Event;
use headwater_training::recipe::Recipe;
use headwater_training::run::lock;
use headwater_training::single_camera::{plain_network, single_camera};
use parking_lot::Mutex;

use super::dataset::options_of;
use super::output::{print, print_error};
use super::progress::StatusLine;
use super::train::commit;
use super::views::ViewPlace;
use super::{Failure, print_json, usage};

/// Arguments of `table`.
#[derive(Args)]
pub(crate) struct Table {
    /// Experiment (TOML): rows of networks and recipes, seeds, folds; see experiments/ and docs/experiments.md.
    #[arg(value_name = "EXPERIMENT")]
    experiment: PathBuf,
    /// Folder of all data sets: the experiment names a folder or file below it.
    #[arg(long, value_name = "DIR", env = "HEADWATER_DATA", default_value = ".")]
    data_root: PathBuf,
    /// Folder of the runs: spec, recipe, checkpoints and logits of each. Runs that are there are not trained again; one that was killed resumes from
    /// its newest checkpoint. `runs/tables/NAME` when left out.
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
    /// Print the figures of every run as one JSON array.
    #[arg(long)]
    json: bool,
}

impl Table {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let plan = Plan::read(&self.experiment).map_err(Failure::usage)?;
        let folder = self.runs.clone().unwrap_or_else(|| PathBuf::from("runs/tables").join(&plan.name));
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from(format!("docs/results/{}.md", plan.name)));
        let Some(results) = out.parent().filter(|parent| parent.as_os_str().is_empty() || parent.is_dir())
        else {
            return usage(format!("--out: expected a file in a folder that exists, found {}", out.display()));
        };
        // Only a plain file NAME.md is overwritten.
        let is_page = |file: &Path| std::fs::symlink_metadata(file).map_or(true, |found| found.is_file());
        if out.extension().is_none_or(|extension| extension != "md") || !is_page(&out) {
            return usage(format!("--out: expected a page, NAME.md, found {}", out.display()));
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let lock = lock(&folder, "these runs", "name another folder with --runs");
        let _lock = lock.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Failure::usage(error),
            _ => error.into(),
        })?;
        self.train(&plan, &folder)?;
        let simple = self.simple(&plan, &folder)?;
        let figures: Vec<RunFigures> = plan
            .runs()
            .into_iter()
            .map(|run| Ok(RunFigures::of(&plan, run, &read(&plan, run, &folder)?)?))
            .collect::<Result<_, anyhow::Error>>()?;
        let figures_file = format!("{}.json", out.file_stem().unwrap_or_default().to_string_lossy());
        let origin = Origin {
            command: format!(
                "headwater-train table {} --data-root \"$HEADWATER_DATA\"",
                self.experiment.display()
            ),
            commit: commit(),
            machine: machine(),
            figures_file: figures_file.clone(),
        };
        let json = serde_json::to_string_pretty(&figures).context("figures as JSON")?;
        let written = |file: &Path| format!("writing {}", file.display());
        let figures_file = results.join(figures_file);
        write_whole(&figures_file, json.as_bytes()).with_context(|| written(&figures_file))?;
        let text = page(&plan, &figures, &simple, &origin);
        write_whole(&out, text.as_bytes()).with_context(|| written(&out))?;
        if self.json {
            return print_json(&figures);
        }
        print(&format!("{text}\nwritten: {}\n", out.display()))
    }

    /// Trains every run that is not done.
    fn train(&self, plan: &Plan, folder: &Path) -> Result<(), Failure> {
        let open: Vec<Run> = plan.runs().into_iter().filter(|run| !is_done(plan, *run, folder)).collect();
        let progress = Progress::new(plan, open.len());
        for (fold, absent, runs) in groups(plan, &open) {
            let parts = self.open(plan, fold)?;
            let parts = LoadedParts::load(&parts, plan, absent, cores());
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
                let jobs: Vec<_> = (0..self.jobs(plan)).map(|_| scope.spawn(work)).collect();
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

    /// Number of runs at the same time.
    fn jobs(&self, plan: &Plan) -> usize {
        let workers = plan.rows.iter().map(|row| row.recipe.workers).max().unwrap_or(1);
        self.jobs.map_or((cores() / workers).max(1), NonZero::get)
    }

    /// The data of a fold, checked against the networks.
    fn open(&self, plan: &Plan, fold: Option<usize>) -> Result<Parts, Failure> {
        let (view, slots) = (plan.rows[0].spec.network.preprocessing(), plan.rows[0].spec.network.slots());
        let options = OpenOptions { slots: Some(slots), fold, ..options_of(&view) };
        let parts = self.views.open((&plan.data.name, &self.data_root.join(&plan.data.path)), options)?;
        for row in &plan.rows {
            let network = &row.spec.network;
            let of_row = network.preprocessing();
            if (of_row.fit, &of_row.regions) != (view.fit, &view.regions) {
                return usage(format!(
                    "row {:?}: expected device.fit and device.regions as in the first row, found others: the rows share their views",
                    row.name
                ));
            }
            let found = (network.slots(), network.view(), network.network.labels.get_ref().clone());
            let expected = (parts.slots, parts.shape(), parts.data.labels());
            if found != expected {
                return usage(format!(
                    "row {:?}: expected slots, view and labels {expected:?} as in the data, found {found:?}",
                    row.name
                ));
            }
        }
        Ok(parts)
    }

    /// Answers without a network of several devices, for each fold; kept in a file below `folder`.
    fn simple(&self, plan: &Plan, folder: &Path) -> Result<Vec<SimpleAnswers>, Failure> {
        plan.folds().into_iter().map(|fold| self.simple_of_fold(plan, folder, fold)).collect()
    }

    fn simple_of_fold(
        &self,
        plan: &Plan,
        folder: &Path,
        fold: Option<usize>,
    ) -> Result<SimpleAnswers, Failure> {
        let network = &plan.rows[0].spec.network;
        // Everything on which the answers depend: stored answers are used only if they were stored with the same text.
        let asked = format!(
            "{:?} {:?} {} part, fold {fold:?}, views {:?} of {} slots",
            plan.simple,
            plan.data,
            plan.part.name(),
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
        let parts = self.open(plan, fold)?;
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
        status.line(&format!("{}: {all} runs, {runs} to train", plan.name));
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

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Processor and number of cores.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    format!("{name}, {} cores", cores())
}
