//! Circuit breaker: after several failures in a row no request goes to the cloud for a while, then one request tries again.
//!
//! The breaker is pure: the caller gives the time and the jitter.

use std::time::Duration;

use headwater_settings::{default, settings};
use tokio::time::Instant;

settings! {
    /// Section `[cloud.breaker]`: when requests to the cloud are suspended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BreakerConfig {
        /// Failures in a row that suspend requests. More failures keep asking a failing cloud; fewer give up after a short disturbance.
        pub failures: u32 = default("5").within(1..=1_000_000),
        /// First wait in ms before a request tries again. The wait doubles with every request that fails.
        pub first_wait_ms: u32 = default("250").within(1..=600_000),
        /// Longest wait in ms before a request tries again.
        pub max_wait_ms: u32 = default("5000").within(1..=600_000),
    }
}

/// Answer of the breaker to a request that is to go to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The request may go.
    Allow,
    /// The request may go, and its outcome decides whether the breaker closes.
    Probe,
    /// The request must not go.
    Refuse,
}

/// The state of the cloud that a request has shown, apart from what became of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The cloud answers; a refusal of a model or client is an answer too.
    Present,
    /// No connection, an error of the server, or no answer to a request that was sent in time.
    Absent,
    /// The request was not sent in time, or ended before its answer was awaited to the end.
    Nothing,
}

/// A breaker with its state.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    state: State,
    /// Number of times that the breaker opened, failed probes included.
    pub(crate) opened: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant, probes: u32 },
    HalfOpen { probes: u32 },
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self { config, state: State::Closed { failures: 0 }, opened: 0 }
    }

    /// Name of the state for the status: `up`, `failing`, or `breaker_open` while requests are suspended.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Closed { failures: 0 } => "up",
            State::Closed { .. } => "failing",
            State::Open { .. } | State::HalfOpen { .. } => "breaker_open",
        }
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Allow,
            State::Open { until, probes } if now >= until => {
                self.state = State::HalfOpen { probes };
                Admission::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => Admission::Refuse,
        }
    }

    /// Notes that a request has ended. `jitter` in `[0, 1]` spreads the probes of many aggregators.
    pub(crate) fn ended(&mut self, admission: Admission, shown: Shown, now: Instant, jitter: f32) {
        self.state = match (self.state, admission, shown) {
            // An answer to a request from before the breaker opened counts too.
            (_, _, Shown::Present) => State::Closed { failures: 0 },
            (State::Closed { failures }, _, Shown::Absent) if failures + 1 < self.config.failures => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. }, _, Shown::Absent) => self.open(now, 0, jitter),
            (State::HalfOpen { probes }, Admission::Probe, Shown::Absent) => {
                self.open(now, probes + 1, jitter)
            }
            // The next request is the probe.
            (State::HalfOpen { probes }, Admission::Probe, Shown::Nothing) => {
                State::Open { until: now, probes }
            }
            // The request is from before the breaker opened, or shows nothing of the cloud.
            (state, _, Shown::Absent | Shown::Nothing) => state,
        };
    }

    /// Opens the breaker for a random 50 to 100 % of the wait. Each failed probe doubles the wait.
    fn open(&mut self, now: Instant, probes: u32, jitter: f32) -> State {
        self.opened += 1;
        let BreakerConfig { first_wait_ms, max_wait_ms, .. } = self.config;
        let wait_ms = first_wait_ms.saturating_mul(1 << probes.min(20)).min(max_wait_ms);
        let wait = Duration::from_millis(u64::from(wait_ms)).mul_f32(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        State::Open { until: now + wait, probes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_config() -> BreakerConfig {
        headwater_settings::defaults::<crate::settings::config::SharedConfig>().cloud.breaker
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn opened_breaker(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(default_config());
        for _ in 0..5 {
            assert_eq!(breaker.admit(now), Admission::Allow);
            breaker.ended(Admission::Allow, Shown::Absent, now, 1.0);
        }
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_the_breaker_and_four_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(default_config());
        for _ in 0..3 {
            (0..4).for_each(|_| breaker.ended(Admission::Allow, Shown::Absent, now, 0.0));
            breaker.ended(Admission::Allow, Shown::Present, now, 1.0);
        }
        assert_eq!(breaker.admit(now), Admission::Allow);
        assert_eq!(opened_breaker(now).admit(now), Admission::Refuse);
    }

    #[test]
    fn after_the_wait_one_request_is_allowed_and_its_success_closes_the_breaker() {
        let now = Instant::now();
        let mut breaker = opened_breaker(now);
        assert_eq!(breaker.admit(now + ms(249)), Admission::Refuse);
        assert_eq!(breaker.admit(now + ms(250)), Admission::Probe);
        assert_eq!(breaker.admit(now + ms(251)), Admission::Refuse, "one probe at a time");
        breaker.ended(Admission::Allow, Shown::Present, now, 1.0);
        assert_eq!(breaker.admit(now + ms(252)), Admission::Allow);
    }

    #[test]
    fn waits_double_with_every_failed_probe_up_to_the_longest_wait() {
        let mut now = Instant::now();
        let mut breaker = opened_breaker(now);
        for expected in [250, 500, 1000, 2000, 4000, 5000, 5000] {
            assert_eq!(breaker.admit(now + ms(expected - 1)), Admission::Refuse, "{expected}");
            now += ms(expected);
            assert_eq!(breaker.admit(now), Admission::Probe, "{expected}");
            breaker.ended(Admission::Probe, Shown::Absent, now, 1.0);
        }
        assert_eq!(breaker.opened, 8);
    }

    #[test]
    fn the_jitter_shortens_a_wait_by_at_most_half() {
        let now = Instant::now();
        let mut breaker = Breaker::new(default_config());
        (0..5).for_each(|_| breaker.ended(Admission::Allow, Shown::Absent, now, 0.0));
        assert_eq!(breaker.admit(now + ms(124)), Admission::Refuse);
        assert_eq!(breaker.admit(now + ms(125)), Admission::Probe);
    }

    #[test]
    fn failures_of_earlier_requests_change_nothing_while_the_breaker_is_open() {
        let now = Instant::now();
        let mut breaker = opened_breaker(now);
        assert_eq!(breaker.admit(now + ms(250)), Admission::Probe);
        breaker.ended(Admission::Allow, Shown::Absent, now + ms(251), 1.0);
        breaker.ended(Admission::Allow, Shown::Present, now, 1.0);
        assert_eq!(breaker.admit(now + ms(252)), Admission::Allow);
    }

    #[test]
    fn a_probe_that_shows_nothing_leaves_the_probe_to_the_next_request() {
        let now = Instant::now();
        let mut breaker = opened_breaker(now);
        let later = now + ms(250);
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.ended(Admission::Probe, Shown::Nothing, later, 1.0);
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.ended(Admission::Probe, Shown::Absent, later, 1.0);
        assert_eq!(breaker.admit(later + ms(499)), Admission::Refuse);
        assert_eq!(breaker.admit(later + ms(500)), Admission::Probe, "the waits double as before");
    }

    #[test]
    fn requests_that_show_nothing_of_the_cloud_open_no_breaker() {
        let now = Instant::now();
        let mut breaker = Breaker::new(default_config());
        (0..100).for_each(|_| breaker.ended(Admission::Allow, Shown::Nothing, now, 1.0));
        assert_eq!((breaker.admit(now), breaker.state_name()), (Admission::Allow, "up"));
    }
}
