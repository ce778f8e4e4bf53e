//! Values of options: the rate of samples, and a service of the demo with the time at which it is killed.

use std::str::FromStr;
use std::time::Duration;

use headwater_group::start::Service;

use crate::BadUsage;

/// Samples per second, or as fast as decisions come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Open loop: one sample every `1 / rate` seconds, whether or not decisions come back.
    PerSecond(f64),
    /// Closed loop: at most [`MAX_UNSETTLED`] samples without a decision.
    Max,
}

/// Largest number of samples without a decision at `--rate max`. With fewer, cores idle between bursts; with 128, features miss their
/// window of 50 ms.
pub const MAX_UNSETTLED: usize = 96;

/// Highest open-loop rate, samples per second. A higher rate would measure how fast triggers can be sent, not the system.
const MAX_RATE: f64 = 10_000.0;

/// A service to be killed, and the time of the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// The service: a device, an edge or the cloud.
    pub service: Service,
    /// Time from the first sample to the kill.
    pub at: Duration,
}

impl FromStr for Rate {
    type Err = BadUsage;
    fn from_str(text: &str) -> Result<Self, BadUsage> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match text.parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate <= MAX_RATE => Ok(Self::PerSecond(rate)),
            _ => Err(BadUsage(format!(
                "expected `max` or samples per second above 0 and up to {MAX_RATE}, found {text:?}"
            ))),
        }
    }
}

impl FromStr for Kill {
    type Err = BadUsage;
    fn from_str(text: &str) -> Result<Self, BadUsage> {
        let wrong = || {
            BadUsage(format!(
                "expected SERVICE@TIME such as `cloud@2s`, `device:2@4s`, `edge:0@3s` or `device:0@500ms`, found {text:?}"
            ))
        };
        let (service, at) = text.split_once('@').ok_or_else(wrong)?;
        let service = match service.split_once(':') {
            None if service == "cloud" => Service::Cloud,
            Some(("device", slot)) => Service::Device(index(slot).ok_or_else(wrong)?),
            Some(("edge", edge)) => Service::Edge(index(edge).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        Ok(Self { service, at: duration(at).ok_or_else(wrong)? })
    }
}

fn index<I: TryFrom<u8>>(text: &str) -> Option<I> {
    text.parse().ok().and_then(|index: u8| I::try_from(index).ok())
}

/// Reads a time such as `4s`, `1.5s` or `500ms`, at most an hour; `None` for any other text.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s')?, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * unit_s;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{EdgeIndex, Slot};

    use super::*;

    #[track_caller]
    fn check_kill(text: &str, service: Service, ms: u64) {
        assert_eq!(text.parse::<Kill>().unwrap(), Kill { service, at: Duration::from_millis(ms) });
    }

    #[test]
    fn a_kill_has_a_service_and_a_time() {
        check_kill("cloud@2s", Service::Cloud, 2000);
        check_kill("device:2@4s", Service::Device(Slot::new(2).unwrap()), 4000);
        check_kill("edge:1@1s", Service::Edge(EdgeIndex::new(1).unwrap()), 1000);
        check_kill("device:0@250ms", Service::Device(Slot::new(0).unwrap()), 250);
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
            let error = bad.parse::<Kill>().unwrap_err().to_string();
            assert!(error.contains("SERVICE@TIME") && error.ends_with(&format!("found {bad:?}")), "{error}");
        }
    }

    #[test]
    fn a_rate_is_a_number_above_zero_or_max() {
        assert_eq!("max".parse::<Rate>().unwrap(), Rate::Max);
        assert_eq!("30".parse::<Rate>().unwrap(), Rate::PerSecond(30.0));
        for bad in ["0", "-1", "NaN", "inf", "fast", "20000"] {
            let error = bad.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("up to 10000, found"), "{error}");
        }
    }
}
