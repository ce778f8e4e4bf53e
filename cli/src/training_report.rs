//! The training report of a bundle in a few lines for people. A report of another version may lack a figure, which is then left out.

use std::fmt::{self, Display};

use headwater_protocol::Exit;
use serde_json::Value;

/// Shows the report that training wrote into a bundle.
pub(crate) struct TrainingReport<'a>(pub(crate) &'a Value);

impl Display for TrainingReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let lines = [
            ("trained", training(report)),
            ("validation", part(&report["validation"])),
            ("test", part(&report["test"])),
            ("engines", engines(report)),
        ];
        writeln!(f, "\ntraining report (all of it: headwater inspect --json)")?;
        for (name, line) in lines {
            if let Some(line) = line {
                writeln!(f, "{name:<11} {line}")?;
            }
        }
        Ok(())
    }
}

/// Epochs, time, seed, data and commit.
fn training(report: &Value) -> Option<String> {
    let run = &report["run"];
    let facts = [
        report["epochs"].as_array().map(|epochs| format!("{} epochs", epochs.len())),
        report["seconds"].as_f64().map(|seconds| format!("{seconds:.0} s")),
        report["recipe"]["seed"].as_u64().map(|seed| format!("seed {seed}")),
        run["data"].as_str().map(|data| format!("data {data}")),
        run["commit"]
            .as_str()
            .map(|commit| format!("commit {}", commit.chars().take(12).collect::<String>())),
    ];
    joined(facts)
}

/// Accuracy of a part of the data.
fn part(part: &Value) -> Option<String> {
    let percent = |share: &Value| share.as_f64().map(|share| format!("{:.2} %", 100.0 * share));
    let samples = part["samples"].as_u64()?;
    let exits = Exit::ALL.map(|exit| Some(format!("{} {}", exit.name(), percent(&part[exit.name()])?)));
    joined([
        percent(&part["overall"]).map(|share| format!("{share} of {samples} samples are right")),
        joined(exits).map(|exits| format!("all samples at one exit: {exits}")),
        part["body_bytes"].as_f64().map(|bytes| format!("{bytes:.1} body bytes per device and sample")),
    ])
}

/// How exactly the engines agree with the trained network.
fn engines(report: &Value) -> Option<String> {
    joined(["parity", "parity_packed"].map(|key| {
        let parity = &report[key];
        let (engine, difference) = (parity["engine"].as_str()?, parity["largest_difference"].as_f64()?);
        let (at_threshold, bits) = (parity["bits_at_threshold"].as_u64()?, parity["bits"].as_u64()?);
        Some(format!("{engine} within {difference:.1e} and {at_threshold} of {bits} feature bits"))
    }))
}

/// Facts that are known, separated by commas; `None` where none is.
fn joined<const N: usize>(facts: [Option<String>; N]) -> Option<String> {
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    (!facts.is_empty()).then(|| facts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_a_few_readable_lines() {
        let report = json!({
            "epochs": [{}, {}],
            "seconds": 1137.3,
            "recipe": { "seed": 1 },
            "run": { "data": "fashion-6cam", "commit": "11f63c9388e0872a40624f8b9e48a4ad1d11690d" },
            "test": { "samples": 10000, "overall": 0.8847, "local": 0.8736, "cloud": 0.8845, "body_bytes": 107.64 },
            "parity": { "engine": "tract", "largest_difference": 5.1e-6, "bits": 100, "bits_at_threshold": 0 },
        });
        let expected = "
training report (all of it: headwater inspect --json)
trained     2 epochs, 1137 s, seed 1, data fashion-6cam, commit 11f63c9388e0
test        88.47 % of 10000 samples are right, all samples at one exit: local 87.36 %, cloud 88.45 %, 107.6 body bytes per device and sample
engines     tract within 5.1e-6 and 0 of 100 feature bits
";
        assert_eq!(TrainingReport(&report).to_string(), expected);
    }

    #[test]
    fn a_report_without_figures_is_no_error() {
        for report in [json!(null), json!({}), json!({ "epochs": "many", "test": 3, "parity": [] })] {
            assert_eq!(TrainingReport(&report).to_string().lines().count(), 2, "{report}");
        }
    }
}
