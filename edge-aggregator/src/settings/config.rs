//! Configuration of an aggregator: settings that all groups of the process share, and an [`OpenedGroup`] for each group.

use std::fmt;
use std::path::PathBuf;

use headwater_inference::bundle::Networks;
use headwater_inference::policy::Policy;
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId};
use headwater_settings::{
    AdminSettings, BrokerSettings, LogSettings, Misfit, SecuritySettings, default, defaults, flat, optional,
    secret, section, settings,
};
use headwater_transport::tls::ClientIdentity;
use headwater_transport::{Endpoint, Secret, random};
use hyper::Uri;
use tokio::sync::watch;

use crate::breaker::BreakerConfig;
use crate::settings::group::{GroupSettings, Role};
use crate::settings::group_policy::SharedPolicy;

/// Configuration of one aggregator process.
#[derive(Clone, Debug)]
pub struct AggregatorConfig {
    /// Settings of all groups.
    pub shared: SharedConfig,
    /// The groups.
    pub groups: Vec<OpenedGroup>,
}

settings! {
    /// Settings that all groups of a process share.
    #[derive(Clone, Debug)]
    pub struct SharedConfig {
        /// Messages that may wait in each direction between a group's connection to the broker and its leader.
        pub queue_messages: usize = default("8192").within(1..=1_048_576),
        /// Longest time in ms that a shutdown waits for open samples, and again for the broker to take the last results.
        pub grace_ms: u32 = default("2000").within(1..=600_000),
        /// Section `[broker]`.
        pub broker: BrokerSettings = section(),
        /// Identity and trust.
        pub security: SecuritySettings = flat(),
        /// Section `[cloud]`.
        pub cloud: CloudConfig = section(),
        /// Section `[admin]`.
        pub admin: AdminSettings = section().example("listen", "127.0.0.1:9601"),
        /// Section `[log]`.
        pub log: LogSettings = section(),
    }
}

settings! {
    /// Section `[cloud]`: the connection to the cloud service.
    #[derive(Clone)]
    pub struct CloudConfig {
        /// Cloud service, http://host:port, or https://host:port with TLS (section `[tls]`). Left out: unsure samples get the answer of the last exit before the cloud, degraded `cloud_unreachable`.
        pub url: Option<Endpoint> = optional("http://127.0.0.1:8600").by(Endpoint::http),
        /// File whose first line is the key that the cloud service asks for (`http.keys_file` there); it is read again when it changes. Or give
        /// the key in the environment, `HEADWATER_CLOUD_KEY`.
        pub key_file: Option<PathBuf> = optional("/etc/headwater/cloud-key"),
        /// Key that the cloud service asks for.
        pub key: Option<String> = secret(),
        /// Name of the model at the cloud service.
        pub model: String = default("headwater"),
        /// Concurrent requests of all groups. More requests hide a slow connection; fewer spare a small cloud.
        pub max_requests: usize = default("64").within(1..=4096),
        /// Time in ms after its deadline in which a cloud answer is still published as a revision; 0 for never.
        pub linger_ms: u32 = default("200").within(0..=60_000),
        /// Section `[cloud.breaker]`.
        pub breaker: BreakerConfig = section(),
    }
}

/// A group with the files that its settings name.
#[derive(Clone, Debug)]
pub struct OpenedGroup {
    /// The settings as they were read. Paths of files that are opened already serve only to read those files again.
    pub settings: GroupSettings,
    /// Role of this process in the group.
    pub role: Role,
    /// Networks that the group runs.
    pub networks: Networks,
    /// Policy with its id, in place of the policy in the bundle of the current network; `None` if the bundle's policy holds.
    pub policy: Option<(Policy, PolicyId)>,
    /// Policies that replace [`OpenedGroup::policy`] while the group runs; `None` if the policy does not change.
    pub policy_updates: Option<watch::Receiver<(Policy, PolicyId)>>,
    /// The policy that commands change; `None` if its updates come from elsewhere than the policy file.
    pub policy_commands: Option<SharedPolicy>,
    /// Lists that replace the setting `devices` while the group runs; `None` if the list does not change.
    pub device_updates: Option<watch::Receiver<Vec<DeviceId>>>,
    /// Certificate of the group at the broker; `None` if the group uses the certificate of the process.
    pub identity: Option<ClientIdentity>,
    /// True if this start begins a new numbering: ids of the journal are forgotten, its counts stay.
    pub new_numbering: bool,
}

