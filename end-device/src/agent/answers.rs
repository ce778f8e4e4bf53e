//! The steps from a capture to its answer: the agent takes the frame, runs the section, sends the reply, and keeps the reply until the
//! sample is settled.

use std::borrow::Cow;
use std::time::Instant;

use headwater_inference::sections::TierOutput;
use headwater_link::LinkError;
use headwater_protocol::{Body, JudgedTrigger, SampleId};
use headwater_samples::archive::{BrokenFrame, Frame};
use tracing::{debug, error, warn};

use super::Agent;
use crate::answer::{Age, Answer, Captured};
use crate::capture_clock::{ClockStep, DueCapture};
use crate::give_up_reason::GiveUpReason;
use crate::publisher::Encoded;
use crate::reply_rule::Reply;
use crate::section_runner::{JobResult, Submitted};
use crate::source::{NamedView, SourceEvent};
use crate::timestamp::since_1970;

/// Reasons for which a trigger is not answered ([`TriggeredIds`](headwater_protocol::TriggeredIds)).
const FAR_AHEAD: &str = "its id is more than 1,000 above the newest one: it waits for a second trigger with an id within 1,000 of it";
const BELOW: &str = "its id is not above the newest one: ids of a group only grow; after a wrong trigger the leader's account puts the device back, \
                     and a new numbering (`headwater-aggregator --new-numbering GROUP`, or `headwater up --new-numbering`) begins with any id";
const TOO_HIGH: &str =
    "its id is above 2^64 - 2^30 - 1, and no ids would be left: send small ids, or milliseconds of a clock";

impl Agent {
    /// Captures a triggered sample unless its trigger is repeated, below the newest id or too high. If the trigger confirms the trigger of an
    /// earlier sample, sends the earlier sample's answer first. The reason for which a trigger is not answered goes to the status page.
    pub(super) fn capture_triggered(&mut self, sample: SampleId, now_us: u64) {
        let newest = self.recent.newest();
        let Some(judged) = self.recent.admit(sample) else {
            self.publisher.report().repeated += 1;
            return;
        };
        let refusal = match judged {
            JudgedTrigger::Believed | JudgedTrigger::Confirms(_) => None,
            JudgedTrigger::Unconfirmed => Some(FAR_AHEAD),
            JudgedTrigger::Below => Some(BELOW),
            JudgedTrigger::TooHigh => Some(TOO_HIGH),
        };
        {
            let mut report = self.publisher.report();
            report.trigger_waits = self.recent.waits();
            report.backwards += u64::from(judged == JudgedTrigger::Below);
            report.implausible +=
                u64::from(matches!(judged, JudgedTrigger::Unconfirmed | JudgedTrigger::TooHigh));
        }
        if let Some(reason) = refusal
            && let Some(not_logged) = self.trigger_log.take(Instant::now().into())
        {
            warn!(sample = %sample, newest = %newest, not_logged, reason, "a trigger is not answered");
        }
        self.publisher.report.latest().refused_trigger =
            refusal.map(|reason| format!("the trigger of sample {sample}, newest {newest}: {reason}"));
        if let JudgedTrigger::Confirms(first) = judged {
            self.send_confirmed(first);
        }
        if !matches!(judged, JudgedTrigger::Below | JudgedTrigger::TooHigh) {
            self.capture(sample, now_us);
        }
    }

    /// Captures a new sample. A sample that is not in view is answered at once, without the section.
    fn capture(&mut self, sample: SampleId, now_us: u64) {
        if self.source.is_over {
            return;
        }
        self.count_capture();
        let captured = |frame| Captured { sample, captured_us: now_us, frame };
        match self.source.capture(sample, now_us) {
            Some((Frame::View(view), name)) => {
                let submitted = self.section.submit(captured(name), view);
                self.on_submitted(submitted);
            }
            Some((Frame::NotInView, _)) => self.answer(captured(None), Body::NotInView, Vec::new(), &[]),
            // A broken frame gives no message: the leader counts the slot as missing.
            Some((Frame::Broken(BrokenFrame { name, reason }), _)) => {
                debug!(sample = %sample, frame = name, reason, "broken frame");
                self.publisher.report().broken_frames += 1;
            }
            None => {}
        }
    }

    fn count_capture(&self) {
        self.publisher.report().captured += 1;
        self.publisher.report.latest().capture = Some(Instant::now());
    }

    /// Handles an event of the source: a frame that is a sample, or a requested snapshot.
    pub(super) fn on_source(&mut self, event: SourceEvent) {
        let SourceEvent::Frame { capture, frame: NamedView { view, name: frame } } = event else { return };
        let (sample, captured_us) = match (capture, &mut self.frame_ids) {
            (Some(capture), _) => capture,
            (None, Some(ids)) => {
                let sample = ids.next(since_1970());
                self.recent.remember(sample);
                self.count_capture();
                (sample, self.now().us)
            }
            (None, None) => return,
        };
        let submitted = self.section.submit(Captured { sample, captured_us, frame }, Cow::Owned(view));
        self.on_submitted(submitted);
    }

    /// Captures by the clock if a capture is due, and counts the captures that were missed before it.
    pub(super) fn on_clock(&mut self) {
        let now = self.now();
        let Some(due) = self.capture_clock.as_mut().and_then(|clock| clock.capture(now)) else { return };
        self.count_due(&due);
        if matches!(due.step, Some(ClockStep::BackToUnused { .. })) {
            // Answers from before the step have higher ids than new ones. Memory removes the lowest ids first, so these answers would push
            // new ones out.
            self.unsettled.spool_memory(now);
        }
        self.recent.remember(due.sample);
        self.capture(due.sample, now.us);
    }

