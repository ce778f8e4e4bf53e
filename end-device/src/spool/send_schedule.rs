//! Times at which spooled samples are sent late: the lowest ids first, again until they are settled, and a bounded number at once.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;

/// Largest number of samples that are sent late and not yet settled, so that one notice can name them all and the leader is not flooded.
pub(super) const MAX_OUTSTANDING: usize = 256;

/// Time after which a sample that was sent late and is not settled is sent again.
pub(super) const RESEND_US: u64 = 5_000_000;

/// The spool's samples that are not due. A sample in neither map is due.
#[derive(Debug, Default)]
pub(super) struct SendSchedule {
    /// Samples sent in time on the present connection, each with the time at which it becomes due unless it is settled by then.
    in_time: BTreeMap<SampleId, u64>,
    /// Samples sent late on the present connection, each with the time of sending.
    sent_late: BTreeMap<SampleId, u64>,
}

impl SendSchedule {
    /// Makes a sample that was sent in time wait until `due_us`.
    pub(super) fn wait(&mut self, sample: SampleId, due_us: u64) {
        self.in_time.insert(sample, due_us);
    }

    /// Notes that a sample was sent late.
    pub(super) fn sent(&mut self, sample: SampleId, now_us: u64) {
        self.in_time.remove(&sample);
        self.sent_late.insert(sample, now_us);
    }

    /// Makes a sample that was sent late due again, since its message has changed.
    pub(super) fn message_changed(&mut self, sample: SampleId) {
        self.sent_late.remove(&sample);
    }

    /// Removes a sample that is no longer spooled.
    pub(super) fn remove(&mut self, sample: SampleId) {
        self.in_time.remove(&sample);
        self.sent_late.remove(&sample);
    }

    /// Makes all samples due: messages sent on the lost connection may never have arrived.
    pub(super) fn disconnected(&mut self) {
        self.in_time.clear();
        self.sent_late.clear();
    }

    /// The lowest due samples, at most `max_due`. `samples` are all spooled samples in ascending order.
    pub(super) fn due(
        &mut self,
        samples: impl ExactSizeIterator<Item = SampleId>,
        now_us: u64,
        max_due: usize,
    ) -> Vec<SampleId> {
        // Ids grow with time, so the lowest id is due first.
        while self.in_time.first_key_value().is_some_and(|(_, due_us)| *due_us <= now_us) {
            self.in_time.pop_first();
        }
        let mut outstanding = self.sent_late.len();
        let unsent = samples.len().saturating_sub(self.in_time.len() + outstanding);
        let mut to_send = unsent.min(MAX_OUTSTANDING.saturating_sub(outstanding));
        let mut due = Vec::new();
        for sample in samples {
            if due.len() == max_due || outstanding + to_send == 0 {
                break;
            }
            if let Some(sent_us) = self.sent_late.get(&sample) {
                outstanding -= 1;
                if sent_us.saturating_add(RESEND_US) <= now_us {
                    due.push(sample);
                }
            } else if to_send > 0 && !self.in_time.contains_key(&sample) {
                to_send -= 1;
                due.push(sample);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &mut SendSchedule, count: u64, now_us: u64, max_due: usize) -> Vec<u64> {
        let samples: Vec<SampleId> = (0..count).map(SampleId).collect();
        schedule.due(samples.into_iter(), now_us, max_due).into_iter().map(|sample| sample.0).collect()
    }

    #[test]
    fn the_lowest_ids_come_first_and_no_more_than_allowed() {
        let mut schedule = SendSchedule::default();
        assert_eq!(due(&mut schedule, 5, 0, 3), [0, 1, 2]);
        schedule.sent(SampleId(0), 0);
        assert_eq!(due(&mut schedule, 5, 0, 3), [1, 2, 3]);
    }

    #[test]
    fn a_sample_sent_late_is_sent_again_after_a_while() {
        let mut schedule = SendSchedule::default();
        schedule.sent(SampleId(1), 7);
        assert_eq!(due(&mut schedule, 3, RESEND_US + 6, 9), [0, 2]);
        assert_eq!(due(&mut schedule, 3, RESEND_US + 7, 9), [0, 1, 2]);
    }

    #[test]
    fn a_sample_sent_in_time_has_its_time_to_be_settled() {
        let mut schedule = SendSchedule::default();
        schedule.wait(SampleId(0), 100);
        schedule.wait(SampleId(1), 200);
        assert_eq!(due(&mut schedule, 2, 99, 9), [0; 0]);
        assert_eq!(due(&mut schedule, 2, 100, 9), [0]);
        assert_eq!(due(&mut schedule, 2, 200, 9), [0, 1]);
    }

    #[test]
    fn no_more_samples_are_outstanding_than_allowed() {
        let mut schedule = SendSchedule::default();
        let all = MAX_OUTSTANDING as u64 + 9;
        for sample in due(&mut schedule, all, 0, usize::MAX) {
            schedule.sent(SampleId(sample), 0);
        }
        assert_eq!(schedule.sent_late.len(), MAX_OUTSTANDING);
        assert_eq!(due(&mut schedule, all, 1, 9), [0; 0]);
        assert_eq!(due(&mut schedule, all, RESEND_US, 2), [0, 1]);
        schedule.remove(SampleId(3));
        assert_eq!(due(&mut schedule, all, 1, 9), [3], "one was settled, and another may go");
    }

    #[test]
    fn after_a_lost_connection_all_samples_are_due() {
        let mut schedule = SendSchedule::default();
        schedule.wait(SampleId(0), 100);
        schedule.sent(SampleId(1), 0);
        schedule.disconnected();
        assert_eq!(due(&mut schedule, 2, 0, 9), [0, 1]);
    }
}
