//! Messages to a device: triggers, requests, settled notices, commands, the device's own birth and status as the broker keeps them, and
//! refusals by the broker.

use std::time::Instant;

use bytes::Bytes;
use headwater_inference::policy::{ExitPolicy, Policy};
use headwater_link::{Incoming, PublishRefusal};
use headwater_protocol::policy_command::{DeviceCommand, read_command};
use headwater_protocol::{
    Body, DeviceState, DeviceTopic, Exit, Fault, Message, PolicyId, SampleId, Schema, SettledNotice, Status,
    Topic, Trigger, decode,
};
use tracing::{debug, info, warn};

use super::Agent;
use crate::answer::Age;
use crate::link_setup::json;
use crate::presence_watch::{Correction, Disturbance};
use crate::publisher::Publisher;
use crate::report::count_first;

impl Agent {
    pub(super) fn on_incoming(&mut self, event: Incoming) {
        match event {
            Incoming::Connected => {
                self.has_been_connected = true;
                self.connected.send_replace(true);
            }
            Incoming::Disconnected { .. } => {
                self.connected.send_replace(false);
                self.presence.disconnected();
                self.unsettled.disconnected(self.now());
                // The next leader may read no batches. The answers that wait for a common message go to the spool, since there is no connection.
                self.set_allowed_wait(None);
                self.report_unsettled();
            }
            Incoming::Message { topic, payload, retain } => self.on_message(&topic, &payload, retain),
            Incoming::Refused { topic, reason } => self.on_refused(&topic, &reason),
        }
    }

    fn on_message(&mut self, topic: &str, payload: &Bytes, is_retained: bool) {
        let Ok(found) = self.publisher.topics.group.parse(topic) else { return };
        match found {
            Topic::Trigger | Topic::Request | Topic::Device(_, DeviceTopic::Cmd) if is_retained => {
                let reason = "expected a live message, found a retained one: publish it without the retain flag and clear the topic";
                self.refuse(Fault::Malformed, topic, reason);
            }
            Topic::Settled => self.on_settled(topic, payload),
            Topic::Device(_, DeviceTopic::Status) => self.presence.status(payload, self.now().us),
            Topic::Device(_, DeviceTopic::Birth) => {
                if let Some(disturbance) = self.presence.birth(payload, self.now().us) {
                    self.log_disturbance(&disturbance);
                }
                if self.presence.birth_taken(payload) {
                    info!(topic, "the broker takes this device's birth now");
                }
            }
            Topic::Trigger => self.on_trigger(topic, payload),
            Topic::Request => self.on_request_message(topic, payload),
            Topic::Device(_, DeviceTopic::Cmd) => self.on_command(topic, payload),
            _ => {}
        }
    }

    /// Takes a policy of the exit `device` from a command of the leader.
    fn on_command(&mut self, topic: &str, payload: &[u8]) {
        match self.read_policy(payload) {
            Ok(policy) => {
                let id = policy.id();
                info!(policy = %id, "the leader gave another policy: answers from now on are judged under it");
                self.set_policy(policy.of(Exit::DEVICE).clone(), id);
            }
            Err(reason) => self.refuse(Fault::Malformed, topic, &reason),
        }
    }

    fn read_policy(&self, payload: &[u8]) -> Result<Policy, String> {
        let command: DeviceCommand = read_command(payload)?;
        if self.reply_rule.policy().is_none() {
            return Err("a policy for a device that decides nothing in this network".into());
        }
        let policy: Policy = serde_json::from_value(command.policy).map_err(|error| error.to_string())?;
        let checked = policy.check().and_then(|()| policy.check_exits(&[Exit::DEVICE]));
        checked.map(|()| policy).map_err(|error| error.to_string())
    }

    /// Judges answers from now on under another policy of the exit `device`, and publishes a birth that names this policy.
    pub(super) fn set_policy(&mut self, policy: ExitPolicy, id: PolicyId) {
        self.reply_rule.set_policy(policy, id);
        if self.birth.policy == self.reply_rule.policy() {
            return;
        }
        self.birth.policy = self.reply_rule.policy();
        let topic = self.publisher.topics.own(DeviceTopic::Birth);
        self.presence.birth = json(&topic, &self.birth).payload;
        self.replace_retained(&topic, &self.presence.birth);
    }

    /// Publishes another birth or status for the broker to keep.
    fn replace_retained(&self, topic: &str, payload: &Bytes) {
        if let Err(error) = self.publisher.link.replace_retained(topic, payload.clone()) {
            self.publisher.report().count_dropped(&error);
        }
    }

    /// Publishes a status with the reason for which the camera is frozen, dark or covered; without a reason if it is not any more.
    pub(super) fn set_frozen(&mut self, frozen: Option<String>) {
        let status = Status { schema: Schema, state: DeviceState::Up, boot: self.birth.boot, frozen };
        let topic = self.publisher.topics.own(DeviceTopic::Status);
        self.presence.status = json(&topic, &status).payload;
        self.replace_retained(&topic, &self.presence.status);
    }

    /// Captures a sample. The network in the header of the trigger does not matter.
    fn on_trigger(&mut self, topic: &str, payload: &Bytes) {
        debug!(topic, payload_bytes = payload.len(), "message");
        match Trigger::read(payload, &self.publisher.limits) {
            Ok(trigger) => self.capture_triggered(trigger.sample, self.now().us),
            Err(error) => self.refuse(error.fault(), topic, &error.to_string()),
        }
    }

