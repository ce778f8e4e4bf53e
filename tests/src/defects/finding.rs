//! Results of the named tests without a fix, and with all fixes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::{Cargo, Edit, Outcome, TestRun};

/// Results of the tests of one edit.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Number of the defect.
    pub defect: u8,
    /// Title of the defect in `docs/results/site.md`.
    pub words: String,
    /// The fix that was taken out.
    pub without: String,
    /// Tests that failed, those that hung included.
    pub failed: Vec<String>,
    /// Tests that had no result within the limit of time.
    pub hung: Vec<String>,
    /// Tests that passed: they do not show the defect.
    pub passed: Vec<String>,
    /// Why tests could not be run.
    pub errors: Vec<String>,
    /// Seconds to compile and run.
    pub seconds: u64,
}

impl Finding {
    /// First two lines of the table.
    pub const HEAD: &str = "| defect | fix taken out | tests that fail | s |\n| --- | --- | --- | --- |";

    /// Whether every named test failed.
    pub fn shows_defect(&self) -> bool {
        self.passed.is_empty() && self.errors.is_empty() && !self.failed.is_empty()
    }

    /// The edit as a line of the table.
    pub fn line(&self) -> String {
        let name = |test: &String| {
            let hung = if self.hung.contains(test) { " (hangs)" } else { "" };
            format!("`{test}`{hung}")
        };
        let failed: Vec<_> = self.failed.iter().map(name).collect();
        let passed = self.passed.iter().map(|test| format!("**passes: `{test}`**"));
        let errors = self.errors.iter().map(|_| "**an error**".to_owned());
        let tests: Vec<_> = failed.into_iter().chain(passed).chain(errors).collect();
        let Self { defect, words, without, seconds, .. } = self;
        format!("| {defect}. {words} | {without} | {} | {seconds} |", tests.join(", "))
    }
}

/// Takes one fix out, runs its tests, and puts the fix back. `number` is the place of the edit in the table, for the logs.
///
/// # Errors
/// A sentence with the entry to renew, or a file that cannot be written. Tests that cannot be run are in [`Finding::errors`].
pub async fn find(edit: &Edit, number: usize, cargo: &Cargo, tree: &Path) -> Result<Finding, String> {
    let start = Instant::now();
    let edited = edit.apply(tree)?;
    let mut finding = Finding {
        defect: edit.defect,
        words: edit.words.clone(),
        without: edit.without.clone(),
        failed: Vec::new(),
        hung: Vec::new(),
        passed: Vec::new(),
        errors: Vec::new(),
        seconds: 0,
    };
    for run in &edit.runs {
        match cargo.run(run, &format!("{number:02}")).await {
            Ok(outcomes) => outcomes.into_iter().for_each(|(test, outcome)| match outcome {
                Outcome::Passed => finding.passed.push(test),
                Outcome::Failed => finding.failed.push(test),
                Outcome::Hung => {
                    finding.hung.push(test.clone());
                    finding.failed.push(test);
                }
            }),
            Err(error) => finding.errors.push(error),
        }
    }
    edited.restore()?;
    finding.seconds = start.elapsed().as_secs();
    Ok(finding)
}

/// Runs all named tests of these edits without any edit, once for each target; returns how many passed.
///
/// # Errors
/// A sentence with the tests that do not pass, or the target that cannot be run.
pub async fn baseline(edits: &[&Edit], cargo: &Cargo) -> Result<usize, String> {
    let mut targets: BTreeMap<(&str, &str), BTreeSet<&String>> = BTreeMap::new();
    for TestRun { package, target, tests } in edits.iter().flat_map(|edit| &edit.runs) {
        targets.entry((package, target)).or_default().extend(tests);
    }
    let mut count = 0;
    for ((package, target), tests) in targets {
        let run = TestRun {
            package: package.into(),
            target: target.into(),
            tests: tests.into_iter().cloned().collect(),
        };
        let outcomes = cargo.run(&run, "all-fixes").await?;
        count += outcomes.len();
        let failed: Vec<_> = outcomes.iter().filter(|(_, outcome)| **outcome != Outcome::Passed).collect();
        if !failed.is_empty() {
            return Err(format!(
                "{package}, {target}: expected every test to pass with all fixes, found {failed:?}"
            ));
        }
    }
    Ok(count)
}
