//! The process group of a running command, which the agent ends.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two checks of whether a command has ended.
pub(crate) const END_POLL: Duration = Duration::from_millis(20);
/// Time after which a command that was asked to end is killed.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// The running command of a source. The agent ends the command through this value, since the source's thread may wait for the next frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningChild(Arc<Mutex<ChildState>>);

#[derive(Debug, Default)]
struct ChildState {
    /// Id of the process group; `None` before the start and once the group is being ended.
    group: Option<u32>,
    is_closed: bool,
}

impl RunningChild {
    /// Starts a command that has a process group of its own; an error if the device stops.
    pub(crate) fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(io::Error::other("the device stops"));
        }
        let child = command.spawn()?;
        state.group = Some(child.id());
        Ok(child)
    }

    /// Ends all processes of the command: sends SIGTERM, and SIGKILL if a process still runs after [`KILL_AFTER`].
    pub(crate) fn end(&self, mut child: Option<&mut Child>) {
        let Some(group) = self.0.lock().group.take() else { return };
        let until = Instant::now() + KILL_AFTER;
        let mut runs = signal("TERM", group);
        while runs && Instant::now() < until {
            thread::sleep(END_POLL);
            // An ended process belongs to the group until its exit status is taken.
            if let Some(child) = &mut child {
                let _ = child.try_wait();
            }
            runs = signal("0", group);
        }
        if runs {
            signal("KILL", group);
        }
    }

    /// True once the device stops, so that the command is not started again.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Ends the command, which is not started again.
    pub(crate) fn close(&self) {
        self.0.lock().is_closed = true;
        self.end(None);
    }
}

/// Sends a signal to a process group; false if no process is left in it.
fn signal(name: &str, group: u32) -> bool {
    let kill = format!("kill -{name} -{group}");
    Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
