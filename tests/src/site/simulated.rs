//! Simulated devices, which capture by the clock and send answers that were computed before, so that a few threads simulate hundreds of them.
//!
//! ```text
//! group ── clock ──> device 0 ... 5 ── summary, features ──> broker
//!       <─ result, settled (as the operator) ───────────────
//! ```
//!
//! Simulated devices keep nothing and send nothing again: a sample whose messages are lost on the way is counted as lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_end_device::{Capture, subscriptions};
use headwater_inference::engine::PackedEngine;
use headwater_inference::sections::{DeviceSection, MapCoder, ScoreCoder};
use headwater_link::{Incoming, Link, LinkConfig, QoS, RetainedMessage};
use headwater_protocol::testing::birth;
use headwater_protocol::{
    Birth, Body, Boot, Decision, DeviceId, DeviceState, DeviceTopic, GroupId, Header, Limits, Message,
    NetworkId, Numbering, SampleId, Schema, Session, SettledNotice, SiteId, Slot, SlotPresence, Status,
    Topic, Topics, age_ms, decode, encode,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{DEVICE_NAMES, DEVICES, SITE, Site, until_nothing_is_missing};
use crate::shipped;

/// Time between two samples of a group.
pub const SIMULATED_PERIOD: Duration = Duration::from_millis(100);

/// Boot number of the simulated devices.
const BOOT: Boot = Boot(1);

/// Bodies of the messages with which every slot answers every shipped frame.
#[derive(Debug)]
pub struct Answers {
    limits: Limits,
    network: NetworkId,
    /// Bodies by frame and slot; `None` if the slot does not see the sample.
    bodies: Vec<Vec<Option<AnswerBody>>>,
}

#[derive(Debug)]
struct AnswerBody {
    scores: Vec<u8>,
    features: Vec<u8>,
}

impl Answers {
    /// Runs every device section of the shipped bundle on every shipped frame.
    ///
    /// # Panics
    /// When the shipped bundle or frames are damaged.
    pub fn compute() -> Self {
        let (bundle, frames) = (shipped::bundle(), shipped::frames());
        let mut bodies: Vec<Vec<Option<AnswerBody>>> = (0..frames.len()).map(|_| Vec::new()).collect();
        for slot in Slot::first(DEVICES) {
            let mut section = DeviceSection::load(&bundle, slot, &PackedEngine).expect("a packed section");
            let maps = MapCoder::of(&bundle, slot).expect("the bundle has the tables of its maps");
            let coder = ScoreCoder::of(bundle.manifest(), slot);
            for (frame, bodies) in bodies.iter_mut().enumerate() {
                let view = shipped::views(&frames, frame).swap_remove(slot.index());
                bodies.push(view.map(|view| {
                    let output = section.run(&view, 1).expect("the view fits").swap_remove(0);
                    let mut scores = Vec::new();
                    coder.put(&output.scores, &mut scores);
                    let features = match &maps {
                        Some(maps) => maps.encode(&output.features).expect("a map of the network"),
                        None => output.features,
                    };
                    AnswerBody { scores, features }
                }));
            }
        }
        Self { limits: bundle.manifest().limits(), network: bundle.network_id(), bodies }
    }

    fn body(&self, sample: SampleId, slot: Slot) -> Option<&AnswerBody> {
        let frame = sample.0 % self.bodies.len() as u64;
        self.bodies[frame as usize][slot.index()].as_ref()
    }

    fn message(&self, sample: SampleId, body: Body<'_>, captured: Instant) -> Vec<u8> {
        let age_ms = age_ms(captured.elapsed().as_micros() as u64);
        let header = Header { late: false, session: Session::of_boot(self.network, BOOT), sample, age_ms };
        let mut payload = Vec::new();
        encode(&Message { header, body }, &self.limits, &mut payload).expect("a body of the network");
        payload
    }
}

/// Times at which a group captures: sample `k` is due at `k` periods and the phase of the group after 1970.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Time of `start` after 1970.
    wall: Duration,
    phase: Duration,
}

impl Clock {
    /// A clock that starts now.
    pub fn new(phase: Duration) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall, phase }
    }

    /// The first sample that is captured after now.
    fn next(&self) -> SampleId {
        let at = self.wall + self.start.elapsed();
        SampleId((at.saturating_sub(self.phase).as_micros() / SIMULATED_PERIOD.as_micros()) as u64 + 1)
    }

    fn captured(&self, sample: SampleId) -> Instant {
        let at = Duration::from_millis(sample.0 * SIMULATED_PERIOD.as_millis() as u64) + self.phase;
        self.start + at.saturating_sub(self.wall)
    }
}

