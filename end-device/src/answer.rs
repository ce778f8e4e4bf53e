//! The answer of a device to one sample. The device keeps the answer, in memory or in the spool, until the leader settles the sample.

use bytes::Bytes;
use headwater_protocol::{FrameName, SampleId};

use crate::timestamp::Timestamp;

/// A captured sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) sample: SampleId,
    /// Time of the capture, microseconds since the device's start.
    pub(crate) captured_us: u64,
    /// Name of the frame; `None` if the device does not name its frames, or if the source has no names.
    pub(crate) frame: Option<FrameName>,
}

/// An answered sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sample: SampleId,
    /// Time of the capture, microseconds since the device's start; negative if an earlier process captured the sample.
    pub(crate) captured_us: i64,
    /// Time of the latest try to send the answer, microseconds since the device's start; 0 for an answer read from the spool.
    pub(crate) sent_us: u64,
    /// The answer as an encoded message of the protocol, header included.
    pub(crate) message: Bytes,
    /// The features that the leader may request; empty if there are none.
    pub(crate) features: Vec<u8>,
    /// True if messages of this answer are marked late.
    pub(crate) is_late: bool,
    /// Number of the leader's notices that passed the sample over since the answer was sent.
    pub(crate) passed_over: u8,
}

/// Age of a sample when a message about it is sent, and whether the message is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// Milliseconds since the capture, as the header carries them: at most 65,535.
    pub(crate) ms: u16,
    /// True for a message that is marked late: it is sent after the sample's time.
    pub(crate) is_late: bool,
}

impl Answer {
    pub(crate) fn age(&self, now: Timestamp) -> Age {
        Age { ms: now.age_ms(self.captured_us), is_late: self.is_late }
    }
}
