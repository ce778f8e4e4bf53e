//! Answers that are not settled: the recent ones in memory, the others in the spool.
//!
//! ```text
//!            sent
//! answered ---------> memory ------------------------> settled
//!     |                 | too old, too many,              ^
//!     |                 v connection lost                 |
//!     +--------------> spool -----------------------------+
//!       not sent             sent late until settled
//! ```
//!
//! A spool of no bytes (`max_bytes = 0`) holds no answers. Answers that could not be sent or exceed the bounds of memory are given up, and
//! the spool reports their ids to the leader.
//!
//! An answer in memory that the leader's notices pass over is sent again, marked late: its message may have been lost although the
//! connection lives.

use std::borrow::Cow;
use std::collections::BTreeMap;

use headwater_protocol::{SampleId, SettledNotice};
use tracing::warn;

use crate::answer::Answer;
use crate::report::DeviceCounts;
use crate::spool::Spool;
use crate::timestamp::Timestamp;

/// Answers that are not settled.
#[derive(Debug)]
pub(crate) struct UnsettledAnswers {
    pub(crate) memory: AnswerBuffer,
    pub(crate) spool: Spool,
}

/// Answers by sample, bounded by count and by age: [`AnswerBuffer::pop_surplus`] removes the answers beyond these bounds. Times are
/// microseconds since the device's start.
#[derive(Debug)]
pub(crate) struct AnswerBuffer {
    pub(crate) answers: BTreeMap<SampleId, Answer>,
    max_samples: usize,
    /// Time after which an unsettled answer leaves memory.
    pub(crate) keep_us: u64,
}

/// Number of notices that may pass a sample over before its answer is sent again: the first message may still be on the way.
const MAX_PASSED_OVER: u8 = 2;

/// Shortest time after which an answer is sent again: the leader needs time to decide the sample.
const SEND_AGAIN_US: u64 = 2_000_000;

/// Largest number of answers that are sent again for one notice.
const MAX_SENT_AGAIN: usize = 64;

impl UnsettledAnswers {
    /// Writes the numbers of kept answers to `counts`; `waiting` further answers wait for a common message.
    pub(crate) fn note(&self, waiting: usize, counts: &mut DeviceCounts) {
        counts.kept_samples = (self.memory.answers.len() + waiting) as u64;
        (counts.spooled, counts.spool_bytes) = (self.spool.len() as u64, self.spool.bytes());
    }

    /// Keeps an answer that was sent just now.
    pub(crate) fn keep_sent(&mut self, answer: Answer, now: Timestamp) {
        self.memory.answers.insert(answer.sample, answer);
        self.spool_surplus(now);
    }

    /// Keeps an answer that could not be sent; returns false when the spool holds no answers (`max_bytes = 0`).
    pub(crate) fn keep_unsent(&mut self, answer: &Answer, now: Timestamp) -> bool {
        self.spool.put(answer, now, None);
        self.spool.holds_answers()
    }

    /// Moves the answers that exceed the bounds of memory to the spool.
    pub(crate) fn spool_surplus(&mut self, now: Timestamp) {
        while let Some(answer) = self.memory.pop_surplus(now.us) {
            self.spool_sent(&answer, now);
        }
    }

    /// Moves all answers to the spool, which sends them late unless they are settled before.
    pub(crate) fn spool_memory(&mut self, now: Timestamp) {
        while let Some((_, answer)) = self.memory.answers.pop_first() {
            self.spool_sent(&answer, now);
        }
    }

    fn spool_sent(&mut self, answer: &Answer, now: Timestamp) {
        self.spool.put(answer, now, Some(answer.sent_us.saturating_add(self.memory.keep_us)));
    }

    /// Moves all answers to the spool, since sent messages may never have arrived. Without a spool (`max_bytes = 0`) the answers stay in memory.
    pub(crate) fn disconnected(&mut self, now: Timestamp) {
        self.spool.disconnected();
        if self.spool.holds_answers() {
            while let Some((_, answer)) = self.memory.answers.pop_first() {
                self.spool.put(&answer, now, None);
            }
        }
    }

