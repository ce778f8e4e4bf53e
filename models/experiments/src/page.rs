//! The page of an experiment, in Markdown.

use std::fmt::Write;

use headwater_inference::policy::Policy;
use headwater_protocol::Exit;
use headwater_samples::Part;

use crate::figures::RunFigures;
use crate::metrics::{Hits, balanced_accuracy, hits};
use crate::paired::{ComparedAnswers, Pairs, group_count, holm, t_test};
use crate::plan::{Plan, Row};
use crate::simple::SimpleAnswers;
use crate::spread::{Spread, percent, wilson};
use headwater_calibration::account::PartReport;

/// Origin of the figures.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The command that makes the page.
    pub command: String,
    /// Commit of the program that makes the page; `None` without git.
    pub commit: Option<String>,
    /// Processor and number of cores.
    pub machine: String,
    /// File with the figures of every run, as the page names it.
    pub figures_file: String,
}

/// The page. `runs` has the figures of every run in the order of the plan, `simple` the answers of the baselines for each fold.
pub fn page(plan: &Plan, runs: &[RunFigures], simple: &[SimpleAnswers], origin: &Origin) -> String {
    let mut text = format!("# {}\n\n{}\n\n", plan.title, plan.about.trim());
    let page = Page { plan, runs };
    page.head(origin, &mut text);
    page.accuracies(&mut text);
    page.other_losses(&mut text);
    page.reference(&mut text);
    page.missing(&mut text);
    page.exit_scores(&mut text);
    simple_table(plan, simple, &mut text);
    text
}

/// Joins the pages of several experiments into one page, each as a section.
pub fn page_of_several(title: &str, about: &str, pages: &[String]) -> String {
    let below = |line: &str| if line.starts_with('#') { format!("#{line}\n") } else { format!("{line}\n") };
    let sections: Vec<String> = pages.iter().map(|page| page.lines().map(below).collect()).collect();
    format!("# {title}\n\n{}\n\n{}", about.trim(), sections.join("\n"))
}

struct Page<'a> {
    plan: &'a Plan,
    runs: &'a [RunFigures],
}

