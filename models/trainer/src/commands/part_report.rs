//! Figures of a part as text.

use std::cmp::Reverse;

use headwater_calibration::account::{ClaimFigures, PartReport};
use headwater_calibration::by_class::{ClassReport, Confusion};

use super::output::counted;

/// Most classes that have a line each; with more classes, only the report has their figures.
const CLASS_LINES: usize = 20;

/// Most wrong answers with a line of their own.
const WRONG_LINES: usize = 10;

/// Text such as `91.30 % of the samples get an answer, 1.20 % of the answers are wrong`.
pub(crate) fn claims(
    ClaimFigures { answered, wrong, of_nothing, of_nothing_answered }: ClaimFigures,
) -> String {
    let [answered, wrong, taken] = [answered, wrong, of_nothing_answered].map(|share| 100.0 * share);
    let text = format!("{answered:.2} % of the samples get an answer, {wrong:.2} % of the answers are wrong");
    let nothing = counted(of_nothing, "sample");
    match of_nothing {
        0 => text,
        _ => format!("{text}; of {nothing} of nothing, in no accuracy, {taken:.2} % get one"),
    }
}

/// Lines with the figures of a part.
pub(crate) fn lines(part: &str, report: &PartReport) -> String {
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let before = if report.has_claim_above { ", before claim_above leaves any undecided" } else { "" };
    let mut lines = vec![
        format!("{part}: {}", counted(report.samples, "sample")),
        format!("  overall {} are right, each at the exit where it leaves{before}", percent(report.overall)),
    ];
    lines.extend(report.every.iter().map(|(exit, every)| {
        format!(
            "  {:<7} {} leave there, {} of them right; all samples there: {}",
            exit.name(),
            percent(report.share[exit]),
            percent(report.accuracy[exit]),
            percent(*every)
        )
    }));
    if report.no_view > 0 {
        let count = report.no_view;
        lines.push(format!(
            "  {count} without a view: the class prior answers, counted at the first exit (no_view)"
        ));
    }
    lines.extend(report.claims.map(|figures| format!("  {}", claims(figures))));
    lines.push(format!("  {:.1} body bytes per device and sample", report.body_bytes));
    if !report.devices.is_empty() {
        let devices = report.devices.iter().map(|share| format!("{:.1}", 100.0 * share));
        let devices = devices.collect::<Vec<_>>().join(" ");
        lines.push(format!("  each device alone, on samples that it sees: {devices} %"));
    }
    lines.join("\n") + "\n"
}