    /// Moves all answers to a spool on disk at shutdown, for the next start. A spool in memory is lost, which is logged.
    pub(crate) fn close(&mut self, now: Timestamp) {
        if self.spool.is_on_disk() {
            self.disconnected(now);
        } else if self.spool.len() > 0 {
            warn!(
                samples = self.spool.len(),
                "unsent samples are lost with this process: without a state folder the spool is in memory"
            );
        }
    }

    /// Removes the samples that the leader reports as settled.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        self.memory.settle(notice);
        self.spool.settle(notice);
    }

    /// The answer to a sample, from memory or the spool; `None` if neither has it.
    pub(crate) fn answer(&mut self, sample: SampleId, now: Timestamp) -> Option<Cow<'_, Answer>> {
        match self.memory.answers.get(&sample) {
            Some(answer) => Some(Cow::Borrowed(answer)),
            None => self.spool.read(sample, now).map(Cow::Owned),
        }
    }

    /// True when every answer is settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.answers.len() + self.spool.len() == 0
    }
}

impl AnswerBuffer {
    pub(crate) fn new(max_samples: usize, keep_ms: u64) -> Self {
        Self { answers: BTreeMap::new(), max_samples, keep_us: keep_ms.saturating_mul(1000) }
    }

    /// Removes the answer of the lowest id if this answer is too old, or if the buffer holds too many answers.
    pub(crate) fn pop_surplus(&mut self, now_us: u64) -> Option<Answer> {
        let is_too_old = self.surplus_from_us().is_some_and(|from_us| from_us <= now_us);
        let is_surplus = is_too_old || self.answers.len() > self.max_samples;
        if is_surplus { self.answers.pop_first().map(|(_, answer)| answer) } else { None }
    }

    /// Time from which the answer of the lowest id is too old; `None` for an empty buffer.
    pub(crate) fn surplus_from_us(&self) -> Option<u64> {
        let (_, first) = self.answers.first_key_value()?;
        Some(first.captured_us.saturating_add_unsigned(self.keep_us).saturating_add(1).max(0).unsigned_abs())
    }

