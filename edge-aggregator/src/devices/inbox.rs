//! Messages from the broker: topic and payload in, events for the leader out, refusals counted.

use std::collections::HashMap;
use std::sync::Arc;

use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::{
    DeviceAnswer, EdgeAnswer, Event, Generation, Implausible, Micros, NamedFrame,
};
use headwater_inference::manifest::FeatureEncoding;
use headwater_inference::sections::ScoreLimits;
use headwater_protocol::scores::floats;
use headwater_protocol::{
    Batch, BatchEntry, BatchedAnswer, Birth, Body, DeviceId, DeviceTopic, EdgeId, EdgeTopic, Fault,
    FrameDetails, FrameName, Header, SampleId, Slot, Topic, Topics, Trigger, clipped, frame_details,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::devices::message_format::{Arrival, Change, InboxCounts, MessageFormat, Refusal};
use crate::devices::registry::{DeviceIndex, Introduction, Registry};
use crate::devices::remote_edges::{NetworkEdge, RemoteEdgeIndex, RemoteEdges};

/// Most topic names whose meaning is remembered: a message on a remembered topic costs a look-up and no allocation.
const MAX_ROUTES: usize = 4096;

/// Decoder of the messages of every network that the group has.
#[derive(Debug)]
pub(crate) struct Inbox {
    topics: Topics,
    pub(crate) formats: Arc<PerNetwork<MessageFormat>>,
    pub(crate) devices: Registry,
    pub(crate) edges: RemoteEdges,
    routes: HashMap<String, Route>,
    /// Number of refused triggers.
    refused_triggers: u64,
    scores: Vec<f32>,
    map: Vec<u8>,
    changes: Vec<Change>,
    /// Locked for single updates.
    counts: Arc<Mutex<InboxCounts>>,
}

/// A message of the broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'a> {
    pub(crate) topic: &'a str,
    pub(crate) payload: &'a [u8],
    pub(crate) arrival: Arrival,
    /// While the process stops or its journal has no room: the newest sample that is taken; late samples are not taken then. Otherwise
    /// `None`.
    pub(crate) last_sample: Option<SampleId>,
}

/// An accepted message of a device.
#[derive(Clone, Copy, Debug)]
struct Accepted<'a> {
    device: DeviceIndex,
    slot: Slot,
    generation: Generation,
    header: Header,
    received: Received<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Route {
    Trigger,
    Device(DeviceIndex, DeviceTopic),
    Edge(RemoteEdgeIndex, EdgeTopic),
}

impl Inbox {
    pub(crate) fn new(
        topics: Topics,
        formats: Arc<PerNetwork<MessageFormat>>,
        counts: Arc<Mutex<InboxCounts>>,
    ) -> Self {
        Self {
            topics,
            devices: Registry::new(Arc::clone(&formats), Arc::clone(&counts)),
            edges: RemoteEdges::new(Arc::clone(&formats)),
            formats,
            routes: HashMap::new(),
            refused_triggers: 0,
            scores: Vec::new(),
            map: Vec::new(),
            changes: Vec::new(),
            counts,
        }
    }

    /// Reads one message and calls `event` with the message's event. `event` returns the reason for refusing a sample, or `None`.
    pub(crate) fn receive(
        &mut self,
        received: Received<'_>,
        mut event: impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) {
        let now = received.arrival.now;
        match self.route(received.topic, now) {
            None => self.counts.lock().unroutable += 1,
            Some(Route::Trigger) => self.trigger(received, &mut event),
            Some(Route::Device(device, leaf)) => {
                if let Err((fault, why)) = self.device(device, leaf, received, &mut event) {
                    self.devices.refuse(device, fault, &why, now);
                }
            }
            Some(Route::Edge(edge, leaf)) => {
                if let Err((fault, why)) = self.edge(edge, leaf, received.payload, &mut event) {
                    self.edges.refuse(edge, fault, &why, now);
                }
            }
        }
        self.tell_changes(event);
    }

    /// True if devices may send batches: a device in a slot can, and the group has no remote edges, since remote edges read no batches.
    pub(crate) fn takes_batches(&self) -> bool {
        let has_remote_edges = self.formats.iter().any(|(_, format)| format.has_remote_edges());
        self.devices.any_sends_batches() && !has_remote_edges
    }

