//! Points in time as people and programs read them: RFC 3339.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::ids::clipped;

const MS_NS: i128 = 1_000_000;

/// A point in time in UTC, to the millisecond, from 1970 to 9999.
///
/// Its JSON is RFC 3339 with milliseconds and `Z`, such as `2026-11-22T23:45:40.123Z`; no other form is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("format" = "date-time")))]
#[serde(try_from = "String", into = "String")]
pub struct UtcTime(u64);

impl UtcTime {
    /// The last millisecond of the year 9999, the last year that RFC 3339 can write.
    const MAX_MS: u64 = 253_402_300_799_999;

    /// The time `ms` milliseconds after the beginning of 1970; `None` after the year 9999.
    pub const fn from_ms(ms: u64) -> Option<Self> {
        if ms <= Self::MAX_MS { Some(Self(ms)) } else { None }
    }

    /// Milliseconds since the beginning of 1970.
    pub const fn ms(self) -> u64 {
        self.0
    }
}

impl From<SystemTime> for UtcTime {
    /// The time of a clock, rounded down; a time before 1970 becomes the beginning of 1970, a time after 9999 the end of 9999.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX).min(Self::MAX_MS))
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * MS_NS);
        let time = time.map_err(|_| fmt::Error)?;
        let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
        let (hour, minute, second, ms) = time.to_hms_milli();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

impl FromStr for UtcTime {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let ns = OffsetDateTime::parse(text, &Rfc3339).map(OffsetDateTime::unix_timestamp_nanos).ok();
        let time = ns.and_then(|ns| Self::from_ms(u64::try_from(ns / MS_NS).ok()?));
        // The text must be exactly what the time prints: this refuses other offsets, second 60 and a missing `Z`.
        time.filter(|time| time.to_string() == text).ok_or_else(|| TimeError(clipped(text, 80)))
    }
}

impl TryFrom<String> for UtcTime {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Self, TimeError> {
        text.parse()
    }
}

impl From<UtcTime> for String {
    fn from(time: UtcTime) -> Self {
        time.to_string()
    }
}

/// A text that is no time, clipped to 80 characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("time: expected RFC 3339 in UTC with milliseconds, such as 2026-11-22T23:45:40.123Z, found {0:?}")]
pub struct TimeError(String);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(ms: u64, expected: &str) {
        let time = UtcTime::from_ms(ms).unwrap();
        assert_eq!(time.to_string(), expected);
        assert_eq!(expected.parse(), Ok(time));
    }

    #[test]
    fn dates_around_leap_days_and_years_are_right() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_782_399_999, "2000-02-28T23:59:59.999Z");
        check(951_782_400_000, "2000-02-29T00:00:00.000Z");
        check(951_868_800_000, "2000-03-01T00:00:00.000Z");
        check(1_735_689_599_000, "2024-12-31T23:59:59.000Z");
        check(1_795_391_140_123, "2026-11-22T23:45:40.123Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(UtcTime::MAX_MS, "9999-12-31T23:59:59.999Z");
        assert_eq!(UtcTime::from_ms(UtcTime::MAX_MS + 1), None);
    }

    #[test]
    fn only_the_one_form_is_read() {
        for wrong in [
            "",
            "2026-11-22",
            "2026-11-22T23:45:40Z",
            "2026-11-22T23:45:40.123",
            "2026-11-22t23:45:40.123z",
            "2026-11-22T23:45:40.123+00:00",
            "2026-11-22 23:45:40.123Z",
            "2026-02-30T00:00:00.000Z",
            "2100-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-11-22T24:00:00.000Z",
            "2026-11-22T23:45:60.000Z",
            "2026-11-22T23:45:40.1234Z",
            "+026-11-22T23:45:40.123Z",
            "1969-12-31T23:59:59.999Z",
            "é026-11-22T23:45:40.123Z",
        ] {
            assert!(wrong.parse::<UtcTime>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_of_a_clock_is_rounded_down() {
        let clock = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_391_140_123_999);
        assert_eq!(UtcTime::from(clock).ms(), 1_795_391_140_123);
        assert_eq!(UtcTime::from(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).ms(), 0);
    }

    proptest! {
        #[test]
        fn every_time_survives_its_text(ms in 0..=UtcTime::MAX_MS) {
            let time = UtcTime::from_ms(ms).unwrap();
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }
    }
}
