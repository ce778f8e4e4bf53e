//! What can be wrong with a frame, counted by kind and named once a kind.

use std::fmt;

use tracing::warn;

use crate::outbox::{SharedReport, lock};

/// Why a source gave no frame. The device is silent for the sample: its slot is missing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameFault {
    /// Not an image, or a damaged one.
    Broken,
    /// Ends in its middle.
    Cut,
    /// More bytes than a frame may have.
    Oversize,
    /// The region of interest is outside it.
    RoiOutside,
    /// Bytes between images that belong to none.
    Stray,
    /// The file system or the pipe refused.
    Unreadable,
    /// The folder holds more files than are looked at.
    TooManyFiles,
    /// The newest frame is too old.
    Stale,
    /// No frame has come yet.
    NoneYet,
    /// No answer within the time for it.
    #[cfg(feature = "http")]
    Timeout,
    /// No connection, or one that broke.
    #[cfg(feature = "http")]
    Unreachable,
    /// Another status than 200.
    #[cfg(feature = "http")]
    Status,
    /// The answer says that it is no image.
    #[cfg(feature = "http")]
    NotAnImage,
    /// Too many answers are waited for already.
    #[cfg(feature = "http")]
    Busy,
}

impl FrameFault {
    /// Its name in the report.
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
            #[cfg(feature = "http")]
            Self::Timeout => "timeout",
            #[cfg(feature = "http")]
            Self::Unreachable => "unreachable",
            #[cfg(feature = "http")]
            Self::Status => "status",
            #[cfg(feature = "http")]
            Self::NotAnImage => "not_an_image",
            #[cfg(feature = "http")]
            Self::Busy => "busy",
        }
    }
}

/// Counts faults in the device's report; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    report: SharedReport,
}

impl Faults {
    pub(crate) fn new(report: SharedReport) -> Self {
        Self { report }
    }

    /// Counts a fault, and names the first of its kind.
    pub(crate) fn count(&self, fault: FrameFault, what: impl fmt::Display) {
        let is_first = lock(&self.report).count_frame_fault(fault.code());
        if is_first {
            warn!(fault = fault.code(), %what, "no frame; the next of this kind are only counted");
        }
    }

    /// Counts a frame that came.
    pub(crate) fn count_frame(&self) {
        lock(&self.report).source_frames += 1;
    }
}
