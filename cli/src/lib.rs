//! The `headwater` command: `demo` runs all tiers in one process, `inspect` shows what is in a bundle.
//!
//! The only place besides the tests that imports the services.

pub mod args;
pub mod demo;
pub mod inspect;
mod shipped;

/// The user asked for something that cannot be; the exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadUsage(pub String);