    fn on_request_message(&mut self, topic: &str, payload: &Bytes) {
        debug!(topic, payload_bytes = payload.len(), "message");
        match decode(payload, &self.publisher.limits) {
            Ok(Message { header, body: Body::Request(slots) }) => {
                if slots.contains(self.birth.slot) {
                    self.on_request(topic, header.sample, header.session == self.publisher.requests);
                }
            }
            Ok(message) => {
                let kind = message.body.kind().name();
                self.refuse(Fault::Malformed, topic, &format!("a {kind} message does not belong here"));
            }
            Err(error) => self.refuse(error.fault(), topic, &error.to_string()),
        }
    }

    fn on_request(&mut self, topic: &str, sample: SampleId, is_our_network: bool) {
        if !is_our_network {
            let reason = "a request for features of another network";
            self.refuse(Fault::WrongNetwork, topic, reason);
        }
        let now = self.now();
        let answer = self.unsettled.answer(sample, now);
        match answer.filter(|answer| is_our_network && !answer.features.is_empty()) {
            Some(answer) => self.publisher.send(sample, answer.age(now), Body::Features(&answer.features)),
            // The device answers at once that the features are gone, so that the leader does not wait for them.
            None => self.publisher.send(sample, Age { ms: 0, is_late: false }, Body::Gone),
        }
    }

    fn on_settled(&mut self, topic: &str, payload: &[u8]) {
        match serde_json::from_slice::<SettledNotice>(payload) {
            Ok(notice) => {
                self.note_leader(&notice);
                self.note_allowed_wait(&notice);
                if self.recent.settle(notice.account.highest) {
                    self.publisher.report.latest().refused_trigger = None;
                }
                self.publisher.report().trigger_waits = self.recent.waits();
                self.unsettled.settle(&notice);
                self.send_passed_over(&notice);
                self.report_unsettled();
            }
            Err(error) => self.refuse(Fault::Malformed, topic, &error.to_string()),
        }
    }

    /// Notes the time of the leader's notice and the reason for which the leader refuses this device; a change of the reason is logged.
    fn note_leader(&mut self, notice: &SettledNotice) {
        let refusal = notice.refused.get(&self.birth.device);
        let mut latest = self.publisher.report.latest();
        latest.notice = Some(Instant::now());
        if latest.refusal.as_ref() == refusal {
            return;
        }
        latest.refusal = refusal.cloned();
        match refusal {
            Some(reason) => warn!(reason, "the leader refuses this device: its answers count for nothing"),
            None => info!("the leader takes this device again"),
        }
    }

    /// Time at which birth and status are published again; `None` while nothing needs a correction.
    pub(super) fn next_correction(&self) -> Option<Instant> {
        self.presence.due_us().map(|due_us| self.instant_of(due_us))
    }

    /// Publishes birth and status again if a correction is due: the broker keeps a different birth or status, or refused one.
    pub(super) fn correct_presence(&mut self) {
        let Some(Correction { disturbance, is_first }) = self.presence.correct(self.now().us) else { return };
        self.publish_presence();
        if disturbance != Disturbance::Refused {
            self.publisher.report().births_restored += 1;
        }
        if is_first {
            self.log_disturbance(&disturbance);
        }
    }

    fn publish_presence(&self) {
        // The birth is published before the status, so that a reader of the status knows the device.
        let Publisher { topics, link, .. } = &self.publisher;
        for leaf in [DeviceTopic::Birth, DeviceTopic::Status] {
            if let Err(error) = link.restore(&topics.own(leaf), &[]) {
                self.publisher.report().count_dropped(&error);
            }
        }
    }

    /// Counts a message that the broker refused, and logs it at most once a minute. A refused birth or status is published again later.
    fn on_refused(&mut self, topic: &str, reason: &PublishRefusal) {
        let now_us = self.now().us;
        match self.publisher.topics.group.parse(topic) {
            Ok(Topic::Device(_, DeviceTopic::Birth)) => self.presence.birth_refused(now_us),
            Ok(Topic::Device(_, DeviceTopic::Status)) => self.presence.status_refused(now_us),
            _ => {}
        }
        let refused = {
            let mut report = self.publisher.report();
            report.publications_refused += 1;
            report.publications_refused
        };
        if self.refusal_log.take(Instant::now().into()).is_none() {
            return;
        }
        let (reason, advice) = match reason {
            PublishRefusal::NotAuthorized => (
                None,
                ": its access rules do not give this client the role of this device; allow it to publish there (`headwater enroll add device` \
                 writes the rules)",
            ),
            PublishRefusal::Other(reason) => (Some(reason.as_str()), "; its log may say more"),
        };
        warn!(
            topic,
            refused,
            reason,
            "the broker refuses a message of this device{advice}; birth and status are tried again, at the latest every 30 s"
        );
    }

    fn log_disturbance(&self, disturbance: &Disturbance) {
        match disturbance {
            Disturbance::BirthCleared => {
                warn!("this device's birth was removed from the broker: it is published again");
            }
            Disturbance::OtherBirth(boot) => warn!(
                own_boot = self.birth.boot.0,
                other_boot = boot.map(|boot| boot.0),
                "the broker has another birth under this device's id: its own is published again; is there a second device with this id?"
            ),
            Disturbance::OtherStatus => {
                warn!("the broker has another status of this device: that it is up is published again");
            }
            // `on_refused` has logged the refused message.
            Disturbance::Refused => {}
        }
    }

    fn refuse(&self, fault: Fault, topic: &str, reason: &str) {
        if count_first(&mut self.publisher.report().faults, fault.code()) {
            warn!(
                fault = fault.code(),
                topic, reason, "message refused; later ones with this fault are only counted"
            );
        }
    }
}
