//! The time of capture that a decision names.

use headwater_protocol::{Numbering, TimeSource, UtcTime};

use super::Leader;
use super::device_answers::DeviceMessage;
use crate::leader::open_sample::OpenSample;
use crate::leader::plausible_ids::EARLIEST_WALL_MS;

impl Leader {
    /// Time of capture of a sample, and the origin of that time: the id if a clock or source made it, else the age of the first answer that
    /// tells it. `None` and [`TimeSource::Unknown`] without either.
    pub(super) fn capture_time(&self, open: &OpenSample) -> (Option<UtcTime>, TimeSource) {
        let (ms, source) = match self.state.plausible_ids.numbering {
            Some(Numbering::Clock { period_ms }) => {
                (open.sample.0.checked_mul(period_ms.into()), TimeSource::Clock)
            }
            Some(Numbering::Source) => (Some(open.sample.0), TimeSource::Source),
            Some(Numbering::Trigger) | None => (open.captured_wall_ms, TimeSource::Age),
        };
        match ms.and_then(UtcTime::from_ms) {
            Some(time) => (Some(time), source),
            None => (None, TimeSource::Unknown),
        }
    }

    /// Time of capture by the leader's wall clock, ms since 1970; `None` for a late message, for an age of `u16::MAX`, and while the wall
    /// clock is not set.
    pub(super) fn captured_wall_ms(&self, message: DeviceMessage) -> Option<u64> {
        let tells_age = !message.late && message.age_ms < u16::MAX;
        (tells_age && self.wall_ms >= EARLIEST_WALL_MS).then(|| self.wall_ms - u64::from(message.age_ms))
    }
}
