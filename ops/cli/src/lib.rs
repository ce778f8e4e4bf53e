//! The `headwater` command: `demo` runs all tiers on one machine, `up` a site of cameras from one file, `classify` runs photos through all
//! tiers, `trigger` asks a running group for samples, `enroll` makes certificates, `sign` signs bundles, `inspect` shows the contents of a
//! bundle, `policy` shows and changes thresholds and waits, `doctor` looks for mistakes.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! commands        demo  up  trigger  inspect
//! arguments       args
//! commands        classify  enroll  policy  sign  doctor
//! shared          security_args  option_values  progress  shipped
//! ```

pub mod args;
pub mod classify;
pub mod demo;
pub mod doctor;
pub mod enroll;
pub mod inspect;
pub mod option_values;
pub mod policy;
mod progress;
mod security_args;
mod shipped;
pub mod sign;
pub mod trigger;
pub mod up;

use std::fmt::Display;

use anyhow::Context;

/// Arguments that cannot be used; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadUsage(pub String);

/// Writes text to standard output. A reader that closes the pipe early, as `head` does, is no error.
fn print(text: &str) -> anyhow::Result<()> {
    headwater_telemetry::print(text).context("writing to standard output")
}

/// Words for messages about a path where something other than a regular file was found.
fn special_file(kind: std::fs::FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" }
}

/// A text for one line of a terminal, with escaped control characters, which file names and labels may contain.
fn escaped(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A count with its noun, whose plural ends in `s`.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Names with their counts, separated by commas: `cam-0 3, cam-1 4`.
fn named<N: Display, C: Display>(counts: impl IntoIterator<Item = (N, C)>) -> String {
    counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(escaped("a\u{1b}[2J\r\nb \"é\"\\"), r#"a\u{1b}[2J\r\nb "é"\"#);
    }
}
