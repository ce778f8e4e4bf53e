//! Answers that wait for a common message: at high rates several summaries go in one `batch`.
//!
//! ```text
//! first answer             wait over, or 64 answers
//!      |---- more answers ----|
//!                             one message
//! ```
//!
//! The wait is the shorter of the setting `batch_ms` and the time that the leader's notices allow. If the notices name no time, each answer
//! is sent by itself.

use std::collections::BTreeMap;

use headwater_protocol::{Kind, MAX_BATCH_SAMPLES, SampleId};

use crate::answer::Answer;

/// Answers that wait for a common message, by sample. Times are microseconds since the device's start.
#[derive(Debug)]
pub(crate) struct AnswerBatch {
    answers: BTreeMap<SampleId, Answer>,
    /// Time at which the first waiting answer was ready.
    since_us: u64,
    /// Longest wait by the setting `batch_ms`; 0 turns batches off.
    setting_us: u64,
    /// Longest wait that the leader allows; 0 while the leader reads no batches.
    leader_us: u64,
}

impl AnswerBatch {
    pub(crate) fn new(batch_ms: u64) -> Self {
        Self {
            answers: BTreeMap::new(),
            since_us: 0,
            setting_us: batch_ms.saturating_mul(1000),
            leader_us: 0,
        }
    }

    /// Sets the longest wait that the leader allows, in ms; `None` if the leader reads no batches. Returns the new wait in ms; `None` if
    /// the wait has not changed.
    pub(crate) fn set_allowed(&mut self, allowed_ms: Option<u32>) -> Option<u64> {
        let before = self.wait_us();
        self.leader_us = u64::from(allowed_ms.unwrap_or(0)) * 1000;
        Some(self.wait_us()).filter(|wait_us| *wait_us != before).map(|wait_us| wait_us / 1000)
    }

    /// Longest wait by the setting `batch_ms`.
    pub(crate) fn setting_ms(&self) -> u64 {
        self.setting_us / 1000
    }

    /// True while summaries and `not_in_view` wait for a common message.
    pub(crate) fn is_on(&self) -> bool {
        self.wait_us() > 0
    }

    /// True while answers of this kind wait for a common message.
    pub(crate) fn takes(&self, kind: Kind) -> bool {
        self.is_on() && matches!(kind, Kind::Summary | Kind::NotInView)
    }

    /// Adds an answer; returns true when the batch is full.
    pub(crate) fn add(&mut self, answer: Answer, now_us: u64) -> bool {
        if self.answers.is_empty() {
            self.since_us = now_us;
        }
        self.answers.insert(answer.sample, answer);
        self.answers.len() >= MAX_BATCH_SAMPLES
    }

    /// Time at which the answers must be sent; `None` while no answer waits.
    pub(crate) fn due_us(&self) -> Option<u64> {
        (!self.answers.is_empty()).then(|| self.since_us.saturating_add(self.wait_us()))
    }

    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Takes the answers out, in the order of their ids.
    pub(crate) fn take(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers).into_values().collect()
    }

    fn wait_us(&self) -> u64 {
        self.setting_us.min(self.leader_us)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(sample: u64) -> Answer {
        let (message, features) = (Bytes::new(), Vec::new());
        let sample = SampleId(sample);
        Answer { sample, captured_us: 0, sent_us: 0, message, features, is_late: false, passed_over: 0 }
    }

    /// A batch whose setting is 20 ms, under a leader that allows a wait of `allowed_ms`.
    fn batch(allowed_ms: Option<u32>) -> AnswerBatch {
        let mut batch = AnswerBatch::new(20);
        batch.set_allowed(allowed_ms);
        batch
    }

    #[test]
    fn answers_wait_only_while_the_leader_reads_batches() {
        assert!(!batch(None).takes(Kind::Summary), "no notice yet");
        assert!(!batch(Some(0)).takes(Kind::Summary));
        let mut on = batch(Some(9));
        assert!(on.takes(Kind::Summary) && on.takes(Kind::NotInView));
        assert!(!on.takes(Kind::Decided) && !on.takes(Kind::Input));
        assert_eq!((on.set_allowed(Some(9)), on.set_allowed(None)), (None, Some(0)));
        let mut off = AnswerBatch::new(0);
        assert_eq!(off.set_allowed(Some(9)), None);
        assert!(!off.takes(Kind::Summary), "the setting is 0");
    }

    #[test]
    fn the_shorter_wait_counts_from_the_first_answer() {
        for (allowed_ms, wait_us) in [(9, 9_000), (20, 20_000), (99, 20_000)] {
            let mut batch = batch(Some(allowed_ms));
            assert_eq!(batch.due_us(), None);
            batch.add(answer(7), 100);
            batch.add(answer(8), 5_000);
            assert_eq!(batch.due_us(), Some(100 + wait_us));
            batch.set_allowed(None);
            assert_eq!(batch.due_us(), Some(100), "at once");
        }
    }

    #[test]
    fn a_full_batch_says_so_and_gives_its_answers_in_the_order_of_their_ids() {
        let mut batch = batch(Some(20));
        let last = MAX_BATCH_SAMPLES as u64;
        assert!((2..=last).all(|id| !batch.add(answer(id), 5)));
        assert!(batch.add(answer(1), 5));
        assert_eq!(batch.len(), MAX_BATCH_SAMPLES);
        let taken: Vec<u64> = batch.take().into_iter().map(|answer| answer.sample.0).collect();
        assert!(taken.into_iter().eq(1..=last));
        assert_eq!((batch.len(), batch.due_us()), (0, None));
    }
}
