//! An edge beside the leader (configuration f) under one network: hears the leader's requests and its devices' features, answers the leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::edge::EdgeEvent;
use headwater_inference::leader::{Event, Generation};
use headwater_link::{Incoming, Link, LinkConfig, QoS, RetainedMessage};
use headwater_protocol::{
    Body, Boot, DeviceState, EdgeId, EdgeIndex, EdgeStatus, EdgeTopic, Header, Limits, Message, NetworkTag,
    SampleId, Topic, Topics, decode, encode,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::{EdgeReply, OwnEdges};
use crate::clock::Clock;
use crate::config::AggregatorConfig;
use crate::inbox::{Inbox, Wire, retained_filters, sample_filters};
use crate::report::EdgeReport;
use crate::service::AggregatorError;

/// Messages taken from the link in one turn.
const TURN_MESSAGES: usize = 256;

/// A running edge under one network.
#[derive(Debug)]
pub(super) struct Part {
    link: Link,
    grace: Duration,
    report: Arc<Mutex<EdgeReport>>,
    stop: watch::Sender<bool>,
    worker: JoinHandle<()>,
}

impl Part {
    /// Under one of the networks; the others' devices are known, and not heard.
    ///
    /// # Errors
    /// [`AggregatorError`]: a network without that edge, a section that does not load, or the link.
    pub(super) async fn start(
        config: &AggregatorConfig,
        (edge, id): (usize, Option<&EdgeId>),
        networks: &Networks,
        (generation, bundle): (Generation, &Arc<Bundle>),
    ) -> Result<Self, AggregatorError> {
        let name = id.map_or_else(|| format!("edge-{edge}"), ToString::to_string);
        // Two of one name would end each other's connections.
        let ending = if generation == Generation::Next { "-next" } else { "" };
        let id = EdgeId::new(format!("{name}{ending}"));
        let id = id.map_err(|error| AggregatorError::Config(vec![format!("edge_id: {error}")]))?;
        let edge = u8::try_from(edge).ok().and_then(|edge| EdgeIndex::new(edge).ok());
        let edge = edge.ok_or_else(|| {
            AggregatorError::Config(vec![format!("edge: expected a number below {}", EdgeIndex::MAX)])
        })?;
        // Thresholds and waits are fitted to a network: an operator's policy is for the current one.
        let policy = config.policy.as_ref().filter(|_| generation == Generation::Current);
        let features_ms = policy.map_or(bundle.policy().features_ms, |(policy, _)| policy.features_ms);
        let (of_thread, most_open) = (Arc::clone(bundle), config.most_open);
        // Model work: not for the async threads.
        let edges = tokio::task::spawn_blocking(move || {
            let mut own = OwnEdges::new();
            own.start((generation, &of_thread), &[edge], features_ms, most_open)?;
            Ok(own)
        });
        let edges =
            edges.await.map_err(|error| error.to_string()).flatten().map_err(AggregatorError::Section)?;
        let manifest = bundle.manifest();
        let (limits, network) = (manifest.limits(), bundle.network_id());
        let topics = Topics::new(&config.site, &config.group);
        // Seconds of the clock tell lives apart.
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let boot = Boot(since.as_secs() as u16);
        let status = |state| EdgeStatus {
            state,
            boot,
            edge,
            network,
            software: concat!("headwater-aggregator/", env!("CARGO_PKG_VERSION")).into(),
        };
        let status_topic = topics.edge(&id, EdgeTopic::Status);
        let retained = |state| -> Result<RetainedMessage, AggregatorError> {
            let text = serde_json::to_vec(&status(state));
            let text = text.map_err(|error| AggregatorError::Stopped(error.to_string()))?;
            Ok(RetainedMessage::new(status_topic.as_str(), text))
        };
        let client_id = config.client_id.as_ref();
        let client_id = client_id
            .map_or_else(|| format!("{}-{id}", config.group), |client_id| format!("{client_id}{ending}"));
        let mut link = LinkConfig::new(config.broker.clone(), client_id);
        link.incoming_messages = config.queue_messages;
        link.outgoing_messages = config.queue_messages;
        link.max_payload_bytes = link.max_payload_bytes.max(limits.largest_payload());
        link.retained = vec![retained(DeviceState::Up)?];
        link.last_will = Some(retained(DeviceState::Down)?);
        let request_topic = topics.name(&Topic::Request);
        let heard = retained_filters(&topics).into_iter().chain(sample_filters(&topics));
        let heard = heard.chain([request_topic.clone(), status_topic.clone()]);
        let link = heard.fold(link, |link, filter| link.subscribe(filter, QoS::AtLeastOnce));
        let (link, incoming) = Link::start(link)?;
        info!(group = %config.group, %id, %edge, network = network.short(), "edge ready");
        let report = Arc::new(Mutex::new(EdgeReport::default()));
        let wires =
            networks.each().map(|(_, bundle)| Wire::of(bundle.manifest(), bundle.network_id(), Vec::new()));
        let worker = Worker {
            generation,
            edges,
            clock: Clock::starting_at(Instant::now()),
            inbox: Inbox::new(topics.clone(), wires.collect()),
            incoming,
            link: link.clone(),
            limits,
            network: network.tag(),
            boot,
            newest: SampleId(0),
            request_topic,
            features_topic: topics.edge(&id, EdgeTopic::Features),
            up: (status_topic, status(DeviceState::Up)),
            qos: config.request_qos,
            report: Arc::clone(&report),
        };
        let stop = watch::Sender::new(false);
        let worker = tokio::spawn(worker.run(stop.subscribe()));
        let grace = Duration::from_millis(config.grace_ms.into());
        Ok(Self { link, grace, report, stop, worker })
    }

    /// What it did so far.
    pub(super) fn report(&self) -> EdgeReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wire = self.link.wire();
        (report.wire_sent_bytes, report.wire_received_bytes) = (wire.sent, wire.received);
        report
    }

    /// Whether messages flow at this moment.
    pub(super) fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Says goodbye and ends, within the grace time.
    pub(super) async fn shutdown(&mut self) {
        self.stop.send_replace(true);
        // Whether it returned or panicked, it has ended.
        let _ = (&mut self.worker).await;
        self.link.shutdown(self.grace).await;
    }

    /// Waits until it ends by itself, which it does only when its link ends.
    pub(super) async fn ended(&mut self) {
        // Whether it returned or panicked, it has ended.
        let _ = (&mut self.worker).await;
    }

    /// Drops everything at once, as SIGKILL would; returns when it is gone.
    pub(super) async fn kill(&mut self) {
        self.link.kill();
        self.worker.abort();
        // Its end is what was asked for.
        let _ = (&mut self.worker).await;
    }
}

