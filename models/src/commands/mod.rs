//! The commands of `headwater-train`.

mod progress;
mod train;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Trains the sections and exits of a distributed network together, and ships them as one bundle.
#[derive(Parser)]
#[command(name = "headwater-train", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a network: one loss over every exit, thresholds from the validation part, a bundle at the end.
    Train(train::Train),
}

/// Reads the arguments and runs the command; 0 done, 1 failed, 2 bad usage, spec or recipe.
pub(crate) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Train(command) => command.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("headwater-train: {:#}", failure.error);
            ExitCode::from(failure.code)
        }
    }
}

/// An error with its exit code.
pub(crate) struct Failure {
    error: anyhow::Error,
    code: u8,
}

impl Failure {
    /// What the user asked for cannot be done as it was asked.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { error: error.into(), code: 2 }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), code: 1 }
    }
}
