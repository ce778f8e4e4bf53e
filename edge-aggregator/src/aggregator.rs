//! All groups of one process, and what they share.
//!
//! ```text
//!            ┌── group north: connection, client id, journal, event loop
//! Shared ────┤
//!   cloud    └── group south: connection, client id, journal, event loop
//!   limits
//! ```
//!
//! A group that fails does not stop the others. The admin port says that the process is not live any more, and names the group.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_link::{LinkConfig, LinkError, QoS};
use headwater_protocol::{GroupId, SiteId};
use headwater_settings::Settings;
use headwater_telemetry::{
    AdminServer, Health, IntGaugeVec, Liveness, Metrics, Program, ReloadSignal, ReportMetric, ServiceManager,
    WorkLoops,
};
use headwater_transport::tls::{CertificateState, ClientIdentity};
use headwater_transport::{BrokerAccess, Endpoint};
use serde_json::{Map, Value, json};
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
use crate::policy::GroupPolicy;
use crate::report::{EdgeReport, LeaderReport};
use crate::status::WatchedGroup;

/// A running aggregator with all its groups. Dropping the value stops the groups as [`Aggregator::shutdown`] does, without waiting.
pub struct Aggregator {
    groups: Vec<WatchedGroup>,
    work_loops: WorkLoops,
    cloud: Option<CloudView>,
    stop: watch::Sender<bool>,
    running: JoinSet<GroupEnd>,
    ended: Vec<GroupEnd>,
    failed: FailedGroups,
    admin: Option<AdminServer>,
    policies: Vec<GroupPolicy>,
}

/// Cloud client and limits that all groups of a process share.
#[derive(Clone, Debug)]
pub struct Shared {
    pub(crate) config: SharedConfig,
    /// The broker, and what a group without a certificate of its own shows it.
    broker: BrokerAccess,
    /// `None` without a cloud service.
    pub(crate) cloud: Option<Arc<CloudConnection>>,
    /// Work loops of all groups.
    pub(crate) work_loops: WorkLoops,
}

/// The cloud service for the status: its address, and the connection to it.
type CloudView = (Endpoint, Arc<CloudConnection>);

/// Groups that failed, for the admin port and the metrics.
#[derive(Clone, Debug)]
struct FailedGroups {
    /// A line for each group: name and reason. Locked for single updates.
    lines: Arc<Mutex<Vec<String>>>,
    gauge: IntGaugeVec,
}

impl FailedGroups {
    fn new(metrics: &Metrics) -> Self {
        let help =
            "1 once the group has ended by itself or did not start; only a new process leads it again.";
        let gauge = metrics.gauges("headwater_aggregator_group_failed", help, &["site", "group"]);
        Self { lines: Arc::default(), gauge }
    }

    /// Shows the group in the metrics before anything fails.
    fn watch(&self, config: &GroupConfig) {
        self.gauge.with_label_values(&[config.site.as_str(), config.group.as_str()]);
    }

    fn add(&self, site: &SiteId, group: &GroupId, failure: &AggregatorError) {
        self.gauge.with_label_values(&[site.as_str(), group.as_str()]).set(1);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(format!("group {site}/{group}: {failure}"));
    }

    /// The groups that failed, as lines; `None` while none has.
    fn reason(&self) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Health of all groups, for the admin port.
struct GroupsHealth {
    failed: FailedGroups,
    groups: Vec<WatchedGroup>,
    work_loops: WorkLoops,
    cloud: Option<CloudView>,
}

impl Health for GroupsHealth {
    fn liveness(&self) -> Liveness {
        let reasons = [self.failed.reason(), self.work_loops.hanging()].into_iter().flatten();
        match reasons.collect::<Vec<_>>().join("\n") {
            reason if reason.is_empty() => Liveness::Live,
            reason => Liveness::Failed(reason),
        }
    }

    fn unready_reason(&self) -> Option<String> {
        if let Liveness::Failed(reason) = self.liveness() {
            return Some(reason);
        }
        let refused = self.groups.iter().filter_map(|group| match group.report() {
            GroupReport::Leader(report) => report.claim_refused,
            GroupReport::Edge(_) => None,
        });
        let refused: Vec<_> = refused.collect();
        (!refused.is_empty()).then(|| refused.join("\n"))
    }