/// The samples that count, as the operator of a group sees them.
#[derive(Debug, Default)]
pub struct Seen {
    /// The first sample that counts; `None` while everything starts and no sample counts.
    pub from: Option<SampleId>,
    /// The first sample that counts no longer; `None` while there is no such sample.
    pub until: Option<SampleId>,
    /// Number of captured samples.
    pub captured: u64,
    /// Captured samples that the leader has not named as settled.
    pub unsettled: BTreeSet<SampleId>,
    /// Captured samples without a decision, which are open or dropped.
    pub undecided: BTreeSet<SampleId>,
    /// Samples that were decided twice, or decided and never captured.
    pub contradicted: u64,
    /// For each slot: number of decisions in which the slot is missing.
    pub missing_views: [u64; DEVICES],
    /// Number of decisions by reason of degradation.
    pub degraded: BTreeMap<&'static str, u64>,
    /// Microseconds from the capture to the arrival of the decision at the operator: `[local, escalated]`.
    pub latencies_us: [Vec<u32>; 2],
}

impl Seen {
    fn counts(&self, sample: SampleId) -> bool {
        self.from.is_some_and(|from| sample >= from) && self.until.is_none_or(|until| sample < until)
    }

    fn capture(&mut self, sample: SampleId) {
        if self.counts(sample) {
            self.captured += 1;
            self.unsettled.insert(sample);
            self.undecided.insert(sample);
        }
    }

    fn decide(&mut self, decision: &Decision, latency: Duration) {
        if !self.counts(decision.sample) {
            return;
        }
        if !self.undecided.remove(&decision.sample) {
            self.contradicted += 1;
            return;
        }
        for (missing, slot) in self.missing_views.iter_mut().zip(Slot::first(DEVICES)) {
            *missing += u64::from(decision.presence.get(slot) == SlotPresence::Missing);
        }
        for reason in &decision.degraded {
            *self.degraded.entry(reason.name()).or_default() += 1;
        }
        // The leader waits for features only if the sample goes to the cloud.
        let is_escalated = decision.stages.features_us > 0;
        self.latencies_us[usize::from(is_escalated)]
            .push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    fn settle(&mut self, notice: &SettledNotice) {
        self.unsettled.retain(|sample| !notice.covers(*sample) && !notice.late.contains(sample));
    }
}

/// A group of simulated devices with its operator.
#[derive(Debug)]
pub struct SimulatedGroup {
    /// Name of the group.
    pub name: String,
    /// The samples as the operator sees them.
    pub seen: Arc<Mutex<Seen>>,
    clock: Clock,
    links: Vec<Link>,
    tasks: JoinSet<()>,
}

impl SimulatedGroup {
    /// Starts the devices of a group and its operator; they run until the group is dropped.
    ///
    /// # Panics
    /// When the files of a member cannot be used.
    pub fn start(site: &Site, group: &str, answers: &Arc<Answers>, clock: Clock) -> Self {
        let (site_id, group_id) = (SiteId::new(SITE).expect("a name"), GroupId::new(group).expect("a name"));
        let topics = Topics::new(&site_id, &group_id);
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        let operator = LinkConfig::new(site.access(group, "operator"), format!("load-{group}"))
            .subscribe(topics.name(&Topic::Result), QoS::AtMostOnce)
            .subscribe(topics.name(&Topic::Settled), QoS::AtMostOnce);
        let (operator, incoming) = Link::start(operator).expect("settings of an operator");
        tasks.spawn(operate(incoming, topics.clone(), clock, Arc::clone(&seen)));
        let mut devices = Vec::new();
        for slot in Slot::first(DEVICES) {
            let (device, incoming) = SimulatedDevice::start(site, (group, &topics), slot, answers);
            tasks.spawn(Arc::clone(&device).answer_requests(incoming, clock));
            devices.push(device);
        }
        let links = devices.iter().map(|device| device.link.clone()).chain([operator]).collect();
        tasks.spawn(capture(devices, clock, Arc::clone(&seen)));
        Self { name: group.to_owned(), seen, clock, links, tasks }
    }

    /// True when every device and the operator are connected.
    pub fn is_connected(&self) -> bool {
        self.links.iter().all(Link::is_connected)
    }

    /// Counts the samples from the next one on.
    pub fn begin(&self) {
        // The lock is taken before the next sample is computed: otherwise that sample may be captured before it counts.
        let mut seen = self.seen.lock();
        seen.from = Some(self.clock.next());
    }

    /// Counts no sample from the next one on. The devices still capture.
    pub fn end(&self) {
        let mut seen = self.seen.lock();
        seen.until = Some(self.clock.next());
    }

    /// Number of messages that the links of the group did not take.
    pub fn unsent(&self) -> u64 {
        let counts = self.links.iter().map(Link::counts);
        counts.map(|counts| counts.refused_queue_full + counts.refused_not_connected).sum()
    }

