//! Commands that start our programs as a user starts them, HTTP requests to the programs, and their logs in files.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_group::start::{Program, find_program};
use headwater_link::Endpoint;
use tokio::time::{sleep, timeout};

use crate::group::WAIT_LIMIT;
use crate::shipped;

const POLL: Duration = Duration::from_millis(20);

/// Longest wait for the next bytes of an answer.
const HTTP_LIMIT: Duration = Duration::from_secs(20);

/// The command of one of our programs.
///
/// # Panics
/// When the program was not built.
pub fn command(program: &str) -> Command {
    Command::new(find_program(program).expect("the programs are built"))
}

/// The command of a device agent or an aggregator for the group `tests/group`.
///
/// # Panics
/// As [`command`].
pub fn service(program: &str, broker: &Endpoint, bundle: &Path) -> Command {
    let mut command = command(program);
    command.args(["--site", "tests", "--group", "group", "--broker-address", &broker.to_string()]);
    command.arg("--bundle").arg(bundle);
    command
}

/// The command of a device for a slot of the group `tests/group`, with the shipped frames. The device in slot 0 has the id `cam-0`.
///
/// # Panics
/// As [`command`].
pub fn device(slot: usize, broker: &Endpoint, bundle: &Path) -> Command {
    let mut command = service("headwater-device", broker, bundle);
    command.args(["--id", &format!("cam-{slot}"), "--slot", &slot.to_string()]);
    command.arg("--source-path").arg(shipped::frames_path());
    command
}

/// Head and body of the answer of an HTTP server on loopback; empty if there is no answer.
pub fn http(port: u16, request: &str, headers: &str, body: &[u8]) -> String {
    let head = format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    let mut answer = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        // A server may answer and close before it has read the whole body.
        let _ = stream.set_read_timeout(Some(HTTP_LIMIT));
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// A file with the log of a program.
#[derive(Debug)]
pub struct Log(PathBuf);

impl Log {
    /// The log `NAME.log` in a folder. [`Log::start`] makes the file.
    pub fn new(folder: &Path, name: &str) -> Self {
        Self(folder.join(format!("{name}.log")))
    }

    /// Starts a program that appends its log to the file.
    ///
    /// # Panics
    /// When the program does not start, or the file cannot be written.
    pub fn start(&self, command: &mut Command) -> Program {
        let file = File::options().append(true).create(true).open(&self.0);
        command.env_remove("RUST_LOG").stdout(Stdio::null()).stderr(file.expect("the folder can be written"));
        Program::start(command).expect("the program starts")
    }

    /// The whole log so far; empty without a file.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// Waits until a line of the log contains all of these parts, and returns the line.
    ///
    /// # Panics
    /// When no such line comes within [`WAIT_LIMIT`].
    pub async fn until(&self, parts: &[&str]) -> String {
        let logged = async {
            loop {
                let text = self.text();
                if let Some(line) = text.lines().find(|line| parts.iter().all(|part| line.contains(part))) {
                    return line.to_owned();
                }
                sleep(POLL).await;
            }
        };
        let line = timeout(WAIT_LIMIT, logged).await;
        line.unwrap_or_else(|_| panic!("{parts:?} in\n{}", self.text()))
    }
}