    fn status(&self) -> Map<String, Value> {
        let cloud = self.cloud.as_ref();
        let cloud =
            cloud.map(|(url, connection)| json!({"url": url.to_string(), "state": connection.state()}));
        let groups: Vec<Value> = self.groups.iter().map(WatchedGroup::status).collect();
        Map::from_iter([("cloud".into(), json!(cloud)), ("groups".into(), groups.into())])
    }
}

/// State of the certificate that a group shows the broker.
const CERTIFICATE: [ReportMetric<CertificateState>; 2] = [
    ReportMetric::gauge(
        "headwater_aggregator_certificate_expiry_timestamp_seconds",
        "When the own certificate in use expires, in seconds since 1970.",
        |state| state.expires_unix_s,
    ),
    ReportMetric::gauge(
        "headwater_aggregator_certificate_reload_failed",
        "1 while newer files of the identity cannot be used, and the earlier ones stay in use.",
        |state| state.has_failed_reload.into(),
    ),
];

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
    /// Checks the shared configuration, reads the identity, and prepares the connection to the cloud.
    ///
    /// # Errors
    /// [`AggregatorError::Config`] with every mistake.
    pub fn new(config: SharedConfig) -> Result<Self, AggregatorError> {
        let mistakes = config.check();
        if !mistakes.is_empty() {
            return Err(AggregatorError::Config(mistakes));
        }
        let broker = config.security.broker_access(&config.broker).map_err(AggregatorError::Config)?;
        config.security.warn_of_link("broker.address", &config.broker.address);
        let cloud = match &config.cloud.url {
            Some(url) => {
                config.security.warn_of_link("cloud.url", url);
                let key = config.cloud.secret().map_err(AggregatorError::mistake)?;
                Some(Arc::new(CloudConnection::new(&config.cloud, broker.connector(), key)))
            }
            None => None,
        };
        Ok(Self { config, broker, cloud, work_loops: WorkLoops::default() })
    }

