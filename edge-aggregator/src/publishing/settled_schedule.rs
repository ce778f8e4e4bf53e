//! Schedule of the publications of settled samples.
//!
//! Devices keep their answers until a notice names the samples. A notice costs every device some hundred bytes. So a few decisions alone
//! wait five times as long for a notice as drops, late samples or many decisions.
//!
//! ```text
//! published ──── interval ─> drops, late samples, or many decisions
//!           ──────────────── STEADY_FACTOR x interval ────────────────> further decisions
//! ```

use std::time::Duration;

use headwater_inference::leader::Micros;
use headwater_protocol::Settled;
use serde::{Deserialize, Serialize};

/// Interval if only a few decisions are new, as a multiple of the shortest interval.
const STEADY_FACTOR: u32 = 5;

/// Unpublished decisions at which the shortest interval holds. Devices keep 1,024 unsettled answers in memory by default.
const MANY_DECISIONS: u64 = 64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SettledSchedule {
    /// Shortest time between two publications.
    interval: Duration,
    pub(crate) last: LastPublication,
}

/// Account that was published last, and the time of the last attempt to publish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastPublication {
    account: Settled,
    /// Time of the last attempt; `None` before the first one on a connection.
    published: Option<Micros>,
}

impl SettledSchedule {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: LastPublication::default() }
    }

    /// Makes the next publication due at once: the broker may have lost the retained notice.
    pub(crate) fn restart(&mut self) {
        self.last = LastPublication::default();
    }

    /// Notes an attempt to publish. `account` is the published account; `None` if the link refused the message.
    pub(crate) fn note_attempt(&mut self, now: Micros, account: Option<Settled>) {
        self.last.published = Some(now);
        if let Some(account) = account {
            self.last.account = account;
        }
    }

    /// Time of the next publication; `None` while there is nothing new. `others` is the number of late samples, and of
    /// other news, that no notice has named yet.
    pub(crate) fn due(&self, now: Micros, account: &Settled, others: usize) -> Option<Micros> {
        let Some(published) = self.last.published else { return Some(now) };
        if *account == self.last.account && others == 0 {
            return None;
        }
        let has_news = others > 0
            || account.dropped != self.last.account.dropped
            || account.decided.saturating_sub(self.last.account.decided) >= MANY_DECISIONS;
        Some(published + if has_news { self.interval } else { self.interval * STEADY_FACTOR })
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{Dropped, SampleId};

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn account(decided: u64, shed: u64) -> Settled {
        let dropped = (shed > 0).then_some((Dropped::Shed, shed)).into_iter().collect();
        Settled { highest: SampleId(decided + shed), decided, dropped }
    }

    /// Time from the publication of the account `from` until the publication of `to` is due.
    fn wait(from: &Settled, to: &Settled, late: usize) -> Option<Duration> {
        let (mut schedule, now) = (SettledSchedule::new(INTERVAL), Micros(0));
        schedule.note_attempt(now, Some(from.clone()));
        schedule.due(now, to, late).map(|due| Duration::from_micros(due.since(now)))
    }

    #[test]
    fn the_first_account_of_a_connection_is_published_at_once() {
        let (mut schedule, now) = (SettledSchedule::new(INTERVAL), Micros(0));
        assert_eq!(schedule.due(now, &account(0, 0), 0), Some(now));
        schedule.note_attempt(now, Some(account(0, 0)));
        assert_eq!(schedule.due(now, &account(0, 0), 0), None);
        schedule.restart();
        assert_eq!(schedule.due(now, &account(0, 0), 0), Some(now));
    }

    #[test]
    fn steady_decisions_are_published_rarely_and_news_soon() {
        let before = account(5, 1);
        assert_eq!(wait(&before, &account(6, 1), 0), Some(STEADY_FACTOR * INTERVAL));
        assert_eq!(wait(&before, &account(5 + MANY_DECISIONS - 1, 1), 0), Some(STEADY_FACTOR * INTERVAL));
        assert_eq!(
            wait(&before, &account(5 + MANY_DECISIONS, 1), 0),
            Some(INTERVAL),
            "devices hold many answers"
        );
        assert_eq!(wait(&before, &account(5, 2), 0), Some(INTERVAL), "a drop");
        assert_eq!(wait(&before, &before, 1), Some(INTERVAL), "a device waits for its late sample");
    }

    #[test]
    fn what_the_link_refused_stays_new() {
        let (mut schedule, now) = (SettledSchedule::new(INTERVAL), Micros(0));
        schedule.note_attempt(now, None);
        assert_eq!(schedule.due(now, &account(1, 0), 0), Some(now + STEADY_FACTOR * INTERVAL));
    }
}
