//! From a capture to its answer: frame, section, what is said of it, and what is kept of it until it is settled.

use std::borrow::Cow;
use std::time::Instant;

use headwater_inference::sections::DeviceOutput;
use headwater_link::LinkError;
use headwater_protocol::{Body, SampleId};
use headwater_samples::View;
use headwater_samples::archive::Frame;
use tracing::{debug, error, warn};

use super::Agent;
use super::late::is_for_good;
use crate::conduct::Say;
use crate::model::{Done, Pushed};
use crate::moment::since_1970;
use crate::outbox::{Age, Encoded};
use crate::recent::Admission;
use crate::source::Taken;
use crate::spool::{GivenUp, Spool};
use crate::store::Held;

impl Agent {
    /// Takes the frame and sends it on its way; a view not in view is answered at once.
    pub(super) fn capture(&mut self, sample: SampleId, now_us: u64) {
        match self.recent.admit(sample) {
            Admission::New => {}
            Admission::Repeated => {
                self.outbox.report().repeated += 1;
                return;
            }
            Admission::Backwards => return self.on_backwards(sample),
        }
        if self.feed.is_over() {
            return;
        }
        self.outbox.report().captured += 1;
        match self.feed.take(sample, now_us) {
            Taken::Frame(Frame::View(view)) => {
                let pushed = self.model.push(sample, now_us, view);
                self.on_pushed(pushed);
            }
            Taken::Frame(Frame::NotInView) => self.answer(sample, now_us, Body::NotInView, Vec::new()),
            // Silence: the leader sees a missing slot, which it is.
            Taken::Frame(Frame::Broken { name, reason }) => {
                debug!(sample = %sample, frame = name, reason, "broken frame");
                self.outbox.report().broken_frames += 1;
            }
            Taken::Nothing => {}
        }
    }

    /// A frame that is a sample.
    pub(super) fn on_own_frame(&mut self, view: View) {
        let Some(clock) = &mut self.sample_clock else { return };
        let sample = clock.next(since_1970());
        // Ids of the clock only grow.
        self.recent.admit(sample);
        self.outbox.report().captured += 1;
        self.run_section(sample, self.now().us, Cow::Owned(view));
    }

    pub(super) fn run_section(&mut self, sample: SampleId, captured_us: u64, view: Cow<'_, View>) {
        let pushed = self.model.push(sample, captured_us, view);
        self.on_pushed(pushed);
    }

    /// A capture by the clock is due.
    pub(super) fn on_clock(&mut self) {
        let Some(schedule) = self.schedule else { return };
        let sample = schedule.sample_at(since_1970());
        // A clock set back would give ids that were used already.
        if sample > self.recent.newest() {
            self.capture(sample, self.now().us);
        }
    }

    /// Kept between messages: computed anew at each, a capture that came due meanwhile would be passed over.
    pub(super) fn next_capture(&self) -> Option<Instant> {
        self.schedule.map(|schedule| Instant::now() + schedule.until_next(since_1970()))
    }

    /// A frame that is a sample is taken once it can be sent or spooled on disk, and when the section has room; until then the source
    /// waits, so that nothing of a file or a pipe is lost.
    pub(super) fn takes_frames(&self) -> bool {
        let is_safe = self.has_been_connected || self.unsettled.spool().is_some_and(Spool::is_on_disk);
        self.sample_clock.is_none() || is_safe && self.model.has_room()
    }

    /// The section has run.
    pub(super) fn on_done(&mut self, done: Done) {
        let Done { sample, captured_us, output } = done;
        let said = output.and_then(|output| self.conduct.on(&output).map(|say| (output, say)));
        let (DeviceOutput { scores, features }, say) = match said {
            Ok(said) => said,
            Err(reason) => {
                let mut report = self.outbox.report();
                report.section_failures += 1;
                if report.section_failures == 1 {
                    error!(sample = %sample, reason, "the section failed");
                }
                return;
            }
        };
        let scores: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        match say {
            Say::Decided(decision) => self.answer(sample, captured_us, Body::Decided(decision), Vec::new()),
            Say::Input => self.answer(sample, captured_us, Body::Input(&features), Vec::new()),
            Say::Summary | Say::SummaryAndFeatures => {
                self.answer(sample, captured_us, Body::Summary(&scores), features);
            }
        }
    }

    /// Sends an answer, with the features where they are sent unasked, and keeps both until the sample is settled.
    fn answer(&mut self, sample: SampleId, captured_us: u64, body: Body<'_>, features: Vec<u8>) {
        let now = self.now();
        let age = Age { ms: now.age_ms(now.unix_ms_of(captured_us)), is_late: false };
        let answer = match self.outbox.encode(sample, age, body) {
            Ok(answer) => answer,
            Err(error) => return self.outbox.count_misfit(sample, &error),
        };
        let sent = self.send_answer(sample, age, &answer, &features);
        let held = Held { captured_us, sent_us: now.us, answer: answer.payload, features };
        match sent {
            Ok(()) => self.unsettled.keep_sent(sample, held, now),
            Err(error) if is_for_good(&error) => {
                self.outbox.report().count_dropped(&error);
                self.give_up(sample, GivenUp::Refused, &error.to_string());
            }
            Err(error) => {
                if !self.unsettled.keep_unsent(sample, held, now) {
                    self.outbox.report().count_dropped(&error);
                }
            }
        }
        self.note_unsettled();
    }

    fn send_answer(
        &self,
        sample: SampleId,
        age: Age,
        answer: &Encoded,
        features: &[u8],
    ) -> Result<(), LinkError> {
        self.outbox.publish(answer)?;
        if features.is_empty() || !self.conduct.sends_features_unasked() {
            return Ok(());
        }
        match self.outbox.encode(sample, age, Body::Features(features)) {
            Ok(features) => self.outbox.publish(&features),
            Err(error) => {
                self.outbox.count_misfit(sample, &error);
                Ok(())
            }
        }
    }

    fn on_pushed(&mut self, pushed: Pushed) {
        match pushed {
            Pushed::Done(done) => self.on_done(done),
            Pushed::Queued => {}
            Pushed::Shed(shed) => {
                debug!(sample = %shed.sample, "given up: the section is behind");
                self.outbox.report().shed += 1;
            }
        }
    }

    fn on_backwards(&self, sample: SampleId) {
        let mut report = self.outbox.report();
        report.backwards += 1;
        if report.backwards == 1 {
            let newest = self.recent.newest();
            warn!(
                sample = %sample, newest = %newest,
                "a trigger goes backwards and is refused; the next ones are only counted (ids of a group must only grow)"
            );
        }
    }
}
