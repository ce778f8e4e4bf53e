//! Messages from the broker: topic and payload in, events for the leader out, refusals counted.

use std::collections::HashMap;

use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::{DeviceAnswer, EdgeAnswer, Event, Generation};
use headwater_inference::manifest::{FeatureEncoding, NetworkManifest};
use headwater_protocol::{
    Birth, Body, DeviceTopic, EdgeStatus, EdgeTopic, Fault, Limits, Message, NetworkId, SampleId, SlotSet,
    Status, Topic, Topics, decode,
};

use crate::registry::{DeviceIndex, DeviceNetwork, Registry, SlotChange};
use crate::remote_edges::{EdgeChange, EdgeNetwork, NetworkEdge, RemoteEdgeIndex, RemoteEdges};
use crate::report::{DeviceRefusals, EdgeRefusals};

/// Topic names whose meaning is remembered: a message on one of them costs a look-up and no allocation.
const MAX_ROUTES: usize = 4096;

/// Decoder of messages under the networks of the group.
#[derive(Debug)]
pub(crate) struct Inbox {
    topics: Topics,
    formats: PerNetwork<MessageFormat>,
    devices: Registry,
    edges: RemoteEdges,
    routes: HashMap<String, Route>,
    /// Newest sample that is still accepted while the aggregator stops; a stopping aggregator takes no sample from a spool either.
    last_sample: Option<SampleId>,
    scores: Vec<f32>,
    changes: Vec<SlotChange>,
    unroutable: u64,
}

/// Format of the messages of a network.
#[derive(Clone, Debug)]
pub(crate) struct MessageFormat {
    pub(crate) network: NetworkId,
    pub(crate) slots: usize,
    /// Slots of each remote edge; empty for an edge in this process.
    pub(crate) remote_edges: Vec<SlotSet>,
    pub(crate) limits: Limits,
    /// Encoding of the devices' feature maps.
    pub(crate) device_features: FeatureEncoding,
    /// Encoding of the edges' feature maps.
    pub(crate) edge_features: FeatureEncoding,
}

