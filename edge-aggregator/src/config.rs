//! What an operator may set.

use std::path::PathBuf;
use std::str::FromStr;

use headwater_inference::policy::Policy;
use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{EdgeId, GroupId, PolicyId, SiteId, no_such_setting};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::breaker::BreakerConfig;
use crate::cloud::endpoint;

/// Settings of one aggregator: the leader of one group, or one of its edges.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregatorConfig {
    /// Site of the group.
    pub site: SiteId,
    /// The group it leads, or is an edge of.
    pub group: GroupId,
    /// Which of the two it is.
    pub role: Role,
    /// Where the broker is.
    pub broker: BrokerAddress,
    /// MQTT client id; `None` makes one from the group. A second client of the same id ends the connection of the first.
    pub client_id: Option<String>,
    /// `http://host:port` of the cloud service; `None`: unsure samples are answered locally, degraded `cloud_unreachable`.
    pub cloud_url: Option<String>,
    /// Name of the model there.
    pub cloud_model: String,
    /// Requests to the cloud under way at once. More hides a long line's latency; fewer spares a small cloud.
    pub cloud_most_requests: usize,
    /// How long after its deadline a cloud answer is still taken, ms, to be published as a revision; 0: not at all.
    pub cloud_linger_ms: u32,
    /// When the cloud is left alone.
    pub breaker: BreakerConfig,
    /// Policy in place of the bundle's, with its id.
    pub policy: Option<(Policy, PolicyId)>,
    /// The journal's file; `None`: nothing survives the process, and after a restart samples that devices still hold are decided anew.
    pub journal: Option<JournalConfig>,
    /// Most samples open at once; one more sheds the oldest.
    pub most_open: usize,
    /// `QoS` of requests for features. 0 is quicker; a lost request costs one degraded sample.
    pub request_qos: QoS,
    /// The account is published at most once in so many ms.
    pub settled_every_ms: u32,
    /// Messages that may wait, each way, between the broker's socket and the leader.
    pub queue_messages: usize,
    /// Longest time that shutdown waits for open samples, and then for the broker to take the last results, ms.
    pub grace_ms: u32,
}

/// What an aggregator is to its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides.
    Leader {
        /// Edges of the network that run in this process, from 0. `None`: the only one, where there is one; of several, none.
        edges: Option<Vec<usize>>,
    },
    /// It runs one edge section for the leader.
    Edge {
        /// Which edge of the network, from 0.
        edge: usize,
        /// Its name in topics; `None` makes one of the number.
        id: Option<EdgeId>,
    },
}

/// The journal's file and how much it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// The file; its folder must be there.
    pub path: PathBuf,
    /// Size at which it is rewritten, bytes.
    pub most_bytes: u64,
    /// What a decision waits for before it is published.
    pub sync: JournalSync,
}

/// What a decision waits for before it is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalSync {
    /// The operating system has it: survives a SIGKILL.
    #[default]
    Never,
    /// The disk has it: survives power loss; milliseconds more per batch of decisions.
    Always,
}

/// Size at which a journal is rewritten, by default.
const JOURNAL_BYTES: u64 = 64 << 20;
/// Below it a journal would be rewritten all the time.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;

impl AggregatorConfig {
    /// Defaults for one group on one machine: no cloud, no journal.
    pub fn new(site: SiteId, group: GroupId, broker: BrokerAddress) -> Self {
        Self {
            site,
            group,
            role: Role::Leader { edges: None },
            broker,
            client_id: None,
            cloud_url: None,
            cloud_model: "headwater".into(),
            cloud_most_requests: 64,
            cloud_linger_ms: 200,
            breaker: BreakerConfig::default(),
            policy: None,
            journal: None,
            most_open: 4096,
            request_qos: QoS::AtMostOnce,
            settled_every_ms: 100,
            queue_messages: 8192,
            grace_ms: 2000,
        }
    }

    /// Replaces what the TOML text sets; see `headwater-aggregator.toml` for the keys.
    ///
    /// # Errors
    /// Every mistake of the text, each with its key.
    pub fn read_toml(&mut self, text: &str) -> Result<(), Vec<String>> {
        let table = text.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
        let mut keys = Keys { table, known: Vec::new(), mistakes: Vec::new() };
        keys.take("site", &mut self.site);
        keys.take("group", &mut self.group);
        self.take_role(&mut keys);
        keys.parse("broker", &mut self.broker);
        keys.take_some("client_id", &mut self.client_id);
        keys.take_some("cloud_url", &mut self.cloud_url);
        keys.take("cloud_model", &mut self.cloud_model);
        keys.take("cloud_most_requests", &mut self.cloud_most_requests);
        keys.take("cloud_linger_ms", &mut self.cloud_linger_ms);
        keys.take("breaker_failures", &mut self.breaker.failures);
        keys.take("breaker_first_wait_ms", &mut self.breaker.first_wait_ms);
        keys.take("breaker_longest_wait_ms", &mut self.breaker.longest_wait_ms);
        let (mut path, mut most_bytes, mut sync) = (None, JOURNAL_BYTES, JournalSync::default());
        keys.take_some("journal_path", &mut path);
        keys.take("journal_most_bytes", &mut most_bytes);
        keys.take("journal_sync", &mut sync);
        if let Some(path) = path {
            self.journal = Some(JournalConfig { path, most_bytes, sync });
        }
        keys.take("most_open", &mut self.most_open);
        let mut qos = 0u8;
        keys.take("request_qos", &mut qos);
        match QoS::try_from(qos) {
            Ok(qos) => self.request_qos = qos,
            Err(error) => keys.mistakes.push(format!("request_qos: {error}")),
        }
        keys.take("settled_every_ms", &mut self.settled_every_ms);
        keys.take("queue_messages", &mut self.queue_messages);
        keys.take("grace_ms", &mut self.grace_ms);
        keys.finish()
    }

