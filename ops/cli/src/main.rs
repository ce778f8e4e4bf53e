//! The `headwater` command.

use std::process::ExitCode;

use clap::Parser;
use headwater::args::{Args, Command};
use headwater_telemetry::{LogFormat, init_logs, print_error};
use headwater_transport::redacted;

/// Exit code for bad usage or configuration; 1 is for a run that failed.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return explain(&error),
    };
    // A site runs for long: what the services warn of is not repeated elsewhere.
    let by_default = if matches!(args.command, Command::Up(_)) { "warn" } else { "error" };
    if let Err(error) = init_logs(args.log.as_deref().unwrap_or(by_default), LogFormat::Text) {
        print_error(&format!("headwater: --log: {error}"));
        return ExitCode::from(BAD_USAGE);
    }
    let result = match &args.command {
        Command::Demo(demo) => headwater::demo::run(demo).map(|()| true),
        Command::Up(up) => headwater::up::run(up),
        Command::Classify(classify) => headwater::classify::run(classify),
        Command::Enroll(enroll) => headwater::enroll::run(enroll).map(|()| true),
        Command::Sign(sign) => headwater::sign::run(sign).map(|()| true),
        Command::Policy(policy) => headwater::policy::run(policy).map(|()| true),
        Command::Trigger(trigger) => headwater::trigger::run(trigger).map(|()| true),
        Command::Doctor(doctor) => headwater::doctor::run(doctor),
        Command::Inspect(inspect) => headwater::inspect::run(inspect).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        // The command has already printed what is wrong.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&format!("headwater: {}", redacted(&format!("{error:#}"))));
            if error.is::<headwater::BadUsage>() { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints the help text, or the mistake in a command line. Passwords in addresses are left out.
fn explain(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let shown = redacted(&text);
    // Help does not repeat the command line, so it contains no password.
    if shown == text || !error.use_stderr() {
        // If the reader has closed the pipe, there is nobody to tell.
        let _ = error.print();
    } else {
        print_error(shown.trim_end());
    }
    if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS }
}
