//! The `headwater` command: `demo` runs all tiers in one process, `inspect` shows what is in a bundle.
//!
//! The only place besides the tests that imports the services.

pub mod args;
pub mod demo;
pub mod inspect;
mod shipped;

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// The user asked for something that cannot be; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadUsage(pub String);

/// Writes an answer to standard output. A reader that has had enough, as `head` does, is no error.
fn print(answer: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(answer.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to standard output"),
    }
}
