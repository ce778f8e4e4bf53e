//! The conversation of a device: trigger, capture, summary; request, features; settled.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use headwater_inference::sections::DeviceOutput;
use headwater_link::{Incoming, QoS};
use headwater_protocol::{Body, DecodeError, Fault, Message, SampleId, Settled, Slot, Status, decode};
use headwater_samples::View;
use headwater_samples::archive::Frame;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, info, warn};

use crate::capture::Schedule;
use crate::conduct::{Conduct, Say};
use crate::model::{Done, Model, Pushed};
use crate::outbox::Outbox;
use crate::recent::{Admission, Recent};
use crate::sample_clock::SampleClock;
use crate::source::{Event, Feed, Taken};
use crate::store::FeatureStore;

/// Frames that are samples come at most once in so long, so that each has a millisecond of its own.
const FRAME_EVERY: Duration = Duration::from_millis(1);

/// What the device task owns.
pub(crate) struct Agent {
    pub(crate) slot: Slot,
    pub(crate) feed: Feed,
    /// Ids of samples where each frame of the source is one.
    pub(crate) sample_clock: Option<SampleClock>,
    pub(crate) model: Model,
    pub(crate) conduct: Conduct,
    pub(crate) store: FeatureStore,
    pub(crate) recent: Recent,
    pub(crate) outbox: Outbox,
    pub(crate) topics: AgentTopics,
    pub(crate) schedule: Option<Schedule>,
    /// How long it goes on answering after its source has ended, until all is settled.
    pub(crate) grace: Duration,
    /// Zero of the device's own clock.
    pub(crate) start: Instant,
    pub(crate) up: Status,
    pub(crate) connected: watch::Sender<bool>,
    pub(crate) has_been_connected: bool,
}

/// Names of the topics the agent hears.
#[derive(Clone, Debug)]
pub(crate) struct AgentTopics {
    pub(crate) trigger: String,
    pub(crate) request: String,
    pub(crate) settled: String,
    pub(crate) status: String,
}

/// Why a device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// Its source of frames came to its end, and every frame was answered.
    Source,
    /// Its source of frames broke off.
    SourceBroke,
    /// Its model thread failed.
    Model,
}

