//! Faults of frames, counted by kind.

use std::fmt;

use tracing::warn;

use crate::publisher::{SharedReport, lock};

/// Reason for which a source gave no frame. The device sends nothing for the sample, so its slot is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "http"), expect(dead_code, reason = "some faults happen to snapshot URLs alone"))]
pub(crate) enum FrameFault {
    /// The file is no image, or a damaged one.
    Broken,
    /// The file ends in its middle.
    Cut,
    /// The file has more bytes than a frame may have.
    Oversize,
    /// The region of interest lies outside the frame.
    RoiOutside,
    /// Bytes between images belong to none.
    Stray,
    /// The file system or the pipe gives an error.
    Unreadable,
    /// The folder holds more images than a scan takes.
    TooManyFiles,
    /// The newest frame is too old.
    Stale,
    /// No frame has come yet.
    NoneYet,
    /// The camera did not answer in time.
    Timeout,
    /// The camera cannot be connected to, or the connection broke.
    Unreachable,
    /// The camera answered with a status other than 200.
    Status,
    /// The camera answered with a page or another type that is no image.
    NotAnImage,
    /// Too many requests to the camera are unanswered.
    Busy,
}

impl FrameFault {
    /// Label in the report.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Cut => "cut",
            Self::Oversize => "oversize",
            Self::RoiOutside => "roi_outside",
            Self::Stray => "stray_bytes",
            Self::Unreadable => "unreadable",
            Self::TooManyFiles => "too_many_files",
            Self::Stale => "stale",
            Self::NoneYet => "none_yet",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Status => "status",
            Self::NotAnImage => "not_an_image",
            Self::Busy => "busy",
        }
    }
}

/// Counter of faults and frames in the device's report; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FaultCounter {
    report: SharedReport,
}

impl FaultCounter {
    pub(crate) fn new(report: SharedReport) -> Self {
        Self { report }
    }

    /// Counts a fault, and logs the first of each kind.
    pub(crate) fn count(&self, fault: FrameFault, detail: impl fmt::Display) {
        if lock(&self.report).count_frame_fault(fault.code()) {
            warn!(fault = fault.code(), %detail, "no frame; later faults of this kind are only counted");
        }
    }

    /// Counts a frame.
    pub(crate) fn count_frame(&self) {
        lock(&self.report).source_frames += 1;
    }
}
