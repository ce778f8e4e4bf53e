//! An edge in a process of its own (configuration f), with one event loop for each network of the group.
//!
//! The edge takes requests of the leader and features of the edge's devices, runs its section, and answers the leader.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use headwater_inference::bundle::Bundle;
use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::{Event, Generation, Implausible, Micros};
use headwater_link::{Incoming, Link, QoS, RetainedMessage};
use headwater_protocol::{
    Body, Boot, DeviceState, EdgeId, EdgeStatus, EdgeTopic, Header, Limits, Message, Schema, Session, Topic,
    Topics, decode, encode,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{EdgeReply, LocalEdges};
use crate::clock::{Clock, Moment};
use crate::devices::inbox::{Inbox, Received, edge_subscriptions};
use crate::devices::message_format::{Arrival, MessageFormat};
use crate::devices::remote_edges::NetworkEdge;
use crate::error::AggregatorError;
use crate::group::event_loop::{End, EventLoop, RoundHandler};
use crate::group::member::Member;
use crate::group::shared::Shared;
use crate::report::EdgeReport;
use crate::settings::config::OpenedGroup;
use crate::settings::group::Role;
use crate::settings::live::{DeviceUpdates, PolicyUpdates, next_update};

/// A running edge of a group: an event loop for each network, two while the group switches its network.
pub type GroupEdge = Member<EdgeReport>;

impl GroupEdge {
    /// Loads the edge's section under each network, and starts to connect to the broker, which is tried until it succeeds. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: another role, a network without that edge, a section that does not load, or a connection that cannot be set up.
    pub async fn start(shared: &Shared, config: &OpenedGroup) -> Result<Self, AggregatorError> {
        let Role::Edge { edge, id } = &config.role else {
            return Err(AggregatorError::mistake("role: expected \"edge\", found \"leader\""));
        };
        let mut member = Self::new(shared.grace());
        for (generation, bundle) in config.networks.bundles().iter() {
            let id = match generation {
                Generation::Current => id.clone(),
                // Two event loops with one name would end each other's connections.
                Generation::Next => EdgeId::new(format!("{id}-next"))
                    .map_err(|error| AggregatorError::mistake(format!("edge_id: {error}")))?,
            };
            let edge = NetworkEdge { generation, edge: *edge };
            let (worker, rounds) = Worker::start(shared, config, (edge, id), bundle, &member).await?;
            member.connections.add(worker.link.clone());
            member.loops.spawn(run(worker, rounds, member.stop.subscribe()));
        }
        Ok(member)
    }
}

/// Loads the section of an edge, off the async threads.
async fn load(
    config: &OpenedGroup,
    NetworkEdge { generation, edge }: NetworkEdge,
    bundle: &Arc<Bundle>,
) -> Result<LocalEdges, AggregatorError> {
    // Thresholds and waits are fitted to one network: an operator's policy holds for the current network, the bundle's for the next.
    let features_ms = match generation {
        Generation::Current => config.current_policy().0.features_ms,
        Generation::Next => bundle.policy().features_ms,
    };
    let (bundle, max_open) = (Arc::clone(bundle), config.settings.max_open);
    let loading = tokio::task::spawn_blocking(move || {
        let mut edges = LocalEdges::new();
        edges.start((generation, &bundle), &[edge], features_ms, max_open)?;
        Ok(edges)
    });
    loading.await.map_err(AggregatorError::section).flatten()
}

fn retained(topic: &str, status: &EdgeStatus) -> RetainedMessage {
    RetainedMessage::new(topic, serde_json::to_vec(status).expect("names and numbers have a JSON form"))
}

/// Runs until `stop` becomes true.
///
/// # Errors
/// [`AggregatorError::Stopped`] when the link ended by itself.
async fn run(
    mut worker: Worker,
    mut rounds: EventLoop,
    mut stop: watch::Receiver<bool>,
) -> Result<(), AggregatorError> {
    match rounds.run(&mut worker, async move { _ = stop.wait_for(|&stop| stop).await }).await {
        End::Requested => Ok(()),
        End::Own(never) => match never {},
        End::LinkEnded => {
            warn!("the link ended: no more messages will come");
            Err(AggregatorError::Stopped("the link ended".into()))
        }
    }
}

/// Input of a round other than messages of the broker.
enum Input {
    Policy,
    Devices,
    Answer(EdgeReply),
}

/// State of an edge under one network.
struct Worker {
    generation: Generation,
    edges: LocalEdges,
    /// Changes of the current network's policy; `None` for the next network, whose policy does not change.
    policy_updates: Option<PolicyUpdates>,
    device_updates: Option<DeviceUpdates>,
    clock: Clock,
    inbox: Inbox,
    link: Link,
    limits: Limits,
    /// Session that the leader's requests under this network name.
    requests: Session,
    /// Session of this edge's messages.
    session: Session,
    request_topic: String,
    features_topic: String,
    status_topic: String,
    qos: QoS,
    report: Arc<Mutex<EdgeReport>>,
}

impl Worker {
    /// Starts to connect an edge under one network. The edge also knows devices of the group's other network; their features are ignored.
    async fn start(
        shared: &Shared,
        config: &OpenedGroup,
        (NetworkEdge { generation, edge }, id): (NetworkEdge, EdgeId),
        bundle: &Arc<Bundle>,
        member: &GroupEdge,
    ) -> Result<(Self, EventLoop), AggregatorError> {
        let edges = load(config, NetworkEdge { generation, edge }, bundle).await?;
        let (limits, network) = (bundle.manifest().limits(), bundle.network_id());
        let topics = Topics::new(&config.settings.site, &config.settings.group);
        // The seconds of the clock, modulo 2^16, tell one boot from another.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let status = EdgeStatus {
            schema: Schema,
            state: DeviceState::Up,
            boot: Boot(since.as_secs() as u16),
            edge,
            network,
            software: concat!("headwater-aggregator/", env!("CARGO_PKG_VERSION")).into(),
        };
        let (status_topic, request_topic) =
            (topics.edge(&id, EdgeTopic::Status), topics.name(&Topic::Request));
        let client_id = match (&config.settings.client_id, generation) {
            (Some(client_id), Generation::Next) => format!("{client_id}-next"),
            _ => config.client_id(id.as_str()),
        };
        let filters = edge_subscriptions(&topics, &id);
        let mut link = shared.link_config(config, client_id, Some(limits.largest_payload()), filters);
        link.retained = vec![retained(&status_topic, &status)];
        let down = EdgeStatus { state: DeviceState::Down, ..status.clone() };
        link.last_will = Some(retained(&status_topic, &down));
        let (link, incoming) = Link::start(link)?;
        info!(group = %config.settings.group, %id, %edge, network = network.short(), "edge ready");
        let formats = config.networks.bundles().as_ref();
        let formats = formats
            .try_map(|_, bundle| MessageFormat::new(bundle, Vec::new()))
            .map_err(AggregatorError::section)?;
        // The event loops of both networks receive the same messages: only the current network's counts go into the report.
        let counts = match generation {
            Generation::Current => Arc::clone(&member.inbox),
            Generation::Next => Arc::default(),
        };
        let mut inbox = Inbox::new(topics.clone(), Arc::new(formats), counts);
        inbox.devices.silent_after = config.settings.silent_after();
        inbox.set_owners(config.settings.devices.clone(), Micros(0), |_, _| None);
        let clock = Clock::starting_at(Instant::now());
        let work_loop = shared.work_loops.add(format!("edge {id} of group {}", config.settings.group));
        let rounds = EventLoop::new(clock, incoming, work_loop);
        let worker = Self {
            generation,
            edges,
            policy_updates: config.policy_updates.clone().filter(|_| generation == Generation::Current),
            device_updates: config.device_updates.clone(),
            clock,
            features_topic: topics.edge(&id, EdgeTopic::Features),
            inbox,
            link,
            limits,
            requests: Session::of_network(network),
            session: Session::of_boot(network, status.boot),
            request_topic,
            status_topic,
            qos: config.settings.request_qos,
            report: Arc::clone(&member.report),
        };
        Ok((worker, rounds))
    }

    fn take_policy(&mut self) {
        let Some(updates) = &mut self.policy_updates else { return };
        let features_ms = updates.borrow_and_update().0.features_ms;
        self.edges.set_features_ms(Generation::Current, features_ms);
    }

    fn take_devices(&mut self, at: Micros) {
        let Some(updates) = &mut self.device_updates else { return };
        let devices = updates.borrow_and_update().clone();
        let (inbox, event) = self.listening(at);
        inbox.set_owners(devices, at, event);
    }

    fn receive(&mut self, at: Micros, message: Incoming) {
        let (topic, payload, retain) = match message {
            Incoming::Message { topic, payload, retain } => (topic, payload, retain),
            Incoming::Connected => return self.inbox.devices.connected(),
            Incoming::Disconnected { .. } => return self.inbox.devices.disconnected(at),
            Incoming::Refused { .. } => return,
        };
        if topic == self.request_topic {
            // A retained request is from an earlier time: nobody waits for an answer.
            if retain {
                return warn!(
                    topic,
                    "a retained request is refused: publish it without the retain flag and clear the topic"
                );
            }
            return match decode(&payload, &self.limits) {
                Ok(Message { header, body: Body::Request(slots) }) if header.session == self.requests => {
                    let collect = EdgeEvent::Collect { sample: header.sample, slots };
                    self.edges.handle(at, self.generation, collect);
                }
                _ => debug!("a request that is malformed or of another network"),
            };
        }
        if topic == self.status_topic {
            if let Err(error) = self.link.restore(&topic, &payload) {
                debug!(%error, "the status was not published");
            }
            return;
        }
        let arrival = Arrival { now: at, is_retained: retain };
        let received = Received { topic: &topic, payload: &payload, arrival, last_sample: None };
        let (inbox, event) = self.listening(at);
        inbox.receive(received, event);
    }

    /// The inbox, and a function that gives its events to the edge. The function refuses no sample: checking ids is up to the leader.
    fn listening(
        &mut self,
        at: Micros,
    ) -> (&mut Inbox, impl FnMut(Generation, Event<'_>) -> Option<Implausible>) {
        let Self { inbox, edges, .. } = self;
        let event = move |generation, event: Event<'_>| {
            edges.handle_leader_event(at, generation, &event);
            None
        };
        (inbox, event)
    }

    fn answer(&self, reply: EdgeReply) {
        let EdgeReply { sample, slots, output, failed, .. } = reply;
        let scores: Vec<u8>;
        let body = match &output {
            Some(output) => {
                scores = output.scores.iter().flat_map(|score| score.to_le_bytes()).collect();
                Body::EdgeFeatures { slots, scores: &scores, map: &output.features }
            }
            None => Body::Gone,
        };
        let header = Header { late: false, session: self.session, sample, age_ms: 0 };
        let mut payload = Vec::new();
        let sent = encode(&Message { header, body }, &self.limits, &mut payload).is_ok()
            && self.link.publish(self.features_topic.as_str(), payload, self.qos, false).is_ok();
        let mut report = self.report.lock();
        report.section_failures += u64::from(failed);
        report.unsent += u64::from(!sent);
        match (sent, output) {
            (true, Some(_)) => report.answered += 1,
            (true, None) => report.gone += 1,
            (false, _) => {}
        }
    }
}

