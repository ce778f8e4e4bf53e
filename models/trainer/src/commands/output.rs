//! Text on standard output and standard error. A reader may close either of them at any time, as `head` does.

use std::io::{ErrorKind, Write, stderr, stdout};

use anyhow::Context;

use super::Failure;

/// Writes text to standard output. A reader that has closed the pipe is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result.context("writing to standard output")?),
    }
}

/// Writes a line to standard error. A failure is ignored, since nobody can be told of it.
pub(crate) fn print_error(line: &str) {
    print_status(&format!("{line}\n"));
}

/// Writes text without the end of a line to standard error.
pub(crate) fn print_status(text: &str) {
    let mut stderr = stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// A word as it is written for a shell: in quotes, unless all of its letters are plain.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,=:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("runs/mine.hwb"), "runs/mine.hwb");
        assert_eq!(quoted("my data"), "'my data'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