impl MessageFormat {
    pub(crate) fn new(manifest: &NetworkManifest, network: NetworkId, remote_edges: Vec<SlotSet>) -> Self {
        let edge = manifest.edge.as_ref().map(|edge| edge.features.encoding);
        Self {
            network,
            slots: usize::from(manifest.slots),
            remote_edges,
            limits: manifest.limits(),
            device_features: manifest.features.encoding,
            edge_features: edge.unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Route {
    Trigger,
    Device(DeviceIndex, DeviceTopic),
    Edge(RemoteEdgeIndex, EdgeTopic),
}

/// Payload of a message, and the newest sample at its arrival.
#[derive(Clone, Copy)]
struct Received<'a> {
    payload: &'a [u8],
    newest: SampleId,
}

impl Inbox {
    pub(crate) fn new(topics: Topics, formats: PerNetwork<MessageFormat>) -> Self {
        let devices =
            formats.as_ref().map(|_, format| DeviceNetwork { network: format.network, slots: format.slots });
        let edges = formats
            .as_ref()
            .map(|_, format| EdgeNetwork { network: format.network, slots: format.remote_edges.clone() });
        Self {
            topics,
            devices: Registry::new(devices),
            edges: RemoteEdges::new(edges),
            formats,
            routes: HashMap::new(),
            last_sample: None,
            scores: Vec::new(),
            changes: Vec::new(),
            unroutable: 0,
        }
    }

    /// Reads one message and calls `event` with its event. `newest` is the leader's newest sample, used to widen short ids.
    pub(crate) fn receive(
        &mut self,
        topic: &str,
        payload: &[u8],
        newest: SampleId,
        mut event: impl FnMut(Generation, Event<'_>),
    ) {
        match self.route(topic) {
            None => self.unroutable += 1,
            Some(Route::Trigger) => self.trigger(payload, &mut event),
            Some(Route::Device(device, DeviceTopic::Birth)) => self.birth(device, payload, &mut event),
            Some(Route::Device(device, DeviceTopic::Status)) => self.status(device, payload, &mut event),
            Some(Route::Device(device, leaf)) => {
                self.message(device, leaf, Received { payload, newest }, &mut event);
            }
            Some(Route::Edge(edge, EdgeTopic::Status)) => self.edge_status(edge, payload, &mut event),
            Some(Route::Edge(edge, EdgeTopic::Features)) => {
                self.edge_message(edge, Received { payload, newest }, &mut event);
            }
        }
    }

    /// From now on, ignores samples newer than `last`; the next process decides them.
    pub(crate) fn stop_after(&mut self, last: SampleId) {
        self.last_sample = Some(last);
    }

    /// Every device with refusals.
    pub(crate) fn refusals(&self) -> Vec<DeviceRefusals> {
        self.devices.refusals()
    }

    /// Every edge with refusals.
    pub(crate) fn edge_refusals(&self) -> Vec<EdgeRefusals> {
        self.edges.refusals()
    }

    /// Messages on foreign topics, messages of more names than are remembered, and unreadable triggers.
    pub(crate) fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// The newest first sample of all devices that fill a slot; 0 where triggers give the ids.
    pub(crate) fn newest_first_sample(&self) -> SampleId {
        self.devices.newest_first_sample()
    }

    /// Slots that a device fills.
    pub(crate) fn filled_slots(&self) -> SlotSet {
        self.devices.filled()
    }

    fn route(&mut self, topic: &str) -> Option<Route> {
        if let Some(&route) = self.routes.get(topic) {
            return Some(route);
        }
        let route = match self.topics.parse(topic) {
            Ok(Topic::Trigger) => Route::Trigger,
            Ok(Topic::Device(id, leaf)) => Route::Device(self.devices.device(&id)?, leaf),
            Ok(Topic::Edge(id, leaf)) => Route::Edge(self.edges.edge(&id)?, leaf),
            _ => return None,
        };
        if self.routes.len() < MAX_ROUTES {
            self.routes.insert(topic.to_owned(), route);
        }
        Some(route)
    }

    /// Format of a network. The registries give only generations that `formats` has.
    fn format(&self, generation: Generation) -> &MessageFormat {
        &self.formats[generation]
    }

    /// Triggers are for the devices; the leader learns the newest sample from them.
    fn trigger(&mut self, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        let is_ours = |tag| self.formats.iter().any(|(_, format)| format.network.tag() == tag);
        match decode(payload, &self.formats.current.limits) {
            Ok(Message { body: Body::Trigger(sample), header }) if is_ours(header.network) => {
                event(Generation::Current, Event::Trigger { sample });
            }
            _ => self.unroutable += 1,
        }
    }

    fn birth(&mut self, device: DeviceIndex, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        if payload.is_empty() {
            self.devices.clear_birth(device, &mut self.changes);
        } else {
            match serde_json::from_slice::<Birth>(payload) {
                Ok(birth) => self.devices.set_birth(device, &birth, &mut self.changes),
                Err(error) => self.devices.refuse(device, Fault::Malformed, &format!("birth: {error}")),
            }
        }
        self.emit_changes(event);
    }

    fn status(&mut self, device: DeviceIndex, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        match serde_json::from_slice::<Status>(payload) {
            Ok(status) => self.devices.set_status(device, status, &mut self.changes),
            // A retained status was cleared; the session goes on.
            Err(_) if payload.is_empty() => {}
            Err(error) => self.devices.refuse(device, Fault::Malformed, &format!("status: {error}")),
        }
        self.emit_changes(event);
    }

    fn edge_status(
        &mut self,
        edge: RemoteEdgeIndex,
        payload: &[u8],
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        if payload.is_empty() {
            return;
        }
        let changes = match serde_json::from_slice::<EdgeStatus>(payload) {
            Ok(status) => self.edges.set_status(edge, &status),
            Err(error) => return self.edges.refuse(edge, Fault::Malformed, &format!("status: {error}")),
        };
        for change in changes {
            match change {
                EdgeChange::Up(at) => event(at.generation, Event::EdgeUp { edge: at.edge }),
                EdgeChange::Down(at) => event(at.generation, Event::EdgeDown { edge: at.edge }),
            }
        }
    }

    fn edge_message(
        &mut self,
        from: RemoteEdgeIndex,
        Received { payload, newest }: Received<'_>,
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        let generation = self.edges.generation(from);
        let &MessageFormat { network, limits, edge_features: encoding, .. } = self.format(generation);
        let message = match decode(payload, &limits) {
            Ok(message) => message,
            Err(error) => return self.edges.refuse(from, error.fault(), &error.to_string()),
        };
        let header = message.header;
        if header.network != network.tag() {
            let why = format!("network tag: expected {}, found {}", network.tag(), header.network);
            return self.edges.refuse(from, Fault::WrongNetwork, &why);
        }
        let NetworkEdge { edge, .. } = match self.edges.admit(from, header.boot) {
            Ok(edge) => edge,
            Err(fault) => return self.edges.refuse(from, fault, "a message of an edge that is not accepted"),
        };
        let sample = SampleId::widen(header.sample_low, newest);
        match message.body {
            Body::EdgeFeatures { slots, map, .. } if encoding.takes(map) => {
                self.scores.clear();
                self.scores.extend(message.body.scores());
                let (scores, body_bytes) = (&self.scores[..], message.body.len() as u64);
                let answer = Some(EdgeAnswer { slots, scores, map, body_bytes });
                event(generation, Event::EdgeAnswer { edge, sample, answer });
            }
            Body::Gone => event(generation, Event::EdgeAnswer { edge, sample, answer: None }),
            Body::EdgeFeatures { .. } => self.edges.refuse(from, Fault::Malformed, NOT_FINITE),
            body => {
                let why = format!("a {} message on the topic of an edge", body.kind().name());
                self.edges.refuse(from, Fault::Malformed, &why);
            }
        }
    }

    fn emit_changes(&mut self, event: &mut impl FnMut(Generation, Event<'_>)) {
        for change in self.changes.drain(..) {
            match change {
                SlotChange::Up(at) => event(at.generation, Event::DeviceUp { slot: at.slot }),
                SlotChange::Down(at) => event(at.generation, Event::DeviceDown { slot: at.slot }),
            }
        }
    }

    fn message(
        &mut self,
        device: DeviceIndex,
        leaf: DeviceTopic,
        Received { payload, newest }: Received<'_>,
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        let generation = self.devices.generation(device);
        let &MessageFormat { network, limits, device_features: encoding, .. } = self.format(generation);
        let message = match decode(payload, &limits) {
            Ok(message) => message,
            Err(error) => return self.devices.refuse(device, error.fault(), &error.to_string()),
        };
        let header = message.header;
        if header.network != network.tag() {
            let (ours, theirs) = (network.tag(), header.network);
            let why = format!("network tag: expected {ours}, found {theirs}: give it this group's bundle");
            return self.devices.refuse(device, Fault::WrongNetwork, &why);
        }
        let slot = match self.devices.admit(device, header.boot) {
            Ok(slot) => slot,
            Err(fault) => {
                return self.devices.refuse(device, fault, "a message of a device that is not accepted");
            }
        };
        let near = newest.max(self.devices.first_sample(device));
        let sample = SampleId::widen(header.sample_low, near);
        let (age_ms, late) = (header.age_ms, header.late);
        // Spooled samples are left to the next process; features of a sample that is open are still needed.
        let opens_late = late && leaf != DeviceTopic::Features;
        if self.last_sample.is_some_and(|last| sample > last || opens_late) {
            return;
        }
        let mut event = |what: Event<'_>| event(generation, what);
        let answered = |answer| Event::DeviceAnswer { slot, sample, age_ms, late, answer };
        match (leaf, message.body) {
            (DeviceTopic::Summary, Body::Summary(_)) => {
                self.scores.clear();
                self.scores.extend(message.body.scores());
                event(answered(DeviceAnswer::Summary(&self.scores)));
            }
            (DeviceTopic::Summary, Body::NotInView) => event(answered(DeviceAnswer::NotInView)),
            (DeviceTopic::Summary, Body::Input(pixels)) => event(answered(DeviceAnswer::Input(pixels))),
            (DeviceTopic::Summary, Body::Gone) if late => event(answered(DeviceAnswer::GivenUp)),
            (DeviceTopic::Decision, Body::Decided(decision)) => {
                event(answered(DeviceAnswer::Decided(decision)));
            }
            (DeviceTopic::Features, Body::Features(bits)) if !encoding.takes(bits) => {
                self.devices.refuse(device, Fault::Malformed, NOT_FINITE);
            }
            (DeviceTopic::Features, Body::Features(bits)) => {
                event(Event::Features { slot, sample, late, bits });
            }
            (DeviceTopic::Features, Body::Gone) => event(Event::Gone { slot, sample }),
            (leaf, body) => {
                let why = format!("a {} message on the topic {}", body.kind().name(), leaf.name());
                self.devices.refuse(device, Fault::Malformed, &why);
            }
        }
    }
}

/// Filters of the retained messages of devices.
pub(crate) fn retained_filters(topics: &Topics) -> [String; 2] {
    [DeviceTopic::Birth, DeviceTopic::Status].map(|leaf| topics.every_device(leaf))
}

/// Filters of the messages of one sample.
pub(crate) fn sample_filters(topics: &Topics) -> [String; 4] {
    let [summary, features, decision] = [DeviceTopic::Summary, DeviceTopic::Features, DeviceTopic::Decision]
        .map(|leaf| topics.every_device(leaf));
    [summary, features, decision, topics.name(&Topic::Trigger)]
}

/// Filters of the messages of remote edges.
pub(crate) fn edge_filters(topics: &Topics) -> [String; 2] {
    EdgeTopic::ALL.map(|leaf| topics.every_edge(leaf))
}

/// Refusal of a feature map of floats.
const NOT_FINITE: &str = "features: expected finite floats, found NaN or infinity";

#[cfg(test)]
mod tests;
