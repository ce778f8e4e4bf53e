//! The `headwater` command.

use std::process::ExitCode;

use clap::Parser;
use headwater::args::{Args, Command};
use headwater_telemetry::{LogFormat, init_logs};

/// Exit code for bad usage or configuration; 1 is for a run that failed.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = init_logs(&args.log, LogFormat::Text) {
        eprintln!("headwater: --log: {error}");
        return ExitCode::from(BAD_USAGE);
    }
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
