//! All groups of one process, and what they share.
//!
//! ```text
//!            ┌── group north: connection, client id, journal, event loop
//! Shared ────┤
//!   cloud    └── group south: connection, client id, journal, event loop
//!   limits
//! ```
//!
//! A group that fails does not stop the others.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use headwater_link::{LinkConfig, LinkError, QoS};
use headwater_protocol::{GroupId, SiteId};
use headwater_settings::Settings;
use headwater_telemetry::{AdminServer, Metrics};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::error;

use crate::cloud::CloudConnection;
use crate::config::{AggregatorConfig, GroupConfig, Role, SharedConfig};
use crate::edge::GroupEdge;
use crate::journal::JournalError;
use crate::leader::GroupLeader;
use crate::member::{Member, MemberReport};
use crate::report::{EdgeReport, LeaderReport};

/// A running aggregator with all its groups. Dropping the value stops the groups as [`Aggregator::shutdown`] does, without waiting.
pub struct Aggregator {
    readers: Vec<Reader>,
    stop: watch::Sender<bool>,
    running: JoinSet<GroupEnd>,
    ended: Vec<GroupEnd>,
    admin: Option<AdminServer>,
}

/// Cloud client and limits that all groups of a process share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: SharedConfig,
    /// `None` without a cloud service.
    pub(crate) cloud: Option<Arc<CloudConnection>>,
}

/// Reads the counts of a running group.
type Reader = Box<dyn Fn() -> GroupReport + Send + Sync>;

/// Counts of a group by the role of this process.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupReport {
    /// Counts of the leader.
    Leader(Box<LeaderReport>),
    /// Counts of an edge.
    Edge(Box<EdgeReport>),
}

/// How a group ended.
#[derive(Debug)]
pub struct GroupEnd {
    /// Site of the group.
    pub site: SiteId,
    /// Name of the group.
    pub group: GroupId,
    /// Last counts, or the reason why the group failed.
    pub outcome: Result<GroupReport, AggregatorError>,
}

impl Shared {
    /// Checks the shared configuration and prepares the connection to the cloud.
    ///
    /// # Errors
    /// [`AggregatorError::Config`] with every mistake.
    pub fn new(config: SharedConfig) -> Result<Self, AggregatorError> {
        let mistakes = config.check();
        if !mistakes.is_empty() {
            return Err(AggregatorError::Config(mistakes));
        }
        let cloud = config.cloud.url.is_some().then(|| Arc::new(CloudConnection::new(&config.cloud)));
        Ok(Self { config, cloud })
    }

    /// Longest time that a shutdown waits for open samples, and again for the broker.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.config.grace_ms.get().into())
    }

    /// Settings of a connection to the broker, in the order of the subscriptions. `largest_payload` is that of the group's networks.
    pub(crate) fn link_config(
        &self,
        client_id: String,
        largest_payload: Option<usize>,
        filters: impl IntoIterator<Item = String>,
    ) -> LinkConfig {
        let mut link = LinkConfig::new(self.config.broker.address.clone(), client_id);
        link.incoming_messages = self.config.queue_messages.get();
        link.outgoing_messages = link.incoming_messages;
        link.max_payload_bytes = link.max_payload_bytes.max(largest_payload.unwrap_or(0));
        filters.into_iter().fold(link, |link, filter| link.subscribe(filter, QoS::AtLeastOnce))
    }
}

impl Aggregator {
    /// Starts every group. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`AggregatorError::Config`] for settings that cannot work, the error of the admin listener, or the first error when no group
    /// starts.
    pub async fn start(config: AggregatorConfig) -> Result<Self, AggregatorError> {
        check_names(&config.groups)?;
        let shared = Shared::new(config.shared)?;
        let metrics = Metrics::new();
        let mut aggregator = Self {
            readers: Vec::new(),
            stop: watch::Sender::new(false),
            running: JoinSet::new(),
            ended: Vec::new(),
            admin: None,
        };
        for group in config.groups {
            aggregator.start_group(&shared, group, &metrics).await?;
        }
        if aggregator.running.is_empty() {
            let first = aggregator.ended.into_iter().find_map(|end| end.outcome.err());
            return Err(first.unwrap_or_else(|| AggregatorError::mistake("group: missing")));
        }
        aggregator.admin = AdminServer::start(shared.config.admin.listen, metrics, || true).await?;
        Ok(aggregator)
    }

    async fn start_group(
        &mut self,
        shared: &Shared,
        config: GroupConfig,
        metrics: &Metrics,
    ) -> Result<(), AggregatorError> {
        let started = match config.role {
            Role::Leader { .. } => {
                let leader = GroupLeader::start(shared, config.clone()).await;
                leader.map(|leader| self.add(leader, &config, metrics))
            }
            Role::Edge { .. } => {
                let edge = GroupEdge::start(shared, &config).await;
                edge.map(|edge| self.add(edge, &config, metrics))
            }
        };
        match started {
            Err(failure) if !matches!(failure, AggregatorError::Config(_)) => {
                let GroupConfig { site, group, .. } = config;
                error!(%site, %group, %failure, "the group does not start; the others go on");
                self.ended.push(GroupEnd { site, group, outcome: Err(failure) });
                Ok(())
            }
            started => started,
        }
    }