impl SharedConfig {
    /// Default settings with a broker: no cloud, no admin listener.
    pub fn new(broker: Endpoint) -> Self {
        let mut config: Self = defaults();
        config.broker.address = broker;
        config
    }

    /// Settings that do not fit each other.
    pub(crate) fn check(&self) -> Vec<Misfit> {
        let url = self.cloud.url.as_ref().map(|url| infer_endpoint(url, &self.cloud.model));
        let url = url.and_then(Result::err).map(|mistake| Misfit::new("cloud.url", mistake.to_string()));
        let link = self.cloud.url.as_ref().and_then(|url| self.security.check_link("cloud.url", url).err());
        let both = Misfit::new("cloud.key_file", "the environment has a key too; keep one of them");
        let key = (self.cloud.key_file.is_some() && self.cloud.key.is_some()).then_some(both);
        let broker = self.security.check_broker(&self.broker).into_iter();
        broker.chain(url).chain(link).chain(key).chain(self.admin.check()).collect()
    }

    /// Mistakes in the files of the TLS identity, the broker's password and the cloud's key. Empty if settings do not fit each other:
    /// [`Self::check`] names those settings.
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
    /// A sentence with the name of the setting, if `key_file` cannot be used.
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

impl OpenedGroup {
    /// A group's leader with default settings: no journal, the bundle's policy.
    pub fn new(site: SiteId, group: GroupId, networks: impl Into<Networks>) -> Self {
        Self {
            settings: GroupSettings { site, group, ..defaults() },
            role: Role::Leader { local_edges: None },
            networks: networks.into(),
            policy: None,
            policy_updates: None,
            policy_commands: None,
            device_updates: None,
            identity: None,
            new_numbering: false,
        }
    }

    /// The group with a journal in this file.
    #[must_use]
    pub fn with_journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.journal.path = Some(path.into());
        self
    }

    /// The policy of the current network: the newest update, else the configured policy, else the bundle's.
    pub(crate) fn current_policy(&self) -> (Policy, PolicyId) {
        let update = self.policy_updates.as_ref().map(|updates| updates.borrow().clone());
        let configured = update.or_else(|| self.policy.clone());
        configured.unwrap_or_else(|| {
            let bundle = self.networks.current();
            (bundle.policy().clone(), bundle.policy_id())
        })
    }

    /// MQTT client id: the setting `client_id`, or a new random id at each call, since two clients with one id would end each other's
    /// connections.
    pub(crate) fn client_id(&self, role: &str) -> String {
        self.settings.client_id.clone().unwrap_or_else(|| {
            // Names are ASCII and hold no `:`; some brokers refuse a `/`.
            let mut id = format!("{}:{}:{role}", self.settings.site, self.settings.group);
            id.truncate(MAX_CLIENT_ID_BYTES - RANDOM_ID_BYTES);
            format!("{id}:{:08x}", random() as u32)
        })
    }
}

/// Bytes of the longest client id that is made: some brokers refuse longer ids.
const MAX_CLIENT_ID_BYTES: usize = 63;
/// Bytes of the random part of a client id: a colon and eight hexadecimal digits.
const RANDOM_ID_BYTES: usize = 9;

/// Address of a model's inference endpoint.
///
/// # Errors
/// A sentence for the operator when `cloud` is not `http[s]://host[:port]`, or the model's name is no part of a path.
pub(crate) fn infer_endpoint(cloud: &Endpoint, model: &str) -> Result<Uri, String> {
    model_endpoint(cloud, model, "/infer")
}

/// Address of a model at the cloud service, or of the path `below` under that model.
pub(crate) fn model_endpoint(cloud: &Endpoint, model: &str, below: &str) -> Result<Uri, String> {
    if cloud.path() != "/" {
        return Err(format!("expected http://host:port or https://host:port, found \"{cloud}\""));
    }
    let endpoint = cloud.with_path(&format!("/v2/models/{model}{below}"));
    endpoint.uri().map_err(|_| format!("expected the name of a model, found {model:?}"))
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
        let short = |config: &OpenedGroup| config.client_id("leader");
        for name in ["gate", &name] {
            let site = SiteId::new(name).unwrap();
            let config =
                OpenedGroup::new(site, GroupId::new(name).unwrap(), std::sync::Arc::clone(&networks));
            let ids = [short(&config), short(&config)];
            assert!(ids.iter().all(|id| id.len() < 64 && id.is_ascii()), "{ids:?}");
            assert_ne!(ids[0], ids[1]);
        }
    }
}