impl Page<'_> {
    fn runs_of_row(&self, row: usize) -> impl Iterator<Item = &RunFigures> {
        let name = &self.plan.rows[row].name;
        self.runs.iter().filter(move |run| run.row == *name)
    }

    fn spread(&self, row: usize, value: impl Fn(&RunFigures) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs_of_row(row).filter_map(value))
    }

    /// Mean and deviation over the runs with a value, in percent, followed by the number of these runs if some runs have no value.
    fn percent_of_runs(&self, row: usize, value: impl Fn(&RunFigures) -> Option<f64>) -> String {
        let (values, runs): (Vec<f64>, usize) =
            (self.runs_of_row(row).filter_map(value).collect(), self.runs_of_row(row).count());
        let found = values.len();
        let shown = percent(Spread::of(values));
        if found == runs { shown } else { format!("{shown} ({found} of {runs} runs)") }
    }

    /// Exits that any run has, shallowest first.
    fn exits(&self) -> Vec<Exit> {
        let has = |exit: &Exit| self.runs.iter().any(|run| run.report.every.get(*exit).is_some());
        Exit::FIRST.into_iter().filter(has).collect()
    }

    fn head(&self, origin: &Origin, text: &mut String) {
        let mut commits: Vec<&str> = self.runs.iter().filter_map(|run| run.commit.as_deref()).collect();
        commits.sort_unstable();
        commits.dedup();
        let trained = if commits.is_empty() { "unknown".to_owned() } else { commits.join(", ") };
        let seeds: Vec<String> = self.plan.seeds.iter().map(ToString::to_string).collect();
        let over = match self.plan.data.folds {
            None => format!("seeds {}", seeds.join(", ")),
            Some(folds) => format!("{folds} folds, seed {}", seeds.join(", ")),
        };
        let samples = self.runs.first().map_or(0, |run| run.report.samples);
        let of_recording = match self.runs.iter().any(|run| run.is_recording) {
            true => {
                " Here scenes are frames of one recording, which depend on each other: it is at least so wide."
            }
            false => "",
        };
        let lines = [
            format!(
                "- Command: `{}`; it trains what is missing and makes this page from the logits of all runs.",
                origin.command
            ),
            format!(
                "- Page made at commit {}, runs trained at commit {trained}.",
                origin.commit.as_deref().unwrap_or("unknown")
            ),
            format!("- Machine: {}.", origin.machine),
            format!(
                "- Data: `{}`, {} part of {samples} samples{}; {over}. {}",
                self.plan.data.name,
                self.plan.part().name(),
                if self.plan.data.folds.is_some() { " in each fold" } else { "" },
                match self.plan.part() {
                    Part::Validation =>
                        "Temperatures, levels of scores and thresholds come from the same samples: overall, leaving shares and bytes are optimistic.",
                    Part::Train | Part::Test | Part::Calibration =>
                        "Temperatures and levels of scores come from the validation part; thresholds from a calibration part of enough independent samples, else from the validation part.",
                }
            ),
            format!(
                "- `±` is the standard deviation over runs. The interval of one run is Wilson's at 95 %, at the mean of its row, for so many samples, or objects or scenes where samples share them: what \
                 another draw of the part would change, apart from the seed.{of_recording}"
            ),
            format!("- Every run by itself, with its thresholds: [{0}]({0}).", origin.figures_file),
        ];
        *text += &lines.join("\n");
        *text += "\n";
    }

    fn accuracies(&self, text: &mut String) {
        let exits = self.exits();
        let mut heads: Vec<String> = exits.iter().map(|exit| format!("{} %", exit.name())).collect();
        heads.extend(["overall %", "interval of one run"].map(ToOwned::to_owned));
        let early = &exits[..exits.len().saturating_sub(1)];
        heads.extend(early.iter().map(|exit| format!("leaves at {} %", exit.name())));
        if !self.plan.metrics.balanced.is_empty() {
            heads.push(format!("balanced ({}) %", self.plan.metrics.balanced.join(", ")));
        }
        heads.extend(self.plan.metrics.counted.iter().map(|class| format!("{class}: right of all")));
        heads.extend(["body bytes", "mean multiply-accumulates"].map(ToOwned::to_owned));
        let rows = (0..self.plan.rows.len()).map(|row| {
            let of = |value: &dyn Fn(&RunFigures) -> Option<f64>| self.spread(row, value);
            let mut cells = vec![self.plan.rows[row].name.clone()];
            cells.extend(exits.iter().map(|exit| percent(of(&|run| run.report.every.get(*exit).copied()))));
            let overall = of(&|run| Some(run.report.overall));
            cells.push(percent(overall));
            // For the interval, the samples of one object or scene count as one sample.
            let samples =
                self.runs_of_row(row).map(|run| run.groups.unwrap_or(run.report.samples)).min().unwrap_or(0);
            cells.push(overall.map_or_else(String::new, |overall| wilson(overall.mean, samples)));
            cells.extend(early.iter().map(|exit| percent(of(&|run| run.report.share.get(*exit).copied()))));
            if !self.plan.metrics.balanced.is_empty() {
                cells.push(percent(of(&|run| run.balanced_accuracy)));
            }
            cells.extend((0..self.plan.metrics.counted.len()).map(|class| self.counted(row, class)));
            let (bytes, macs) = (of(&|run| Some(run.report.body_bytes)), of(&|run| Some(run.macs)));
            cells.push(bytes.map_or_else(String::new, Spread::bytes));
            cells.push(macs.map_or_else(String::new, |of| format!("{:.0}", of.mean)));
            cells
        });
        table(text, "Accuracy", "", &heads, rows);
    }

    /// Writes the figures of the same runs under thresholds for other losses than the recipe's.
    fn other_losses(&self, text: &mut String) {
        if self.plan.loss_points.is_empty() {
            return;
        }
        let heads = [
            "loss allowed, points",
            "lost against the last exit, points",
            "overall %",
            "leaves at the first exit %",
            "body bytes",
            "times below raw",
            "promised runs",
        ]
        .map(ToOwned::to_owned);
        let targets = (0..self.plan.rows.len()).flat_map(|row| {
            std::iter::once(None).chain((0..self.plan.loss_points.len()).map(Some)).map(move |at| (row, at))
        });
        let rows = targets.map(|(row, at)| {
            let runs: Vec<(&PartReport, &Policy)> = self
                .runs_of_row(row)
                .map(|run| {
                    at.map_or((&run.report, &run.policy), |at| {
                        (&run.other_losses[at].report, &run.other_losses[at].policy)
                    })
                })
                .collect();
            let Row { name, recipe, spec, .. } = &self.plan.rows[row];
            let of = |value: &dyn Fn(&PartReport) -> Option<f64>| {
                Spread::of(runs.iter().filter_map(|(report, _)| value(report)))
            };
            let lost = of(&|report| Some(report.every.iter().next_back()?.1 - report.overall));
            let bytes = of(&|report| Some(report.body_bytes));
            let raw = spec.network.view().iter().product::<usize>() as f64;
            vec![
                name.clone(),
                at.map_or(recipe.exit.loss_points, |at| self.plan.loss_points[at]).to_string(),
                lost.map_or_else(String::new, Spread::small_points),
                percent(of(&|report| Some(report.overall))),
                percent(of(&|report| Some(*report.share.iter().next()?.1))),
                bytes.map_or_else(String::new, Spread::bytes),
                bytes.map_or_else(String::new, |bytes| format!("{:.0}", raw / bytes.mean)),
                format!(
                    "{} of {}",
                    runs.iter().filter(|(_, policy)| !policy.promises.is_empty()).count(),
                    runs.len()
                ),
            ]
        });
        let about = "The same runs with thresholds for other losses. Times below raw: bytes of a view's pixels by body bytes. Each promise holds by itself, not for a line that is \
                     chosen afterwards.";
        table(text, "Loss and bytes", about, &heads, rows);
    }

    /// Right answers of a rare class in each run: `4 3 4 of 4`, or `4/4 3/5` if the runs have different numbers of samples of the class.
    fn counted(&self, row: usize, class: usize) -> String {
        let hits: Vec<Hits> =
            self.runs_of_row(row).filter_map(|run| run.counted.get(class).copied()).collect();
        let is_same = hits.iter().all(|other| other.of == hits[0].of);
        let shown = |hits: &Hits| match is_same {
            true => hits.right.to_string(),
            false => format!("{}/{}", hits.right, hits.of),
        };
        let right = hits.iter().map(shown).collect::<Vec<_>>().join(" ");
        match hits.first().filter(|_| is_same) {
            Some(first) => format!("{right} of {}", first.of),
            None => right,
        }
    }

    fn reference(&self, text: &mut String) {
        let Some(reference) = self.plan.reference_row() else { return };
        let of_reference: Vec<&RunFigures> = self.runs_of_row(reference).collect();
        let others: Vec<usize> = (0..self.plan.rows.len()).filter(|row| *row != reference).collect();
        let pairs: Vec<Pairs<'_>> =
            others.iter().map(|row| Pairs::of(self.runs_of_row(*row), &of_reference)).collect();
        let answers_compared: Vec<ComparedAnswers> = std::iter::once(ComparedAnswers::Overall)
            .chain(self.exits().into_iter().map(ComparedAnswers::Exit))
            .collect();
        let groups = group_count(self.runs);
        let has_interval = pairs.iter().any(|pairs| pairs.interval(ComparedAnswers::Overall).is_some());
        // Runs of different folds share most of their train samples, so a test over these runs would claim too much.
        let p_values: Vec<Option<f64>> = pairs
            .iter()
            .map(|pairs| {
                t_test(&pairs.differences(ComparedAnswers::Overall))
                    .filter(|_| self.plan.data.folds.is_none())
            })
            .collect();
        let adjusted = holm(&p_values);
        let has_p_values = p_values.iter().any(Option::is_some);
        let has_folds =
            pairs.iter().any(|pairs| pairs.interval_over_folds(ComparedAnswers::Overall).is_some());
        let shown_points = |ends: Option<[f64; 2]>| {
            ends.map_or_else(String::new, |[low, high]| {
                format!("{:+.1} to {:+.1}", 100.0 * low, 100.0 * high)
            })
        };
        let mut heads: Vec<String> = Vec::new();
        for answers in &answers_compared {
            heads.push(format!("{}, points", answers.name()));
            if has_interval {
                heads.push("95 % interval".to_owned());
            }
            if has_folds {
                heads.push("90 % over folds".to_owned());
            }
        }
        heads.extend(["overall: runs better", "equal", "worse"].map(ToOwned::to_owned));
        if has_p_values {
            heads.extend(["p, overall", "p, Holm"].map(ToOwned::to_owned));
        }
        let rows = others.iter().zip(&pairs).zip(p_values.iter().zip(&adjusted)).map(
            |((row, pairs), (p_value, adjusted))| {
                let mut cells = vec![self.plan.rows[*row].name.clone()];
                for answers in &answers_compared {
                    let spread = Spread::of(pairs.differences(*answers));
                    cells.push(spread.map_or_else(String::new, Spread::points));
                    if has_interval {
                        cells.push(shown_points(pairs.interval(*answers)));
                    }
                    if has_folds {
                        cells.push(shown_points(pairs.interval_over_folds(*answers)));
                    }
                }
                let differences = pairs.differences(ComparedAnswers::Overall);
                let count = |is: fn(&f64) -> bool| differences.iter().filter(|of| is(of)).count().to_string();
                cells.extend([count(|of| *of > 0.0), count(|of| *of == 0.0), count(|of| *of < 0.0)]);
                if has_p_values {
                    let shown = |p: &Option<f64>| {
                        p.map_or_else(String::new, |p| {
                            if p < 0.0005 { "< 0.001".to_owned() } else { format!("{p:.3}") }
                        })
                    };
                    cells.extend([shown(p_value), shown(adjusted)]);
                }
                cells
            },
        );
        let mut about = format!(
            "Accuracy against `{}`, run by run (same seed, same fold).",
            self.plan.rows[reference].name
        );
        if has_interval {
            about += &format!(
                " The interval is a bootstrap over the {groups} objects or scenes, each drawn with its samples in all runs: what other test objects would change, for the networks as trained; for frames of one \
                 recording it is at least so wide."
            );
        }
        if has_folds {
            about += " The interval over folds is a bootstrap over the folds' mean differences.";
        }
        if has_p_values {
            about += " `p` is the two-sided paired t-test over runs, of the overall accuracy; the last column is adjusted for the number of tests (Holm 1979). Intervals are not adjusted.";
        }
        table(text, "Compared run by run", &about, &heads, rows);
    }

    fn missing(&self, text: &mut String) {
        let Some(first) = self.runs.iter().find(|run| !run.missing.is_empty()) else { return };
        let most = first.missing.iter().map(|missing| missing.slots.len()).max().unwrap_or_default();
        let heads: Vec<String> = std::iter::once("none %".to_owned())
            .chain((1..=most).flat_map(|count| [format!("{count} missing %"), format!("worst of {count} %")]))
            .collect();
        let rows = (0..self.plan.rows.len()).map(|row| {
            let mut cells = vec![self.plan.rows[row].name.clone()];
            cells.push(percent(self.spread(row, |run| Some(run.report.overall))));
            for count in 1..=most {
                let of_run = |run: &RunFigures| -> Vec<f64> {
                    let with = run.missing.iter().filter(|missing| missing.slots.len() == count);
                    with.map(|missing| missing.overall).collect()
                };
                cells.push(percent(self.spread(row, |run| Some(Spread::of(of_run(run))?.mean))));
                cells.push(percent(self.spread(row, |run| of_run(run).into_iter().reduce(f64::min))));
            }
            cells
        });
        let about = "Overall accuracy of the same network with devices missing: for each run the mean and the worst over all sets of so many devices.";
        table(text, "Missing devices", about, &heads, rows);
        for count in 1..=most {
            let of_count =
                first.missing.iter().enumerate().filter(|(_, missing)| missing.slots.len() == count);
            let patterns: Vec<(usize, String)> = of_count
                .map(|(at, missing)| {
                    let slots: Vec<String> = missing.slots.iter().map(ToString::to_string).collect();
                    (at, slots.join(" and "))
                })
                .collect();
            let heads: Vec<String> = patterns.iter().map(|(_, name)| format!("without {name}")).collect();
            let rows = (0..self.plan.rows.len()).map(|row| {
                let of = |at: &usize| percent(self.spread(row, |run| Some(run.missing.get(*at)?.overall)));
                std::iter::once(self.plan.rows[row].name.clone())
                    .chain(patterns.iter().map(|(at, _)| of(at)))
                    .collect()
            });
            table(text, &format!("Missing devices, set by set: {count}"), "", &heads, rows);
        }
    }

    fn exit_scores(&self, text: &mut String) {
        // A run may lack the score `learned`, which is fitted only with enough events.
        let longest = self.runs.iter().max_by_key(|run| run.auroc.len());
        let Some(longest) = longest.filter(|run| !run.auroc.is_empty()) else { return };
        let scores: Vec<_> = longest.auroc.iter().map(|score| (score.exit, score.rule)).collect();
        let exits = self.exits();
        let has_errors = self.runs.iter().any(|run| run.calibration_error.is_some());
        let mut heads: Vec<String> =
            scores.iter().map(|(exit, rule)| format!("{}, {} %", exit.name(), rule.name())).collect();
        if has_errors {
            heads.extend(exits.iter().map(|exit| format!("calibration error, {} %", exit.name())));
        }
        let rows = (0..self.plan.rows.len()).map(|row| {
            let mut cells = vec![self.plan.rows[row].name.clone()];
            for (exit, rule) in &scores {
                let is = |run: &RunFigures| {
                    Some(run.auroc.iter().find(|score| (score.exit, score.rule) == (*exit, *rule))?.auroc)
                };
                cells.push(self.percent_of_runs(row, is));
            }
            for exit in exits.iter().filter(|_| has_errors) {
                cells.push(percent(
                    self.spread(row, |run| run.calibration_error.as_ref()?.0.get(*exit).copied()),
                ));
            }
            cells
        });
        let about = "Area under the curve of each exit score for \"wrong here, right at the last exit\": 50 says nothing, 100 tells all such samples from the \
                     others. A run without such samples has none, and has no learned score where validation has too few to fit it.";
        table(text, "Exit scores", about, &heads, rows);
    }
}

