//! The `headwater` command: `demo` runs all tiers on one machine, `inspect` shows the contents of a bundle.

pub mod args;
pub mod demo;
pub mod inspect;
mod shipped;

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// Arguments that cannot be used; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadUsage(pub String);

/// Writes text to standard output. A reader that closes the pipe, as `head` does, is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to standard output"),
    }
}
