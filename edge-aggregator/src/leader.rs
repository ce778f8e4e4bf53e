//! Start of a group's leader: exits, journal, connection, event loop.

use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::{Bundle, PerNetwork};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::journal::Recovered;
use headwater_inference::leader::{Exits, Generation, Leader, LeaderConfig};
use headwater_link::Link;
use headwater_protocol::{EdgeIndex, SlotSet, Topics};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::aggregator::{AggregatorError, Shared};
use crate::clock::Clock;
use crate::cloud::{CloudClient, CloudModel};
use crate::config::{GroupConfig, Role};
use crate::edge::LocalEdges;
use crate::inbox::{Inbox, MessageFormat, device_filters, edge_filters};
use crate::journal::Journal;
use crate::member::Member;
use crate::outbox::Outbox;
use crate::report::LeaderReport;
use crate::worker::{PublishedSettled, Worker};

/// A running leader of a group.
pub type GroupLeader = Member<LeaderReport>;

impl GroupLeader {
    /// Recovers from the journal, starts connecting to the broker until a connection is made, and leads the group. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: settings, bundle, journal or link.
    pub async fn start(shared: &Shared, config: GroupConfig) -> Result<Self, AggregatorError> {
        let config = Arc::new(config);
        let prepared = {
            let config = Arc::clone(&config);
            // Files and model work do not belong on the async threads.
            tokio::task::spawn_blocking(move || Prepared::new(&config)).await
        };
        let Prepared { parts, edges, journal, recovered } = prepared.map_err(AggregatorError::section)??;
        let topics = Topics::new(&config.site, &config.group);
        let payloads = parts.iter().map(|(_, parts)| parts.format.limits.largest_payload());
        let filters = edge_filters(&topics).into_iter().chain(device_filters(&topics));
        let link = shared.link_config(config.client_id("leader"), payloads.max(), filters);
        let (link, incoming) = Link::start(link)?;
        log_recovery(&recovered, journal.counts.torn_bytes);
        let current = parts.current.format.network;
        let next = parts.next.as_ref().map(|parts| parts.format.network.short());
        let formats = Arc::new(parts.as_ref().map(|_, parts| parts.format.clone()));
        let mut actions = Vec::new();
        let mut leader = Leader::new(parts.current.config, parts.current.exits);
        if let Some(NetworkParts { config, exits, .. }) = parts.next {
            leader = leader.with_next(config, exits);
        }
        leader.recover(recovered, &mut actions);
        let url = shared.config.cloud.url.as_ref();
        info!(group = %config.group, network = current.short(), next, cloud = url.map(ToString::to_string), "leading");
        let mut member = Self::new(shared.grace());
        let worker = Worker {
            leader,
            edges,
            clock: Clock::starting_at(Instant::now()),
            inbox: Inbox::new(topics.clone(), Arc::clone(&formats)),
            incoming,
            outbox: Outbox::new(link.clone(), &topics, config.limits.request_qos),
            cloud: cloud_client(shared, &config, formats)?,
            journal,
            settled_every: Duration::from_millis(config.limits.settled_every_ms.get().into()),
            grace: member.grace,
            report: Arc::clone(&member.report),
            actions,
            published: PublishedSettled::default(),
        };
        let stop = member.stop.subscribe();
        member.loops.spawn(async move {
            worker.run(stop).await.map_err(|journal| {
                error!(%journal, "stopped");
                journal.into()
            })
        });
        member.links.push(link);
        Ok(member)
    }
}

/// Everything of a leader that is read from files before the connection.
struct Prepared {
    parts: PerNetwork<NetworkParts>,
    edges: LocalEdges,
    journal: Journal,
    recovered: Recovered,
}

/// Parts of a leader under one network.
struct NetworkParts {
    config: LeaderConfig,
    exits: Exits,
    format: MessageFormat,
}

impl Prepared {
    fn new(config: &GroupConfig) -> Result<Self, AggregatorError> {
        let mut edges = LocalEdges::new();
        let bundles = config.networks.bundles().as_ref();
        let parts = bundles
            .try_map(|generation, bundle| NetworkParts::load(config, (generation, bundle), &mut edges))?;
        let (journal, recovered) = Journal::open(config.journal.as_ref())?;
        Ok(Self { parts, edges, journal, recovered })
    }
}

impl NetworkParts {
    /// Loads the exits of a network and adds its local edges to `edges`.
    fn load(
        group: &GroupConfig,
        (generation, bundle): (Generation, &Bundle),
        edges: &mut LocalEdges,
    ) -> Result<Self, AggregatorError> {
        let max_open = group.limits.max_open.get();
        let mut config = LeaderConfig::of(bundle, max_open);
        // Thresholds are fitted to a network: an operator's policy is for the current one.
        if let Some((policy, id)) = group.policy.clone().filter(|_| generation == Generation::Current) {
            config = config.with_policy(policy, id);
        }
        config.policy.check().map_err(|error| AggregatorError::mistake(error.to_string()))?;
        let local = local_edges(&group.role, config.edges.len())?;
        let exits = Exits::load(bundle, &TractEngine::new()).map_err(AggregatorError::section)?;
        edges.start((generation, bundle), &local, config.policy.features_ms, max_open)?;
        let all_edges = EdgeIndex::first(config.edges.len()).zip(&config.edges);
        let remote =
            all_edges.map(|(edge, slots)| if local.contains(&edge) { SlotSet::EMPTY } else { *slots });
        Ok(Self { format: MessageFormat::new(bundle, remote.collect()), config, exits })
    }
}

/// Edges of the network that run in the leader's process.
fn local_edges(role: &Role, count: usize) -> Result<Vec<EdgeIndex>, AggregatorError> {
    match role {
        Role::Leader { local_edges: None } => Ok(EdgeIndex::first(count).filter(|_| count == 1).collect()),
        Role::Leader { local_edges: Some(edges) } => match edges.iter().find(|edge| **edge >= count) {
            Some(edge) => {
                let mistake = format!("local_edges: expected edges below {count}, found {edge}");
                Err(AggregatorError::mistake(mistake))
            }
            None => Ok(EdgeIndex::first(count).filter(|edge| edges.contains(&edge.index())).collect()),
        },
        Role::Edge { .. } => Err(AggregatorError::mistake("role: expected \"leader\", found \"edge\"")),
    }
}

fn cloud_client(
    shared: &Shared,
    config: &GroupConfig,
    formats: Arc<PerNetwork<MessageFormat>>,
) -> Result<CloudClient, AggregatorError> {
    let cloud = &shared.config.cloud;
    let Some((connection, url)) = shared.cloud.clone().zip(cloud.url.as_ref()) else {
        return Ok(CloudClient::new(None));
    };
    let model = CloudModel::new(connection, url, config.model.as_ref().unwrap_or(&cloud.model), formats);
    let model = model.map_err(|mistake| AggregatorError::mistake(format!("model: {mistake}")))?;
    Ok(CloudClient::new(Some(model)))
}

/// Logs the state that a start found in the journal.
fn log_recovery(recovered: &Recovered, torn_bytes: u64) {
    let Recovered { settled, decisions, open, .. } = recovered;
    if torn_bytes > 0 {
        warn!(
            torn_bytes,
            "the last line of the journal was torn and is cut off; its decision was never published"
        );
    }
    if settled.highest.0 > 0 || !open.is_empty() {
        let (republishing, dropping) = (decisions.len(), open.len());
        info!(highest = %settled.highest, republishing, dropping, "continuing from the journal");
    }
}
