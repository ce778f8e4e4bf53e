//! The groups of one process, and the parts that all groups share.
//!
//! ```text
//!            ┌── group north: connection, client id, journal, event loop
//! Shared ────┤
//!   cloud    └── group south: connection, client id, journal, event loop
//!   limits
//! ```
//!
//! A group that fails does not stop the other groups. The admin port then reports that the process is not live, and names the group.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_protocol::{GroupId, SiteId};
use headwater_telemetry::{
    AdminServer, Health, Metrics, Program, ReloadSignal, ReportMetric, ServiceManager, ValuesByTwoLabels,
    WorkLoops, certificate_metrics,
};
use headwater_transport::tls::CertificateState;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{error, warn};

use crate::error::AggregatorError;
use crate::group::edge::GroupEdge;
use crate::group::health::{CloudView, GroupsHealth};
use crate::group::leader::GroupLeader;
use crate::group::member::{Member, MemberReport};
use crate::group::shared::Shared;
use crate::group::status::WatchedGroup;
use crate::report::GroupReport;
use crate::settings::config::{AggregatorConfig, OpenedGroup};
use crate::settings::group::{GroupSettings, Role};
use crate::settings::group_policy::SharedPolicy;
use crate::settings::live::{GroupDevices, start_policy};

/// A running aggregator with all its groups. Dropping the value stops the groups as [`Aggregator::shutdown`] does, without waiting.
pub struct Aggregator {
    groups: Vec<WatchedGroup>,
    work_loops: WorkLoops,
    cloud: Option<CloudView>,
    stop: watch::Sender<bool>,
    running: JoinSet<GroupEnd>,
    ended: Vec<GroupEnd>,
    admin: Option<AdminServer>,
    policies: Vec<SharedPolicy>,
    devices: Vec<GroupDevices>,
}

/// Metrics of the certificate that a group shows the broker: when it expires, and whether its reload failed.
const CERTIFICATE: [ReportMetric<CertificateState>; 2] = certificate_metrics!(
    "headwater_aggregator_certificate_expiry_timestamp_seconds",
    "headwater_aggregator_certificate_reload_failed"
);

const FAILED: [ReportMetric<Arc<[WatchedGroup]>>; 1] = [ReportMetric::gauges_by_two(
    "headwater_aggregator_group_failed",
    "1 once the group has ended by itself or did not start; only a new process leads it again.",
    ["site", "group"],
    |groups| failed(groups),
)];

/// Failures by site and group: 1 if a member (leader or edge) of the group has failed. A process may have several members of one group.
fn failed(groups: &[WatchedGroup]) -> ValuesByTwoLabels {
    let mut failed = BTreeMap::new();
    for group in groups {
        *failed.entry(group.labels()).or_default() |= u64::from(group.failure().is_some());
    }
    failed.into_iter().collect()
}

/// A member of a group (leader or edge) that has ended, or that did not start.
#[derive(Debug)]
pub struct GroupEnd {
    /// Site of the group.
    pub site: SiteId,
    /// Name of the group.
    pub group: GroupId,
    /// Last counts of the member, or the reason why it failed.
    pub outcome: Result<GroupReport, AggregatorError>,
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
        let mut aggregator = Self::without_groups();
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

    fn without_groups() -> Self {
        Self {
            groups: Vec::new(),
            work_loops: WorkLoops::default(),
            cloud: None,
            stop: watch::Sender::new(false),
            running: JoinSet::new(),
            ended: Vec::new(),
            admin: None,
            policies: Vec::new(),
            devices: Vec::new(),
        }
    }

    /// Starts the admin port, if `address` is set. Call this once all groups have been added.
    async fn listen(&mut self, address: Option<SocketAddr>, metrics: Metrics) -> Result<(), AggregatorError> {
        let groups: Arc<[WatchedGroup]> = self.groups.clone().into();
        metrics.register_report(&FAILED, &[], move || Arc::clone(&groups));
        self.admin = AdminServer::start(address, PROGRAM, metrics, self.health()).await?;
        Ok(())
    }

