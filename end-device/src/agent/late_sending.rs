//! Sends answers late until the leader settles their samples. Spooled answers are sent a few messages at a time, so that new samples are
//! not held up. An answer in memory is sent again if the leader's notices pass it over: they settle higher ids without its sample.

use std::time::{Duration, Instant};

use headwater_link::LinkError;
use headwater_protocol::{Body, SampleId, SettledNotice, decode, frame_details};
use tracing::debug;

use super::Agent;
use crate::answer::{Age, Answer};
use crate::give_up_reason::GiveUpReason;
use crate::publisher::Encoded;
use crate::timestamp::Timestamp;

/// Shortest time between two calls of `serve_spool`, and the time between them while spooled answers can be sent.
const SERVICE_EVERY: Duration = Duration::from_millis(20);

/// Number of late messages after which one call of `serve_spool` sends no further sample. The features of the last sample may add one
/// message.
const MAX_MESSAGES: usize = 32;

impl Agent {
    /// Time of the next `serve_spool`: soon if spooled answers can be sent, else when an answer in memory becomes too old. `None` if neither
    /// is the case.
    pub(super) fn next_spool_service(&self) -> Option<Instant> {
        let next = self.spool_served + SERVICE_EVERY;
        if self.is_connected() && self.unsettled.spool.len() > 0 {
            return Some(next);
        }
        let surplus_us = self.unsettled.memory.surplus_from_us()?;
        Some(next.max(self.instant_of(surplus_us)))
    }

    /// Moves answers that are too old for memory to the spool, and sends late the spooled answers that are due.
    pub(super) fn serve_spool(&mut self) {
        let now = self.now();
        self.spool_served = Instant::now();
        self.unsettled.spool_surplus(now);
        if self.is_connected() {
            self.send_late(now);
        }
        self.report_unsettled();
    }

    fn send_late(&mut self, now: Timestamp) {
        let due = self.unsettled.spool.due(now.us, MAX_MESSAGES);
        if !due.is_empty() {
            // The answers that wait for a common message are sent first: they are not late, and must not queue behind late ones.
            self.send_batch();
        }
        let mut messages = 0;
        for sample in due {
            if messages >= MAX_MESSAGES {
                return;
            }
            match self.send_sample_late(sample, now) {
                Ok(sent) => messages += sent,
                Err(error) if is_permanent(&error) => {
                    self.give_up(sample, GiveUpReason::REFUSED, &error.to_string());
                }
                // The sample stays due: a later call of `serve_spool` sends it.
                Err(_) => return,
            }
        }
    }

    /// Sends the answer to a spooled sample late, or `gone` if only its id is left; returns the number of messages.
    fn send_sample_late(&mut self, sample: SampleId, now: Timestamp) -> Result<usize, LinkError> {
        let messages = self.late_messages(sample, now);
        for message in &messages {
            self.publisher.publish(message)?;
        }
        self.unsettled.spool.sent_late(sample, now.us);
        Ok(messages.len())
    }

    fn late_messages(&mut self, sample: SampleId, now: Timestamp) -> Vec<Encoded> {
        if let Some(answer) = self.unsettled.spool.read(sample, now) {
            match self.encode_again(&answer, answer.age(now)) {
                Ok(messages) => return messages,
                Err(reason) => self.give_up(sample, GiveUpReason::UNREADABLE, &reason),
            }
        }
        let age = Age { ms: 0, is_late: true };
        self.publisher.encode(sample, age, Body::Gone).into_iter().collect()
    }

    /// Encodes an answer again, with the session of this start and with `age`, and the answer's features if they are sent unasked.
    fn encode_again(&self, answer: &Answer, age: Age) -> Result<Vec<Encoded>, String> {
        let (Answer { sample, message, features, .. }, limits) = (answer, &self.publisher.limits);
        let frame = frame_details(message, limits);
        let message = decode(message, limits).map_err(|error| error.to_string())?;
        let message = self.publisher.encode_named(*sample, age, message.body, frame);
        let features = (!features.is_empty() && self.reply_rule.sends_features_unasked())
            .then(|| self.publisher.encode(*sample, age, Body::Features(features)));
        let messages: Result<Vec<Encoded>, _> = std::iter::once(message).chain(features).collect();
        messages.map_err(|error| error.to_string())
    }

    pub(super) fn give_up(&mut self, sample: SampleId, reason: GiveUpReason, detail: &str) {
        self.unsettled.spool.give_up(sample, reason, detail);
    }

    /// Sends again, marked late, the answers in memory that the leader's notices pass over: their messages may have been lost although the
    /// connection still exists.
    pub(super) fn send_passed_over(&mut self, notice: &SettledNotice) {
        let now = self.now();
        let passed_over = self.unsettled.memory.passed_over(notice, now.us);
        if !passed_over.is_empty() {
            self.send_batch();
        }
        for sample in passed_over {
            match self.send_kept(sample, now, true) {
                Ok(()) => self.unsettled.memory.sent_again(sample, now.us),
                Err(error) if is_permanent(&error) => {
                    self.unsettled.memory.answers.remove(&sample);
                    self.give_up(sample, GiveUpReason::REFUSED, &error.to_string());
                }
                // A later notice passes the sample over again.
                Err(_) => return,
            }
        }
    }

    /// Sends the answer to a sample whose trigger a second trigger has confirmed. An answer that cannot be sent now moves to the spool,
    /// which sends it late; without a spool it stays in memory.
    pub(super) fn send_confirmed(&mut self, sample: SampleId) {
        let now = self.now();
        if self.send_kept(sample, now, false).is_err()
            && let Some(kept) = self.unsettled.memory.answers.remove(&sample)
            && !self.unsettled.keep_unsent(&kept, now)
        {
            self.unsettled.memory.answers.insert(sample, kept);
        }
    }

    /// Sends the answer to a sample from memory; sends nothing if memory has no such answer.
    fn send_kept(&self, sample: SampleId, now: Timestamp, is_late: bool) -> Result<(), LinkError> {
        let Some(kept) = self.unsettled.memory.answers.get(&sample) else { return Ok(()) };
        match self.encode_again(kept, Age { is_late, ..kept.age(now) }) {
            Ok(messages) => messages.iter().try_for_each(|message| self.publisher.publish(message)),
            Err(reason) => {
                debug!(sample = %sample, reason, "an answer in memory cannot be encoded again");
                Ok(())
            }
        }
    }
}

/// True for an error after which sending again cannot help.
pub(super) fn is_permanent(error: &LinkError) -> bool {
    !matches!(error, LinkError::NotConnected | LinkError::QueueFull { .. } | LinkError::Closed)
}