    fn route(&mut self, topic: &str, now: Micros) -> Option<Route> {
        if let Some(&route) = self.routes.get(topic).filter(|route| self.is_current(**route)) {
            return Some(route);
        }
        let route = match self.topics.parse(topic) {
            Ok(Topic::Trigger) => Route::Trigger,
            Ok(Topic::Device(id, leaf)) => Route::Device(self.devices.device(&id, now), leaf),
            Ok(Topic::Edge(id, leaf)) => Route::Edge(self.edges.edge(&id)?, leaf),
            _ => return None,
        };
        if self.routes.len() >= MAX_ROUTES {
            self.routes.clear();
        }
        self.routes.insert(topic.to_owned(), route);
        Some(route)
    }

    /// True if a remembered route leads to a device or edge that is still remembered.
    fn is_current(&self, route: Route) -> bool {
        match route {
            Route::Trigger => true,
            Route::Device(device, _) => self.devices.is_current(device),
            Route::Edge(edge, _) => self.edges.is_current(edge),
        }
    }

    /// Calls `event` with the changes that time alone brings: silent devices that lose their slots.
    pub(crate) fn tick(
        &mut self,
        now: Micros,
        event: impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) {
        self.devices.tick(now, &mut self.changes);
        self.tell_changes(event);
    }

    /// Replaces the list of device ids by slot, and calls `event` with the changes of slots and names that follow.
    pub(crate) fn set_owners(
        &mut self,
        owners: Vec<DeviceId>,
        now: Micros,
        event: impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) {
        self.devices.set_owners(owners, now, &mut self.changes);
        self.tell_changes(event);
    }

