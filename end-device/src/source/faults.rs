//! Faults of frames, counted by kind.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fmt, mem};

use tracing::{info, warn};

use crate::report::{SharedReport, count_first};

/// Number of faults in a row after which a frozen camera counts as away. A slow camera gives a few faults between two frames.
const MAX_AWAY_FAULTS: u64 = 10;

/// Reason for which a source gave no frame. The device sends nothing for the sample, so its slot is missing.
///
/// The text is the label in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameFault(&'static str);

/// The fault of a missing frame, and a text about what was found.
pub(crate) type Missing = (FrameFault, String);

#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "some faults happen to snapshot URLs alone"))]
impl FrameFault {
    /// The file is no image, or a damaged one.
    pub(crate) const BROKEN: Self = Self("broken");
    /// The file ends before its image does.
    pub(crate) const CUT: Self = Self("cut");
    /// The file has more bytes or pixels than a frame may have, or needs too much memory.
    pub(crate) const OVERSIZE: Self = Self("oversize");
    /// The region of interest lies outside the frame.
    pub(crate) const ROI_OUTSIDE: Self = Self("roi_outside");
    /// Bytes of a stream belong to no image, or to an image whose structure is broken.
    pub(crate) const STRAY: Self = Self("stray_bytes");
    /// The file system or the pipe gives an error.
    pub(crate) const UNREADABLE: Self = Self("unreadable");
    /// The folder holds more images or folders than a scan lists.
    pub(crate) const TOO_MANY_FILES: Self = Self("too_many_files");
    /// The newest frame is too old.
    pub(crate) const STALE: Self = Self("stale");
    /// No frame has come yet.
    pub(crate) const NONE_YET: Self = Self("none_yet");
    /// The camera did not answer in time.
    pub(crate) const TIMEOUT: Self = Self("timeout");
    /// The camera cannot be connected to.
    pub(crate) const UNREACHABLE: Self = Self("unreachable");
    /// The camera was reached, but its answer cannot be read.
    pub(crate) const BAD_ANSWER: Self = Self("bad_answer");
    /// The camera answered with an HTTP status other than success, such as a refusal or a redirect.
    pub(crate) const STATUS: Self = Self("status");
    /// The camera answered with a page or other bytes that hold no image.
    pub(crate) const NOT_AN_IMAGE: Self = Self("not_an_image");
    /// The camera is frozen, dark or covered.
    pub(crate) const FROZEN: Self = Self("frozen");
    /// Too many requests to the camera are unanswered.
    pub(crate) const BUSY: Self = Self("busy");

    /// Faults of a camera that gives no frames.
    const AWAY: [Self; 7] = [
        Self::STALE,
        Self::UNREADABLE,
        Self::TIMEOUT,
        Self::UNREACHABLE,
        Self::BAD_ANSWER,
        Self::STATUS,
        Self::NOT_AN_IMAGE,
    ];
}

impl SharedReport {
    /// Counts a missing frame, and logs the first fault of each kind. A camera that is away does not count as frozen any more.
    pub(crate) fn count_fault(&self, fault: FrameFault, detail: impl fmt::Display) {
        let away_faults = {
            let mut latest = self.latest();
            match fault {
                FrameFault::FROZEN => (latest.away_faults, latest.waits) = (0, None),
                _ => latest.away_faults += u64::from(FrameFault::AWAY.contains(&fault)),
            }
            latest.away_faults
        };
        if away_faults >= MAX_AWAY_FAULTS && self.set_frozen(None) {
            info!(
                device = self.device(),
                fault = fault.0,
                "the camera gives no frames any more, so it is away and not frozen"
            );
        }
        if count_first(&mut self.lock().frame_faults, fault.0) {
            let device = self.device();
            warn!(device, fault = fault.0, %detail, "no frame; later faults of this kind are only counted");
        }
    }

    /// Returns the frame, or counts the fault of a missing frame; `name` is the name of the source or the file in the log.
    pub(crate) fn counted<T>(&self, name: impl fmt::Display, found: Result<T, Missing>) -> Option<T> {
        found.map_err(|(fault, detail)| self.count_fault(fault, format_args!("{name}: {detail}"))).ok()
    }

    /// Sets the reason for which no sample is answered with the camera's frames; `None` if samples are answered or no frames come. Returns
    /// true if the reason has changed.
    pub(crate) fn set_frozen(&self, reason: Option<String>) -> bool {
        self.frozen.send_if_modified(|known| mem::replace(known, reason) != *known)
    }

    /// Notes the entries that the latest scan of a folder passed over, and logs the first entry of each reason.
    pub(crate) fn note_passed_over(&self, passed_over: &BTreeMap<&'static str, (u64, PathBuf)>) {
        let mut counts = mem::take(&mut self.lock().passed_over);
        // A reason that was logged stays in the map, with the count 0, so that it is not logged again.
        counts.values_mut().for_each(|count| *count = 0);
        for (reason, (count, path)) in passed_over {
            if counts.insert(reason, *count).is_none() {
                let device = self.device();
                warn!(device, reason, count, path = %path.display(), "entries of the folder are passed over; only counted from now on");
            }
        }
        self.lock().passed_over = counts;
    }

    /// Counts a frame, and ends the run of faults and the reason for which no frames come.
    pub(crate) fn count_frame(&self) {
        self.lock().source_frames += 1;
        let mut latest = self.latest();
        (latest.away_faults, latest.waits) = (0, None);
    }

    /// Notes size and format of the first frame that can be decoded.
    pub(crate) fn note_format(&self, [width, height]: [u32; 2], kind: &str) {
        self.latest().format.get_or_insert_with(|| format!("{width}x{height} {kind}"));
    }

    /// Notes the reason for which no frames come now; the next frame removes the reason.
    pub(crate) fn note_waits(&self, reason: String) {
        self.latest().waits = Some(reason);
    }
}
