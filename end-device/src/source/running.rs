//! A running source: gives the frame of a sample on request, and events.

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use headwater_protocol::{FrameName, SampleId};
use headwater_samples::archive::Frame;
use tokio::time::{sleep, timeout};

use super::archive::Frames;
use super::faults::FrameFault;
use super::frame_channel::{FrameReceiver, NamedView, SharedProducer, TimedFrame};
#[cfg(feature = "http")]
use super::http::{Snapshot, SnapshotRequests};
use crate::report::SharedReport;

/// Longest wait until the thread of an ended source has finished.
const THREAD_LIMIT: Duration = Duration::from_secs(3);
/// Time between two checks of whether the thread has finished.
const THREAD_POLL: Duration = Duration::from_millis(10);

pub(crate) struct RunningSource {
    pub(crate) kind: RunningKind,
    /// True after [`SourceEvent::Ended`].
    pub(crate) is_over: bool,
    /// True when frames have names.
    pub(crate) names: bool,
}

impl Drop for RunningSource {
    fn drop(&mut self) {
        if let RunningKind::Producer { frames: FrameReceiver::Each(each), .. } = &mut self.kind {
            // The drop of the producer ends the command and waits until the source's thread takes the exit status. This thread must not wait for
            // room in the channel meanwhile.
            each.close();
        }
    }
}

pub(crate) enum RunningKind {
    /// An archive, in which the sample id picks a frame.
    Archive(Frames),
    /// A producer on a separate thread.
    Producer { frames: FrameReceiver, producer: Arc<SharedProducer>, max_age: Duration, report: SharedReport },
    /// A camera that is asked for each frame.
    #[cfg(feature = "http")]
    Snapshots(Box<SnapshotRequests>),
}

pub(crate) enum SourceEvent {
    /// A frame. `capture` is the sample that requested it, with the time of the capture in microseconds since the device's start; `None` if
    /// the frame itself is a sample.
    Frame { capture: Option<(SampleId, u64)>, frame: NamedView },
    /// The source has ended; `is_clean` is false if the source broke off.
    Ended { is_clean: bool },
}

impl RunningSource {
    /// Ends the source, and waits for its thread, which may be stuck in a read of a pipe, at most [`THREAD_LIMIT`].
    pub(crate) async fn end(self) {
        let RunningKind::Producer { producer, .. } = &self.kind else { return };
        let thread = Arc::clone(&producer.thread);
        drop(self);
        let is_over = async {
            while !thread.is_finished() {
                sleep(THREAD_POLL).await;
            }
        };
        let _ = timeout(THREAD_LIMIT, is_over).await;
    }

    /// The frame of a sample that is captured now, and its name if frames have names. `None` for a snapshot, which comes later as an event;
    /// for a missing, stale or frozen frame, which is counted; and for a producer that is over or whose frames are samples.
    #[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "snapshots alone need the time"))]
    pub(crate) fn capture(
        &mut self,
        sample: SampleId,
        captured_us: u64,
    ) -> Option<(Frame<'_>, Option<FrameName>)> {
        match &mut self.kind {
            RunningKind::Archive(frames) => {
                let name = self.names.then(|| frames.name(sample));
                Some((frames.frame(sample), name))
            }
            RunningKind::Producer { frames: FrameReceiver::Newest(newest), max_age, report, .. }
                if !self.is_over =>
            {
                let newest = newest.borrow();
                let Some(TimedFrame { view, came }) = &*newest else {
                    report.count_fault(FrameFault::NONE_YET, "a sample is due and no frame has come yet");
                    return None;
                };
                let age = came.elapsed();
                if age > *max_age {
                    let (age_ms, max_age_ms) = (age.as_millis(), max_age.as_millis());
                    let detail =
                        format_args!("the newest frame came {age_ms} ms ago, max_age_ms is {max_age_ms}");
                    report.count_fault(FrameFault::STALE, detail);
                    return None;
                }
                // A frame without a view is that of a frozen camera, and is counted already.
                view.clone().map(|NamedView { view, name }| (Frame::View(Cow::Owned(view)), name))
            }
            // Frames that are samples themselves answer no other sample, and a producer that is over answers no sample.
            RunningKind::Producer { .. } => None,
            #[cfg(feature = "http")]
            RunningKind::Snapshots(requests) => {
                requests.start(sample, captured_us);
                None
            }
        }
    }

    /// Waits for the next event. Cancelling the wait loses nothing.
    pub(crate) async fn next(&mut self) -> SourceEvent {
        let producer = match &mut self.kind {
            RunningKind::Archive(_) => return pending().await,
            RunningKind::Producer { frames: FrameReceiver::Each(each), producer, .. } => {
                match each.recv().await {
                    Some(frame) => return SourceEvent::Frame { capture: None, frame },
                    None => producer,
                }
            }
            RunningKind::Producer { frames: FrameReceiver::Newest(newest), producer, .. } => {
                while newest.changed().await.is_ok() {}
                producer
            }
            #[cfg(feature = "http")]
            RunningKind::Snapshots(requests) => {
                let Snapshot { capture, frame } = requests.next().await;
                return SourceEvent::Frame { capture: Some(capture), frame };
            }
        };
        self.is_over = true;
        SourceEvent::Ended { is_clean: producer.thread.is_clean() }
    }
}
