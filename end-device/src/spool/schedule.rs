//! When a spooled sample is sent: late, lowest ids first, again and again until it is settled, and never too many at once.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;

/// Samples that may be sent late and not yet settled: what one notice of the leader can answer, and few enough not to drown it.
pub(super) const MOST_OUTSTANDING: usize = 256;

/// A sample that was sent late and not settled since is sent again after so long.
pub(super) const RESEND_US: u64 = 5_000_000;

/// Which of the spool's samples wait for what; those in neither map are due.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// Sent in time on the present connection: when they are due unless settled by then.
    in_time: BTreeMap<SampleId, u64>,
    /// Sent late on the present connection: when.
    sent_late: BTreeMap<SampleId, u64>,
}

impl Schedule {
    /// A sample that was sent in time has until then to be settled.
    pub(super) fn wait(&mut self, sample: SampleId, due_us: u64) {
        self.in_time.insert(sample, due_us);
    }

    /// A sample was sent late.
    pub(super) fn sent(&mut self, sample: SampleId, now_us: u64) {
        self.in_time.remove(&sample);
        self.sent_late.insert(sample, now_us);
    }

    /// What was sent late must be said anew: it is another message now.
    pub(super) fn anew(&mut self, sample: SampleId) {
        self.sent_late.remove(&sample);
    }

    /// The sample is no longer spooled.
    pub(super) fn forget(&mut self, sample: SampleId) {
        self.in_time.remove(&sample);
        self.sent_late.remove(&sample);
    }

    /// What was sent on an earlier connection may never have arrived.
    pub(super) fn forget_all(&mut self) {
        self.in_time.clear();
        self.sent_late.clear();
    }

    /// The lowest of these `count` samples (all that are spooled, in their order) that are due, at most so many.
    pub(super) fn due(
        &mut self,
        samples: impl Iterator<Item = SampleId>,
        count: usize,
        now_us: u64,
        most: usize,
    ) -> Vec<SampleId> {
        // Ids grow with time, so those that were sent first come first.
        while self.in_time.first_key_value().is_some_and(|(_, due_us)| *due_us <= now_us) {
            self.in_time.pop_first();
        }
        let mut outstanding = self.sent_late.len();
        let waiting = count.saturating_sub(self.in_time.len() + outstanding);
        let mut room = waiting.min(MOST_OUTSTANDING.saturating_sub(outstanding));
        let mut due = Vec::new();
        for sample in samples {
            if due.len() == most || outstanding + room == 0 {
                break;
            }
            if let Some(sent_us) = self.sent_late.get(&sample) {
                outstanding -= 1;
                if sent_us.saturating_add(RESEND_US) <= now_us {
                    due.push(sample);
                }
            } else if room > 0 && !self.in_time.contains_key(&sample) {
                room -= 1;
                due.push(sample);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &mut Schedule, count: u64, now_us: u64, most: usize) -> Vec<u64> {
        let samples = (0..count).map(SampleId);
        schedule.due(samples, count as usize, now_us, most).into_iter().map(|sample| sample.0).collect()
    }

    #[test]
    fn the_lowest_come_first_and_no_more_than_asked() {
        let mut schedule = Schedule::default();
        assert_eq!(due(&mut schedule, 5, 0, 3), [0, 1, 2]);
        schedule.sent(SampleId(0), 0);
        assert_eq!(due(&mut schedule, 5, 0, 3), [1, 2, 3]);
    }

    #[test]
    fn what_was_sent_late_is_sent_again_after_a_while() {
        let mut schedule = Schedule::default();
        schedule.sent(SampleId(1), 7);
        assert_eq!(due(&mut schedule, 3, RESEND_US + 6, 9), [0, 2]);
        assert_eq!(due(&mut schedule, 3, RESEND_US + 7, 9), [0, 1, 2]);
    }

    #[test]
    fn what_was_sent_in_time_has_its_time_to_be_settled() {
        let mut schedule = Schedule::default();
        schedule.wait(SampleId(0), 100);
        schedule.wait(SampleId(1), 200);
        assert_eq!(due(&mut schedule, 2, 99, 9), [0; 0]);
        assert_eq!(due(&mut schedule, 2, 100, 9), [0]);
        assert_eq!(due(&mut schedule, 2, 200, 9), [0, 1]);
    }

    #[test]
    fn no_more_are_outstanding_than_allowed() {
        let mut schedule = Schedule::default();
        let all = MOST_OUTSTANDING as u64 + 9;
        for sample in due(&mut schedule, all, 0, usize::MAX) {
            schedule.sent(SampleId(sample), 0);
        }
        assert_eq!(schedule.sent_late.len(), MOST_OUTSTANDING);
        assert_eq!(due(&mut schedule, all, 1, 9), [0; 0]);
        assert_eq!(due(&mut schedule, all, RESEND_US, 2), [0, 1]);
        schedule.forget(SampleId(3));
        assert_eq!(due(&mut schedule, all, 1, 9), [3], "one was settled, and another may go");
    }

    #[test]
    fn after_a_reconnect_all_are_due() {
        let mut schedule = Schedule::default();
        schedule.wait(SampleId(0), 100);
        schedule.sent(SampleId(1), 0);
        schedule.forget_all();
        assert_eq!(due(&mut schedule, 2, 0, 9), [0, 1]);
    }
}