    /// Health of the process: all groups, also those that did not start, the work loops and the connection to the cloud.
    pub fn health(&self) -> Arc<dyn Health> {
        Arc::new(GroupsHealth {
            groups: self.groups.clone(),
            work_loops: self.work_loops.clone(),
            cloud: self.cloud.clone(),
        })
    }

    async fn start_group(
        &mut self,
        shared: &Shared,
        mut config: OpenedGroup,
        metrics: &Metrics,
    ) -> Result<(), AggregatorError> {
        self.policies.extend(start_policy(&mut config));
        self.devices.push(GroupDevices::start(&mut config));
        let identity = shared.identity(&config).filter(|identity| identity.certificate_state().is_some());
        if let Some(identity) = identity {
            let labels = [("site", config.settings.site.as_str()), ("group", config.settings.group.as_str())];
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
                let (site, group) = (config.settings.site.clone(), config.settings.group.clone());
                error!(%site, %group, %failure, "the group does not start; the others go on");
                let watched = WatchedGroup::not_started(&config);
                watched.fail(failure.to_string());
                self.groups.push(watched);
                self.ended.push(GroupEnd { site, group, outcome: Err(failure) });
                Ok(())
            }
            started => started,
        }
    }

    /// Registers the metrics of a group's leader or edge (the member), and runs the member in a task.
    fn add<R: MemberReport>(&mut self, member: Member<R>, config: &OpenedGroup, metrics: &Metrics) {
        let GroupSettings { site, group, .. } = config.settings.clone();
        let mut labels = vec![("site", site.as_str()), ("group", group.as_str())];
        if let Role::Edge { id, .. } = &config.role {
            labels.push(("edge", id.as_str()));
        }
        metrics.register_report(R::METRICS, &labels, member.reader());
        let read = member.reader();
        let watched = WatchedGroup::new(config, move || read().into_group_report());
        self.groups.push(watched.clone());
        let mut stop = self.stop.subscribe();
        let stop = async move { _ = stop.wait_for(|stop| *stop).await };
        self.running.spawn(async move {
            let outcome = member.run(stop).await.map(R::into_group_report);
            if let Err(failure) = &outcome {
                error!(%site, %group, %failure, "the group ended; the others go on");
                watched.fail(failure.to_string());
            }
            GroupEnd { site, group, outcome }
        });
    }

    /// Counts of every group that started, in the order of the configuration.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.groups.iter().filter_map(WatchedGroup::report).collect()
    }

    /// Address of the admin listener; `None` if the configuration names no address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(AdminServer::address)
    }

    /// Reads the policy files of all groups again, and the settings, of which each group takes its list `devices`, on blocking threads. Logs
    /// the results. A changed policy holds for samples opened from then on.
    async fn reload(&mut self, read_groups: ReadGroups) {
        let policies = self.policies.clone();
        let reread = move || policies.iter().for_each(|policy| policy.0.lock().reload());
        if let Err(error) = tokio::task::spawn_blocking(reread).await {
            error!(%error, "reading the policies again failed");
        }
        match tokio::task::spawn_blocking(read_groups).await {
            Ok(Ok(groups)) => self.devices.iter().for_each(|devices| devices.update(&groups)),
            Ok(Err(mistakes)) => {
                warn!(%mistakes, "SIGHUP: the settings are refused, and the earlier `devices` stay");
            }
            Err(error) => error!(%error, "reading the settings again failed, and the earlier `devices` stay"),
        }
    }

    /// Waits until every group has ended.
    pub async fn ended(&mut self) {
        while let Some(end) = self.running.join_next().await {
            // `end` is never an error: the tasks are not aborted, and a panic of an event loop becomes the outcome of its group.
            self.ended.extend(end.ok());
        }
    }

    /// Stops all groups at the same time and returns the end of every group. A group waits at most the grace time for its open samples, and
    /// at most the grace time again for each of its connections to the broker.
    pub async fn shutdown(mut self) -> Vec<GroupEnd> {
        self.stop.send_replace(true);
        self.ended().await;
        self.ended
    }
}

