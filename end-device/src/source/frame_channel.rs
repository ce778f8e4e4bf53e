//! Channel of frames from a source's own thread to the agent.

use std::cell::Cell;
use std::fmt;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_protocol::FrameName;
use headwater_samples::View;
use tokio::sync::{mpsc, watch};

use super::faults::{FrameFault, Missing};
use super::running_child::RunningChild;
use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;

/// Frames that may wait for the agent if each frame is a sample; a source with more frames waits.
const MAX_WAITING: usize = 2;

/// Longest single sleep; then the source checks whether the device stops, so that a stop does not wait for the source.
const MAX_SLEEP: Duration = Duration::from_millis(200);

/// A source that produces frames on a separate thread.
pub(crate) trait FrameProducer: Send {
    /// Sends frames until there are no more or the channel is closed.
    ///
    /// # Errors
    /// The reason for which the source broke off.
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String>;

    /// The command that the producer runs; `None` for one that runs none.
    fn child(&self) -> Option<RunningChild> {
        None
    }
}

/// The view of a frame, and the frame's name if the device names its frames.
#[derive(Clone, Debug)]
pub(crate) struct NamedView {
    pub(crate) view: View,
    pub(crate) name: Option<FrameName>,
}

/// A frame with the time at which it came.
#[derive(Debug)]
pub(crate) struct TimedFrame {
    /// `None` for a frame of a frozen camera, which answers nothing.
    pub(crate) view: Option<NamedView>,
    pub(crate) came: Instant,
}

/// The producer's end of the channel.
pub(crate) struct FrameSender {
    channel: SenderKind,
    pub(crate) faults: SharedReport,
    /// Whether frames are named.
    names: bool,
    /// Frames so far, broken ones too.
    frames: Cell<u64>,
}

enum SenderKind {
    Newest(watch::Sender<Option<TimedFrame>>),
    Each(mpsc::Sender<NamedView>),
}

/// The agent's end of the channel.
pub(crate) enum FrameReceiver {
    /// Keeps the newest frame only.
    Newest(watch::Receiver<Option<TimedFrame>>),
    /// Keeps each frame; the producer waits for the agent.
    Each(mpsc::Receiver<NamedView>),
}

impl FrameSender {
    /// Sends the view of a frame of the source `name`, or counts why the frame gives none; false when the channel is closed.
    pub(crate) fn send(&self, name: impl fmt::Display, found: Result<View, Missing>) -> bool {
        self.send_file(name, "", found)
    }

    /// Sends the view of a frame as [`FrameSender::send`] does. `file` is the frame's file, relative to the folder of the source.
    pub(crate) fn send_file(
        &self,
        name: impl fmt::Display,
        file: &str,
        found: Result<View, Missing>,
    ) -> bool {
        let frame = self.frames.replace(self.frames.get() + 1);
        let is_frozen = matches!(found, Err((FrameFault::FROZEN, _)));
        let name_of = |view| NamedView { view, name: self.names.then(|| FrameName::new(frame, file)) };
        let view = self.faults.counted(name, found).map(name_of);
        match (&self.channel, view) {
            (SenderKind::Each(each), Some(view)) => {
                self.faults.count_frame();
                return each.blocking_send(view).is_ok();
            }
            (SenderKind::Newest(newest), Some(view)) => {
                newest.send_replace(Some(TimedFrame { view: Some(view), came: Instant::now() }));
                // Counted last, so that a frame that is counted answers.
                self.faults.count_frame();
            }
            (SenderKind::Newest(newest), None) if is_frozen => {
                newest.send_replace(Some(TimedFrame { view: None, came: Instant::now() }));
            }
            _ => {}
        }
        self.is_open()
    }

    /// Whether the agent's end of the channel is open.
    pub(crate) fn is_open(&self) -> bool {
        match &self.channel {
            SenderKind::Newest(sender) => !sender.is_closed(),
            SenderKind::Each(sender) => !sender.is_closed(),
        }
    }

    /// Sleeps until `due`; false when the channel is closed meanwhile.
    pub(crate) fn sleep_until(&self, due: Instant) -> bool {
        while self.is_open() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(MAX_SLEEP));
        }
        false
    }
}

/// Starts the producer on a thread; `names` says whether it names its frames. The thread returns true if the source came to its end, and
/// false if it broke off.
///
/// # Errors
/// [`DeviceError::Thread`] if the system starts no thread.
pub(crate) fn start(
    producer: Box<dyn FrameProducer>,
    capture: Capture,
    names: bool,
    faults: SharedReport,
) -> Result<(FrameReceiver, JoinHandle<bool>), DeviceError> {
    let (channel, receiver) = match capture {
        Capture::Source => {
            let (sender, receiver) = mpsc::channel(MAX_WAITING);
            (SenderKind::Each(sender), FrameReceiver::Each(receiver))
        }
        Capture::Trigger | Capture::Clock { .. } => {
            let (sender, receiver) = watch::channel(None);
            (SenderKind::Newest(sender), FrameReceiver::Newest(receiver))
        }
    };
    let frames = FrameSender { channel, faults, names, frames: Cell::new(0) };
    // The end of this closure drops the sender and so closes the channel; the agent then joins the thread.
    let run = move || {
        let ended = producer.run(&frames);
        if let Err(reason) = &ended {
            tracing::error!(reason, "the source of frames broke off");
            frames.faults.note_waits(reason.clone());
        }
        ended.is_ok()
    };
    let thread = thread::Builder::new().name("source".into()).spawn(run).map_err(DeviceError::Thread)?;
    Ok((receiver, thread))
}
