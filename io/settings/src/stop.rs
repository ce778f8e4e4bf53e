//! Ends of a program that come before its start: help, a text that was asked for, mistakes in its settings.

use std::process::ExitCode;

use headwater_telemetry::{print, print_error};
use headwater_transport::redacted;

/// Reason why a program ends before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `--help` or `--version`, with the text to print.
    Help(String),
    /// All mistakes.
    Mistakes(Vec<String>),
}

impl Stop {
    /// The mistakes, or the text of the help as the only entry.
    pub fn into_mistakes(self) -> Vec<String> {
        match self {
            Self::Help(text) => vec![text],
            Self::Mistakes(mistakes) => mistakes,
        }
    }

    /// Prints help on standard output and mistakes on standard error. Returns the exit code: 0 after help, 2 after mistakes, 1 if the help
    /// cannot be written.
    pub fn print(&self, program: &str) -> ExitCode {
        match self {
            Self::Help(text) => print_result(program, text),
            Self::Mistakes(mistakes) => {
                print_error(&mistakes_text(program, mistakes));
                ExitCode::from(2)
            }
        }
    }
}

/// Prints a text that was asked for. Returns exit code 0, or 1 if the text cannot be written; a closed pipe counts as written.
pub fn print_result(program: &str, text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{program}: writing to standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// All mistakes as lines for people. No line repeats a password of an address.
fn mistakes_text(program: &str, mistakes: &[String]) -> String {
    let lines = mistakes.iter().map(|mistake| format!("{program}: {}\n", shortened(&redacted(mistake))));
    format!("{}{program} --help explains every setting", lines.collect::<String>())
}

/// Characters of a mistake that are shown: from the beginning, which names the place, and from the end, which says what to do.
const SHOWN: [usize; 2] = [600, 300];

/// A mistake without the middle of a long value that it repeats.
fn shortened(mistake: &str) -> String {
    let ([begin, end], characters) = (SHOWN, mistake.chars().count());
    if characters <= 2 * (begin + end) {
        return mistake.to_owned();
    }
    let left_out = characters - begin - end;
    let first: String = mistake.chars().take(begin).collect();
    let last: String = mistake.chars().skip(begin + left_out).collect();
    format!("{first} ... {left_out} characters ... {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_repeated_in_part() {
        let short = "x".repeat(1800);
        assert_eq!(shortened(&short), short);
        let long = format!("log.filter: {}: expected a level", "é".repeat(100_000));
        let shown = shortened(&long);
        assert!(shown.starts_with("log.filter: ") && shown.ends_with(": expected a level"), "{shown}");
        assert!(shown.chars().count() < 1000 && shown.contains("characters ..."), "{shown}");
    }

    #[test]
    fn no_printed_mistake_repeats_a_password() {
        let mistakes = [
            "unexpected argument 'mqtt://user:s3cret@host' found".to_owned(),
            "TOML parse error at line 1\n  | address = \"mqtt://user:s3cret@host".to_owned(),
        ];
        let text = mistakes_text("headwater-device", &mistakes);
        assert!(!text.contains("s3cret") && text.matches("mqtt://***@host").count() == 2, "{text}");
        assert!(text.ends_with("\nheadwater-device --help explains every setting"), "{text}");
    }
}
