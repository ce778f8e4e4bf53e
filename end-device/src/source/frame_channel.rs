//! Channels of frames from a source's own thread to the agents of its slots.

use std::cell::Cell;
use std::fmt;
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_protocol::FrameName;
use headwater_samples::View;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::faults::{FrameFault, Missing};
use super::preprocess::{Preprocessor, SourceFrame, views};
use super::running_child::RunningChild;
use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;

/// Number of frames that may wait for the agent if each frame is a sample; a source with more frames waits.
const MAX_WAITING: usize = 2;

/// Longest single sleep. After each sleep the source checks whether the device stops, so that a stop does not wait for the source.
const MAX_SLEEP: Duration = Duration::from_millis(200);

/// A source that produces frames on a separate thread.
pub(crate) trait FrameProducer: Send {
    /// Sends frames until there are no more or the channel is closed.
    ///
    /// # Errors
    /// The reason for which the source broke off.
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String>;

    /// The command that the producer runs; `None` for a producer without a command.
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
    /// `None` for a frame of a frozen, dark or covered camera, which answers no sample.
    pub(crate) view: Option<NamedView>,
    pub(crate) came: Instant,
}

/// The producer's end of the channels.
pub(crate) struct FrameSender {
    /// Preparation of the view of each slot.
    slots: Vec<Preprocessor>,
    channels: Vec<FrameChannel>,
    /// Number of frames so far, broken ones included.
    frames: Cell<u64>,
}

/// The producer's end of the channel of one slot.
struct FrameChannel {
    kind: SenderKind,
    /// True when frames have names.
    names: bool,
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
    /// Sends to each slot whose agent takes frames the slot's view of a frame, or counts the fault of the frame; returns false once no agent
    /// takes frames. `name` is the name of the source or the file in the log. `file` is the frame's file, relative to the folder of the source;
    /// empty if the frame is no file.
    pub(crate) fn send(
        &self,
        name: impl fmt::Display,
        file: &str,
        found: Result<SourceFrame, Missing>,
    ) -> bool {
        let frame = self.frames.replace(self.frames.get() + 1);
        let slots = self.slots.iter().zip(&self.channels);
        let open: Vec<_> = slots.filter(|(_, channel)| channel.is_open()).collect();
        let views = match found {
            Ok(found) => views(found, open.iter().map(|(slot, _)| *slot)),
            Err(missing) => vec![Err(missing); open.len()],
        };
        for ((slot, channel), found) in open.into_iter().zip(views) {
            let is_frozen = matches!(found, Err((FrameFault::FROZEN, _)));
            let view = slot.report.counted(&name, found);
            let named = |view| NamedView { view, name: channel.names.then(|| FrameName::new(frame, file)) };
            channel.send(view.map(named), is_frozen, &slot.report);
        }
        self.is_open()
    }

    /// The report of each slot's device.
    pub(crate) fn reports(&self) -> impl Iterator<Item = &SharedReport> + Clone {
        self.slots.iter().map(|slot| &slot.report)
    }

    /// True while the agent of at least one slot takes frames.
    pub(crate) fn is_open(&self) -> bool {
        self.channels.iter().any(FrameChannel::is_open)
    }

    /// Sleeps until `due`; returns false if no agent takes frames any more.
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

impl FrameChannel {
    fn is_open(&self) -> bool {
        match &self.kind {
            SenderKind::Newest(sender) => !sender.is_closed(),
            SenderKind::Each(sender) => !sender.is_closed(),
        }
    }

    fn send(&self, view: Option<NamedView>, is_frozen: bool, report: &SharedReport) {
        let has_view = view.is_some();
        match (&self.kind, view) {
            (SenderKind::Each(each), Some(view)) => {
                report.count_frame();
                // The send fails once the agent takes no more frames.
                let _ = each.blocking_send(view);
            }
            (SenderKind::Newest(newest), view) if has_view || is_frozen => {
                newest.send_replace(Some(TimedFrame { view, came: Instant::now() }));
                // The frame is counted after it is sent, so that a counted frame answers samples.
                if has_view {
                    report.count_frame();
                }
            }
            _ => {}
        }
    }
}

/// The times of frames that are played at a rate.
pub(crate) struct Pace {
    due: Instant,
    period: Duration,
}

impl Pace {
    pub(crate) fn new(period: Duration) -> Self {
        Self { due: Instant::now(), period }
    }

