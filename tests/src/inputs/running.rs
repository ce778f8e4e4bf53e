//! Programs that a case runs, with their outputs in files and a limit for every wait.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{CaseFolder, LIMIT};
use crate::programs::http;

/// A running program; killed when dropped.
pub(super) struct Running {
    child: Child,
    output: PathBuf,
    log: PathBuf,
}

impl Running {
    /// Starts a program that reads `input` from its standard input. The files of the program have its name, so a case must not run one
    /// program twice at the same time.
    pub(super) fn start(case: &CaseFolder<'_>, command: &mut Command, input: &[u8]) -> Self {
        let program = command.get_program().to_owned();
        let program = PathBuf::from(program).file_name().map(|name| case.path.join(name)).expect("a program");
        let [input_path, output, log] = ["stdin", "stdout", "stderr"].map(|of| program.with_extension(of));
        fs::write(&input_path, input).expect("the folder can be written");
        command
            .env_remove("RUST_LOG")
            .stdin(File::open(&input_path).expect("was written"))
            .stdout(File::create(&output).expect("the folder can be written"))
            .stderr(File::create(&log).expect("the folder can be written"));
        Self { child: command.spawn().expect("the program starts"), output, log }
    }

    /// Standard error of the program so far.
    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends SIGTERM, and waits for the end.
    pub(super) fn terminate(self) -> Ended {
        let command = format!("kill -TERM {}", self.child.id());
        let _ = Command::new("sh").args(["-c", &command]).status();
        self.ended()
    }

    /// Waits for the end. A program that does not end within [`LIMIT`] is killed.
    pub(super) fn ended(mut self) -> Ended {
        let end = Instant::now() + LIMIT;
        let exit = loop {
            match self.child.try_wait().expect("a child of this process") {
                Some(status) => {
                    break status.code().map_or("exit by a signal".into(), |code| format!("exit {code}"));
                }
                None if Instant::now() >= end => break format!("no end within {} s", LIMIT.as_secs()),
                None => sleep(Duration::from_millis(5)),
            }
        };
        let output = String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned();
        Ended { exit, output, log: self.log() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The error of a program that has ended does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that has ended.
pub(super) struct Ended {
    /// `exit` and the exit code, or the reason why there is no exit code.
    pub(super) exit: String,
    /// Standard output.
    pub(super) output: String,
    /// Standard error.
    pub(super) log: String,
}

impl Ended {
    pub(super) fn text(&self) -> String {
        let Self { exit, output, log } = self;
        format!("{exit}\n{output}{log}")
    }
}

/// Runs a program to its end, and returns exit code and outputs as text.
pub(super) fn ran(case: &CaseFolder<'_>, command: &mut Command) -> String {
    Running::start(case, command, &[]).ended().text()
}

/// Sum of the series whose names begin with `name` at an admin port; 0 without an answer.
pub(super) fn metric(port: u16, name: &str) -> u64 {
    let metrics = http(port, "GET /metrics", "", &[]);
    let values = metrics.lines().filter(|line| line.starts_with(name));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
