//! A running source, as the agent sees it: it gives the frame of a sample, or has events of its own.

use std::borrow::Cow;
use std::future::pending;
use std::time::Duration;

use headwater_protocol::SampleId;
use headwater_samples::View;
use headwater_samples::archive::Frame;

use super::archive::Frames;
use super::faults::{FaultCounter, FrameFault};
use super::frame_channel::{FrameReceiver, SourceEnd};
#[cfg(feature = "http")]
use super::http::{Snapshot, SnapshotRequests};

/// A running source.
pub(crate) struct RunningSource {
    kind: RunningKind,
    is_over: bool,
}

pub(crate) enum RunningKind {
    /// An archive, in which the sample id picks a frame.
    Archive(Frames),
    /// A producer on a separate thread.
    Producer { frames: FrameReceiver, end: SourceEnd, max_age: Duration, faults: FaultCounter },
    /// A camera that is asked for each frame.
    #[cfg(feature = "http")]
    Snapshots(Box<SnapshotRequests>),
}

/// The frame of a sample that is captured.
pub(crate) enum CapturedFrame<'a> {
    Now(Frame<'a>),
    /// None now. A requested snapshot comes as an event; any other miss is counted.
    LaterOrNever,
}

/// Event of a source.
pub(crate) enum SourceEvent {
    /// A frame that is a sample.
    OwnSample(View),
    /// The requested frame of a sample.
    #[cfg(feature = "http")]
    Snapshot(Snapshot),
    /// The source has ended; clean unless it broke off.
    Ended { is_clean: bool },
}

impl RunningSource {
    pub(crate) fn new(kind: RunningKind) -> Self {
        Self { kind, is_over: false }
    }

    /// True after [`SourceEvent::Ended`].
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The frame of a sample that is captured now.
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "snapshots alone need the time"))]
    pub(crate) fn capture(&mut self, sample: SampleId, captured_us: u64) -> CapturedFrame<'_> {
        match &mut self.kind {
            RunningKind::Archive(frames) => CapturedFrame::Now(frames.frame(sample)),
            RunningKind::Producer { frames: FrameReceiver::Newest(newest), max_age, faults, .. }
                if !self.is_over =>
            {
                let newest = newest.borrow().clone();
                let Some(newest) = newest else {
                    faults.count(FrameFault::NONE_YET, "a sample is due and no frame has come yet");
                    return CapturedFrame::LaterOrNever;
                };
                let age = newest.came.elapsed();
                if age > *max_age {
                    let (age_ms, max_age_ms) = (age.as_millis(), max_age.as_millis());
                    let detail =
                        format_args!("the newest frame came {age_ms} ms ago, max_age_ms is {max_age_ms}");
                    faults.count(FrameFault::STALE, detail);
                    return CapturedFrame::LaterOrNever;
                }
                CapturedFrame::Now(Frame::View(Cow::Owned(newest.view.clone())))
            }
            // Frames that are samples themselves answer no other sample.
            RunningKind::Producer { .. } => CapturedFrame::LaterOrNever,
            #[cfg(feature = "http")]
            RunningKind::Snapshots(requests) => {
                requests.start(sample, captured_us);
                CapturedFrame::LaterOrNever
            }
        }
    }

    /// Waits for the next event. Cancelling the wait loses nothing.
    pub(crate) async fn next(&mut self) -> SourceEvent {
        let end = match &mut self.kind {
            RunningKind::Archive(_) => return pending().await,
            RunningKind::Producer { frames: FrameReceiver::Each(each), end, .. } => match each.recv().await {
                Some(frame) => return SourceEvent::OwnSample(frame.view),
                None => end,
            },
            RunningKind::Producer { frames: FrameReceiver::Newest(newest), end, .. } => {
                while newest.changed().await.is_ok() {}
                end
            }
            #[cfg(feature = "http")]
            RunningKind::Snapshots(requests) => {
                return SourceEvent::Snapshot(requests.next().await);
            }
        };
        self.is_over = true;
        SourceEvent::Ended { is_clean: end.is_clean() }
    }
}