    /// Counts and logs the captures that were missed before a capture by the clock, and a step of the clock.
    fn count_due(&self, due: &DueCapture) {
        let mut report = self.publisher.report();
        report.captures_missed = report.captures_missed.saturating_add(due.missed);
        report.clock_steps += u64::from(due.step.is_some());
        if due.missed_to_log > 0 {
            warn!(
                missed = due.missed_to_log, newest = %due.sample,
                "captures missed: the device was later than half a period (a busy machine, or a period too short for it)"
            );
        }
        let (by_us, step) = match due.step {
            Some(ClockStep::Forward { by_us }) => {
                (by_us, "the clock was set forward: the ids between are missed")
            }
            Some(ClockStep::Back { by_us }) => (
                by_us,
                "the clock was set back to a time whose ids are used: captures go on half as often, and ids run ahead until it catches up",
            ),
            Some(ClockStep::BackToUnused { by_us }) => {
                (by_us, "the clock was set back to a time that it had passed over: captures go on there")
            }
            None => return,
        };
        warn!(by_ms = by_us / 1000, missed = due.missed, newest = %due.sample, "{step}");
    }

    /// Time of the next capture by the clock. The caller computes it once per capture: computed after every message, the time of a capture
    /// that is due would move to the present again and again.
    pub(super) fn next_capture(&self) -> Option<Instant> {
        self.capture_clock.as_ref().map(|clock| Instant::now() + clock.until_next(self.now()))
    }

    /// True while frames are taken from the source. If each frame is a sample, a frame is taken only if the section's queue has a free place,
    /// and if the spool is on disk or the broker has been connected once, so that no frame of a file or a pipe is lost.
    pub(super) fn takes_frames(&self) -> bool {
        let is_safe = self.has_been_connected || self.unsettled.spool.is_on_disk();
        self.frame_ids.is_none() || is_safe && self.section.has_capacity()
    }

    /// Answers with the result of the section. A failed section gives no answer, and is counted.
    pub(super) fn on_result(&mut self, result: JobResult) {
        let JobResult { captured, output } = result;
        let replied = output.and_then(|output| Ok((self.reply_rule.reply_to(&output)?, output)));
        let (reply, TierOutput { scores, features }) = match replied {
            Ok(replied) => replied,
            Err(reason) => {
                let mut report = self.publisher.report();
                report.section_failures += 1;
                if report.section_failures == 1 {
                    error!(sample = %captured.sample, reason, "the section failed");
                }
                return;
            }
        };
        let mut body = Vec::new();
        match reply {
            Reply::Decided(decision) => {
                if captured.frame.is_some() {
                    self.publisher.scores.put(&scores, &mut body);
                }
                self.answer(captured, Body::Decided(decision), Vec::new(), &body);
            }
            Reply::Input => self.answer(captured, Body::Input(&features), Vec::new(), &[]),
            Reply::Summary => {
                self.publisher.scores.put(&scores, &mut body);
                self.answer(captured, Body::Summary(&body), features, &[]);
            }
        }
    }

    /// Sends an answer, followed by the features if they are sent unasked, and keeps both until the sample is settled. An answer that may
    /// go in a batch waits for the batch; an answer whose trigger is unconfirmed is only kept. `scores` are sent after the frame's name.
    fn answer(&mut self, captured: Captured, body: Body<'_>, features: Vec<u8>, scores: &[u8]) {
        let Captured { sample, captured_us, frame } = captured;
        let frame = frame.as_ref().map(|frame| frame.with_scores(scores));
        let now = self.now();
        let captured_us = captured_us as i64;
        let age = Age { ms: now.age_ms(captured_us), is_late: false };
        let encoded = match self.publisher.encode_named(sample, age, body, frame) {
            Ok(encoded) => encoded,
            Err(error) => return self.publisher.count_encode_error(sample, &error),
        };
        let message = encoded.payload.clone();
        let answer = Answer {
            sample,
            captured_us,
            sent_us: now.us,
            message,
            features,
            is_late: false,
            passed_over: 0,
        };
        if self.recent.is_unconfirmed(sample) {
            self.keep(answer, &Ok(()), now);
        } else if self.batch.takes(body.kind()) {
            if self.batch.add(answer, now.us) {
                self.send_batch();
            }
        } else {
            let sent = self.send_answer(&answer, &encoded, age);
            self.keep(answer, &sent, now);
        }
        self.report_unsettled();
    }

    fn send_answer(&self, answer: &Answer, encoded: &Encoded, age: Age) -> Result<(), LinkError> {
        self.publisher.publish(encoded)?;
        if answer.features.is_empty() || !self.reply_rule.sends_features_unasked() {
            return Ok(());
        }
        match self.publisher.encode(answer.sample, age, Body::Features(&answer.features)) {
            Ok(features) => self.publisher.publish(&features),
            Err(error) => {
                self.publisher.count_encode_error(answer.sample, &error);
                Ok(())
            }
        }
    }

    fn on_submitted(&mut self, submitted: Submitted) {
        match submitted {
            Submitted::Done(result) => self.on_result(result),
            Submitted::Queued => {}
            Submitted::Shed(job) => {
                let sample = job.captured.sample;
                debug!(sample = %sample, "view shed: the section is behind");
                self.publisher.report().shed += 1;
                self.give_up(sample, GiveUpReason::SHED, "the section is behind");
            }
        }
    }
}
