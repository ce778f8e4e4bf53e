//! Starting and stopping an aggregator, in a process of its own or inside another.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_inference::bundle::Networks;
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::{Exits, Generation, Leader, LeaderConfig};
use headwater_link::{Link, LinkConfig, LinkError, QoS};
use headwater_protocol::{EdgeIndex, NetworkId, SlotSet, Topics};
use serde::Serialize;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info};

use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudTarget, Tail, endpoint};
use crate::config::{AggregatorConfig, Role};
use crate::edge::{Edge, OwnEdges};
use crate::inbox::{Inbox, Wire, edge_filters, retained_filters, sample_filters};
use crate::journal::{Journal, JournalError};
use crate::outbox::Outbox;
use crate::report::{AggregatorReport, EdgeReport};
use crate::worker::{PublishedAccount, Worker, log_recovery};

/// The aggregator; [`Aggregator::start`] begins one.
#[derive(Debug)]
pub struct Aggregator;

/// A running aggregator. Dropping the handle stops it as [`AggregatorHandle::shutdown`] does, but nobody waits.
#[derive(Debug)]
pub struct AggregatorHandle {
    link: Link,
    grace: Duration,
    report: Arc<Mutex<AggregatorReport>>,
    stop: watch::Sender<bool>,
    worker: JoinHandle<Result<(), JournalError>>,
}

impl Aggregator {
    /// Takes over the journal, starts connecting to the broker for as long as it takes, and leads the group. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: settings, bundle, journal or link.
    pub async fn start(
        config: AggregatorConfig,
        networks: impl Into<Networks>,
    ) -> Result<AggregatorHandle, AggregatorError> {
        config.check().map_err(AggregatorError::Config)?;
        let networks = networks.into();
        // Files and model work: not for the async threads.
        let prepared = tokio::task::spawn_blocking(move || Prepared::new(config, &networks)).await;
        let Prepared { config, target, inbox, mut leader, edges, largest_payload, journal, recovered } =
            prepared.map_err(|error| AggregatorError::Section(error.to_string()))??;
        let topics = Topics::new(&config.site, &config.group);
        let (link, incoming) = Link::start(link_config(&config, &topics, largest_payload))?;
        let mut actions = Vec::new();
        let (decisions, open) = (recovered.decisions.len(), recovered.open.len());
        log_recovery(recovered.settled.highest, decisions, open, journal.account().torn_bytes);
        leader.recover(recovered, &mut actions);
        let ids: Vec<NetworkId> = target.networks.iter().map(|tail| tail.network).collect();
        let next = ids.get(1).map(|next| next.short());
        info!(group = %config.group, network = ids[0].short(), next, cloud = config.cloud_url, "leading");
        let report = Arc::new(Mutex::new(AggregatorReport::default()));
        let grace = Duration::from_millis(config.grace_ms.into());
        let outbox = Outbox::new(link.clone(), &topics, config.request_qos);
        let worker = Worker {
            leader,
            edges,
            clock: Clock::starting_at(Instant::now()),
            inbox,
            incoming,
            outbox,
            networks: ids.iter().map(|id| id.tag()).collect(),
            cloud: CloudClient::new(config.cloud_url.is_some().then_some(target)),
            journal,
            settled_every: Duration::from_millis(config.settled_every_ms.into()),
            grace,
            report: Arc::clone(&report),
            actions,
            account: PublishedAccount::default(),
        };
        let stop = watch::Sender::new(false);
        let worker = tokio::spawn(worker.run(stop.subscribe()));
        Ok(AggregatorHandle { link, grace, report, stop, worker })
    }
}

impl AggregatorHandle {
    /// What it did so far.
    pub fn report(&self) -> AggregatorReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wire = self.link.wire();
        report.wire_sent_bytes = wire.sent;
        report.wire_received_bytes = wire.received;
        report
    }

    /// Whether messages flow at this moment.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Takes no new samples, decides the open ones, lets the broker have the last results; each within the grace time.
    ///
    /// # Errors
    /// [`AggregatorError::Journal`] when the aggregator had stopped by itself before, and why.
    pub async fn shutdown(mut self) -> Result<AggregatorReport, AggregatorError> {
        self.stop.send_replace(true);
        let ended = (&mut self.worker).await;
        self.link.shutdown(self.grace).await;
        ended_as(ended)?;
        Ok(self.report())
    }

    /// Drops everything at once, as SIGKILL would; returns when it is gone.
    pub async fn kill(mut self) {
        self.link.kill();
        self.worker.abort();
        // Its end is what was asked for.
        let _ = (&mut self.worker).await;
    }
}

/// Does what its role asks until `shutdown` ends.
///
/// # Errors
/// [`AggregatorError`] when it cannot start, or cannot go on.
pub async fn run(
    config: AggregatorConfig,
    networks: Networks,
    shutdown: impl Future<Output = ()>,
) -> Result<Finished, AggregatorError> {
    if let Role::Edge { edge, id } = config.role.clone() {
        let mut handle = Edge::start(config, (edge, id), networks).await?;
        return tokio::select! {
            () = shutdown => Ok(Finished::Edge(Box::new(handle.shutdown().await))),
            () = handle.ended() => Err(AggregatorError::Stopped("the link ended".into())),
        };
    }
    let mut handle = Aggregator::start(config, networks).await?;
    let report = tokio::select! {
        () = shutdown => handle.shutdown().await?,
        ended = &mut handle.worker => {
            handle.link.shutdown(handle.grace).await;
            ended_as(ended)?;
            handle.report()
        }
    };
    Ok(Finished::Leader(Box::new(report)))
}