    /// Registers the metrics of a member and runs it.
    fn add<R: MemberReport>(&mut self, member: Member<R>, config: &GroupConfig, metrics: &Metrics) {
        let GroupConfig { site, group, role, .. } = config.clone();
        let mut labels = vec![("site", site.as_str()), ("group", group.as_str())];
        if let Role::Edge { id, .. } = &role {
            labels.push(("edge", id.as_str()));
        }
        metrics.register_report(R::METRICS, &labels, member.reader());
        let read = member.reader();
        self.readers.push(Box::new(move || read().into_group_report()));
        let mut stop = self.stop.subscribe();
        let stop = async move { _ = stop.wait_for(|stop| *stop).await };
        self.running.spawn(async move {
            let outcome = member.run(stop).await.map(R::into_group_report);
            if let Err(failure) = &outcome {
                error!(%site, %group, %failure, "the group ended; the others go on");
            }
            GroupEnd { site, group, outcome }
        });
    }

    /// Counts of every group that started, in the order of the configuration.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.readers.iter().map(|read| read()).collect()
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// Waits until every group has ended by itself.
    pub async fn ended(&mut self) {
        while let Some(end) = self.running.join_next().await {
            // The tasks neither panic nor are they aborted: a panic of an event loop is an outcome.
            self.ended.extend(end.ok());
        }
    }

    /// Stops all groups at once, each within its grace time, and gives the end of every group.
    pub async fn shutdown(mut self) -> Vec<GroupEnd> {
        self.stop.send_replace(true);
        self.ended().await;
        self.ended
    }
}

/// Runs an aggregator until `shutdown` ends, or until every group has ended by itself.
///
/// # Errors
/// [`AggregatorError`] when the aggregator cannot start.
pub async fn run(
    config: AggregatorConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<Vec<GroupEnd>, AggregatorError> {
    let mut aggregator = Aggregator::start(config).await?;
    tokio::select! {
        () = shutdown => {}
        () = aggregator.ended() => {}
    }
    Ok(aggregator.shutdown().await)
}

/// Refuses two members with the same role in the same group, two edges of it with the same name, and two equal client ids.
fn check_names(groups: &[GroupConfig]) -> Result<(), AggregatorError> {
    let (mut members, mut edge_ids, mut client_ids) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut mistakes = Vec::new();
    for (index, config) in groups.iter().enumerate() {
        let GroupConfig { site, group, role, client_id, .. } = config;
        let mut refuse = |key: &str, expected: &str, found: &dyn Display| {
            mistakes.push(format!("group[{index}].{key}: expected {expected}, found {found} again"));
        };
        let edge = match role {
            Role::Leader { .. } => None,
            Role::Edge { edge, id } => Some((edge, id)),
        };
        if !members.insert((site, group, edge.map(|(edge, _)| edge))) {
            refuse("group", "each role of a group once", group);
        }
        if let Some((_, id)) = edge.filter(|(_, id)| !edge_ids.insert((site, group, *id))) {
            refuse("edge_id", "another name for each edge", id);
        }
        if let Some(id) = client_id.as_ref().filter(|id| !client_ids.insert(*id)) {
            refuse("client_id", "another id for each group", id);
        }
    }
    if mistakes.is_empty() { Ok(()) } else { Err(AggregatorError::Config(mistakes)) }
}

/// Reason why an aggregator or a group does not start, or stopped by itself.
#[derive(Debug, Error)]
pub enum AggregatorError {
    /// All settings that cannot work, each with key, expected and found.
    #[error("configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// An exit or an edge section of the bundle does not load.
    #[error("sections of the aggregator: {0}")]
    Section(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The settings of the link cannot work.
    #[error("link: {0}")]
    Link(#[from] LinkError),
    /// The admin listener cannot listen.
    #[error("admin.listen: {0}")]
    Admin(#[from] std::io::Error),
    /// An event loop ended by a fault of the program, or a link ended.
    #[error("the aggregator stopped: {0}")]
    Stopped(String),
}

impl AggregatorError {
    #[expect(clippy::needless_pass_by_value, reason = "`map_err` gives the error by value")]
    pub(crate) fn section(reason: impl ToString) -> Self {
        Self::Section(reason.to_string())
    }

    /// One setting that cannot work.
    pub(crate) fn mistake(mistake: impl Into<String>) -> Self {
        Self::Config(vec![mistake.into()])
    }
}