    fn take_role(&mut self, keys: &mut Keys) {
        let word: Option<String> = keys.get("role");
        let (edges, edge, id) = (keys.get("own_edges"), keys.get("edge"), keys.get("edge_id"));
        match self.role_of(word.as_deref(), edges, edge, id) {
            Ok(role) => self.role = role,
            Err(mistakes) => keys.mistakes.extend(mistakes),
        }
    }

    /// The role that these settings name; those left out stay as they are.
    ///
    /// # Errors
    /// Every one of them that does not fit the role.
    pub fn role_of(
        &self,
        word: Option<&str>,
        own_edges: Option<Vec<usize>>,
        edge: Option<usize>,
        id: Option<EdgeId>,
    ) -> Result<Role, Vec<String>> {
        let is_edge = match word {
            None => matches!(self.role, Role::Edge { .. }),
            Some("leader") => false,
            Some("edge") => true,
            Some(other) => {
                return Err(vec![format!("role: expected \"leader\" or \"edge\", found {other:?}")]);
            }
        };
        let (had_edges, had_edge, had_id) = match &self.role {
            Role::Leader { edges } => (edges.clone(), None, None),
            Role::Edge { edge, id } => (None, Some(*edge), id.clone()),
        };
        if is_edge {
            match (own_edges, edge.or(had_edge)) {
                (None, Some(edge)) => Ok(Role::Edge { edge, id: id.or(had_id) }),
                (own, edge) => {
                    let foreign = own.map(|_| "own_edges: only with role = \"leader\"".to_owned());
                    let missing = edge.is_none().then(|| "edge: missing, and role is \"edge\"".to_owned());
                    Err(foreign.into_iter().chain(missing).collect())
                }
            }
        } else {
            let foreign = [("edge", edge.is_some()), ("edge_id", id.is_some())];
            let foreign = foreign.into_iter().filter(|(_, is_there)| *is_there);
            let mistakes: Vec<_> =
                foreign.map(|(key, _)| format!("{key}: only with role = \"edge\"")).collect();
            let role = Role::Leader { edges: own_edges.or(had_edges) };
            if mistakes.is_empty() { Ok(role) } else { Err(mistakes) }
        }
    }

    /// Takes a policy from TOML text in place of the bundle's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_policy_toml(&mut self, text: &str) -> Result<(), Vec<String>> {
        let policy: Policy = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
        policy.check().map_err(|error| vec![error.to_string()])?;
        self.policy = Some((policy, Policy::id_of(text.as_bytes())));
        Ok(())
    }

    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// Every mistake, each with key, expected and found.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        for (key, found, least, most) in [
            ("cloud_most_requests", self.cloud_most_requests as u64, 1, 4096),
            ("cloud_linger_ms", self.cloud_linger_ms.into(), 0, 60_000),
            ("breaker_failures", self.breaker.failures.into(), 1, 1_000_000),
            ("breaker_first_wait_ms", self.breaker.first_wait_ms.into(), 1, 600_000),
            ("breaker_longest_wait_ms", self.breaker.longest_wait_ms.into(), 1, 600_000),
            ("most_open", self.most_open as u64, 1, 65_536),
            ("settled_every_ms", self.settled_every_ms.into(), 1, 60_000),
            ("queue_messages", self.queue_messages as u64, 1, 1 << 20),
            ("grace_ms", self.grace_ms.into(), 1, 600_000),
        ] {
            if !(least..=most).contains(&found) {
                mistakes.push(format!("{key}: expected {least} to {most}, found {found}"));
            }
        }
        if let Some(url) = &self.cloud_url
            && let Err(mistake) = endpoint(url, &self.cloud_model)
        {
            mistakes.push(format!("cloud_url or cloud_model: {mistake}"));
        }
        if let Some(JournalConfig { most_bytes, .. }) = self.journal
            && most_bytes < JOURNAL_BYTES_MIN
        {
            mistakes.push(format!(
                "journal_most_bytes: expected at least {JOURNAL_BYTES_MIN}, found {most_bytes}"
            ));
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

impl JournalConfig {
    /// A journal in this file, with the default bound, that survives a SIGKILL.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), most_bytes: JOURNAL_BYTES, sync: JournalSync::Never }
    }
}