/// Lines on the answers to a part: accuracy by class, the three most frequent confusions, the most confident wrong answers.
pub(crate) fn by_class(part: &str, report: &ClassReport) -> String {
    let ClassReport { labels, given, exits, wrong, wrong_left_out } = report;
    let accuracy = |of: &Confusion, class: usize| of.classes[class].accuracy.unwrap_or_default();
    let shown = if labels.len() > CLASS_LINES { 0 } else { labels.len() };
    let classes: Vec<usize> = (0..shown).filter(|class| given.classes[*class].samples > 0).collect();
    let width = classes.iter().map(|class| labels[*class].chars().count()).max().unwrap_or_default();
    let width = width.max("class".len());
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let names: String = exits.iter().map(|(exit, _)| format!(" {:>7}", exit.name())).collect();
    let mut lines = vec![
        format!("{part} by class, right in % of all samples at each exit and of the answers given:"),
        format!("  {:<width$} samples{names}   given, 95 % interval", "class"),
    ];
    lines.extend(classes.iter().map(|class| {
        let of_exits = exits.iter().map(|(_, of)| format!(" {:>7}", percent(accuracy(of, *class))));
        let (found, of_exits) = (&given.classes[*class], of_exits.collect::<String>());
        let [low, high] = found.interval.map(percent);
        let right = percent(accuracy(given, *class));
        format!("  {:<width$} {:>7}{of_exits} {right:>7} ({low} to {high})", labels[*class], found.samples)
    }));
    if labels.len() > CLASS_LINES {
        lines.push(format!("  {} classes: report.json, or eval --json", labels.len()));
    }
    let mut confused: Vec<(u64, &String, &String)> = Vec::new();
    for (label, row) in labels.iter().zip(&given.matrix) {
        let others = labels.iter().zip(row).filter(|(given, count)| *given != label && **count > 0);
        confused.extend(others.map(|(given, count)| (*count, label, given)));
    }
    confused.sort_by_key(|(count, ..)| Reverse(*count));
    let of_pair =
        |(count, label, given): &(u64, &String, &String)| format!("{count} of {label} taken for {given}");
    let confused: Vec<String> = confused.iter().take(3).map(of_pair).collect();
    if !confused.is_empty() {
        lines.push(format!("  most often {}", confused.join(", ")));
    }
    if !wrong.is_empty() {
        let (shown, all) = (wrong.len().min(WRONG_LINES), wrong.len() + wrong_left_out);
        lines.push(format!("  most confident, {shown} of {all} wrong answers:"));
    }
    lines.extend(wrong.iter().take(WRONG_LINES).map(|wrong| {
        let further = wrong.files.len().saturating_sub(1);
        let further = match further {
            0 => String::new(),
            _ => format!(" and {}", counted(further, "further view")),
        };
        let sample = wrong.files.first().cloned().unwrap_or_else(|| format!("sample {}", wrong.sample));
        let (confidence, label, given, exit) = (wrong.confidence, &wrong.label, &wrong.given, wrong.exit);
        format!("    {confidence:.3} {label} taken for {given} at {}: {sample}{further}", exit.name())
    }));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use headwater_calibration::by_class::{ClassFigures, WrongAnswer};
    use headwater_protocol::{ByExit, Exit};

    use super::*;

    fn report(classes: u64) -> ClassReport {
        let figures = |class| ClassFigures {
            samples: 10,
            right: class % 10,
            undecided: 0,
            accuracy: Some((class % 10) as f64 / 10.0),
            interval: [0.0, 1.0],
        };
        let name = |class: u64| format!("class {class}");
        // Of class n, 10 - n samples are taken for class 0.
        let row = |class: u64| (0..classes).map(move |given| if given == 0 { 10 - class.min(10) } else { 0 });
        let matrix = (0..classes).map(|class| row(class).collect()).collect();
        let given = Confusion { classes: (0..classes).map(figures).collect(), matrix };
        let wrong = |sample| WrongAnswer {
            sample,
            files: if sample == 0 { vec!["a.png".into(), "b.png".into()] } else { Vec::new() },
            label: name(1),
            given: name(0),
            exit: Exit::CLOUD,
            confidence: 0.999,
        };
        ClassReport {
            labels: (0..classes).map(name).collect(),
            exits: ByExit::from_iter([(Exit::CLOUD, given.clone())]),
            given,
            wrong: (0..30).map(wrong).collect(),
            wrong_left_out: 5,
        }
    }

    #[test]
    fn shares_of_right_answers_under_a_claim_above_say_that_they_come_before_it() {
        let report = |has_claim_above| PartReport {
            samples: 4,
            devices: Vec::new(),
            every: ByExit::default(),
            overall: 0.75,
            share: ByExit::default(),
            accuracy: ByExit::default(),
            no_view: 0,
            body_bytes: 1.0,
            claims: None,
            has_claim_above,
        };
        let line = "  overall 75.00 % are right, each at the exit where it leaves";
        let second = |has| lines("test", &report(has)).lines().nth(1).map(str::to_owned).unwrap();
        assert_eq!(second(false), line);
        assert_eq!(second(true), format!("{line}, before claim_above leaves any undecided"));
    }

    #[test]
    fn classes_the_commonest_confusions_and_the_surest_mistakes_have_lines() {
        let text = by_class("test", &report(20));
        for line in [
            "  class 0       10     0.0     0.0 (0.0 to 100.0)",
            "  class 19      10    90.0    90.0 (0.0 to 100.0)",
            "  most often 9 of class 1 taken for class 0, 8 of class 2 taken for class 0, 7 of class 3 taken for class 0",
            "  most confident, 10 of 35 wrong answers:",
            "    0.999 class 1 taken for class 0 at cloud: a.png and 1 further view",
            "    0.999 class 1 taken for class 0 at cloud: sample 9",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in {text}");
        }
        let text = by_class("test", &report(21));
        assert!(text.contains("  21 classes: report.json, or eval --json\n"), "{text}");
        assert!(!text.contains("  class 20 "), "{text}");
    }
}