impl RoundHandler for Worker {
    type Input = Input;
    type End = Infallible;

    fn next_timer(&self, _: Moment) -> Option<Instant> {
        let timers = [self.edges.next_timer(), self.inbox.devices.next_timer()];
        timers.into_iter().flatten().min().map(|at| self.clock.instant(at))
    }

    fn takes_messages(&self) -> bool {
        true
    }

    async fn next_input(&mut self) -> Input {
        tokio::select! {
            biased;
            () = next_update(&mut self.policy_updates) => Input::Policy,
            () = next_update(&mut self.device_updates) => Input::Devices,
            reply = self.edges.next() => Input::Answer(reply),
        }
    }

    async fn round(
        &mut self,
        at: Moment,
        input: Option<Input>,
        messages: impl Iterator<Item = Incoming>,
    ) -> ControlFlow<Infallible> {
        let at = at.micros();
        match input {
            Some(Input::Policy) => self.take_policy(),
            Some(Input::Devices) => self.take_devices(at),
            Some(Input::Answer(reply)) => self.answer(reply),
            None => {}
        }
        messages.for_each(|message| self.receive(at, message));
        let (inbox, event) = self.listening(at);
        inbox.tick(at, event);
        self.edges.tick(at);
        while let Some(reply) = self.edges.try_next() {
            self.answer(reply);
        }
        if self.generation == Generation::Current {
            self.report.lock().filled_slots = self.inbox.devices.filled();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::bundle::Networks;
    use headwater_inference::manifest::Configuration;
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::{DeviceTopic, EdgeIndex, GroupId, SiteId};

    use super::*;
    use crate::devices::inbox::tests::{birth, status};
    use crate::settings::config::SharedConfig;

    #[tokio::test]
    async fn an_edge_takes_no_birth_or_status_that_the_broker_kept_for_a_sign_of_life() {
        let network = TinyNetwork {
            configuration: Configuration::F,
            edges: vec![vec![0, 1], vec![2]],
            ..TinyNetwork::default()
        };
        let bundle = Arc::new(Bundle::from_bytes(&network.bundle()).unwrap());
        let shared = Shared::new(SharedConfig::new("mqtt://127.0.0.1:9".parse().unwrap())).unwrap();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
        let config = OpenedGroup::new(site, group, Networks::from(Arc::clone(&bundle)));
        let edge = NetworkEdge { generation: Generation::Current, edge: EdgeIndex::new(0).unwrap() };
        let id = EdgeId::new("edge-0").unwrap();
        let member = GroupEdge::new(shared.grace());
        let (mut worker, _) = Worker::start(&shared, &config, (edge, id), &bundle, &member).await.unwrap();
        let birth = birth("a", 0, bundle.network_id());
        let up = status(DeviceState::Up, Boot(1));
        let topics = Topics::new(&config.settings.site, &config.settings.group);
        let mut is_live = |retain| {
            for (leaf, text) in [
                (DeviceTopic::Birth, serde_json::to_vec(&birth)),
                (DeviceTopic::Status, serde_json::to_vec(&up)),
            ] {
                let topic = topics.device(&birth.device, leaf);
                worker.receive(Micros(0), Incoming::Message { topic, payload: text.unwrap().into(), retain });
            }
            let devices = &worker.inbox.devices;
            assert_eq!(devices.filled().len(), 1, "the device fills its slot");
            devices.registered(Micros(0)).all(|device| device.is_live)
        };
        assert!(!is_live(true));
        assert!(is_live(false));
    }
}
