//! Configuration of an aggregator: settings that all groups of the process share, and one part for each group.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use headwater_inference::bundle::Networks;
use headwater_inference::policy::Policy;
use headwater_link::QoS;
use headwater_protocol::{DeviceId, EdgeId, EdgeIndex, GroupId, PolicyId, SiteId};
use headwater_settings::{
    AdminSettings, Bounded, BrokerSettings, Conf, LogSettings, SecuritySettings, Settings, defaults, word,
};
use headwater_transport::tls::ClientIdentity;
use headwater_transport::{Endpoint, Secret};
use serde::Deserialize;
use tokio::sync::watch;

use crate::breaker::BreakerConfig;
use crate::claim::random;
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
    /// Identity and trust.
    #[conf(flatten)]
    pub security: SecuritySettings,
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
#[derive(Clone, Conf)]
pub struct CloudConfig {
    /// Cloud service, http://host:port, or https://host:port with TLS (section `[tls]`). Left out: unsure samples get the answer of the last exit before the cloud, degraded `cloud_unreachable`.
    #[conf(long, env, value_parser = Endpoint::http)]
    pub url: Option<Endpoint>,
    /// File whose first line is the key that the cloud service asks for (`http.keys_file` there); it is read again when it changes. Or give
    /// the key in the environment, `HEADWATER_CLOUD_KEY`.
    #[conf(long, env)]
    pub key_file: Option<PathBuf>,
    /// Key that the cloud service asks for.
    #[conf(env, secret)]
    pub key: Option<String>,
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
    /// File of [`GroupConfig::policy`], which [`Aggregator::reload`](crate::Aggregator::reload) reads again.
    pub policy_file: Option<PathBuf>,
    /// Policies that replace [`GroupConfig::policy`] while the group runs; `None` where none comes.
    pub policy_updates: Option<watch::Receiver<(Policy, PolicyId)>>,
    /// MQTT client id; `None` makes one from site, group, role and a random number. A broker ends the connection of an earlier client with
    /// the same id.
    pub client_id: Option<String>,
    /// Ids of the devices by slot; empty where any device may claim any slot.
    pub devices: Vec<DeviceId>,
    /// Lists that replace [`GroupConfig::devices`] while the group runs; `None` where none comes.
    pub device_updates: Option<watch::Receiver<Vec<DeviceId>>>,
    /// Certificate of the group at the broker, in place of that of the process.
    pub identity: Option<ClientIdentity>,
    /// Whether a leader replaces another one that is up, once at its start.
    pub take_over: bool,
    /// Name of the group's model at the cloud service; `None` for [`CloudConfig::model`].
    pub model: Option<String>,
    /// Journal of the leader; `None` keeps nothing over a restart: devices send unsettled samples again, and they are decided a second time.
    pub journal: Option<JournalConfig>,
    /// Whether this start begins a new numbering: ids of the journal are forgotten, its counts stay.
    pub new_numbering: bool,
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
    /// Shortest time in ms between two publications of the settled samples. A group that decides few samples and drops none publishes after
    /// five times as long. Five times as long must stay below `keep_ms` of the devices.
    #[conf(long, env, default_value = "100")]
    pub settled_every_ms: Bounded<1, 60_000, u32>,
    /// Time in ms without a message after which a device loses its slot to another device that claims it; half of it while other devices
    /// send. Longer than the time between two samples.
    #[conf(long, env, default_value = "10000")]
    pub silent_device_ms: Bounded<100, 86_400_000, u32>,
    /// Largest difference in ms between the time of a sample and this machine's clock, where ids tell the time. Samples beyond it are
    /// refused, and their devices are named in the log. Late samples may be 21 days old.
    #[conf(long, env, default_value = "600000")]
    pub max_clock_difference_ms: Bounded<1, 86_400_000, u32>,
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
        let url = url.and_then(Result::err).map(|mistake| format!("cloud.url: {mistake}"));
        let link = self.cloud.url.as_ref().and_then(|url| self.security.check_link("cloud.url", url).err());
        let both = "cloud.key_file: the environment has a key too; keep one of them";
        let key = (self.cloud.key_file.is_some() && self.cloud.key.is_some()).then(|| both.to_owned());
        let broker = self.security.check_broker(&self.broker).into_iter();
        broker.chain(url).chain(link).chain(key).chain(self.admin.check()).collect()
    }
}
impl SharedConfig {
    /// Files of the identity, the broker's password and the cloud's key that cannot be used. Settings that do not fit each other are named
    /// elsewhere.
    pub(crate) fn file_mistakes(&self) -> Vec<String> {
        if !self.check().is_empty() {
            return Vec::new();
        }
        let broker = self.security.broker_access(&self.broker).err().unwrap_or_default();
        broker.into_iter().chain(self.cloud.secret().err()).collect()
    }
}