/// Appends a section with a table; the first cell of a row is the name of the row.
fn table(
    text: &mut String,
    title: &str,
    about: &str,
    heads: &[String],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let _ = write!(text, "\n## {title}\n\n");
    if !about.is_empty() {
        let _ = write!(text, "{about}\n\n");
    }
    let _ = writeln!(text, "| | {} |\n|{}", heads.join(" | "), " --- |".repeat(heads.len() + 1));
    for cells in rows {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
}

fn simple_table(plan: &Plan, simple: &[SimpleAnswers], text: &mut String) {
    let labels = plan.rows[0].spec.network.network.labels.get_ref();
    let class = |name: &String| labels.iter().position(|label| label == name).unwrap_or_default() as u16;
    let balanced: Vec<u16> = plan.metrics.balanced.iter().map(class).collect();
    let mut heads = vec!["right %".to_owned()];
    if !balanced.is_empty() {
        heads.push(format!("balanced ({}) %", plan.metrics.balanced.join(", ")));
    }
    heads.extend(plan.metrics.counted.iter().map(|class| format!("{class}: right of all")));
    let of_answers = |name: &str, answers: &dyn Fn(&SimpleAnswers) -> Vec<u16>| {
        let pairs: Vec<(Vec<u16>, Vec<u16>)> = simple
            .iter()
            .map(|fold| {
                let answers = answers(fold);
                let labels = fold.labels[..answers.len()].to_vec();
                (answers, labels)
            })
            .collect();
        let right = |(answers, labels): &(Vec<u16>, Vec<u16>)| {
            answers.iter().zip(labels).filter(|(a, b)| a == b).count() as f64 / labels.len().max(1) as f64
        };
        let mut cells = vec![name.to_owned(), percent(Spread::of(pairs.iter().map(right)))];
        if !balanced.is_empty() {
            cells.push(percent(Spread::of(
                pairs.iter().filter_map(|(a, b)| balanced_accuracy(a, b, &balanced)),
            )));
        }
        cells.extend(plan.metrics.counted.iter().map(|name| {
            let hits = pairs.iter().map(|(answers, labels)| hits(answers, labels, class(name)));
            let (right, of) = hits.fold((0, 0), |(right, of), hits| (right + hits.right, of + hits.of));
            format!("{right} of {of}")
        }));
        cells
    };
    let mut rows = Vec::new();
    let Some(first) = simple.first() else { return };
    rows.push(of_answers("most frequent class", &|fold| vec![fold.majority; fold.labels.len()]));
    if !first.presence_pattern.is_empty() {
        rows.push(of_answers("presence pattern alone", &|fold| fold.presence_pattern.clone()));
    }
    if !first.nearest_neighbour.is_empty() {
        let name = format!("nearest neighbour in raw pixels ({} samples)", first.nearest_neighbour.len());
        rows.push(of_answers(&name, &|fold| fold.nearest_neighbour.clone()));
    }
    for camera in 0..first.cameras.len() {
        let shares = simple.iter().filter_map(|fold| Some(fold.cameras.get(camera)?.accuracy));
        let mut cells = vec![format!("camera {camera} alone"), percent(Spread::of(shares))];
        cells.resize(heads.len() + 1, String::new());
        rows.push(cells);
    }
    let about = "Answers that need no network of several devices. A camera alone has a plain float network; a sample that it does not see gets the most \
                 frequent class.";
    table(text, "Without such a network", about, &heads, rows.into_iter());
}
