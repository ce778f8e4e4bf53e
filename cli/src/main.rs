//! The `headwater` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use headwater::args::{Args, Command};

/// Exit code for bad usage or configuration; 1 is for a run that failed.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // The embedded broker logs normal events at error level, such as a client that was killed on purpose.
        .with_env_filter(tracing_subscriber::EnvFilter::new(format!("{},rumqttd=off", args.log)))
        .init();
    let result = match &args.command {
        Command::Demo(demo) => headwater::demo::run(demo),
        Command::Inspect(inspect) => headwater::inspect::run(inspect),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("headwater: {error:#}");
            if error.is::<headwater::BadUsage>() { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
        }
    }
}
