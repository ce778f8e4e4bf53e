//! Files, cameras, brokers and requests as users have them, each given to the real program, and the text that the program must answer with.
//! `docs/results/inputs.md` has the results.
//!
//! ```text
//! Case: input and program ──> outputs of the program as text ──> parts that the text must have, and parts that it must not have
//! ```

mod brokers;
mod data_sets;
mod frames;
mod pictures;
mod requests;
mod running;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headwater_inference::manifest::Configuration;
use headwater_inference::testing::TinyNetwork;
use headwater_link::Endpoint;
use serde::Serialize;

use crate::group::embedded_broker;

/// The fault of a program that does not handle a kind of input, by kind; the first one is of kind 1.
pub const KINDS: [&str; 12] = [
    "what the MQTT library does not know becomes \"connection lost\"",
    "damage that a decoder forgives is taken as data",
    "data is left out, or changed in meaning, without a count",
    "entries are opened before it is known whether they matter",
    "one bad frame takes good ones with it",
    "too strict with cameras",
    "names that are one to people, or two",
    "requests that are half understood",
    "one tier knows less than another about the same broker",
    "a retained command is taken for a live one",
    "a frozen or covered camera votes for ever",
    "advice of another fault, or a page that promises more than the code",
];

/// An input, and the text that the program with this input must give.
pub struct Case {
    /// Place in [`KINDS`], counted from 1.
    pub kind: usize,
    /// Name of the case, and of the group of its devices.
    pub name: &'static str,
    /// Parts that the text must have. A part that begins with `!` must not be in the text.
    expected: &'static [&'static str],
    /// Gives the input to the program, and returns the outputs of the program as text.
    run: Box<dyn Fn(&CaseFolder<'_>) -> String + Sync>,
}

fn case(
    kind: usize,
    name: &'static str,
    expected: &'static [&'static str],
    run: impl Fn(&CaseFolder<'_>) -> String + Sync + 'static,
) -> Case {
    Case { kind, name, expected, run: Box::new(run) }
}

/// The broker and the bundles that all cases share.
pub struct Shared {
    /// A broker without limits.
    broker: Endpoint,
    /// Bundles with a network of one device that decides alone, and a network of three devices with a cloud.
    bundles: [PathBuf; 2],
}

/// The folder of a running case, and the broker and bundles of all cases.
struct CaseFolder<'a> {
    name: &'static str,
    path: PathBuf,
    shared: &'a Shared,
}

/// Result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Kind of the case.
    pub kind: usize,
    /// Name of the case.
    pub name: &'static str,
    /// Expected parts that are not in `seen`, and parts with `!` that are; empty if the case is right.
    pub wrong: Vec<&'static str>,
    /// Outputs of the program as text.
    pub seen: String,
    /// Seconds that the case took.
    pub seconds: f64,
}

/// Every case, in the order of the kinds.
pub fn cases() -> Vec<Case> {
    let parts = [data_sets::cases(), frames::cases(), brokers::cases(), requests::cases()];
    let mut cases: Vec<_> = parts.into_iter().flatten().collect();
    cases.sort_by_key(|case| case.kind);
    cases
}

impl Shared {
    /// Starts the shared broker, and writes the bundles into a folder.
    ///
    /// # Panics
    /// When the folder cannot be written, or the broker does not start.
    pub fn new(folder: &Path) -> Self {
        let networks = [TinyNetwork::of(Configuration::B), TinyNetwork::default()];
        let bundles = [0, 1].map(|at| {
            let path = folder.join(format!("network-{at}.hwb"));
            fs::write(&path, networks[at].bundle()).expect("the folder can be written");
            path
        });
        Self { broker: embedded_broker(), bundles }
    }
}

impl Case {
    /// Runs the case in a folder of its own below `folder`.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn outcome(&self, shared: &Shared, folder: &Path) -> Outcome {
        let path = folder.join(self.name);
        fs::create_dir_all(&path).expect("the folder can be written");
        let case = CaseFolder { name: self.name, path, shared };
        let begin = Instant::now();
        // A panic has written its message to standard error.
        let seen = catch_unwind(AssertUnwindSafe(|| (self.run)(&case)))
            .unwrap_or_else(|_| "the check itself panicked".into());
        let wrong = self.wrong_in(&seen);
        Outcome { kind: self.kind, name: self.name, wrong, seen, seconds: begin.elapsed().as_secs_f64() }
    }

    fn wrong_in(&self, seen: &str) -> Vec<&'static str> {
        let is_wrong = |part: &&&'static str| match part.strip_prefix('!') {
            Some(part) => seen.contains(part),
            None => !seen.contains(**part),
        };
        self.expected.iter().filter(is_wrong).copied().collect()
    }
}

/// Longest wait for an event of a case. Only a wrong case waits this long.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits until the condition holds or [`LIMIT`] is over.
fn wait(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes a file, and makes the folders above it.
fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a file in a folder")).expect("the folder can be written");
    fs::write(path, bytes).expect("the folder can be written");
}

/// Makes a named pipe in `folder`, and makes the folder.
fn pipe(folder: &Path, name: &str) {
    fs::create_dir_all(folder).expect("the folder can be written");
    let made = Command::new("mkfifo").arg(folder.join(name)).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is a program of every Linux");
}

/// Calls `look` again and again until its text has this part or [`LIMIT`] is over. Returns the last text.
fn until(part: &str, look: impl Fn() -> String) -> String {
    let mut seen = String::new();
    wait(|| {
        seen = look();
        seen.contains(part)
    });
    seen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_protocol::GroupId;

    use super::*;

    #[test]
    fn every_kind_has_cases_and_every_name_is_a_group_and_stands_once() {
        let cases = cases();
        for kind in 1..=KINDS.len() {
            assert!(cases.iter().any(|case| case.kind == kind), "kind {kind}");
        }
        assert!(cases.iter().all(|case| GroupId::new(case.name).is_ok() && !case.expected.is_empty()));
        assert_eq!(cases.iter().map(|case| case.name).collect::<BTreeSet<_>>().len(), cases.len());
    }

    #[test]
    fn a_part_that_is_missing_or_must_not_be_there_is_wrong() {
        let case = case(1, "x", &["exit 0", "!lost"], |_| String::new());
        assert_eq!(case.wrong_in("exit 0, found"), [""; 0]);
        assert_eq!(case.wrong_in("exit 1, lost"), ["exit 0", "!lost"]);
    }
}
