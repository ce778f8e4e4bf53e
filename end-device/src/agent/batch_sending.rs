//! Sends the answers that waited for a common message, and keeps each answer until its sample is settled.

use std::time::Instant;

use headwater_link::LinkError;
use headwater_protocol::{BatchEntry, BatchedAnswer, Body, Limits, Message, SettledNotice, decode};
use tracing::{info, warn};

use super::Agent;
use super::late_sending::is_permanent;
use crate::answer::Answer;
use crate::give_up_reason::GiveUpReason;
use crate::timestamp::Timestamp;

/// The answer, which is a summary or `not_in_view`, as an entry of a batch that is sent at `now`.
fn entry<'a>(answer: &'a Answer, limits: &Limits, now: Timestamp) -> BatchEntry<'a> {
    let Answer { sample, captured_us, message, .. } = answer;
    let answer = match decode(message, limits) {
        Ok(Message { body: Body::Summary(scores), .. }) => BatchedAnswer::Summary(scores),
        _ => BatchedAnswer::NotInView,
    };
    BatchEntry { sample: *sample, age_ms: now.age_ms(*captured_us), answer }
}

impl Agent {
    /// Time at which the waiting answers must be sent; `None` while no answer waits.
    pub(super) fn next_batch(&self) -> Option<Instant> {
        self.batch.due_us().map(|due_us| self.instant_of(due_us))
    }

    /// Sends the waiting answers, in several messages if one message does not take them all. If the leader reads no batches any more, each
    /// answer is sent by itself.
    pub(super) fn send_batch(&mut self) {
        let answers = self.batch.take();
        if answers.is_empty() {
            return;
        }
        let most = if self.batch.is_on() { answers.len() } else { 1 };
        self.send_answers(answers, most, self.now());
        self.report_unsettled();
    }

    /// Sends answers, at most `most` in one message.
    fn send_answers(&mut self, mut answers: Vec<Answer>, most: usize, now: Timestamp) {
        while !answers.is_empty() {
            let limits = &self.publisher.limits;
            let entries: Vec<_> =
                answers.iter().take(most).map(|answer| entry(answer, limits, now)).collect();
            let (message, taken) = match self.publisher.encode_answers(&entries) {
                Ok(encoded) => encoded,
                Err(error) => {
                    self.publisher.count_encode_error(answers.remove(0).sample, &error);
                    continue;
                }
            };
            let sent = self.publisher.publish(&message);
            if taken > 1 && sent.is_ok() {
                self.publisher.report().count_batched(&entries[..taken]);
            }
            let answered: Vec<_> = answers.drain(..taken).collect();
            if taken > 1 && sent.as_ref().is_err_and(is_permanent) {
                // The batch may be too large for the broker while a single answer is not: the answers are sent one by one.
                self.send_answers(answered, 1, now);
                continue;
            }
            for answer in answered {
                self.keep(answer, &sent, now);
            }
        }
    }

    /// Limits the wait for a batch to the time that the leader's notice allows, and logs a change.
    pub(super) fn note_allowed_wait(&mut self, notice: &SettledNotice) {
        let Some(wait_ms) = self.set_allowed_wait(notice.batch_ms) else { return };
        if wait_ms == 0 {
            info!("the leader takes no batches any more: each answer is sent at once");
        } else {
            info!(wait_ms, "the leader takes batches: answers of this time go in one message");
        }
        if let Some(allowed_ms) =
            notice.batch_ms.filter(|allowed_ms| u64::from(*allowed_ms) < self.batch.setting_ms())
        {
            warn!(
                allowed_ms,
                batch_ms = self.batch.setting_ms(),
                "the leader waits too briefly for `batch_ms`: the shorter time holds (half of its `window_ms`, a quarter of its `deadline_ms`)"
            );
        }
    }

    /// Sets the longest wait that the leader allows. If no answer may wait any more, sends the waiting answers. Returns the new wait in ms;
    /// `None` if the wait has not changed.
    pub(super) fn set_allowed_wait(&mut self, allowed_ms: Option<u32>) -> Option<u64> {
        let wait_ms = self.batch.set_allowed(allowed_ms);
        if let Some(wait_ms) = wait_ms {
            self.publisher.report().batch_wait_ms = wait_ms;
        }
        if !self.batch.is_on() {
            self.send_batch();
        }
        wait_ms
    }

    /// Keeps an answer until its sample is settled: in memory if the link took its message (`sent`), else in the spool. An answer that the
    /// link can never take is given up.
    pub(super) fn keep(&mut self, mut answer: Answer, sent: &Result<(), LinkError>, now: Timestamp) {
        answer.sent_us = now.us;
        match sent {
            Ok(()) => self.unsettled.keep_sent(answer, now),
            Err(error) if is_permanent(error) => {
                self.publisher.report().count_dropped(error);
                self.give_up(answer.sample, GiveUpReason::REFUSED, &error.to_string());
            }
            Err(error) => {
                if !self.unsettled.keep_unsent(&answer, now) {
                    self.publisher.report().count_dropped(error);
                }
            }
        }
    }
}