/// What it did in its role.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Finished {
    /// As leader.
    Leader(Box<AggregatorReport>),
    /// As an edge.
    Edge(Box<EdgeReport>),
}

fn ended_as(ended: Result<Result<(), JournalError>, tokio::task::JoinError>) -> Result<(), AggregatorError> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(journal)) => {
            error!(%journal, "stopped");
            Err(journal.into())
        }
        Err(panic) => Err(AggregatorError::Stopped(panic.to_string())),
    }
}

/// What is read from files before anything is connected.
struct Prepared {
    config: AggregatorConfig,
    target: CloudTarget,
    inbox: Inbox,
    leader: Leader,
    edges: OwnEdges,
    largest_payload: usize,
    journal: Journal,
    recovered: headwater_inference::leader::journal::Recovered,
}

impl Prepared {
    fn new(config: AggregatorConfig, networks: &Networks) -> Result<Self, AggregatorError> {
        let mistake = |mistake: String| AggregatorError::Config(vec![mistake]);
        let url = config.cloud_url.as_deref().unwrap_or("http://localhost");
        let mut target = CloudTarget {
            uri: endpoint(url, &config.cloud_model).map_err(mistake)?,
            networks: Vec::new(),
            most_requests: config.cloud_most_requests,
            linger: Duration::from_millis(config.cloud_linger_ms.into()),
            breaker: config.breaker,
        };
        let (mut wires, mut leaders, mut edges) = (Vec::new(), Vec::new(), OwnEdges::new());
        for (generation, bundle) in networks.each() {
            let (manifest, network) = (bundle.manifest(), bundle.network_id());
            // Thresholds are fitted to a network: an operator's policy is for the current one.
            let mut leader = LeaderConfig::of(bundle, config.most_open);
            if let Some((policy, id)) = config.policy.clone().filter(|_| generation == Generation::Current) {
                leader = leader.with_policy(policy, id);
            }
            leader.policy.check().map_err(|error| mistake(error.to_string()))?;
            let features_ms = leader.policy.features_ms;
            let own = own_edges(&config.role, leader.edges.len())?;
            let exits = Exits::load(bundle, &TractEngine::new())
                .map_err(|error| AggregatorError::Section(error.to_string()))?;
            edges
                .start((generation, bundle), &own, features_ms, config.most_open)
                .map_err(AggregatorError::Section)?;
            let elsewhere = EdgeIndex::first(leader.edges.len()).zip(&leader.edges);
            let elsewhere =
                elsewhere.map(|(edge, slots)| if own.contains(&edge) { SlotSet::EMPTY } else { *slots });
            wires.push(Wire::of(manifest, network, elsewhere.collect()));
            let (sources, classes) = (manifest.cloud_sources(), manifest.classes());
            target.networks.push(Tail { network, sources, classes });
            leaders.push((leader, exits));
        }
        let largest_payload = wires.iter().map(|wire| wire.limits.largest_payload()).max().unwrap_or(0);
        let inbox = Inbox::new(Topics::new(&config.site, &config.group), wires);
        let (journal, recovered) = Journal::open(config.journal.as_ref())?;
        let next = if leaders.len() > 1 { leaders.pop() } else { None };
        let [(leader, exits)]: [_; 1] = leaders
            .try_into()
            .map_err(|_| AggregatorError::Stopped("expected one current network".into()))?;
        let leader = Leader::new(leader, exits);
        let leader = match next {
            Some((config, exits)) => leader.with_next(config, exits),
            None => leader,
        };
        Ok(Self { target, inbox, leader, edges, largest_payload, journal, recovered, config })
    }
}

/// The edges of the network that run in the leader's process.
fn own_edges(role: &Role, count: usize) -> Result<Vec<EdgeIndex>, AggregatorError> {
    let refuse = |mistake: String| Err(AggregatorError::Config(vec![mistake]));
    match role {
        Role::Leader { edges: None } => Ok(EdgeIndex::first(count).filter(|_| count == 1).collect()),
        Role::Leader { edges: Some(edges) } => match edges.iter().find(|edge| **edge >= count) {
            Some(edge) => refuse(format!("own_edges: expected edges below {count}, found {edge}")),
            None => Ok(EdgeIndex::first(count).filter(|edge| edges.contains(&edge.index())).collect()),
        },
        Role::Edge { .. } => refuse("role: expected \"leader\", found \"edge\"".into()),
    }
}

fn link_config(config: &AggregatorConfig, topics: &Topics, largest_payload: usize) -> LinkConfig {
    let client_id = config.client_id.clone().unwrap_or_else(|| format!("{}-aggregator", config.group));
    let mut link = LinkConfig::new(config.broker.clone(), client_id);
    link.incoming_messages = config.queue_messages;
    link.outgoing_messages = config.queue_messages;
    link.max_payload_bytes = link.max_payload_bytes.max(largest_payload);
    // Births and states first: the messages that follow are understood only then.
    let filters =
        retained_filters(topics).into_iter().chain(edge_filters(topics)).chain(sample_filters(topics));
    filters.fold(link, |link, filter| link.subscribe(filter, QoS::AtLeastOnce))
}

/// Why an aggregator does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum AggregatorError {
    /// Settings that cannot work: all of them, each with key, expected and found.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// An exit or an edge section of the bundle does not load.
    #[error("sections of the aggregator: {0}")]
    Section(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The link's settings cannot work.
    #[error("link: {0}")]
    Link(#[from] LinkError),
    /// The event loop ended by a fault of ours.
    #[error("the aggregator stopped: {0}")]
    Stopped(String),
}