/// Everything the event loop owns.
struct Worker {
    generation: Generation,
    edges: OwnEdges,
    clock: Clock,
    inbox: Inbox,
    incoming: mpsc::Receiver<Incoming>,
    link: Link,
    limits: Limits,
    network: NetworkTag,
    boot: Boot,
    /// Newest sample that a trigger or a request named; ids in headers are widened near it.
    newest: SampleId,
    request_topic: String,
    features_topic: String,
    up: (String, EdgeStatus),
    qos: QoS,
    report: Arc<Mutex<EdgeReport>>,
}

impl Worker {
    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut messages = Vec::with_capacity(TURN_MESSAGES);
        loop {
            let wake = self.edges.next_wake().map(|at| self.clock.instant(at));
            let mut reply = None;
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                taken = self.incoming.recv_many(&mut messages, TURN_MESSAGES) => if taken == 0 {
                    return warn!("the link ended: no message will come");
                },
                first = self.edges.next() => reply = Some(first),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
            }
            let now = Instant::now();
            messages.drain(..).for_each(|message| self.take(now, message));
            self.edges.tick(self.clock.micros(now));
            while let Some(next) = reply.take().or_else(|| self.edges.try_next()) {
                self.answer(next);
            }
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            report.filled_slots = self.inbox.filled_slots();
            report.refused = self.inbox.refusals();
            report.strays = self.inbox.strays();
        }
    }

    fn take(&mut self, now: Instant, message: Incoming) {
        let Incoming::Message { topic, payload, .. } = message else { return };
        let at = self.clock.micros(now);
        if topic == self.request_topic {
            return match decode(&payload, &self.limits) {
                Ok(Message { header, body: Body::Request(slots) }) if header.network == self.network => {
                    let near = self.newest.max(self.inbox.newest_at_birth());
                    let sample = SampleId::widen(header.sample_low, near);
                    self.newest = self.newest.max(sample);
                    self.edges.hear(at, self.generation, EdgeEvent::Collect { sample, slots });
                }
                _ => debug!("a request that is none of this network"),
            };
        }
        if topic == self.up.0 {
            return self.on_own_status(&payload);
        }
        let (edges, newest) = (&mut self.edges, self.newest);
        let mut triggered = newest;
        self.inbox.receive(&topic, &payload, newest, |generation, event| {
            if let Event::Trigger { sample } = event {
                triggered = triggered.max(sample);
            }
            edges.overhear(at, generation, &event);
        });
        self.newest = triggered;
    }

    /// A broker that finds out late that an earlier connection is dead publishes its last will after we are back.
    fn on_own_status(&self, payload: &[u8]) {
        let (topic, up) = &self.up;
        if serde_json::from_slice::<EdgeStatus>(payload).is_ok_and(|status| status == *up) {
            return;
        }
        if let Ok(text) = serde_json::to_vec(up)
            && let Err(error) = self.link.publish(topic.as_str(), text, QoS::AtLeastOnce, true)
        {
            debug!(%error, "could not say that this edge is up");
        }
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
        let header = Header {
            late: false,
            network: self.network,
            sample_low: sample.low(),
            boot: self.boot,
            age_ms: 0,
        };
        let mut payload = Vec::new();
        let sent = encode(&Message { header, body }, &self.limits, &mut payload).is_ok()
            && self.link.publish(self.features_topic.as_str(), payload, self.qos, false).is_ok();
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.section_failures += u64::from(failed);
        report.unsent += u64::from(!sent);
        match (sent, output) {
            (true, Some(_)) => report.answered += 1,
            (true, None) => report.gone += 1,
            (false, _) => {}
        }
    }
}
