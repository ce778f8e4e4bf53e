//! Progress on stderr: one line that is rewritten in a terminal, one line every few seconds in a log.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The status line of a command.
pub(crate) struct StatusLine {
    terminal: bool,
    shown: Option<Instant>,
}

impl StatusLine {
    /// A status line that shows nothing yet.
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// Shows a status, unless the last one was shown a moment ago.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let every = if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(15) };
        if self.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        self.shown = Some(Instant::now());
        if self.terminal {
            eprint!("\r\x1b[2K{}", text());
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{}", text());
        }
    }

    /// Prints a permanent line.
    pub(crate) fn line(&self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    /// Removes the status from a terminal.
    pub(crate) fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}
