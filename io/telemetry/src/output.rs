//! Text on standard output and standard error. A reader may close either of them at any time, as `head` does.

use std::io::{self, ErrorKind, Write};

/// Writes text to standard output. A reader that has closed the pipe is no error.
///
/// # Errors
/// The system's error for every other failure, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    quiet(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes a line to standard error. A failure is ignored: nobody could be told of it.
pub fn print_error(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The result of a write, without the error of a closed pipe.
fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        drop(reader);
        assert!(quiet(writer.write_all(b"text")).is_ok());
        assert!(quiet(Err(ErrorKind::StorageFull.into())).is_err());
    }
}
