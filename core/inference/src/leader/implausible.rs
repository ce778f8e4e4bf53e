//! A sentence that says why an id is not plausible.

use std::fmt;

use headwater_protocol::{Numbering, SampleId, Trigger};

use super::clock_offsets::ClockOff;

pub(super) const DAY_MS: u64 = 86_400_000;

const NEW_NUMBERING: &str =
    "begin a new numbering (`headwater-aggregator --new-numbering GROUP`, or `headwater up --new-numbering`)";

/// A sample whose id was refused, with the limit that the id exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implausible {
    /// The refused id.
    pub sample: SampleId,
    pub(super) limit: Limit,
    /// True when the id stays implausible, so that the sample is dropped.
    pub(super) is_final: bool,
}

/// The limit that an id exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Distance of the sample's time from the wall clock.
    Clock { difference_ms: u64, is_behind: bool, max_ms: u64, numbering: Numbering },
    /// Distance of the device's clock from the clocks of its group.
    Group(ClockOff),
    /// A device named an id far ahead of this id, the newest.
    Ahead(SampleId),
    /// A trigger is far ahead of this id, the newest, and no second trigger near it has confirmed it.
    Unconfirmed(SampleId),
    /// A trigger is not above this id, the newest.
    Below(SampleId),
    /// A trigger is above the largest id that triggers may have.
    LastId,
    /// No trigger has numbered a sample yet.
    NoTrigger,
}

impl fmt::Display for Implausible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sample = self.sample;
        match self.limit {
            Limit::Clock { difference_ms, is_behind, max_ms, numbering } => {
                let side = if is_behind { "behind" } else { "ahead of" };
                let (found, max) = (in_words(difference_ms), in_words(max_ms));
                write!(
                    f,
                    "sample {sample}: its clock is {found} {side} the aggregator's, expected at most {max} (numbering: {numbering}): \
                     set the clock that is wrong"
                )
            }
            Limit::Group(ClockOff { ahead_ms, max_ms }) => write!(
                f,
                "sample {sample}: the clock of its device is {} ahead of those of the group, expected at most {} (a quarter of the \
                 period): set it; until then the device is left out",
                in_words(ahead_ms.unsigned_abs()),
                in_words(max_ms.unsigned_abs()),
            ),
            Limit::LastId => {
                write!(f, "sample {sample}: expected an id of at most {}: ids only grow", Trigger::MAX_ID)
            }
            Limit::NoTrigger => write!(
                f,
                "sample {sample}: its answer came before the first trigger, which alone numbers samples"
            ),
            Limit::Unconfirmed(newest) => write!(
                f,
                "sample {sample}: its trigger is more than {} ids after {newest}, the newest known one: it is answered once a second \
                 trigger near it confirms it",
                Trigger::MAX_STEP
            ),
            Limit::Ahead(newest) => write!(
                f,
                "sample {sample}: expected at most {} ids from {newest}, the newest known one: correct its ids, or {NEW_NUMBERING}",
                Trigger::MAX_STEP
            ),
            Limit::Below(newest) => write!(
                f,
                "sample {sample}: expected a trigger above {newest}, the newest known id: ids only grow; correct it, or {NEW_NUMBERING}"
            ),
        }
    }
}

/// A time in its largest unit, rounded down.
fn in_words(ms: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (31_557_600_000, "year"),
        (DAY_MS, "day"),
        (3_600_000, "hour"),
        (60_000, "minute"),
        (1000, "second"),
        (1, "millisecond"),
    ];
    let (unit_ms, name) = UNITS.into_iter().find(|(unit_ms, _)| ms >= *unit_ms).unwrap_or((1, "millisecond"));
    let count = ms / unit_ms;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_its_largest_unit() {
        let times = [0, 1, 999, 1000, 59_999, 60_000, 7_200_000, DAY_MS, 400 * DAY_MS];
        let words = [
            "0 milliseconds",
            "1 millisecond",
            "999 milliseconds",
            "1 second",
            "59 seconds",
            "1 minute",
            "2 hours",
            "1 day",
            "1 year",
        ];
        assert_eq!(times.map(in_words), words);
    }
}
