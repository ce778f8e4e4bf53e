//! What the user asked of the demo: how many samples, how fast, and who dies when.

use std::str::FromStr;
use std::time::Duration;

use headwater_protocol::Slot;
use thiserror::Error;

/// Samples a second, or as fast as decisions come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Open loop: a sample every `1 / rate` seconds, whatever comes back.
    PerSecond(f64),
    /// Closed loop: at most [`MOST_UNSETTLED`] samples without a decision.
    Max,
}

/// Samples in flight at `--rate max`: with fewer the cores idle between bursts, with 128 features come after their window of 50 ms.
pub const MOST_UNSETTLED: usize = 96;

/// Highest open-loop rate; beyond it the pacing, not the system, would be measured.
const HIGHEST_RATE: f64 = 10_000.0;

/// Someone to be killed, at a time after the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Who.
    pub victim: Victim,
    /// When.
    pub at: Duration,
}

/// A part of the demo that can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The device in a slot.
    Device(Slot),
    /// An edge of a network with several.
    Edge(usize),
    /// The cloud service.
    Cloud,
}

impl FromStr for Rate {
    type Err = PlanError;
    fn from_str(text: &str) -> Result<Self, PlanError> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= HIGHEST_RATE => Ok(Self::PerSecond(rate)),
            _ => Err(PlanError::Rate(text.into())),
        }
    }
}

impl FromStr for Kill {
    type Err = PlanError;
    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wrong = || PlanError::Kill(text.into());
        let (victim, at) = text.split_once('@').ok_or_else(wrong)?;
        let victim = match victim.split_once(':') {
            None if victim == "cloud" => Victim::Cloud,
            Some(("device", slot)) => Victim::Device(
                slot.parse::<u8>().ok().and_then(|slot| Slot::new(slot).ok()).ok_or_else(wrong)?,
            ),
            Some(("edge", edge)) => Victim::Edge(edge.parse::<u8>().map_err(|_| wrong())?.into()),
            _ => return Err(wrong()),
        };
        Ok(Self { victim, at: duration(at).ok_or_else(wrong)? })
    }
}

/// `4s`, `1.5s` or `500ms`, up to an hour.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit_s;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

/// A demo that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Neither a rate nor `max`.
    #[error("expected `max` or samples a second above 0 and up to 10000, found {0:?}")]
    Rate(String),
    /// Not of the form `VICTIM@TIME`.
    #[error(
        "expected VICTIM@TIME such as `cloud@2s`, `device:2@4s`, `edge:0@3s` or `device:0@500ms`, found {0:?}"
    )]
    Kill(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_kill(text: &str, victim: Victim, ms: u64) {
        assert_eq!(text.parse(), Ok(Kill { victim, at: Duration::from_millis(ms) }));
    }

    #[test]
    fn a_kill_names_its_victim_and_its_time() {
        check_kill("cloud@2s", Victim::Cloud, 2000);
        check_kill("device:2@4s", Victim::Device(Slot::new(2).unwrap()), 4000);
        check_kill("edge:1@1s", Victim::Edge(1), 1000);
        check_kill("device:0@250ms", Victim::Device(Slot::new(0).unwrap()), 250);
        for bad in [
            "",
            "cloud",
            "cloud@",
            "cloud@2",
            "edge@2s",
            "device@2s",
            "device:x@2s",
            "device:64@2s",
            "cloud@-1s",
            "cloud@NaNs",
        ] {
            assert_eq!(bad.parse::<Kill>(), Err(PlanError::Kill(bad.into())));
        }
    }

    #[test]
    fn a_rate_is_a_number_above_zero_or_max() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("30".parse(), Ok(Rate::PerSecond(30.0)));
        for bad in ["0", "-1", "NaN", "inf", "fast", "20000"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
