//! What arrives from the broker: topic and payload in, events for the leader out, refusals counted.

use std::collections::HashMap;

use headwater_inference::leader::{Event, Generation};
use headwater_inference::manifest::{FeatureEncoding, NetworkManifest};
use headwater_protocol::{
    Birth, Body, DeviceTopic, EdgeStatus, EdgeTopic, Fault, Limits, Message, NetworkId, SampleId, SlotSet,
    Status, Topic, Topics, decode,
};

use crate::edges::{EdgeChange, EdgeIndex, EdgePlace, EdgeRegistry, KnownEdges};
use crate::registry::{Change, DeviceIndex, Known, Registry};
use crate::report::{DeviceRefusals, EdgeRefusals};

/// Topic names remembered with what they mean, so that a message costs a look-up and no allocation.
const MOST_ROUTES: usize = 4096;

/// Reads messages under the networks of the group.
#[derive(Debug)]
pub(crate) struct Inbox {
    topics: Topics,
    /// In the order of [`Generation`].
    networks: Vec<Wire>,
    registry: Registry,
    edges: EdgeRegistry,
    routes: HashMap<String, Route>,
    /// Samples above it are not taken, nor any from a spool: the aggregator is stopping.
    last_sample: Option<SampleId>,
    scores: Vec<f32>,
    changes: Vec<Change>,
    /// Messages of no device: foreign topics, names beyond those remembered, unreadable triggers.
    strays: u64,
}

/// How the messages of a network look.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) network: NetworkId,
    pub(crate) slots: usize,
    /// Slots of each edge that runs elsewhere; empty for one that does not.
    pub(crate) edges: Vec<SlotSet>,
    pub(crate) limits: Limits,
    /// How the maps of devices travel.
    pub(crate) device: FeatureEncoding,
    /// How the maps of edges travel.
    pub(crate) edge: FeatureEncoding,
}