impl Agent {
    /// Until `stop` says so, or the source has ended; then sends what is captured already. The link is the caller's to shut down.
    pub(crate) async fn run(
        mut self,
        mut incoming: mpsc::Receiver<Incoming>,
        mut done: mpsc::Receiver<Done>,
        mut stop: watch::Receiver<bool>,
    ) -> Ended {
        let mut due = self.next_capture();
        let mut ended = Ended::Stopped;
        // Once the source has ended: when to leave at the latest, and whether every frame was answered.
        let (mut leave, mut is_drained) = (None, false);
        let mut next_frame = None;
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                done = done.recv(), if !is_drained => match done {
                    Some(done) => self.on_done(done),
                    None if leave.is_some() => is_drained = true,
                    None => {
                        self.on_model_gone();
                        return Ended::Model;
                    }
                },
                Some(event) = incoming.recv() => self.on_incoming(event),
                () = at(due) => {
                    self.on_clock();
                    due = self.next_capture();
                }
                event = next(&mut self.feed, next_frame), if leave.is_none() && self.takes_frames() => match event {
                    Event::Own(view) => {
                        self.on_own_frame(view);
                        next_frame = Some(Instant::now() + FRAME_EVERY);
                    }
                    #[cfg(feature = "http")]
                    Event::Answer { sample, captured_us, view } => {
                        self.run_section(sample, captured_us, Cow::Owned(view));
                    }
                    Event::Ended { is_clean } => {
                        info!(is_clean, "the source of frames has ended");
                        ended = if is_clean { Ended::Source } else { Ended::SourceBroke };
                        leave = Some(Instant::now() + self.grace);
                        self.model.close();
                    }
                },
                () = at(leave) => break,
            }
            // Asked for features once more, or told that nobody will ask.
            if is_drained && self.store.is_empty() {
                break;
            }
        }
        self.model.close();
        while let Some(done) = done.recv().await {
            self.on_done(done);
        }
        if let Some(clock) = &self.sample_clock {
            clock.close();
        }
        ended
    }

    fn on_incoming(&mut self, event: Incoming) {
        match event {
            Incoming::Connected => self.set_connected(true),
            Incoming::Disconnected { .. } => self.set_connected(false),
            Incoming::Message { topic, payload, .. } => self.on_message(&topic, &payload),
        }
    }

    fn on_message(&mut self, topic: &str, payload: &Bytes) {
        let now_us = self.now_us();
        let topics = &self.topics;
        if topic == topics.settled {
            self.on_settled(payload);
        } else if topic == topics.status {
            self.on_own_status(payload);
        } else if topic == topics.trigger || topic == topics.request {
            match self.understand(topic, payload) {
                Ok(Message { body: Body::Trigger(sample), .. }) if topic == self.topics.trigger => {
                    self.capture(sample, now_us);
                }
                Ok(Message { header, body: Body::Request(mask) }) if topic == self.topics.request => {
                    let sample = SampleId::widen(header.sample_low, self.recent.newest());
                    if mask >> self.slot.index() & 1 == 1 {
                        let same_network = header.network == self.outbox.network;
                        self.on_request(sample, same_network, now_us);
                    }
                }
                Ok(message) => {
                    let kind = message.body.kind().name();
                    self.refuse(Fault::Malformed, topic, &format!("a {kind} message does not belong here"));
                }
                Err(error) => self.refuse(error.fault(), topic, &error.to_string()),
            }
        }
    }

    fn understand<'a>(&self, topic: &str, payload: &'a Bytes) -> Result<Message<'a>, DecodeError> {
        debug!(topic, payload_bytes = payload.len(), "message");
        decode(payload, &self.outbox.limits)
    }

    /// Takes the frame and sends it on its way; a view not in view is answered at once.
    fn capture(&mut self, sample: SampleId, now_us: u64) {
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
            Taken::Frame(Frame::NotInView) => {
                self.outbox.send(sample, self.now_us() - now_us, Body::NotInView);
            }
            // Silence: the leader sees a missing slot, which it is.
            Taken::Frame(Frame::Broken { name, reason }) => {
                debug!(sample = %sample, frame = name, reason, "broken frame");
                self.outbox.report().broken_frames += 1;
            }
            Taken::Nothing => {}
        }
    }

    /// A frame that is a sample.
    fn on_own_frame(&mut self, view: View) {
        let Some(clock) = &mut self.sample_clock else { return };
        let sample = clock.next(since_1970());
        // Ids of the clock only grow.
        self.recent.admit(sample);
        self.outbox.report().captured += 1;
        self.run_section(sample, self.now_us(), Cow::Owned(view));
    }

    fn run_section(&mut self, sample: SampleId, captured_us: u64, view: Cow<'_, View>) {
        let pushed = self.model.push(sample, captured_us, view);
        self.on_pushed(pushed);
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

    /// A frame that is a sample is taken once there was a broker to send it to, and when the section has room; until then the source
    /// waits, so that nothing of a file or a pipe is lost.
    fn takes_frames(&self) -> bool {
        self.sample_clock.is_none() || self.has_been_connected && self.model.has_room()
    }

    fn on_done(&mut self, done: Done) {
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
        let now_us = self.now_us();
        let age_us = now_us.saturating_sub(captured_us);
        let scores: Vec<u8> = scores.iter().flat_map(|score| score.to_le_bytes()).collect();
        match say {
            Say::Decided(decision) => self.outbox.send(sample, age_us, Body::Decided(decision)),
            Say::Input => self.outbox.send(sample, age_us, Body::Input(&features)),
            Say::Summary | Say::SummaryAndFeatures => {
                self.outbox.send(sample, age_us, Body::Summary(&scores));
                if say == Say::SummaryAndFeatures {
                    self.outbox.send(sample, age_us, Body::Features(&features));
                }
                self.store.keep(sample, captured_us, features, now_us);
                self.note_kept();
            }
        }
    }

    fn on_request(&mut self, sample: SampleId, same_network: bool, now_us: u64) {
        if !same_network {
            self.refuse(
                Fault::WrongNetwork,
                &self.topics.request,
                "a request for features of another network",
            );
        }
        match self.store.get(sample, now_us).filter(|_| same_network) {
            Some(kept) => {
                let age_us = now_us.saturating_sub(kept.captured_us);
                self.outbox.send(sample, age_us, Body::Features(kept.bits));
            }
            // Said at once, so that the leader need not wait for its time to run out.
            None => self.outbox.send(sample, 0, Body::Gone),
        }
    }

    fn on_settled(&mut self, payload: &[u8]) {
        match serde_json::from_slice::<Settled>(payload) {
            Ok(settled) => {
                self.store.settle(settled.highest);
                self.note_kept();
            }
            Err(error) => self.refuse(Fault::Malformed, &self.topics.settled, &error.to_string()),
        }
    }

    /// A broker that finds out late that an earlier connection is dead publishes its last will after we are back. The
    /// retained status would then say `down` of a device that is up; say it again.
    fn on_own_status(&mut self, payload: &[u8]) {
        let says = serde_json::from_slice::<Status>(payload);
        if says.is_ok_and(|status| status == self.up) {
            return;
        }
        if let Ok(status) = serde_json::to_vec(&self.up) {
            warn!("the broker said that this device is down; saying that it is up");
            let sent = self.outbox.link.publish(self.topics.status.as_str(), status, QoS::AtLeastOnce, true);
            if let Err(error) = sent {
                self.outbox.report().count_dropped(&error);
            }
        }
    }

    /// A device that cannot answer must not look alive: the broker publishes the last will.
    fn on_model_gone(&self) {
        error!("the model thread ended; the device stops");
        self.outbox.link.kill();
    }

    /// Kept between messages: computed anew at each, a capture that came due meanwhile would be passed over.
    fn next_capture(&self) -> Option<Instant> {
        self.schedule.map(|schedule| Instant::now() + schedule.until_next(since_1970()))
    }

    fn on_clock(&mut self) {
        let Some(schedule) = self.schedule else { return };
        let sample = schedule.sample_at(since_1970());
        // A clock set back would give ids that were used already.
        if sample > self.recent.newest() {
            self.capture(sample, self.now_us());
        }
    }

    fn refuse(&self, fault: Fault, topic: &str, what: &str) {
        if self.outbox.report().count_fault(fault) {
            warn!(
                fault = fault.code(),
                topic, what, "message not taken; the next of its kind are only counted"
            );
        }
    }

    fn note_kept(&self) {
        self.outbox.report().kept_samples = self.store.len() as u64;
    }

    fn set_connected(&mut self, is_connected: bool) {
        self.has_been_connected |= is_connected;
        self.connected.send_replace(is_connected);
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
}

/// What the source has by itself, at the earliest at `from`; nothing is lost when the wait is given up.
async fn next(feed: &mut Feed, from: Option<Instant>) -> Event {
    if let Some(from) = from.filter(|from| *from > Instant::now()) {
        tokio::time::sleep_until(from.into()).await;
    }
    feed.next().await
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