    /// True when each task of the group still runs. A task ends only by a fault of the simulation.
    pub fn runs(&mut self) -> bool {
        self.tasks.try_join_next().is_none()
    }
}

/// Lets every device capture each sample. Never returns.
async fn capture(devices: Vec<Arc<SimulatedDevice>>, clock: Clock, seen: Arc<Mutex<Seen>>) {
    let mut sample = clock.next();
    loop {
        let captured = clock.captured(sample);
        tokio::time::sleep_until(captured.into()).await;
        seen.lock().capture(sample);
        devices.iter().for_each(|device| device.send_summary(sample, captured));
        sample.0 += 1;
    }
}

/// Notes the decisions and the settled samples of a group, until the link ends.
async fn operate(
    mut incoming: mpsc::Receiver<Incoming>,
    topics: Topics,
    clock: Clock,
    seen: Arc<Mutex<Seen>>,
) {
    let (result, settled) = (topics.name(&Topic::Result), topics.name(&Topic::Settled));
    while let Some(incoming) = incoming.recv().await {
        let Incoming::Message { topic, payload, .. } = incoming else { continue };
        let now = Instant::now();
        if topic == result {
            let decision: Decision =
                serde_json::from_slice(&payload).expect("the leader publishes decisions");
            let latency = now.saturating_duration_since(clock.captured(decision.sample));
            seen.lock().decide(&decision, latency);
        } else if topic == settled {
            let notice: SettledNotice =
                serde_json::from_slice(&payload).expect("the leader publishes notices");
            seen.lock().settle(&notice);
        }
    }
}

#[derive(Debug)]
struct SimulatedDevice {
    link: Link,
    slot: Slot,
    answers: Arc<Answers>,
    summary: String,
    features: String,
    request: String,
}

impl SimulatedDevice {
    fn start(
        site: &Site,
        (group, topics): (&str, &Topics),
        slot: Slot,
        answers: &Arc<Answers>,
    ) -> (Arc<Self>, mpsc::Receiver<Incoming>) {
        let name = DEVICE_NAMES[slot.index()];
        let id = DeviceId::new(name).expect("a name");
        let period_ms = SIMULATED_PERIOD.as_millis() as u64;
        let birth = Birth {
            boot: BOOT,
            software: "simulated/1".into(),
            numbering: Some(Numbering::Clock { period_ms: period_ms as u32 }),
            ..birth(name, slot.index() as u8, answers.network)
        };
        let status = |state| Status { schema: Schema, state, boot: BOOT, frozen: None };
        let topic = |leaf| topics.device(&id, leaf);
        let mut config = LinkConfig::new(site.access(group, name), format!("{SITE}.{group}.{name}"));
        config.subscriptions = subscriptions(topics, &id, Capture::Clock { period_ms });
        config.retained = vec![
            retained(topic(DeviceTopic::Birth), &birth),
            retained(topic(DeviceTopic::Status), &status(DeviceState::Up)),
        ];
        config.last_will = Some(retained(topic(DeviceTopic::Status), &status(DeviceState::Down)));
        let (link, incoming) = Link::start(config).expect("settings of a device");
        let device = Self {
            link,
            slot,
            answers: Arc::clone(answers),
            summary: topic(DeviceTopic::Summary),
            features: topic(DeviceTopic::Features),
            request: topics.name(&Topic::Request),
        };
        (Arc::new(device), incoming)
    }

    fn send_summary(&self, sample: SampleId, captured: Instant) {
        let body = match self.answers.body(sample, self.slot) {
            Some(body) => Body::Summary(&body.scores),
            None => Body::NotInView,
        };
        self.send(&self.summary, self.answers.message(sample, body, captured));
    }

    /// Sends the features that the leader asks for, until the link ends. Other messages need no answer.
    async fn answer_requests(self: Arc<Self>, mut incoming: mpsc::Receiver<Incoming>, clock: Clock) {
        while let Some(incoming) = incoming.recv().await {
            let Incoming::Message { topic, payload, .. } = incoming else { continue };
            if topic != self.request {
                continue;
            }
            let message = decode(&payload, &self.answers.limits).expect("the leader sends requests");
            let (Body::Request(slots), sample) = (message.body, message.header.sample) else { continue };
            if !slots.contains(self.slot) {
                continue;
            }
            let body = match self.answers.body(sample, self.slot) {
                Some(body) => Body::Features(&body.features),
                None => Body::Gone,
            };
            self.send(&self.features, self.answers.message(sample, body, clock.captured(sample)));
        }
    }

    /// Publishes a message. The link counts a message that it does not take.
    fn send(&self, topic: &str, payload: Vec<u8>) {
        let _ = self.link.publish(topic, payload, QoS::AtMostOnce, false);
    }
}

fn retained(topic: String, value: &impl serde::Serialize) -> RetainedMessage {
    let payload = serde_json::to_vec(value).expect("names and numbers have a JSON form");
    RetainedMessage::new(topic, payload)
}

/// Waits until every group is connected.
///
/// # Panics
/// When a group is not connected in time.
pub async fn connected(groups: &[SimulatedGroup]) {
    until_nothing_is_missing(|| {
        let away = groups.iter().find(|group| !group.is_connected())?;
        Some(format!("a simulated device of {} does not find the broker", away.name))
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_sample_is_settled_and_has_no_decision() {
        let mut seen = Seen { from: Some(SampleId(5)), ..Seen::default() };
        (4..=6).for_each(|sample| seen.capture(SampleId(sample)));
        seen.settle(&SettledNotice { closed: vec![(SampleId(0), SampleId(5))], ..SettledNotice::default() });
        assert_eq!((seen.captured, seen.unsettled.len(), seen.undecided.len()), (2, 1, 2));
    }
}