impl Wire {
    pub(crate) fn of(manifest: &NetworkManifest, network: NetworkId, edges: Vec<SlotSet>) -> Self {
        let edge = manifest.edge.as_ref().map(|edge| edge.features.encoding);
        Self {
            network,
            slots: usize::from(manifest.slots),
            edges,
            limits: manifest.limits(),
            device: manifest.features.encoding,
            edge: edge.unwrap_or_default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Route {
    Trigger,
    Device(DeviceIndex, DeviceTopic),
    Edge(EdgeIndex, EdgeTopic),
}

impl Inbox {
    /// `networks`: the current one, and the next where there is one.
    pub(crate) fn new(topics: Topics, networks: Vec<Wire>) -> Self {
        let of = || Generation::ALL.into_iter().zip(&networks);
        let devices =
            of().map(|(generation, &Wire { network, slots, .. })| Known { generation, network, slots });
        let edges = of().map(|(generation, wire)| KnownEdges {
            generation,
            network: wire.network,
            slots: wire.edges.clone(),
        });
        Self {
            topics,
            registry: Registry::new(devices.collect()),
            edges: EdgeRegistry::new(edges.collect()),
            networks,
            routes: HashMap::new(),
            last_sample: None,
            scores: Vec::new(),
            changes: Vec::new(),
            strays: 0,
        }
    }

    /// Reads one message and gives what it means for the leader to `event`. `newest` is the newest sample the leader knows of;
    /// the ids in headers are widened near it.
    pub(crate) fn receive(
        &mut self,
        topic: &str,
        payload: &[u8],
        newest: SampleId,
        mut event: impl FnMut(Generation, Event<'_>),
    ) {
        match self.route(topic) {
            None => self.strays += 1,
            Some(Route::Trigger) => self.trigger(payload, &mut event),
            Some(Route::Device(device, DeviceTopic::Birth)) => self.birth(device, payload, &mut event),
            Some(Route::Device(device, DeviceTopic::Status)) => self.status(device, payload, &mut event),
            Some(Route::Device(device, leaf)) => self.message(device, leaf, payload, newest, &mut event),
            Some(Route::Edge(edge, EdgeTopic::Status)) => self.edge_status(edge, payload, &mut event),
            Some(Route::Edge(edge, EdgeTopic::Features)) => {
                self.edge_message(edge, payload, newest, &mut event);
            }
        }
    }

    /// From now on samples newer than `last` are left to the next life.
    pub(crate) fn stop_after(&mut self, last: SampleId) {
        self.last_sample = Some(last);
    }

    /// Devices with refusals, and what was refused of each.
    pub(crate) fn refusals(&self) -> Vec<DeviceRefusals> {
        self.registry.refusals()
    }

    /// Edges with refusals, and what was refused of each.
    pub(crate) fn edge_refusals(&self) -> Vec<EdgeRefusals> {
        self.edges.refusals()
    }

    /// Messages that belong to no device.
    pub(crate) fn strays(&self) -> u64 {
        self.strays
    }

    /// The newest id of which a device said that its samples begin there; 0 where triggers give the ids.
    pub(crate) fn newest_at_birth(&self) -> SampleId {
        self.registry.newest_at_birth()
    }

    /// Bit `i` set where a device fills slot `i`.
    pub(crate) fn filled_slots(&self) -> u64 {
        self.registry.filled()
    }

    fn route(&mut self, topic: &str) -> Option<Route> {
        if let Some(&route) = self.routes.get(topic) {
            return Some(route);
        }
        let route = match self.topics.parse(topic) {
            Ok(Topic::Trigger) => Route::Trigger,
            Ok(Topic::Device(id, leaf)) => Route::Device(self.registry.device(&id)?, leaf),
            Ok(Topic::Edge(id, leaf)) => Route::Edge(self.edges.edge(&id)?, leaf),
            _ => return None,
        };
        if self.routes.len() < MOST_ROUTES {
            self.routes.insert(topic.to_owned(), route);
        }
        Some(route)
    }

    fn wire(&self, generation: Generation) -> &Wire {
        // A generation comes from a registry, which knows those of `networks` alone.
        &self.networks[generation as usize]
    }

    /// Triggers are for the devices; the leader learns from them how far the samples are.
    fn trigger(&mut self, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        let is_ours = |tag| self.networks.iter().any(|wire| wire.network.tag() == tag);
        match decode(payload, &self.networks[0].limits) {
            Ok(Message { body: Body::Trigger(sample), header }) if is_ours(header.network) => {
                event(Generation::Current, Event::Trigger { sample });
            }
            _ => self.strays += 1,
        }
    }

    fn birth(&mut self, device: DeviceIndex, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        if payload.is_empty() {
            self.registry.forget(device, &mut self.changes);
        } else {
            match serde_json::from_slice::<Birth>(payload) {
                Ok(birth) => self.registry.birth(device, &birth, &mut self.changes),
                Err(error) => self.registry.refuse(device, Fault::Malformed, &format!("birth: {error}")),
            }
        }
        self.tell_changes(event);
    }

    fn status(&mut self, device: DeviceIndex, payload: &[u8], event: &mut impl FnMut(Generation, Event<'_>)) {
        match serde_json::from_slice::<Status>(payload) {
            Ok(status) => self.registry.status(device, status, &mut self.changes),
            // A cleared retained status says nothing about the life that is current.
            Err(_) if payload.is_empty() => {}
            Err(error) => self.registry.refuse(device, Fault::Malformed, &format!("status: {error}")),
        }
        self.tell_changes(event);
    }

    fn edge_status(
        &mut self,
        edge: EdgeIndex,
        payload: &[u8],
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        if payload.is_empty() {
            return;
        }
        let changes = match serde_json::from_slice::<EdgeStatus>(payload) {
            Ok(status) => self.edges.status(edge, &status),
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
        from: EdgeIndex,
        payload: &[u8],
        newest: SampleId,
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        let generation = self.edges.generation(from);
        let &Wire { network, limits, edge: encoding, .. } = self.wire(generation);
        let message = match decode(payload, &limits) {
            Ok(message) => message,
            Err(error) => return self.edges.refuse(from, error.fault(), &error.to_string()),
        };
        let header = message.header;
        if header.network != network.tag() {
            let why = format!("network tag: expected {}, found {}", network.tag(), header.network);
            return self.edges.refuse(from, Fault::WrongNetwork, &why);
        }
        let EdgePlace { edge, .. } = match self.edges.admit(from, header.boot) {
            Ok(edge) => edge,
            Err(fault) => return self.edges.refuse(from, fault, "a message of an edge that is not let in"),
        };
        let sample = SampleId::widen(header.sample_low, newest);
        match message.body {
            Body::EdgeFeatures { slots, map, .. } if encoding.takes(map) => {
                self.scores.clear();
                self.scores.extend(message.body.scores());
                let (scores, body_bytes) = (&self.scores[..], message.body.len() as u64);
                let answer = Event::EdgeAnswer { edge, sample, slots, scores, map, body_bytes };
                event(generation, answer);
            }
            Body::Gone => event(generation, Event::EdgeGone { edge, sample }),
            Body::EdgeFeatures { .. } => self.edges.refuse(from, Fault::Malformed, NOT_FINITE),
            body => {
                let why = format!("a {} message on the topic of an edge", body.kind().name());
                self.edges.refuse(from, Fault::Malformed, &why);
            }
        }
    }

    fn tell_changes(&mut self, event: &mut impl FnMut(Generation, Event<'_>)) {
        for change in self.changes.drain(..) {
            match change {
                Change::Up(at) => event(at.generation, Event::DeviceUp { slot: at.slot }),
                Change::Down(at) => event(at.generation, Event::DeviceDown { slot: at.slot }),
            }
        }
    }

    fn message(
        &mut self,
        device: DeviceIndex,
        leaf: DeviceTopic,
        payload: &[u8],
        newest: SampleId,
        event: &mut impl FnMut(Generation, Event<'_>),
    ) {
        let generation = self.registry.generation(device);
        let &Wire { network, limits, device: encoding, .. } = self.wire(generation);
        let message = match decode(payload, &limits) {
            Ok(message) => message,
            Err(error) => return self.registry.refuse(device, error.fault(), &error.to_string()),
        };
        let header = message.header;
        if header.network != network.tag() {
            let (ours, theirs) = (network.tag(), header.network);
            let why = format!("network tag: expected {ours}, found {theirs}: give it this group's bundle");
            return self.registry.refuse(device, Fault::WrongNetwork, &why);
        }
        let slot = match self.registry.admit(device, header.boot) {
            Ok(slot) => slot,
            Err(fault) => {
                return self.registry.refuse(device, fault, "a message of a device that is not let in");
            }
        };
        let near = newest.max(self.registry.sample_at_birth(device));
        let sample = SampleId::widen(header.sample_low, near);
        let (age_ms, late) = (header.age_ms, header.late);
        // What a device still holds is as well left to the next life; features of a sample that is open are not.
        let opens_late = late && leaf != DeviceTopic::Features;
        if self.last_sample.is_some_and(|last| sample > last || opens_late) {
            return;
        }
        let mut event = |what: Event<'_>| event(generation, what);
        match (leaf, message.body) {
            (DeviceTopic::Summary, Body::Summary(_)) => {
                self.scores.clear();
                self.scores.extend(message.body.scores());
                event(Event::Summary { slot, sample, age_ms, late, scores: &self.scores });
            }
            (DeviceTopic::Summary, Body::NotInView) => event(Event::NotInView { slot, sample, age_ms, late }),
            (DeviceTopic::Summary, Body::Input(pixels)) => {
                event(Event::Input { slot, sample, age_ms, late, pixels });
            }
            (DeviceTopic::Summary, Body::Gone) if late => event(Event::GivenUp { slot, sample }),
            (DeviceTopic::Decision, Body::Decided(decision)) => {
                event(Event::DeviceDecided { slot, sample, age_ms, late, decision });
            }
            (DeviceTopic::Features, Body::Features(bits)) if !encoding.takes(bits) => {
                self.registry.refuse(device, Fault::Malformed, NOT_FINITE);
            }
            (DeviceTopic::Features, Body::Features(bits)) => {
                event(Event::Features { slot, sample, late, bits });
            }
            (DeviceTopic::Features, Body::Gone) => event(Event::Gone { slot, sample }),
            (leaf, body) => {
                let why = format!("a {} message on the topic {}", body.kind().name(), leaf.name());
                self.registry.refuse(device, Fault::Malformed, &why);
            }
        }
    }
}

/// Filters the aggregator subscribes to: what devices say of themselves, then what they see.
pub(crate) fn retained_filters(topics: &Topics) -> [String; 2] {
    [DeviceTopic::Birth, DeviceTopic::Status].map(|leaf| topics.every_device(leaf))
}

/// Filters of the messages of one sample.
pub(crate) fn sample_filters(topics: &Topics) -> [String; 4] {
    let [summary, features, decision] = [DeviceTopic::Summary, DeviceTopic::Features, DeviceTopic::Decision]
        .map(|leaf| topics.every_device(leaf));
    [summary, features, decision, topics.name(&Topic::Trigger)]
}

/// Filters of what edges elsewhere say.
pub(crate) fn edge_filters(topics: &Topics) -> [String; 2] {
    EdgeTopic::ALL.map(|leaf| topics.every_edge(leaf))
}

/// Why a map of floats is refused.
const NOT_FINITE: &str = "features: expected finite floats, found NaN or infinity";

#[cfg(test)]
mod tests;