    /// Removes the samples that the leader reports as settled.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        for (first, last) in notice.closed.iter().filter(|(first, last)| first <= last) {
            self.answers.extract_if(*first..=*last, |_, _| true).for_each(drop);
        }
        for sample in &notice.late {
            self.answers.remove(sample);
        }
    }

    /// Counts a notice for the unsettled answers below the notice's highest settled id: the notice passes them over. Returns the samples to
    /// send again, at most [`MAX_SENT_AGAIN`].
    pub(crate) fn passed_over(&mut self, notice: &SettledNotice, now_us: u64) -> Vec<SampleId> {
        let mut again = Vec::new();
        for (sample, answer) in self.answers.range_mut(..notice.account.highest) {
            answer.passed_over = answer.passed_over.saturating_add(1);
            let has_waited = answer.sent_us.saturating_add(SEND_AGAIN_US) <= now_us;
            if answer.passed_over > MAX_PASSED_OVER && has_waited && again.len() < MAX_SENT_AGAIN {
                again.push(*sample);
            }
        }
        again
    }

    /// Notes that an answer was sent again, marked late.
    pub(crate) fn sent_again(&mut self, sample: SampleId, now_us: u64) {
        if let Some(answer) = self.answers.get_mut(&sample) {
            (answer.sent_us, answer.is_late, answer.passed_over) = (now_us, true, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use headwater_protocol::{NetworkId, Settled};

    use super::*;
    use crate::answer::Age;
    use crate::report::SharedReport;

    const KEEP_US: u64 = 10_000;

    /// At most two samples in memory, each for 10 ms.
    fn unsettled(has_spool: bool) -> UnsettledAnswers {
        let max_bytes = if has_spool { 1 << 20 } else { 0 };
        let spool = Spool::in_memory(max_bytes, NetworkId([7; 32]), SharedReport::default());
        UnsettledAnswers { memory: AnswerBuffer::new(2, KEEP_US / 1000), spool }
    }

    fn at(us: u64) -> Timestamp {
        Timestamp { us, since_1970: Duration::from_micros(1_000_000_000 + us) }
    }

    /// An answer with features, captured and sent at this time.
    fn answer(sample: u64, at_us: u64) -> Answer {
        Answer {
            sample: SampleId(sample),
            captured_us: at_us as i64,
            sent_us: at_us,
            message: Bytes::from_static(b"answer"),
            features: vec![sample as u8],
            is_late: false,
            passed_over: 0,
        }
    }

    fn sent(unsettled: &mut UnsettledAnswers, sample: u64, at_us: u64) {
        unsettled.keep_sent(answer(sample, at_us), at(at_us));
    }

    fn due(unsettled: &mut UnsettledAnswers, now_us: u64) -> Vec<u64> {
        let due = unsettled.spool.due(now_us, 99);
        due.into_iter().map(|sample| sample.0).collect()
    }

    /// A notice that settles these ranges and late samples; its highest id is the highest end of a range.
    fn notice(ranges: &[(u64, u64)], late: &[u64]) -> SettledNotice {
        let highest = SampleId(ranges.iter().map(|(_, last)| *last).max().unwrap_or_default());
        SettledNotice {
            account: Settled { highest, ..Settled::default() },
            late: late.iter().map(|id| SampleId(*id)).collect(),
            closed: ranges.iter().map(|(first, last)| (SampleId(*first), SampleId(*last))).collect(),
            ..SettledNotice::default()
        }
    }

    #[test]
    fn surplus_samples_are_not_late_before_their_time_and_are_settled_as_if_in_memory() {
        let mut unsettled = unsettled(true);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        assert_eq!((unsettled.memory.answers.len(), unsettled.spool.len()), (2, 2));
        assert_eq!(due(&mut unsettled, KEEP_US - 1), [0; 0]);
        assert_eq!(due(&mut unsettled, KEEP_US), [0]);
        unsettled.settle(&notice(&[(1, 2)], &[]));
        assert_eq!((unsettled.memory.answers.len(), unsettled.spool.len()), (1, 1), "0 and 3 are left");
        unsettled.settle(&notice(&[], &[0, 3]));
        assert!(unsettled.is_empty());
    }

    #[test]
    fn samples_too_old_for_memory_are_late() {
        let mut unsettled = unsettled(true);
        sent(&mut unsettled, 5, 100);
        assert_eq!(unsettled.memory.surplus_from_us(), Some(KEEP_US + 101));
        unsettled.spool_surplus(at(KEEP_US + 101));
        assert_eq!(unsettled.memory.answers.len(), 0);
        assert_eq!(due(&mut unsettled, KEEP_US + 101), [5]);
        let now = at(KEEP_US + 2_100);
        let found = unsettled.answer(SampleId(5), now).unwrap();
        assert_eq!((found.age(now), &found.features[..]), (Age { ms: 12, is_late: true }, &[5][..]));
    }

    #[test]
    fn a_lost_connection_makes_all_samples_late() {
        let mut unsettled = unsettled(true);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        unsettled.disconnected(at(9));
        assert_eq!(due(&mut unsettled, 9), [0, 1, 2, 3]);
        sent(&mut unsettled, 4, 10);
        unsettled.settle(&notice(&[(4, 9)], &[]));
        assert_eq!((unsettled.memory.answers.len(), unsettled.spool.len()), (0, 4));
    }

    #[test]
    fn a_sample_that_could_not_be_sent_is_late_at_once() {
        let mut unsettled = unsettled(true);
        assert!(unsettled.keep_unsent(&answer(1, 0), at(5)));
        assert_eq!(due(&mut unsettled, 5), [1]);
        assert_eq!(unsettled.answer(SampleId(2), at(5)), None);
    }

    #[test]
    fn without_a_spool_what_memory_cannot_keep_is_given_up_and_reported() {
        let mut unsettled = unsettled(false);
        (0..4).for_each(|sample| sent(&mut unsettled, sample, sample));
        assert_eq!(unsettled.memory.answers.len(), 2);
        assert!(!unsettled.keep_unsent(&answer(9, 0), at(5)));
        unsettled.disconnected(at(9));
        assert!(unsettled.answer(SampleId(3), at(9)).is_some(), "it may still be asked for");
        assert_eq!(due(&mut unsettled, 9), [0, 1, 9]);
        assert_eq!(unsettled.spool.read(SampleId(0), at(9)), None, "only its id is left");
        unsettled.settle(&notice(&[], &[0, 1, 9]));
        assert_eq!(due(&mut unsettled, 9), [0; 0]);
    }

    #[test]
    fn a_notice_with_ranges_settles_exactly_what_it_names() {
        let mut unsettled = unsettled(true);
        (0..8).for_each(|sample| sent(&mut unsettled, sample, sample));
        unsettled.keep_unsent(&answer(20, 0), at(9));
        assert_eq!((unsettled.memory.answers.len(), unsettled.spool.len()), (2, 7));
        // Samples 6 and 7 are in memory, the others in the spool.
        unsettled.settle(&notice(&[(1, 2), (4, 6), (9, 3), (19, 30)], &[]));
        let left = due(&mut unsettled, KEEP_US * 9);
        assert_eq!(
            (left, ids(&unsettled.memory)),
            (vec![0, 3], vec![7]),
            "also what was never sent is closed"
        );
        unsettled.settle(&notice(&[], &[0, 3, 7]));
        assert!(unsettled.is_empty());
    }

    #[test]
    fn an_answer_that_notices_pass_over_is_sent_again_until_it_is_named() {
        let mut buffer = buffer_of(6, 10);
        let passing = notice(&[(0, 1), (3, 4)], &[]);
        buffer.settle(&passing);
        assert_eq!(ids(&buffer), [2, 5]);
        let now_us = SEND_AGAIN_US + 2;
        let mut again = |now_us| -> Vec<u64> {
            buffer.passed_over(&passing, now_us).into_iter().map(|sample| sample.0).collect()
        };
        assert_eq!((again(now_us).len(), again(now_us).len()), (0, 0), "it may be on the way");
        assert_eq!(again(now_us - 1), [0; 0], "it has two seconds");
        assert_eq!(again(now_us), [2], "5 is above the highest sample");
        buffer.sent_again(SampleId(2), now_us);
        assert!(buffer.answers[&SampleId(2)].is_late);
        let mut times = 0;
        for at in 1..=10 {
            times += buffer.passed_over(&passing, now_us + at * SEND_AGAIN_US / 4).len();
            if times == 1 {
                assert_eq!(at, 4, "again after two more seconds");
                break;
            }
        }
        buffer.settle(&notice(&[], &[2]));
        assert_eq!(ids(&buffer), [5]);
    }

    #[test]
    fn few_answers_are_sent_again_at_once() {
        let mut buffer = buffer_of(200, 1000);
        let late_us = SEND_AGAIN_US * 9;
        let notice = notice(&[(500, 500)], &[]);
        (0..MAX_PASSED_OVER).for_each(|_| assert_eq!(buffer.passed_over(&notice, late_us), []));
        let mut sent = 0;
        while sent < 200 {
            let again = buffer.passed_over(&notice, late_us);
            assert!(!again.is_empty() && again.len() <= MAX_SENT_AGAIN && again[0].0 == sent, "{again:?}");
            sent += again.len() as u64;
            again.into_iter().for_each(|sample| buffer.sent_again(sample, late_us));
        }
    }

    /// Samples captured at 0 us, 1 us, ..., kept for 10 ms.
    fn buffer_of(samples: u64, max_samples: usize) -> AnswerBuffer {
        let mut buffer = AnswerBuffer::new(max_samples, 10);
        (0..samples).for_each(|id| drop(buffer.answers.insert(SampleId(id), answer(id, id))));
        buffer
    }

    fn ids(buffer: &AnswerBuffer) -> Vec<u64> {
        buffer.answers.keys().map(|id| id.0).collect()
    }

    fn surplus(buffer: &mut AnswerBuffer, now_us: u64) -> Vec<u64> {
        std::iter::from_fn(|| buffer.pop_surplus(now_us)).map(|answer| answer.sample.0).collect()
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
        assert_eq!(buffer.answers.into_iter().collect::<Vec<_>>(), [(SampleId(2), answer(2, 2))]);
    }
}
