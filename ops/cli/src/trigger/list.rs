//! A list of samples to trigger: a line for each, `ID` or `ID,MS`.
//!
//! ```text
//! # a comment
//! 1200
//! 1204          ids grow
//!
//! 1200,0        or: each with its time in ms after the start
//! 1204,250
//! ```

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;

use crate::BadUsage;

/// Largest number of samples in a list.
const MAX_SAMPLES: usize = 1_000_000;

const MAX_LINE_BYTES: u64 = 256;

/// Latest time of a sample after the start: a week.
const MAX_AT_MS: u64 = 7 * 24 * 3600 * 1000;

/// Listed samples, at least one, with growing ids. Either all of them have a time, or none has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SampleList(pub(super) Vec<ListedSample>);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ListedSample {
    pub(super) id: u64,
    /// Milliseconds after the start of the run; `None` if the list has no times.
    pub(super) at_ms: Option<u64>,
}

impl SampleList {
    /// Reads a file, or standard input for `-`, to its end.
    ///
    /// # Errors
    /// A file that cannot be read; [`BadUsage`] for a mistake, with its line.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Self::read("standard input", io::stdin().lock());
        }
        let file = File::open(path).with_context(|| format!("reading the list {}", path.display()))?;
        Self::read(&path.display().to_string(), BufReader::new(file))
    }

    pub(super) fn read(name: &str, mut lines: impl BufRead) -> anyhow::Result<Self> {
        let mut samples: Vec<ListedSample> = Vec::new();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = lines.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
            if read.with_context(|| format!("reading {name}"))? == 0 {
                break;
            }
            let of_line = |mistake: String| BadUsage(format!("--list: {name}:{number}: {mistake}"));
            if line.len() as u64 > MAX_LINE_BYTES {
                let mistake = format!("expected at most {MAX_LINE_BYTES} bytes in a line, found more");
                return Err(of_line(mistake).into());
            }
            let text = String::from_utf8_lossy(&line);
            // Some editors put a byte order mark before the text.
            let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { &text };
            let Some(sample) = read_line(text).map_err(of_line)? else { continue };
            follows(samples.last(), sample).map_err(of_line)?;
            if samples.len() == MAX_SAMPLES {
                return Err(of_line(format!("expected at most {MAX_SAMPLES} samples, found more")).into());
            }
            samples.push(sample);
        }
        if samples.is_empty() {
            let mistake = format!("--list: {name}: expected a line for each sample, found none");
            return Err(BadUsage(mistake).into());
        }
        Ok(Self(samples))
    }

    /// Returns true when the list has times, so that `--rate` is not used.
    pub(super) fn has_times(&self) -> bool {
        self.0.first().is_some_and(|sample| sample.at_ms.is_some())
    }
}

/// Reads a line; `None` if it is empty or only a comment.
fn read_line(line: &str) -> Result<Option<ListedSample>, String> {
    let text = line.split('#').next().unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || format!("expected `ID` or `ID,MS` in whole numbers, found {text:?}");
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    let (id, at_ms) = match text.split_once(',') {
        Some((id, at_ms)) => (number(id)?, Some(number(at_ms)?)),
        None => (number(text)?, None),
    };
    if let Some(at_ms) = at_ms.filter(|at_ms| *at_ms > MAX_AT_MS) {
        return Err(format!("expected a time up to {MAX_AT_MS} ms after the start, found {at_ms}"));
    }
    Ok(Some(ListedSample { id, at_ms }))
}

/// Checks a sample against the sample before it: ids must grow, times must not fall.
fn follows(before: Option<&ListedSample>, sample: ListedSample) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    if sample.id <= before.id {
        return Err(format!("expected an id above {}, since ids only grow, found {}", before.id, sample.id));
    }
    match (before.at_ms, sample.at_ms) {
        (Some(before), Some(at_ms)) if at_ms < before => {
            Err(format!("expected a time of at least {before} ms, found {at_ms}"))
        }
        (Some(_), None) => Err("expected `ID,MS` as in the lines before, found no time".into()),
        (None, Some(at_ms)) => Err(format!("expected `ID` as in the lines before, found the time {at_ms}")),
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let error = SampleList::read("list", text.as_bytes()).unwrap_err();
        assert!(error.is::<BadUsage>() && error.to_string().contains(expected), "{expected} in {error}");
    }

    #[test]
    fn ids_and_times_are_read_and_comments_passed_over() {
        let ids = |text: &str| {
            SampleList::read("list", text.as_bytes())
                .unwrap()
                .0
                .iter()
                .map(|s| (s.id, s.at_ms))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids("# mine\r\n 7 \r\n\n9 # last\n18446744073709551615"),
            [(7, None), (9, None), (u64::MAX, None)]
        );
        assert_eq!(ids("7,0\n8, 0\n9 ,20\n"), [(7, Some(0)), (8, Some(0)), (9, Some(20))]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        check_refused(
            "7\n\n# x\nseven\n",
            "list:4: expected `ID` or `ID,MS` in whole numbers, found \"seven\"",
        );
        check_refused("7\n-8\n", "list:2: expected `ID` or `ID,MS` in whole numbers, found \"-8\"");
        check_refused("7,1,2\n", "list:1: ");
        check_refused("7\n7\n", "list:2: expected an id above 7, since ids only grow, found 7");
        check_refused("7,5\n8,4\n", "list:2: expected a time of at least 5 ms, found 4");
        check_refused("7,5\n8\n", "list:2: expected `ID,MS` as in the lines before");
        check_refused("7\n8,5\n", "list:2: expected `ID` as in the lines before");
        check_refused("7,604800001\n", "list:1: expected a time up to 604800000 ms");
        check_refused("# nothing\n", "list: expected a line for each sample, found none");
        check_refused(&"7".repeat(300), "list:1: expected at most 256 bytes in a line");
        check_refused("\u{0}\n", "list:1: ");
    }

    #[test]
    fn a_list_is_bounded() {
        let long: String = (0..=MAX_SAMPLES).map(|id| format!("{id}\n")).collect();
        check_refused(&long, "expected at most 1000000 samples");
        let error = SampleList::open(Path::new("/nowhere/list")).unwrap_err();
        assert!(!error.is::<BadUsage>() && error.to_string().contains("/nowhere/list"), "{error}");
    }
}