/// Name and version in the status.
const PROGRAM: Program = Program { name: "headwater-aggregator", version: env!("CARGO_PKG_VERSION") };

/// Reads the settings of every group again; the error names the mistakes.
type ReadGroups = fn() -> Result<Vec<GroupSettings>, String>;

/// Runs an aggregator until `shutdown` ends, or until every group has ended by itself. At each request of `reloads` the policy files are
/// read again, and `read_groups` reads the settings of the groups, both off the async threads.
///
/// # Errors
/// [`AggregatorError`] when the aggregator cannot start.
pub async fn run(
    config: AggregatorConfig,
    manager: ServiceManager,
    mut reloads: ReloadSignal,
    read_groups: ReadGroups,
    shutdown: impl Future<Output = ()>,
) -> Result<Vec<GroupEnd>, AggregatorError> {
    let mut aggregator = Aggregator::start(config).await?;
    let _watchdog_task = manager.ready(aggregator.health());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            () = aggregator.ended() => break,
            () = reloads.next() => {}
        }
        manager.reloading();
        tokio::select! {
            // A shutdown does not wait for files: a file system may hang.
            () = &mut shutdown => break,
            () = reloads.during(aggregator.reload(read_groups)) => {}
        }
        manager.reloaded();
    }
    manager.stopping();
    Ok(aggregator.shutdown().await)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use headwater_inference::bundle::{Bundle, Networks};
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::SlotSet;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;

    use super::*;
    use crate::settings::config::SharedConfig;

    async fn get(address: SocketAddr, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn group(name: &str) -> OpenedGroup {
        let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new(name).unwrap());
        OpenedGroup::new(site, group, Networks::from(Arc::new(bundle)))
    }

    /// A leader with two filled slots, and a sender that makes the leader fail.
    fn leader() -> (GroupLeader, oneshot::Sender<()>) {
        let mut member = GroupLeader::new(Duration::ZERO);
        member.report.lock().filled_slots = SlotSet::first(2);
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
        let mut aggregator = Aggregator::without_groups();
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
        let status = get(admin, "/status").await;
        let (_, page) = status.split_once("\r\n\r\n").unwrap();
        let page: Value = serde_json::from_str(page).unwrap();
        let (north, south) = (&page["groups"][0], &page["groups"][1]);
        assert_eq!(
            (&north["state"], &north["reason"]),
            (&json!("failed"), &json!("the aggregator stopped: told to"))
        );
        assert_eq!((&south["state"], &south["reason"]), (&json!("starting"), &Value::Null));
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

    #[test]
    fn a_reader_that_hangs_does_not_keep_the_aggregator_from_its_end() {
        static IS_READING: AtomicBool = AtomicBool::new(false);
        fn hangs() -> Result<Vec<GroupSettings>, String> {
            IS_READING.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(3600));
            Ok(Vec::new())
        }
        let runtime = Runtime::new().unwrap();
        let ended = runtime.block_on(async {
            let shared = SharedConfig::new("mqtt://127.0.0.1:9".parse().unwrap());
            let config = AggregatorConfig { shared, groups: vec![group("north")] };
            let reloads = ReloadSignal::new().unwrap();
            let shutdown = async {
                let process = std::process::id().to_string();
                while !IS_READING.load(Ordering::Relaxed) {
                    std::process::Command::new("kill").args(["-HUP", &process]).status().unwrap();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let run = run(config, ServiceManager::none(), reloads, hangs, shutdown);
            tokio::time::timeout(Duration::from_secs(60), run).await
        });
        runtime.shutdown_background();
        assert_eq!(ended.expect("it ends").unwrap().len(), 1);
    }
}
