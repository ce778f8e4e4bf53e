//! A command whose standard output is the frames of a camera, such as ffmpeg. The command starts with the source and, if the settings say
//! so, again when it ends.
//!
//! ```text
//! sh -c COMMAND    a process group of its own, so that Ctrl-C reaches the device alone
//!   stdout         frames (stream.rs)
//!   stderr         to the log (level debug); its last line is named when the command ends
//! ```

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_transport::redacted;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::frame_channel::{FrameProducer, FrameSender};
use super::running_child::{END_POLL, RunningChild};
use super::stream::FrameStream;
use crate::settings::CommandEnd;

/// Wait before the first restart. Each restart doubles the wait, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Longest wait before a restart. After a run that lasted longer, the wait is [`FIRST_WAIT`] again.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Longest wait until a command that has closed its output ends by itself; then the device ends it.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the end of standard error, which a process outside the command's group may hold open.
const LAST_LINE_LIMIT: Duration = Duration::from_secs(1);
/// Largest number of bytes of standard error that are read as one line.
const MAX_LINE_BYTES: u64 = 4096;
/// Largest number of characters of a line that are logged.
const NAMED_CHARS: usize = 200;

pub(crate) struct CommandSource {
    command: String,
    end: CommandEnd,
    stream: FrameStream,
    child: RunningChild,
}

/// One run of the command that has ended.
struct Ran {
    /// The error is the reason for which the output cannot be read.
    sent: Result<(), String>,
    status: ExitStatus,
    /// Last line of standard error.
    last_line: String,
}

impl CommandSource {
    pub(crate) fn new(command: String, end: CommandEnd, stream: FrameStream) -> Self {
        Self { command, end, stream, child: RunningChild::default() }
    }

    /// Runs the command once and sends its frames.
    fn run_once(&self, frames: &FrameSender) -> io::Result<Ran> {
        let mut command = Command::new("sh");
        command.args(["-c", &self.command]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.child.start(&mut command)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let last_line = Arc::new(Mutex::new(String::new()));
        let reader = stderr.map(|stderr| {
            let last_line = Arc::clone(&last_line);
            thread::spawn(move || read_lines(stderr, &last_line))
        });
        let sent = stdout.map_or(Ok(()), |stdout| self.stream.send_all(stdout, frames));
        let until = Instant::now() + if sent.is_ok() { END_LIMIT } else { Duration::ZERO };
        while frames.is_open() && Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(END_POLL);
        }
        self.child.end(Some(&mut child));
        let status = child.wait()?;
        let until = Instant::now() + LAST_LINE_LIMIT;
        while reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < until {
            thread::sleep(END_POLL);
        }
        let last_line = last_line.lock().clone();
        Ok(Ran { sent, status, last_line })
    }
}

impl FrameProducer for CommandSource {
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        let mut wait = FIRST_WAIT;
        loop {
            let started = Instant::now();
            let ran = self.run_once(frames);
            if !frames.is_open() || self.child.is_closed() {
                return Ok(());
            }
            let Ran { sent, status, last_line } = ran.map_err(|error| format!("starting sh: {error}"))?;
            let succeeded = sent.is_ok() && status.success();
            // If no frame of the output was ever decoded, the output has another format than the settings say, and a restart would not help.
            let is_unusable =
                sent.is_err() && frames.reports().all(|report| report.latest().format.is_none());
            let reason = match sent {
                Err(reason) => reason,
                Ok(()) if last_line.is_empty() => format!("the command ended ({status})"),
                Ok(()) => format!("the command ended ({status}): {last_line}"),
            };
            match self.end {
                CommandEnd::End if succeeded => return Ok(()),
                CommandEnd::Restart if !is_unusable => {}
                CommandEnd::End | CommandEnd::Restart => return Err(reason),
            }
            if started.elapsed() > MAX_WAIT {
                wait = FIRST_WAIT;
            }
            let waits = format!("{reason}; it starts again in {} s", wait.as_secs_f64());
            warn!(reason = waits, "no frames");
            frames.reports().for_each(|report| report.note_waits(waits.clone()));
            if !frames.sleep_until(Instant::now() + wait) {
                return Ok(());
            }
            wait = (2 * wait).min(MAX_WAIT);
        }
    }

    fn child(&self) -> Option<RunningChild> {
        Some(self.child.clone())
    }
}

/// Logs the lines of a command's standard error, and keeps the last line; passwords in addresses are removed.
fn read_lines(stderr: impl Read, last_line: &Mutex<String>) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        // ffmpeg writes its line of progress again and again, with carriage returns between: only the last one is kept.
        let line = line.trim().rsplit('\r').next().unwrap_or_default();
        if line.is_empty() {
            continue;
        }
        let line: String = redacted(line).chars().take(NAMED_CHARS).collect();
        debug!(line, "the command of the source says");
        *last_line.lock() = line;
    }
}
