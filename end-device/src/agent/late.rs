//! What is spooled is sent late: a few messages at a time, so that fresh samples are not held up, until the leader says that each is
//! settled.

use std::time::{Duration, Instant};

use headwater_link::LinkError;
use headwater_protocol::{Body, SampleId, decode};

use super::Agent;
use crate::moment::Moment;
use crate::outbox::{Age, Encoded};
use crate::spool::{GivenUp, Spooled};

/// Time from one look at what is unsettled to the next.
const TICK: Duration = Duration::from_millis(20);

/// Late messages sent at one look.
const MESSAGES: usize = 32;

impl Agent {
    /// When to look next at what is unsettled; never while nothing is.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let next = self.last_look + TICK;
        if self.is_connected() && self.unsettled.spooled() > 0 {
            return Some(next);
        }
        let surplus_us = self.unsettled.surplus_from_us()?;
        Some(next.max(self.start + Duration::from_micros(surplus_us)))
    }

    /// Moves to the spool what is too old for memory, and sends late what is due.
    pub(super) fn look(&mut self) {
        let now = self.now();
        self.last_look = Instant::now();
        self.unsettled.move_surplus(now);
        if self.is_connected() {
            self.send_late(now);
        }
        self.note_unsettled();
    }

    fn send_late(&mut self, now: Moment) {
        let due = self.unsettled.spool_mut().map(|spool| spool.due(now.us, MESSAGES)).unwrap_or_default();
        let mut messages = 0;
        for sample in due {
            if messages >= MESSAGES {
                return;
            }
            match self.send_sample_late(sample, now) {
                Ok(sent) => messages += sent,
                Err(error) if is_for_good(&error) => {
                    self.give_up(sample, GivenUp::Refused, &error.to_string());
                }
                // Its time comes again.
                Err(_) => return,
            }
        }
    }

    /// Sends what is spooled of a sample; returns the messages it took.
    fn send_sample_late(&mut self, sample: SampleId, now: Moment) -> Result<usize, LinkError> {
        let messages = self.late_messages(sample, now);
        for message in &messages {
            self.outbox.publish(message)?;
        }
        if let Some(spool) = self.unsettled.spool_mut() {
            spool.sent_late(sample, now.us);
        }
        Ok(messages.len())
    }

    fn late_messages(&mut self, sample: SampleId, now: Moment) -> Vec<Encoded> {
        let Some(spooled) = self.unsettled.spool_mut().and_then(|spool| spool.read(sample)) else {
            return Vec::new();
        };
        if let Spooled::Answer { captured_unix_ms, answer, features } = spooled {
            let age = Age { ms: now.age_ms(captured_unix_ms), is_late: true };
            match self.answer_again(sample, age, &answer, &features) {
                Ok(messages) => return messages,
                Err(reason) => self.give_up(sample, GivenUp::Unreadable, &reason),
            }
        }
        let age = Age { ms: 0, is_late: true };
        self.outbox.encode(sample, age, Body::Gone).into_iter().collect()
    }

    /// The messages of a spooled answer, in this life and at this age.
    fn answer_again(
        &self,
        sample: SampleId,
        age: Age,
        answer: &[u8],
        features: &[u8],
    ) -> Result<Vec<Encoded>, String> {
        let answer = decode(answer, &self.outbox.limits).map_err(|error| error.to_string())?;
        let answer = self.outbox.encode(sample, age, answer.body);
        let features = (!features.is_empty() && self.conduct.sends_features_unasked())
            .then(|| self.outbox.encode(sample, age, Body::Features(features)));
        let messages: Result<Vec<Encoded>, _> = std::iter::once(answer).chain(features).collect();
        messages.map_err(|error| error.to_string())
    }

    pub(super) fn give_up(&mut self, sample: SampleId, reason: GivenUp, what: &str) {
        if let Some(spool) = self.unsettled.spool_mut() {
            spool.give_up(sample, reason, what);
        }
    }
}

/// Whether sending again cannot help.
pub(super) fn is_for_good(error: &LinkError) -> bool {
    !matches!(error, LinkError::NotConnected | LinkError::QueueFull { .. } | LinkError::Closed)
}