impl CloudConfig {
    /// The key for the cloud service; `None` without one.
    ///
    /// # Errors
    /// A file that cannot be used, with the key of the setting.
    pub fn secret(&self) -> Result<Option<Secret>, String> {
        let file = self.key_file.as_ref().map(Secret::of_file).transpose();
        let file = file.map_err(|reason| format!("cloud.key_file: {reason}"))?;
        Ok(file.or_else(|| self.key.as_deref().map(Secret::of_text)))
    }
}

impl fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, key_file, key, model, max_requests, linger_ms, breaker } = self;
        f.debug_struct("CloudConfig")
            .field("url", url)
            .field("key_file", key_file)
            .field("key", &key.as_ref().map(|_| "***"))
            .field("model", model)
            .field("max_requests", max_requests)
            .field("linger_ms", linger_ms)
            .field("breaker", breaker)
            .finish()
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
            policy_file: None,
            policy_updates: None,
            client_id: None,
            devices: Vec::new(),
            device_updates: None,
            identity: None,
            take_over: false,
            model: None,
            journal: None,
            new_numbering: false,
            limits: defaults().expect("every limit has a default"),
        }
    }

    /// The policy of the current network: the newest update, the configured one, or that of the bundle.
    pub(crate) fn current_policy(&self) -> (Policy, PolicyId) {
        let update = self.policy_updates.as_ref().map(|updates| updates.borrow().clone());
        let configured = update.or_else(|| self.policy.clone());
        configured.unwrap_or_else(|| self.networks.current().calibrated_policy())
    }

    /// MQTT client id. Without one in the settings every process and every call makes another: two clients with one id would end each
    /// other's connections.
    pub(crate) fn client_id(&self, role: &str) -> String {
        self.client_id.clone().unwrap_or_else(|| {
            // Names are ASCII and hold no `:`; some brokers refuse a `/`.
            let mut id = format!("{}:{}:{role}", self.site, self.group);
            id.truncate(MAX_CLIENT_ID_BYTES - RANDOM_ID_BYTES);
            format!("{id}:{:08x}", random() as u32)
        })
    }
}

/// Longest client id that is made: some brokers refuse longer ones.
const MAX_CLIENT_ID_BYTES: usize = 63;
/// Bytes of the random part of a client id.
const RANDOM_ID_BYTES: usize = 9;

impl GroupLimits {
    /// Time without a message after which a device loses its slot to another one.
    pub(crate) fn silent_after(&self) -> Duration {
        Duration::from_millis(self.silent_device_ms.get().into())
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

    /// Position of the edge in the network; `None` for the leader.
    pub(crate) fn edge_index(&self) -> Option<EdgeIndex> {
        match self {
            Self::Leader { .. } => None,
            Self::Edge { edge, .. } => Some(*edge),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_short_and_no_two_are_equal() {
        let name = "n".repeat(64);
        let bundle = headwater_inference::testing::TinyNetwork::default().bundle();
        let bundle = headwater_inference::bundle::Bundle::from_bytes(&bundle).unwrap();
        let networks = std::sync::Arc::new(bundle);
        let short = |config: &GroupConfig| config.client_id("leader");
        for name in ["gate", &name] {
            let site = SiteId::new(name).unwrap();
            let config =
                GroupConfig::new(site, GroupId::new(name).unwrap(), std::sync::Arc::clone(&networks));
            let ids = [short(&config), short(&config)];
            assert!(ids.iter().all(|id| id.len() < 64 && id.is_ascii()), "{ids:?}");
            assert_ne!(ids[0], ids[1]);
        }
    }
}
