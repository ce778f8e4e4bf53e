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

/// A command line as it is written for a shell: words are in quotes, unless all of their letters are plain.
pub(crate) fn command_line(words: impl IntoIterator<Item = String>) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,=:+@%".contains(letter);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The options that have a value, as words: flag, value, flag, value.
pub(crate) fn options<const N: usize>(all: [(&str, Option<String>); N]) -> Vec<String> {
    all.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten().collect()
}

/// A count with its noun: `1 camera`, `2 cameras`, `3 classes`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["runs/mine.hwb", "my data", "it's $HOME", ""].map(str::to_owned);
        assert_eq!(command_line(words), r"runs/mine.hwb 'my data' 'it'\''s $HOME' ''");
    }

    #[test]
    fn one_thing_is_not_named_as_several() {
        let found = [counted(1, "camera"), counted(0, "camera"), counted(1, "class"), counted(3, "class")];
        assert_eq!(found, ["1 camera", "0 cameras", "1 class", "3 classes"]);
    }
}