/// The keys of a file, each taken once.
struct Keys {
    table: toml::Table,
    /// Those asked for so far.
    known: Vec<String>,
    mistakes: Vec<String>,
}

impl Keys {
    fn get<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        self.known.push(key.into());
        match self.table.remove(key)?.try_into() {
            Ok(value) => Some(value),
            Err(error) => {
                self.mistakes.push(format!("{key}: {}", error.message()));
                None
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self, key: &str, into: &mut T) {
        if let Some(value) = self.get(key) {
            *into = value;
        }
    }

    fn take_some<T: DeserializeOwned>(&mut self, key: &str, into: &mut Option<T>) {
        if let Some(value) = self.get(key) {
            *into = Some(value);
        }
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &str, into: &mut T) {
        let Some(text) = self.get::<String>(key) else { return };
        match text.parse() {
            Ok(value) => *into = value,
            Err(error) => self.mistakes.push(format!("{key}: {error}")),
        }
    }

    fn finish(mut self) -> Result<(), Vec<String>> {
        let known = || self.known.iter().map(String::as_str);
        self.mistakes.extend(self.table.keys().map(|key| no_such_setting(key, known())));
        if self.mistakes.is_empty() { Ok(()) } else { Err(self.mistakes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AggregatorConfig {
        let [site, group] = ["home", "demo"];
        AggregatorConfig::new(
            SiteId::new(site).unwrap(),
            GroupId::new(group).unwrap(),
            "mqtt://127.0.0.1:1883".parse().unwrap(),
        )
    }

    #[test]
    fn the_default_holds_and_is_what_the_commented_file_says() {
        let mut read = config();
        assert_eq!(read.check(), Ok(()));
        read.read_toml(include_str!("../headwater-aggregator.toml")).unwrap();
        assert_eq!(read, config());
    }

    #[test]
    fn every_mistake_of_a_file_is_named_at_once() {
        let text = "broker = \"amqp://x\"\nsite = \"a/b\"\nrequest_qos = 2\nmost_open = -1\nsped = 3";
        let mistakes = config().read_toml(text).unwrap_err();
        for key in ["broker:", "site:", "request_qos:", "most_open:", "sped:"] {
            assert!(mistakes.iter().any(|mistake| mistake.starts_with(key)), "{key} in {mistakes:?}");
        }
        assert_eq!(mistakes.len(), 5);
    }

    #[test]
    fn a_role_is_read_whole_and_what_belongs_to_the_other_is_named() {
        let mut edge = config();
        edge.read_toml("role = \"edge\"\nedge = 1\nedge_id = \"north\"").unwrap();
        let id = Some(EdgeId::new("north").unwrap());
        assert_eq!(edge.role, Role::Edge { edge: 1, id });
        let mut leader = config();
        leader.read_toml("own_edges = [0, 1]").unwrap();
        assert_eq!(leader.role, Role::Leader { edges: Some(vec![0, 1]) });
        assert_eq!(
            config().read_toml("role = \"edge\"").unwrap_err(),
            ["edge: missing, and role is \"edge\""]
        );
        assert_eq!(config().read_toml("edge = 1").unwrap_err(), ["edge: only with role = \"edge\""]);
        assert!(config().read_toml("role = \"boss\"").unwrap_err()[0].contains("found \"boss\""));
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let mistakes = config().read_toml("most_opn = 3").unwrap_err();
        assert_eq!(mistakes, ["most_opn: no such setting; did you mean `most_open`?"]);
    }

    #[test]
    fn every_value_out_of_range_is_named_at_once() {
        let config = AggregatorConfig {
            cloud_url: Some("https://cloud".into()),
            most_open: 0,
            journal: Some(JournalConfig { most_bytes: 1, ..JournalConfig::new("journal") }),
            ..config()
        };
        assert_eq!(config.check().unwrap_err().len(), 3);
    }

    #[test]
    fn the_commented_policy_gives_the_defaults() {
        let mut config = config();
        config.read_policy_toml(include_str!("../../docs/policy.toml")).unwrap();
        assert_eq!(config.policy.unwrap().0, Policy::default());
    }

    #[test]
    fn a_policy_with_a_threshold_outside_zero_to_one_is_refused() {
        let mistakes = config().read_policy_toml("[local]\nthreshold = 1.5").unwrap_err();
        assert!(mistakes[0].contains("expected a number in [0, 1], found 1.5"), "{mistakes:?}");
        let mut config = config();
        config.read_policy_toml("window_ms = 20").unwrap();
        assert_eq!(config.policy.unwrap().0.window_ms, 20);
    }
}
