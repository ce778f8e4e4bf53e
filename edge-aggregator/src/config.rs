//! Configuration of an aggregator: settings that all groups of the process share, and one part for each group.

use std::path::PathBuf;

use headwater_inference::bundle::Networks;
use headwater_inference::policy::Policy;
use headwater_link::QoS;
use headwater_protocol::{EdgeId, EdgeIndex, GroupId, PolicyId, SiteId};
use headwater_settings::{
    AdminSettings, Bounded, BrokerSettings, Conf, LogSettings, Settings, defaults, word,
};
use headwater_transport::Endpoint;
use serde::Deserialize;

use crate::breaker::BreakerConfig;
use crate::cloud::infer_endpoint;

/// Configuration of one aggregator process.
#[derive(Clone, Debug)]
pub struct AggregatorConfig {
    /// Settings of all groups.
    pub shared: SharedConfig,
    /// The groups.
    pub groups: Vec<GroupConfig>,
}

/// Settings that all groups of a process share.
#[derive(Clone, Debug, Conf)]
pub struct SharedConfig {
    /// Messages that may wait in each direction between a group's connection to the broker and its leader.
    #[conf(long, env, default_value = "8192")]
    pub queue_messages: Bounded<1, 1_048_576, usize>,
    /// Longest time in ms that a shutdown waits for open samples, and again for the broker to take the last results.
    #[conf(long, env, default_value = "2000")]
    pub grace_ms: Bounded<1, 600_000, u32>,
    /// Section `[broker]`.
    #[conf(flatten, prefix)]
    pub broker: BrokerSettings,
    /// Section `[cloud]`.
    #[conf(flatten, prefix)]
    pub cloud: CloudConfig,
    /// Section `[admin]`.
    #[conf(flatten, prefix)]
    pub admin: AdminSettings,
    /// Section `[log]`.
    #[conf(flatten, prefix)]
    pub log: LogSettings,
}

/// Section `[cloud]`: the connection to the cloud service.
#[derive(Clone, Debug, Conf)]
pub struct CloudConfig {
    /// Cloud service, http://host:port. Left out: unsure samples get the answer of the last exit before the cloud, degraded `cloud_unreachable`.
    #[conf(long, env, value_parser = Endpoint::http)]
    pub url: Option<Endpoint>,
    /// Name of the model at the cloud service.
    #[conf(long, env, default_value = "headwater")]
    pub model: String,
    /// Concurrent requests of all groups. More requests hide a slow connection; fewer spare a small cloud.
    #[conf(long, env, default_value = "64")]
    pub max_requests: Bounded<1, 4096, usize>,
    /// Time in ms after its deadline in which a cloud answer is still published as a revision; 0 for never.
    #[conf(long, env, default_value = "200")]
    pub linger_ms: Bounded<0, 60_000, u32>,
    /// Section `[cloud.breaker]`.
    #[conf(flatten, prefix)]
    pub breaker: BreakerConfig,
}

/// Configuration of one group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Site of the group.
    pub site: SiteId,
    /// Name of the group.
    pub group: GroupId,
    /// Part that this process has in the group.
    pub role: Role,
    /// Networks that the group runs.
    pub networks: Networks,
    /// Policy with its id, in place of the policy in the bundle of the current network.
    pub policy: Option<(Policy, PolicyId)>,
    /// MQTT client id; `None` makes one from site, group and role. A broker ends the connection of an earlier client with the same id.
    pub client_id: Option<String>,
    /// Name of the group's model at the cloud service; `None` for [`CloudConfig::model`].
    pub model: Option<String>,
    /// Journal of the leader; `None` keeps nothing over a restart: devices send unsettled samples again, and they are decided a second time.
    pub journal: Option<JournalConfig>,
    /// Bounds and timing.
    pub limits: GroupLimits,
}