    /// Waits for the time of the next frame; returns false if no agent takes frames any more. A player that is behind moves its times to the
    /// present instead of sending a burst.
    pub(crate) fn wait(&mut self, frames: &FrameSender) -> bool {
        let is_open = frames.sleep_until(self.due);
        self.due = (self.due + self.period).max(Instant::now());
        is_open
    }
}

/// A producer of frames for one slot or several. The producer's thread starts when the last slot starts.
pub(crate) struct SharedProducer {
    waiting: Mutex<WaitingProducer>,
    /// The command that gives the frames, which is ended when this value is dropped; `None` without a command.
    child: Option<RunningChild>,
    pub(crate) thread: Arc<SourceThread>,
}

struct WaitingProducer {
    /// `None` once the producer runs.
    producer: Option<Box<dyn FrameProducer>>,
    /// Number of slots that have not started.
    not_started: usize,
    slots: Vec<Preprocessor>,
    channels: Vec<FrameChannel>,
}

/// The thread of a producer.
#[derive(Default)]
pub(crate) struct SourceThread {
    handle: OnceLock<JoinHandle<()>>,
    is_clean: AtomicBool,
}

impl SourceThread {
    pub(crate) fn is_finished(&self) -> bool {
        self.handle.get().is_none_or(JoinHandle::is_finished)
    }

    /// True once the source has come to its end, without breaking off and without a panic of its thread.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_clean.load(Ordering::Acquire)
    }
}

impl SharedProducer {
    /// A producer for one slot.
    pub(crate) fn new(producer: impl FrameProducer + 'static) -> Arc<Self> {
        let child = producer.child();
        let waiting = WaitingProducer {
            producer: Some(Box::new(producer)),
            not_started: 1,
            slots: Vec::new(),
            channels: Vec::new(),
        };
        Arc::new(Self { waiting: Mutex::new(waiting), child, thread: Arc::default() })
    }

    /// Waits for this number of slots instead of one.
    pub(crate) fn share(&self, slots: usize) {
        self.waiting.lock().not_started = slots;
    }

    /// Starts a slot; its frames have names if `names` is true.
    ///
    /// # Errors
    /// [`DeviceError::Thread`] if the system starts no thread.
    pub(crate) fn start(
        &self,
        slot: Preprocessor,
        capture: Capture,
        names: bool,
    ) -> Result<FrameReceiver, DeviceError> {
        let (kind, receiver) = match capture {
            Capture::Source => {
                let (sender, receiver) = mpsc::channel(MAX_WAITING);
                (SenderKind::Each(sender), FrameReceiver::Each(receiver))
            }
            Capture::Trigger | Capture::Clock { .. } => {
                let (sender, receiver) = watch::channel(None);
                (SenderKind::Newest(sender), FrameReceiver::Newest(receiver))
            }
        };
        let mut waiting = self.waiting.lock();
        waiting.slots.push(slot);
        waiting.channels.push(FrameChannel { kind, names });
        waiting.not_started = waiting.not_started.saturating_sub(1);
        if waiting.not_started == 0
            && let Some(producer) = waiting.producer.take()
        {
            let (slots, channels) = (take(&mut waiting.slots), take(&mut waiting.channels));
            let frames = FrameSender { slots, channels, frames: Cell::new(0) };
            let thread = Arc::clone(&self.thread);
            // The end of this closure drops the sender and so closes the channels.
            let run = move || {
                let ended = producer.run(&frames);
                if let Err(reason) = &ended {
                    tracing::error!(reason, "the source of frames broke off");
                    frames.reports().for_each(|report| report.note_waits(reason.clone()));
                }
                thread.is_clean.store(ended.is_ok(), Ordering::Release);
            };
            let handle = thread::Builder::new().name("source".into()).spawn(run);
            let _ = self.thread.handle.set(handle.map_err(DeviceError::Thread)?);
        }
        Ok(receiver)
    }
}

impl Drop for SharedProducer {
    fn drop(&mut self) {
        self.child.iter().for_each(RunningChild::close);
    }
}

#[cfg(test)]
mod tests {
    use headwater_samples::Shape;
    use headwater_samples::roi::{Framing, RawFormat};

    use super::super::preprocess::RawFrames;
    use super::*;

    #[test]
    fn a_slot_that_has_ended_gets_no_views_and_counts_no_frames() {
        let (shape, framing) = (Shape::rgb(2, 2), Framing::default());
        let slot = || Preprocessor { shape, framing, camera: None, report: SharedReport::default() };
        let (slots, reports): (Vec<_>, Vec<_>) =
            [slot(), slot()].into_iter().map(|slot| (slot.clone(), slot.report)).unzip();
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| watch::channel(None)).unzip();
        let channel = |sender| FrameChannel { kind: SenderKind::Newest(sender), names: false };
        let channels = senders.into_iter().map(channel).collect();
        let frames = FrameSender { slots, channels, frames: Cell::new(0) };
        let counts = || -> Vec<_> {
            let reports = reports.iter().map(SharedReport::lock);
            reports.map(|counts| (counts.source_frames, counts.preparation.count())).collect()
        };
        let frame = || {
            let raw = RawFrames { format: RawFormat::Rgb24, size: [2, 2], kind: "raw pixels" };
            Ok(SourceFrame::Raw(vec![7; 12], raw))
        };
        assert!(frames.send("the camera", "", frame()));
        drop(receivers.remove(0));
        assert!(frames.send("the camera", "", frame()));
        assert_eq!(counts(), [(1, 1), (2, 2)]);
        drop(receivers);
        assert!(!frames.send("the camera", "", frame()));
    }
}
