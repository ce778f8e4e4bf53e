//! When the settled samples are published.
//!
//! Devices keep their answers until a notice names the samples. A notice costs every device some hundred bytes, so a group that only
//! decides sample after sample publishes five times more rarely than one with news.
//!
//! ```text
//! published ──── every ────> drops, late samples, or many decisions
//!           ──────────────── STEADY x every ────────────────> further decisions
//! ```

use std::time::Duration;

use headwater_protocol::Settled;
use tokio::time::Instant;

/// Interval of a group without news, as a multiple of the shortest one.
const STEADY: u32 = 5;

/// Decisions that are published after the shortest interval. Devices keep 1,024 unsettled answers in memory by default.
const MANY: u64 = 64;

/// Account as last published, and its time.
#[derive(Debug)]
pub(crate) struct SettledSchedule {
    /// Shortest time between two publications.
    every: Duration,
    account: Settled,
    /// `None` before the first publication on a connection.
    published: Option<Instant>,
}

impl SettledSchedule {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, account: Settled::default(), published: None }
    }

    /// Makes the next publication due at once: the broker may have lost the retained one.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.every);
    }

    /// Notes an attempt to publish; `account` is what the link took.
    pub(crate) fn attempted(&mut self, now: Instant, account: Option<Settled>) {
        self.published = Some(now);
        if let Some(account) = account {
            self.account = account;
        }
    }

    /// Time of the next publication: `None` while there is nothing new. `late`: closed samples of late messages that no notice has named.
    pub(crate) fn due(&self, now: Instant, account: &Settled, late: usize) -> Option<Instant> {
        let Some(published) = self.published else { return Some(now) };
        if *account == self.account && late == 0 {
            return None;
        }
        let has_news = late > 0
            || account.dropped != self.account.dropped
            || account.decided.saturating_sub(self.account.decided) >= MANY;
        Some(published + if has_news { self.every } else { STEADY * self.every })
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::{Dropped, SampleId};

    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    fn account(decided: u64, shed: u64) -> Settled {
        let dropped = (shed > 0).then_some((Dropped::Shed, shed)).into_iter().collect();
        Settled { highest: SampleId(decided + shed), decided, dropped }
    }

    /// Time from a publication of this account until that of the other one.
    fn wait(from: &Settled, to: &Settled, late: usize) -> Option<Duration> {
        let (mut schedule, now) = (SettledSchedule::new(EVERY), Instant::now());
        schedule.attempted(now, Some(from.clone()));
        schedule.due(now, to, late).map(|due| due - now)
    }

    #[test]
    fn the_first_account_of_a_connection_is_published_at_once() {
        let (mut schedule, now) = (SettledSchedule::new(EVERY), Instant::now());
        assert_eq!(schedule.due(now, &account(0, 0), 0), Some(now));
        schedule.attempted(now, Some(account(0, 0)));
        assert_eq!(schedule.due(now, &account(0, 0), 0), None);
        schedule.restart();
        assert_eq!(schedule.due(now, &account(0, 0), 0), Some(now));
    }

    #[test]
    fn steady_decisions_are_published_rarely_and_news_soon() {
        let before = account(5, 1);
        assert_eq!(wait(&before, &account(6, 1), 0), Some(STEADY * EVERY));
        assert_eq!(wait(&before, &account(5 + MANY - 1, 1), 0), Some(STEADY * EVERY));
        assert_eq!(wait(&before, &account(5 + MANY, 1), 0), Some(EVERY), "devices hold many answers");
        assert_eq!(wait(&before, &account(5, 2), 0), Some(EVERY), "a drop");
        assert_eq!(wait(&before, &before, 1), Some(EVERY), "a device waits for its late sample");
    }

    #[test]
    fn what_the_link_refused_stays_new() {
        let (mut schedule, now) = (SettledSchedule::new(EVERY), Instant::now());
        schedule.attempted(now, None);
        assert_eq!(schedule.due(now, &account(1, 0), 0), Some(now + STEADY * EVERY));
    }
}
