//! Answers in memory: sent on the present connection and not settled, within bounds.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_protocol::{SampleId, SettledNotice};

/// Answers by sample, bounded by count and by age: [`AnswerBuffer::pop_surplus`] gives those beyond. Times are microseconds since
/// the device's start.
#[derive(Debug)]
pub(crate) struct AnswerBuffer {
    pub(crate) answers: BTreeMap<SampleId, BufferedAnswer>,
    max_samples: usize,
    /// Time that a sample has to be settled.
    pub(crate) keep_us: u64,
}

/// An answered sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferedAnswer {
    pub(crate) captured_us: u64,
    /// Time at which the answer was sent.
    pub(crate) sent_us: u64,
    /// The answer: a whole message of the protocol.
    pub(crate) answer: Bytes,
    /// The features that the leader may request; empty if there are none.
    pub(crate) features: Vec<u8>,
}

impl AnswerBuffer {
    pub(crate) fn new(max_samples: usize, keep_ms: u64) -> Self {
        Self { answers: BTreeMap::new(), max_samples, keep_us: keep_ms.saturating_mul(1000) }
    }

    /// Removes the answer of the lowest id if it is too old or the buffer holds too many.
    pub(crate) fn pop_surplus(&mut self, now_us: u64) -> Option<(SampleId, BufferedAnswer)> {
        let is_too_old = self.surplus_from_us().is_some_and(|from_us| from_us <= now_us);
        if is_too_old || self.answers.len() > self.max_samples { self.answers.pop_first() } else { None }
    }

    /// Time from which the answer of the lowest id is too old.
    pub(crate) fn surplus_from_us(&self) -> Option<u64> {
        let (_, first) = self.answers.first_key_value()?;
        Some(first.captured_us.saturating_add(self.keep_us).saturating_add(1))
    }

    /// Removes the samples that the leader reports as settled.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        if let Some(since) = notice.since.filter(|since| *since <= notice.account.highest) {
            self.answers.extract_if(since..=notice.account.highest, |_, _| true).for_each(drop);
        }
        for sample in &notice.late {
            self.answers.remove(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Settled;

    use super::*;

    fn answer(captured_us: u64) -> BufferedAnswer {
        let features = vec![captured_us as u8];
        BufferedAnswer { captured_us, sent_us: captured_us, answer: Bytes::new(), features }
    }

    /// Samples captured at 0 us, 1 us, ..., kept for 10 ms.
    fn buffer_of(samples: u64, max_samples: usize) -> AnswerBuffer {
        let mut buffer = AnswerBuffer::new(max_samples, 10);
        (0..samples).for_each(|id| drop(buffer.answers.insert(SampleId(id), answer(id))));
        buffer
    }

    fn ids(buffer: &AnswerBuffer) -> Vec<u64> {
        buffer.answers.keys().map(|id| id.0).collect()
    }

    fn surplus(buffer: &mut AnswerBuffer, now_us: u64) -> Vec<u64> {
        std::iter::from_fn(|| buffer.pop_surplus(now_us)).map(|(sample, _)| sample.0).collect()
    }

    fn notice(since: Option<u64>, highest: u64, late: &[u64]) -> SettledNotice {
        SettledNotice {
            account: Settled { highest: SampleId(highest), ..Settled::default() },
            since: since.map(SampleId),
            late: late.iter().map(|id| SampleId(*id)).collect(),
        }
    }

    #[test]
    fn the_lowest_ids_are_the_surplus() {
        let mut buffer = buffer_of(5, 3);
        assert_eq!(surplus(&mut buffer, 5), [0, 1]);
        assert_eq!(ids(&buffer), [2, 3, 4]);
    }

    #[test]
    fn answers_that_are_too_old_are_surplus_however_few_there_are() {
        let mut buffer = buffer_of(3, 10);
        assert_eq!(buffer.surplus_from_us(), Some(10_001));
        assert_eq!(surplus(&mut buffer, 10_000), [0; 0]);
        assert_eq!(surplus(&mut buffer, 10_002), [0, 1]);
        assert_eq!(buffer.answers.get(&SampleId(2)), Some(&answer(2)));
        assert_eq!(buffer.answers.get(&SampleId(1)), None);
    }

    #[test]
    fn a_notice_settles_samples_from_its_first_id_on_and_the_late_ones_it_names() {
        let mut buffer = buffer_of(6, 10);
        buffer.settle(&notice(None, 9, &[]));
        assert_eq!(buffer.answers.len(), 6);
        buffer.settle(&notice(Some(2), 3, &[]));
        assert_eq!(ids(&buffer), [0, 1, 4, 5]);
        buffer.settle(&notice(Some(9), 3, &[0, 5, 77]));
        assert_eq!(ids(&buffer), [1, 4]);
    }
}
