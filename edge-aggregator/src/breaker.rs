//! The circuit breaker: after some failures in a row the cloud is left alone for a while, then tried with one request.
//!
//! Pure: the caller says what time it is and how the die fell.

use std::time::Duration;

use tokio::time::Instant;

/// When the breaker opens and how long it stays so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it, at least 1. More asks a sick cloud longer; fewer gives up on a hiccup.
    pub failures: u32,
    /// First wait before a probe, ms. Doubles with every probe that fails.
    pub first_wait_ms: u32,
    /// Longest wait before a probe, ms: the longest that a cloud which is well again goes unused.
    pub longest_wait_ms: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failures: 5, first_wait_ms: 250, longest_wait_ms: 5_000 }
    }
}

/// Whether to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Ask.
    Ask,
    /// Ask; the outcome decides whether the breaker closes.
    Probe,
    /// Do not ask.
    Refuse,
}

/// A breaker and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    state: State,
    opened: u64,
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

    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Ask,
            State::Open { until, probes } if now >= until => {
                self.state = State::HalfOpen { probes };
                Admission::Probe
            }
            State::Open { .. } | State::HalfOpen { .. } => Admission::Refuse,
        }
    }

    /// An answer came in time. One to a request from before the breaker opened says as much as a probe's.
    pub(crate) fn succeeded(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// No answer, or an error. `die` in `[0, 1]` spreads the probes of many aggregators.
    pub(crate) fn failed(&mut self, admission: Admission, now: Instant, die: f32) {
        self.state = match (self.state, admission) {
            (State::Closed { failures }, _) if failures + 1 < self.config.failures => {
                State::Closed { failures: failures + 1 }
            }
            (State::Closed { .. }, _) => self.open(now, 0, die),
            (State::HalfOpen { probes }, Admission::Probe) => self.open(now, probes + 1, die),
            // Requests from before the breaker opened; it knows already.
            (state, _) => state,
        };
    }

    /// How often it opened, failed probes included.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Between half and the whole of the wait, which doubles from probe to probe.
    fn open(&mut self, now: Instant, probes: u32, die: f32) -> State {
        self.opened += 1;
        let BreakerConfig { first_wait_ms, longest_wait_ms, .. } = self.config;
        let wait_ms = first_wait_ms.saturating_mul(1 << probes.min(20)).min(longest_wait_ms);
        let wait = Duration::from_millis(u64::from(wait_ms)).mul_f32(0.5 + 0.5 * die.clamp(0.0, 1.0));
        State::Open { until: now + wait, probes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn opened_at(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..5 {
            assert_eq!(breaker.admit(now), Admission::Ask);
            breaker.failed(Admission::Ask, now, 1.0);
        }
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it_four_do_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..3 {
            (0..4).for_each(|_| breaker.failed(Admission::Ask, now, 0.0));
            breaker.succeeded();
        }
        assert_eq!(breaker.admit(now), Admission::Ask);
        assert_eq!(opened_at(now).admit(now), Admission::Refuse);
    }

    #[test]
    fn after_the_wait_one_request_is_let_through_and_its_success_closes() {
        let now = Instant::now();
        let mut breaker = opened_at(now);
        assert_eq!(breaker.admit(now + ms(249)), Admission::Refuse);
        assert_eq!(breaker.admit(now + ms(250)), Admission::Probe);
        assert_eq!(breaker.admit(now + ms(251)), Admission::Refuse, "one probe at a time");
        breaker.succeeded();
        assert_eq!(breaker.admit(now + ms(252)), Admission::Ask);
    }

    #[test]
    fn waits_double_from_failed_probe_to_failed_probe_up_to_the_longest() {
        let mut now = Instant::now();
        let mut breaker = opened_at(now);
        for expected in [250, 500, 1000, 2000, 4000, 5000, 5000] {
            assert_eq!(breaker.admit(now + ms(expected - 1)), Admission::Refuse, "{expected}");
            now += ms(expected);
            assert_eq!(breaker.admit(now), Admission::Probe, "{expected}");
            breaker.failed(Admission::Probe, now, 1.0);
        }
        assert_eq!(breaker.opened(), 8);
    }

    #[test]
    fn the_die_takes_away_at_most_half_of_a_wait() {
        let now = Instant::now();
        let mut breaker = Breaker::new(BreakerConfig::default());
        (0..5).for_each(|_| breaker.failed(Admission::Ask, now, 0.0));
        assert_eq!(breaker.admit(now + ms(124)), Admission::Refuse);
        assert_eq!(breaker.admit(now + ms(125)), Admission::Probe);
    }

    #[test]
    fn failures_of_requests_from_before_change_nothing_once_it_is_open() {
        let now = Instant::now();
        let mut breaker = opened_at(now);
        assert_eq!(breaker.admit(now + ms(250)), Admission::Probe);
        breaker.failed(Admission::Ask, now + ms(251), 1.0);
        breaker.succeeded();
        assert_eq!(breaker.admit(now + ms(252)), Admission::Ask);
    }
}