/// Bounds and timing of one group.
#[derive(Clone, Copy, Debug, Conf)]
pub struct GroupLimits {
    /// Open samples. One more sample drops the oldest as `shed`.
    #[conf(long, env, default_value = "4096")]
    pub max_open: Bounded<1, 65_536, usize>,
    /// MQTT quality of service of requests for features. 0 is faster; a lost request degrades one sample. 1 is acknowledged.
    #[conf(long, env, default_value = "0")]
    pub request_qos: QoS,
    /// Shortest time in ms between two publications of the settled samples.
    #[conf(long, env, default_value = "100")]
    pub settled_every_ms: Bounded<1, 60_000, u32>,
}

/// Part that a process has in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The leader decides.
    Leader {
        /// Edges of the network that run in this process. `None`: the only edge of a network with one, and no edge of a network with several.
        local_edges: Option<Vec<usize>>,
    },
    /// The process runs one edge section for the leader.
    Edge {
        /// Position of the edge in the network.
        edge: EdgeIndex,
        /// Name of the edge in topics.
        id: EdgeId,
    },
}

/// File of the journal, and its guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// The file. The folder must exist.
    pub path: PathBuf,
    /// Size in bytes at which the file is compacted.
    pub max_bytes: u64,
    /// Guarantee before a decision is published.
    pub sync: JournalSync,
}

/// Guarantee before a decision is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalSync {
    /// The operating system has the decision: it survives a SIGKILL.
    #[default]
    Never,
    /// The disk has the decision: it survives a power loss. A batch of decisions takes milliseconds longer.
    Always,
}

/// Section `[journal]`.
#[derive(Clone, Debug, Conf)]
pub struct JournalSettings {
    /// File in which decisions are written before they are published. Left out: nothing is kept over a restart, and samples that
    /// devices still hold are decided again.
    #[conf(long, env)]
    pub path: Option<PathBuf>,
    /// Size in bytes at which the file is compacted. A small journal is compacted often.
    #[conf(long, env, default_value = "67108864")]
    pub max_bytes: Bounded<4_194_304, 1_099_511_627_776>,
    /// "never" survives a SIGKILL. "always" waits for the disk and survives a power loss.
    #[conf(long, env, value_parser = word, default_value = "never")]
    pub sync: JournalSync,
}

impl Settings for SharedConfig {
    fn check(&self) -> Vec<String> {
        let url = self.cloud.url.as_ref().map(|url| infer_endpoint(url, &self.cloud.model));
        url.and_then(Result::err).map(|mistake| format!("cloud.url: {mistake}")).into_iter().collect()
    }
}
impl Settings for GroupLimits {}
impl Settings for JournalSettings {}

impl SharedConfig {
    /// Default settings with a broker: no cloud, no admin listener.
    ///
    /// # Panics
    /// Never: a test reads the defaults.
    pub fn new(broker: Endpoint) -> Self {
        let mut config: Self = defaults().expect("every shared setting has a default");
        config.broker.address = broker;
        config
    }
}

impl GroupConfig {
    /// Default configuration of a group's leader: no journal, the bundle's policy.
    ///
    /// # Panics
    /// Never: a test reads the defaults.
    pub fn new(site: SiteId, group: GroupId, networks: impl Into<Networks>) -> Self {
        Self {
            site,
            group,
            role: Role::Leader { local_edges: None },
            networks: networks.into(),
            policy: None,
            client_id: None,
            model: None,
            journal: None,
            limits: defaults().expect("every limit has a default"),
        }
    }

    /// MQTT client id. Names hold no `:`, so that no two roles have the same id; some brokers refuse a `/`.
    pub(crate) fn client_id(&self, role: &str) -> String {
        self.client_id.clone().unwrap_or_else(|| format!("{}:{}:{role}", self.site, self.group))
    }
}

impl Role {
    /// An edge with the name that its position gives.
    ///
    /// # Panics
    /// Never: the name is short and without topic characters.
    pub fn edge(edge: EdgeIndex) -> Self {
        let id = EdgeId::new(format!("edge-{edge}")).expect("a word and a number make a name");
        Self::Edge { edge, id }
    }
}

impl JournalConfig {
    /// A journal in this file with the default size and guarantee.
    ///
    /// # Panics
    /// Never: a test reads the defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let settings: JournalSettings = defaults().expect("every setting but the path has a default");
        Self { path: path.into(), max_bytes: settings.max_bytes.get(), sync: settings.sync }
    }
}