    /// Longest time that a shutdown waits for open samples, and again for the broker.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.config.grace_ms.get().into())
    }

    /// TLS identity of a group's connection to the broker.
    fn identity(&self, group: &GroupConfig) -> Option<ClientIdentity> {
        group.identity.clone().or_else(|| self.broker.identity.clone())
    }

    /// Settings of a connection of a group to the broker, in the order of the subscriptions. `largest_payload` is that of the group's
    /// networks.
    pub(crate) fn link_config(
        &self,
        group: &GroupConfig,
        client_id: String,
        largest_payload: Option<usize>,
        filters: impl IntoIterator<Item = String>,
    ) -> LinkConfig {
        let identity = self.identity(group);
        let mut link = LinkConfig::new(BrokerAccess { identity, ..self.broker.clone() }, client_id);
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
        let mistakes = config.check();
        if !mistakes.is_empty() {
            return Err(AggregatorError::Config(mistakes));
        }
        let shared = Shared::new(config.shared)?;
        let metrics = Metrics::new();
        let mut aggregator = Self::without_groups(&metrics);
        aggregator.work_loops = shared.work_loops.clone();
        aggregator.cloud = shared.config.cloud.url.clone().zip(shared.cloud.clone());
        for group in config.groups {
            aggregator.start_group(&shared, group, &metrics).await?;
        }
        if aggregator.running.is_empty() {
            let first = aggregator.ended.into_iter().find_map(|end| end.outcome.err());
            return Err(first.unwrap_or_else(|| AggregatorError::mistake("group: missing")));
        }
        aggregator.listen(shared.config.admin.listen, metrics).await?;
        Ok(aggregator)
    }

    fn without_groups(metrics: &Metrics) -> Self {
        Self {
            groups: Vec::new(),
            work_loops: WorkLoops::default(),
            cloud: None,
            stop: watch::Sender::new(false),
            running: JoinSet::new(),
            ended: Vec::new(),
            failed: FailedGroups::new(metrics),
            admin: None,
            policies: Vec::new(),
        }
    }

    /// Starts the admin port, if it has an address.
    async fn listen(&mut self, address: Option<SocketAddr>, metrics: Metrics) -> Result<(), AggregatorError> {
        self.admin = AdminServer::start(address, PROGRAM, metrics, self.health()).await?;
        Ok(())
    }

    /// Health of all groups that were started.
    pub fn health(&self) -> Arc<dyn Health> {
        Arc::new(GroupsHealth {
            failed: self.failed.clone(),
            groups: self.groups.clone(),
            work_loops: self.work_loops.clone(),
            cloud: self.cloud.clone(),
        })
    }

    async fn start_group(
        &mut self,
        shared: &Shared,
        mut config: GroupConfig,
        metrics: &Metrics,
    ) -> Result<(), AggregatorError> {
        self.policies.extend(GroupPolicy::start(&mut config));
        let identity = shared.identity(&config).filter(|identity| identity.certificate_state().is_some());
        if let Some(identity) = identity {
            let labels = [("site", config.site.as_str()), ("group", config.group.as_str())];
            metrics.register_report(&CERTIFICATE, &labels, move || {
                identity.certificate_state().unwrap_or_default()
            });
        }
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
                let (site, group) = (config.site.clone(), config.group.clone());
                error!(%site, %group, %failure, "the group does not start; the others go on");
                self.failed.watch(&config);
                self.failed.add(&site, &group, &failure);
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
        self.groups.push(WatchedGroup::new(config, move || read().into_group_report()));
        self.failed.watch(config);
        let (mut stop, failed) = (self.stop.subscribe(), self.failed.clone());
        let stop = async move { _ = stop.wait_for(|stop| *stop).await };
        self.running.spawn(async move {
            let outcome = member.run(stop).await.map(R::into_group_report);
            if let Err(failure) = &outcome {
                error!(%site, %group, %failure, "the group ended; the others go on");
                failed.add(&site, &group, failure);
            }
            GroupEnd { site, group, outcome }
        });
    }

    /// Counts of every group that started, in the order of the configuration.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.groups.iter().map(WatchedGroup::report).collect()
    }

    /// Address of the admin listener.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// Reads the policy file of every group again, off the async threads, and logs the result. A policy that can be used holds for
    /// samples opened from then on.
    pub async fn reload(&mut self) {
        let mut policies = std::mem::take(&mut self.policies);
        let read = tokio::task::spawn_blocking(move || {
            policies.iter_mut().for_each(GroupPolicy::reload);
            policies
        });
        match read.await {
            Ok(policies) => self.policies = policies,
            Err(error) => {
                error!(%error, "reading the policies again failed: SIGHUP has no effect until a restart");
            }
        }
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

/// Name and version in the status.
const PROGRAM: Program = Program { name: "headwater-aggregator", version: env!("CARGO_PKG_VERSION") };

/// Runs an aggregator until `shutdown` ends, or until every group has ended by itself. Each request of `reloads` reads the policy files
/// again.
///
/// # Errors
/// [`AggregatorError`] when the aggregator cannot start.
pub async fn run(
    config: AggregatorConfig,
    manager: ServiceManager,
    mut reloads: ReloadSignal,
    shutdown: impl Future<Output = ()>,
) -> Result<Vec<GroupEnd>, AggregatorError> {
    let mut aggregator = Aggregator::start(config).await?;
    let _signs_of_life = manager.ready(aggregator.health());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            () = aggregator.ended() => break,
            () = reloads.next() => {
                manager.reloading();
                aggregator.reload().await;
                manager.reloaded();
            }
        }
    }
    manager.stopping();
    Ok(aggregator.shutdown().await)
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};

    use headwater_inference::bundle::{Bundle, Networks};
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::SlotSet;
    use tokio::sync::oneshot;

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        let exchange = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    fn group(name: &str) -> GroupConfig {
        let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new(name).unwrap());
        GroupConfig::new(site, group, Networks::from(Arc::new(bundle)))
    }

    /// A leader with two filled slots that ends when it is told to.
    fn leader() -> (GroupLeader, oneshot::Sender<()>) {
        let mut member = GroupLeader::new(Duration::ZERO);
        member.report.lock().unwrap().filled_slots = SlotSet::first(2);
        let (fail, failure) = oneshot::channel();
        let mut stop = member.stop.subscribe();
        member.loops.spawn(async move {
            tokio::select! {
                _ = failure => Err(AggregatorError::Stopped("told to".into())),
                _ = stop.wait_for(|stop| *stop) => Ok(()),
            }
        });
        (member, fail)
    }

    #[tokio::test]
    async fn a_group_that_ended_by_itself_is_named_by_the_admin_port() {
        let metrics = Metrics::new();
        let mut aggregator = Aggregator::without_groups(&metrics);
        let ((north, fail), (south, _south)) = (leader(), leader());
        aggregator.add(north, &group("north"), &metrics);
        aggregator.add(south, &group("south"), &metrics);
        aggregator.listen(Some((Ipv4Addr::LOCALHOST, 0).into()), metrics).await.unwrap();
        let admin = aggregator.admin_address().unwrap();
        assert!(get(admin, "/live").await.starts_with("HTTP/1.1 200 "));
        fail.send(()).unwrap();
        aggregator.ended.extend(aggregator.running.join_next().await.unwrap().ok());
        let answer = get(admin, "/live").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("group plant/north: the aggregator stopped: told to"), "{answer}");
        assert!(!answer.contains("south"), "{answer}");
        let metrics = get(admin, "/metrics").await;
        for (group, failed, slots) in [("north", 1, 0), ("south", 0, 2)] {
            for (metric, value) in [("group_failed", failed), ("filled_slots", slots)] {
                let line =
                    format!("headwater_aggregator_{metric}{{group=\"{group}\",site=\"plant\"}} {value}");
                assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
            }
        }
        let ends = aggregator.shutdown().await;
        assert_eq!(ends.iter().filter(|end| end.outcome.is_ok()).count(), 1);
    }
}
