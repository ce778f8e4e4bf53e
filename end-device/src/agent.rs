//! The conversation of a device: trigger, capture, summary; request, features; settled.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use headwater_inference::sections::DeviceOutput;
use headwater_link::{Incoming, QoS};
use headwater_protocol::{Body, DecodeError, Fault, Message, SampleId, Settled, Slot, Status, decode};
use headwater_samples::archive::Frame;
use tokio::sync::{mpsc, watch};
use tracing::{debug, error, warn};

use crate::capture::Schedule;
use crate::conduct::{Conduct, Say};
use crate::frames::Frames;
use crate::model::{Done, Model, Pushed};
use crate::outbox::Outbox;
use crate::recent::Recent;
use crate::store::FeatureStore;

/// What the device task owns.
pub(crate) struct Agent {
    pub(crate) slot: Slot,
    pub(crate) frames: Frames,
    pub(crate) model: Model,
    pub(crate) conduct: Conduct,
    pub(crate) store: FeatureStore,
    pub(crate) recent: Recent,
    pub(crate) outbox: Outbox,
    pub(crate) topics: AgentTopics,
    pub(crate) schedule: Option<Schedule>,
    /// Zero of the device's own clock.
    pub(crate) start: Instant,
    pub(crate) up: Status,
    pub(crate) connected: watch::Sender<bool>,
}

/// Names of the topics the agent hears.
#[derive(Clone, Debug)]
pub(crate) struct AgentTopics {
    pub(crate) trigger: String,
    pub(crate) request: String,
    pub(crate) settled: String,
    pub(crate) status: String,
}

impl Agent {
    /// Until `stop` says so; then sends what is captured already. The link is the caller's to shut down.
    pub(crate) async fn run(
        mut self,
        mut incoming: mpsc::Receiver<Incoming>,
        mut done: mpsc::Receiver<Done>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut due = self.next_capture();
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                done = done.recv() => match done {
                    Some(done) => self.on_done(done),
                    None => return self.on_model_gone(),
                },
                Some(event) = incoming.recv() => self.on_incoming(event),
                () = at(due) => {
                    self.on_clock();
                    due = self.next_capture();
                }
            }
        }
        self.model.close();
        while let Some(done) = done.recv().await {
            self.on_done(done);
        }
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
        if !self.recent.admit(sample) {
            self.outbox.report().repeated += 1;
            return;
        }
        self.outbox.report().captured += 1;
        match self.frames.frame(sample) {
            Frame::View(view) => match self.model.push(sample, now_us, view) {
                Pushed::Done(done) => self.on_done(done),
                Pushed::Queued => {}
                Pushed::Shed(shed) => {
                    debug!(sample = %shed.sample, "given up: the section is behind");
                    self.outbox.report().shed += 1;
                }
            },
            Frame::NotInView => self.outbox.send(sample, self.now_us() - now_us, Body::NotInView),
            // Silence: the leader sees a missing slot, which it is.
            Frame::Broken { name, reason } => {
                debug!(sample = %sample, frame = name, reason, "broken frame");
                self.outbox.report().broken_frames += 1;
            }
        }
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

    fn set_connected(&self, is_connected: bool) {
        self.connected.send_replace(is_connected);
    }

    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }
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