    fn tell_changes(&mut self, mut event: impl FnMut(Generation, Event<'_>) -> Option<Implausible>) {
        for (generation, change) in self.changes.drain(..) {
            // These events name no sample, so there is no refusal to handle.
            event(generation, change);
        }
    }

    /// Reads a trigger. Triggers are meant for the devices; the leader learns from them which samples it must decide or drop.
    fn trigger(
        &mut self,
        Received { payload, arrival, .. }: Received<'_>,
        event: &mut impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) {
        match Trigger::read(payload, &self.formats.current.limits) {
            // As for the devices, the network in the header does not matter.
            Ok(Trigger { sample, .. }) => {
                let why = if arrival.is_retained {
                    // A retained trigger would come again on each new connection.
                    Some("it is retained: publish it without the retain flag and clear the topic".to_owned())
                } else {
                    event(Generation::Current, Event::Trigger { sample }).map(|why| why.to_string())
                };
                if let Some(why) = why {
                    self.refused_triggers += 1;
                    // Logs the first, second, fourth, eighth and so on: few lines, however many such triggers come.
                    if self.refused_triggers.is_power_of_two() {
                        warn!(refused = self.refused_triggers, why, "a trigger was refused");
                    }
                }
            }
            Err(_) => self.counts.lock().unroutable += 1,
        }
    }

    fn device(
        &mut self,
        device: DeviceIndex,
        leaf: DeviceTopic,
        received: Received<'_>,
        event: &mut impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) -> Result<(), Refusal> {
        let Received { payload, arrival, .. } = received;
        let (now, is_cleared) = (arrival.now, payload.is_empty());
        match leaf {
            DeviceTopic::Birth if is_cleared => self.devices.clear_birth(device, now, &mut self.changes),
            DeviceTopic::Birth => {
                let birth: Birth = self.introduction(device, Introduction::Birth, received)?;
                self.devices.set_birth(device, &birth, arrival, &mut self.changes);
            }
            // A retained status was cleared; the session goes on.
            DeviceTopic::Status if is_cleared => {}
            DeviceTopic::Status => {
                let status = self.introduction(device, Introduction::Status, received)?;
                self.devices.set_status(device, status, arrival, &mut self.changes);
            }
            DeviceTopic::Summary
            | DeviceTopic::Features
            | DeviceTopic::Decision
            | DeviceTopic::Frame
            | DeviceTopic::Cmd => self.message(device, leaf, received, event)?,
        }
        Ok(())
    }

    /// Reads a birth or a status; one that cannot be read is noted.
    fn introduction<T: DeserializeOwned>(
        &mut self,
        device: DeviceIndex,
        what: Introduction,
        received: Received<'_>,
    ) -> Result<T, Refusal> {
        let name = match what {
            Introduction::Birth => "birth",
            Introduction::Status => "status",
        };
        json(name, received.payload).inspect_err(|(_, why)| {
            self.devices.note_unreadable(device, (what, why), received.arrival.now, &mut self.changes);
        })
    }

    fn edge(
        &mut self,
        from: RemoteEdgeIndex,
        leaf: EdgeTopic,
        payload: &[u8],
        event: &mut impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) -> Result<(), Refusal> {
        if leaf == EdgeTopic::Status {
            if !payload.is_empty() {
                self.edges.set_status(from, &json("status", payload)?, &mut self.changes)?;
            }
            return Ok(());
        }
        let generation = self.edges.generation(from);
        let format = &self.formats[generation];
        let message = format.decode(payload, self.edges.session(from))?;
        let refused = |fault| (fault, "a message of an edge that is not accepted".to_owned());
        let NetworkEdge { edge, .. } = self.edges.admit(from).map_err(refused)?;
        let sample = message.header.sample;
        match message.body {
            Body::EdgeFeatures { slots, scores, map } => {
                check_finite(format.edge_features, map)?;
                self.scores.clear();
                self.scores.extend(floats(scores));
                check_scores(&format.edge_scores, edge.index(), &self.scores)?;
                let (scores, body_bytes) = (&self.scores[..], message.body.len() as u64);
                let answer = Some(EdgeAnswer { slots, scores, map, body_bytes });
                event(generation, Event::EdgeAnswer { edge, sample, answer });
            }
            Body::Gone => _ = event(generation, Event::EdgeAnswer { edge, sample, answer: None }),
            body => {
                let why = format!("a {} message on the topic of an edge", body.kind().name());
                return Err((Fault::Malformed, why));
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        device: DeviceIndex,
        leaf: DeviceTopic,
        received: Received<'_>,
        event: &mut impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) -> Result<(), Refusal> {
        let Received { payload, arrival: Arrival { now, is_retained }, last_sample, .. } = received;
        if is_retained {
            let why = "expected a live message, found a retained one: clear the topic";
            return Err((Fault::Malformed, why.to_owned()));
        }
        let generation = self.devices.generation(device);
        let format = &self.formats[generation];
        let message = format.decode(payload, self.devices.session(device))?;
        let header = message.header;
        let refused = |fault| (fault, "a message of a device that is not accepted".to_owned());
        let slot = self.devices.admit(device, now, &mut self.changes).map_err(refused)?;
        if let (DeviceTopic::Summary, Body::Batch(batch)) = (leaf, message.body) {
            return self.batch(Accepted { device, slot, generation, header, received }, batch, event);
        }
        let frame = named_frame(format, slot, payload)?;
        let Header { late, sample, age_ms, .. } = header;
        // While the process stops or has no room, late answers are ignored: devices repeat them later. Late features still serve open
        // samples.
        let opens_late = late && leaf != DeviceTopic::Features;
        if last_sample.is_some_and(|last| sample > last || opens_late) {
            return Ok(());
        }
        let mut event = |what: Event<'_>| event(generation, what);
        let answered = |answer| {
            let frame = frame.as_ref();
            Event::DeviceAnswer { slot, sample, age_ms, late, answer, frame }
        };
        let refused = match (leaf, message.body) {
            (DeviceTopic::Summary, Body::Summary(scores)) => {
                format.score_coder(slot).read(scores, format.classes, &mut self.scores);
                check_scores(&format.device_scores, slot.index(), &self.scores)?;
                event(answered(DeviceAnswer::Summary(&self.scores)))
            }
            (DeviceTopic::Summary, Body::NotInView) => event(answered(DeviceAnswer::NotInView)),
            (DeviceTopic::Summary, Body::Input(pixels)) => event(answered(DeviceAnswer::Input(pixels))),
            (DeviceTopic::Summary, Body::Gone) if late => event(answered(DeviceAnswer::GivenUp)),
            (DeviceTopic::Decision, Body::Decided(decision)) => {
                event(answered(DeviceAnswer::Decided(decision)))
            }
            (DeviceTopic::Features, Body::Features(map)) => {
                let body_bytes = map.len() as u64;
                let bits = match format.map_coders.get(slot.index()) {
                    None => map,
                    Some(coder) => {
                        coder
                            .decode(map, &mut self.map)
                            .map_err(|error| (Fault::Malformed, error.to_string()))?;
                        &self.map
                    }
                };
                check_finite(format.device_features, bits)?;
                event(Event::Features { slot, sample, late, bits, body_bytes })
            }
            (DeviceTopic::Features, Body::Gone) => event(Event::Gone { slot, sample }),
            (leaf, body) => {
                let why = format!("a {} message on the topic {}", body.kind().name(), leaf.name());
                return Err((Fault::Malformed, why));
            }
        };
        refused.map_or(Ok(()), |why| Err((Fault::Implausible, why.to_string())))
    }

    /// Calls `event` for each answer in a batch, as for a message with this answer alone. A batch with scores that the section cannot give
    /// is refused as a whole, before any event.
    fn batch(
        &mut self,
        accepted: Accepted<'_>,
        batch: Batch<'_>,
        event: &mut impl FnMut(Generation, Event<'_>) -> Option<Implausible>,
    ) -> Result<(), Refusal> {
        let Accepted { device, slot, generation, header, received } = accepted;
        let format = &self.formats[generation];
        let coder = format.score_coder(slot);
        for entry in batch.entries(&header) {
            if let BatchedAnswer::Summary(scores) = entry.answer {
                coder.read(scores, format.classes, &mut self.scores);
                check_scores(&format.device_scores, slot.index(), &self.scores)?;
            }
        }
        for BatchEntry { sample, age_ms, answer } in batch.entries(&header) {
            if received.last_sample.is_some_and(|last| sample > last) {
                continue;
            }
            let answer = match answer {
                BatchedAnswer::Summary(scores) => {
                    coder.read(scores, format.classes, &mut self.scores);
                    DeviceAnswer::Summary(&self.scores)
                }
                BatchedAnswer::NotInView => DeviceAnswer::NotInView,
            };
            let (late, frame) = (false, None);
            let answered = Event::DeviceAnswer { slot, sample, age_ms, late, answer, frame };
            if let Some(why) = event(generation, answered) {
                self.devices.refuse(device, Fault::Implausible, &why.to_string(), received.arrival.now);
            }
        }
        Ok(())
    }
}

/// Reads JSON; `what` names the text in a refusal.
fn json<T: DeserializeOwned>(what: &str, payload: &[u8]) -> Result<T, Refusal> {
    let mistake = |error: serde_json::Error| format!("{what}: {}", clipped(&error.to_string(), 200));
    serde_json::from_slice(payload).map_err(|error| (Fault::Malformed, mistake(error)))
}

/// The frame that a device's message names; `None` if it names none.
fn named_frame(format: &MessageFormat, slot: Slot, payload: &[u8]) -> Result<Option<NamedFrame>, Refusal> {
    let Some(FrameDetails { frame, file, scores: coded }) = frame_details(payload, &format.limits) else {
        return Ok(None);
    };
    let mut scores = Vec::new();
    if !coded.is_empty() {
        format.score_coder(slot).read(coded, format.classes, &mut scores);
        check_scores(&format.device_scores, slot.index(), &scores)?;
    }
    Ok(Some(NamedFrame { name: FrameName { frame, file: file.to_owned() }, scores }))
}

/// Refuses scores that the section of a source cannot give. `source` is the position of a slot or an edge in `limits`.
fn check_scores(limits: &[Option<ScoreLimits>], source: usize, scores: &[f32]) -> Result<(), Refusal> {
    match limits.get(source).and_then(Option::as_ref).map(|limits| limits.check(scores)) {
        Some(Err(outside)) => Err((Fault::Malformed, outside.to_string())),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Refuses a feature map with floats that are not finite.
fn check_finite(encoding: FeatureEncoding, map: &[u8]) -> Result<(), Refusal> {
    let why = || "features: expected finite floats, found NaN or infinity".to_owned();
    if encoding.takes(map) { Ok(()) } else { Err((Fault::Malformed, why())) }
}

/// Filters to which the leader of a group subscribes, in their order. The topic of the claim comes first: a leader that was replaced
/// reads the new leader's claim before any other message.
pub fn leader_subscriptions(topics: &Topics) -> Vec<String> {
    let edges = EdgeTopic::ALL.map(|leaf| topics.every_edge(leaf));
    let first = [topics.name(&Topic::Leader)].into_iter().chain(edges);
    first.chain(device_filters(topics)).chain([topics.every_policy()]).collect()
}

/// Filters to which an edge of a group subscribes, in their order.
pub fn edge_subscriptions(topics: &Topics, id: &EdgeId) -> Vec<String> {
    let own = [topics.name(&Topic::Request), topics.edge(id, EdgeTopic::Status)];
    device_filters(topics).chain(own).collect()
}

/// Filters of the messages of devices and of triggers. Births and statuses come first: without them no other message is decoded. Statuses
/// come before births, so that the status of a device is known when births without a device behind them fill the table.
fn device_filters(topics: &Topics) -> impl Iterator<Item = String> {
    use DeviceTopic::{Birth, Decision, Features, Status, Summary};
    let of_devices = [Status, Birth, Summary, Features, Decision].map(|leaf| topics.every_device(leaf));
    of_devices.into_iter().chain([topics.name(&Topic::Trigger)])
}

#[cfg(test)]
pub(crate) mod tests;
