//! Settings of `headwater-aggregator`: one group by settings of its own, or several as `[[group]]`.

use std::path::PathBuf;

use headwater_inference::bundle::Networks;
use headwater_inference::policy::{Policy, PolicyChanges, PolicyFileError};
use headwater_protocol::{DeviceId, EdgeId, EdgeIndex, GroupId, PolicyId, SiteId};
use headwater_settings::{
    Bounded, CommandLine, Conf, List, SecuritySettings, Settings, Sources, Stop, TlsSettings,
    load_with_tables, word,
};
use headwater_transport::tls::{Certificate, ClientIdentity};
use serde::Deserialize;

use crate::config::{
    AggregatorConfig, GroupConfig, GroupLimits, JournalConfig, JournalSettings, Role, SharedConfig,
};
use crate::live_settings::ListedDevices;

/// Leads the decisions of groups of devices, or runs an edge section for a leader (--role edge).
///
/// One group is given by flags, the environment or the top of the file; several groups by one `[[group]]` table each.
#[derive(Clone, Debug, Conf)]
#[conf(env_prefix = "HEADWATER_", name = "headwater-aggregator", version, test)]
pub struct AggregatorSettings {
    /// Options of the command line.
    #[conf(flatten)]
    pub command_line: CommandLine,
    /// For this start: groups whose ids have changed, by name, with commas between. A new period or ids that begin again are such changes.
    /// Ids in their journals are forgotten, the counts stay.
    #[conf(long)]
    pub new_numbering: Option<List<GroupId>>,
    /// The one group of a process without `[[group]]`.
    #[conf(flatten)]
    pub group: Option<GroupSettings>,
    /// Settings of all groups.
    #[conf(flatten)]
    pub shared: SharedConfig,
}

/// Settings of one group.
#[derive(Clone, Debug, Conf)]
pub struct GroupSettings {
    /// Site of the group.
    #[conf(long, env, default_value = "home")]
    pub site: SiteId,
    /// Name of the group.
    #[conf(long, env, default_value = "demo")]
    pub group: GroupId,
    /// Bundle that the devices run.
    #[conf(long, env)]
    pub bundle: PathBuf,
    /// Bundle that devices are switching to, while they are restarted with it one by one (docs/rollover.md). Its own policy applies.
    #[conf(long, env)]
    pub next_bundle: Option<PathBuf>,
    /// File with changes to the bundle's thresholds and timing (TOML); see docs/policy.toml. SIGHUP reads the file again.
    #[conf(long, env)]
    pub policy: Option<PathBuf>,
    /// "leader" decides. "edge" runs one edge section of a network with several edges (configuration f).
    #[conf(long, env, value_parser = word, default_value = "leader")]
    pub role: RoleName,
    /// Only for role "leader": edges of the network that run in this process, counted from 0. Left out: the only edge of a network with one
    /// edge, no edge of a network with several.
    #[conf(long, env)]
    pub local_edges: Option<List<usize>>,
    /// Only for role "edge": index of the edge in the network, from 0.
    #[conf(long, env)]
    pub edge: Option<Bounded<0, MAX_EDGE, u8>>,
    /// Only for role "edge": name in topics. Left out: "edge-" and the index.
    #[conf(long, env)]
    pub edge_id: Option<EdgeId>,
    /// MQTT client id. Left out: made from site, group, role and a random number. A broker ends the connection of an earlier client with the
    /// same id.
    #[conf(long, env)]
    pub client_id: Option<String>,
    /// Ids of the devices, one for each slot in order, with commas between: other devices are refused. Left out: a device has the slot that
    /// it claims first, and loses it to another one only by silence (`silent_device_ms`). SIGHUP reads the list again.
    #[conf(long, env)]
    pub devices: Option<List<DeviceId>>,
    /// Certificate of this group's leader or edge at the broker (PEM), where a process has several groups. Left out: that in `[tls]`.
    #[conf(long, env)]
    pub certificate_file: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[conf(long, env)]
    pub key_file: Option<PathBuf>,
    /// Only for role "leader": replace a leader of the group that is up, once at the start. Without it a second leader waits until the first
    /// one has ended.
    #[conf(long, env)]
    pub take_over: bool,
    /// Name of the group's model at the cloud service. Left out: the name in `[cloud]`.
    #[conf(long, env)]
    pub model: Option<String>,
    /// Bounds and timing.
    #[conf(flatten)]
    pub limits: GroupLimits,
    /// Section `[journal]`.
    #[conf(flatten, prefix)]
    pub journal: JournalSettings,
}

/// Highest index of an edge.
const MAX_EDGE: u64 = EdgeIndex::MAX as u64 - 1;

/// Part that a process has in a group, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// The leader.
    Leader,
    /// An edge beside the leader.
    Edge,
}

/// Settings of an aggregator, with the groups from wherever they were given.
#[derive(Clone, Debug)]
pub struct LoadedAggregator {
    /// Settings of all groups, and options of the command line.
    pub settings: AggregatorSettings,
    /// The groups.
    pub groups: Vec<GroupSettings>,
    /// Settings in effect as a TOML file.
    pub effective: String,
    /// Variables of the environment that look like settings and are none, for the log.
    pub warnings: Vec<String>,
}

impl LoadedAggregator {
    /// Reads all settings.
    ///
    /// # Errors
    /// [`Stop`]: help that was asked for, or every mistake.
    pub fn load(sources: Sources) -> Result<Self, Stop> {
        let (loaded, tables) = load_with_tables::<AggregatorSettings, GroupSettings>(sources, "group")?;
        // Settings of the only group mean nothing beside tables of groups.
        let loaded = if loaded.settings.group.is_some() { loaded } else { loaded.without("group") };
        let mut effective = loaded.to_toml(None);
        tables.iter().for_each(|table| effective.push_str(&table.to_toml(Some("group"))));
        let groups = match (&loaded.settings.group, tables) {
            (Some(group), tables) if tables.is_empty() => vec![group.clone()],
            (None, tables) if tables.is_empty() => {
                return Err(Stop::Mistakes(vec![
                    "bundle: expected the network of the group, found none (a file with several groups has a table [[group]] for each)".into(),
                ]));
            }
            (_, tables) => tables.into_iter().map(|table| table.settings).collect(),
        };
        Ok(Self { settings: loaded.settings, groups, effective, warnings: loaded.warnings })
    }

    /// Setting `devices` of each leader and edge.
    pub fn devices(&self) -> Vec<ListedDevices> {
        let of = |group: &GroupSettings| {
            // Loaded settings have a role without mistakes.
            let role = group.role().ok()?;
            Some(ListedDevices {
                site: group.site.clone(),
                group: group.group.clone(),
                edge: role.edge_index(),
                devices: group.devices.clone().map(|devices| devices.0).unwrap_or_default(),
            })
        };
        self.groups.iter().filter_map(of).collect()
    }

    /// Opens every file that the settings name, and checks what the start of the aggregator would refuse.
    ///
    /// # Errors
    /// Every file that cannot be opened, with its key; else every setting that cannot work.
    pub fn open_checked(&self) -> Result<AggregatorConfig, Vec<String>> {
        let config = self.open()?;
        let mistakes = config.check_at(|index| self.place(index));
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    /// Prefix of the keys of a group: `group[1].`, or nothing for a group without a table.
    pub fn place(&self, index: usize) -> String {
        if self.settings.group.is_some() { String::new() } else { format!("group[{index}].") }
    }

    /// Opens every file that the settings name.
    ///
    /// # Errors
    /// Every file that cannot be opened, with its key.
    pub fn open(&self) -> Result<AggregatorConfig, Vec<String>> {
        let (mut groups, mut mistakes) = (Vec::new(), Vec::new());
        for (index, group) in self.groups.iter().enumerate() {
            let place = self.place(index);
            match group.open(&self.settings.shared.security) {
                Ok(group) => groups.push(group),
                Err(of_group) => {
                    mistakes.extend(of_group.into_iter().map(|mistake| format!("{place}{mistake}")));
                }
            }
        }
        for name in self.settings.new_numbering.iter().flat_map(|names| &names.0) {
            let mut found = groups.iter_mut().filter(|group| group.group == *name).peekable();
            if found.peek().is_none() && mistakes.is_empty() {
                mistakes.push(format!("--new-numbering: expected a group of this process, found {name}"));
            }
            found.for_each(|group| group.new_numbering = true);
        }
        mistakes.extend(self.settings.shared.file_mistakes());
        let config = AggregatorConfig { shared: self.settings.shared.clone(), groups };
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }
}

impl Settings for AggregatorSettings {
    const SWITCHES: &'static [&'static str] = &["insecure", "admin.remote", "take_over"];
    const RENAMED: &'static [(&'static str, &'static str)] = &[
        ("own_edges", "local_edges"),
        ("most_open", "max_open"),
        ("broker", "broker.address"),
        ("cloud_url", "cloud.url"),
        ("cloud_model", "cloud.model"),
        ("cloud_most_requests", "cloud.max_requests"),
        ("cloud_linger_ms", "cloud.linger_ms"),
        ("breaker_failures", "cloud.breaker.failures"),
        ("breaker_first_wait_ms", "cloud.breaker.first_wait_ms"),
        ("breaker_longest_wait_ms", "cloud.breaker.max_wait_ms"),
        ("journal", "journal.path"),
        ("journal_path", "journal.path"),
        ("journal_most_bytes", "journal.max_bytes"),
        ("journal_sync", "journal.sync"),
    ];
    const ALIASES: &'static [(&'static str, &'static str)] = &[
        ("RUST_LOG", "log.filter"),
        ("HEADWATER_AGGREGATOR_CONFIG", "config"),
        ("HEADWATER_CLOUD_MODEL_NAME", "cloud.model"),
    ];
    const OTHER_VARIABLES: &'static [&'static str] = &[
        "HEADWATER_DEVICE_",
        "HEADWATER_CLOUD_",
        "HEADWATER_DATA",
        "HEADWATER_LOG",
        "HEADWATER_SITE_DIR",
        "HEADWATER_TEST_",
        "HEADWATER_WRITE_EXAMPLES",
    ];

    fn check(&self) -> Vec<String> {
        let of_group = self.group.iter().flat_map(Settings::check);
        self.shared.check().into_iter().chain(of_group).collect()
    }
}

impl Settings for GroupSettings {
    const SWITCHES: &'static [&'static str] = &["take_over"];
    fn check(&self) -> Vec<String> {
        let names = self.devices.as_ref().map(|devices| devices.0.as_slice()).unwrap_or_default();
        let again = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
        let again = again.map(|(_, name)| format!("devices: expected each name once, found {name} again"));
        self.role().err().unwrap_or_default().into_iter().chain(again).collect()
    }
}

impl GroupSettings {
    /// Opens the files of the group.
    fn open(&self, security: &SecuritySettings) -> Result<GroupConfig, Vec<String>> {
        let mut mistakes = Vec::new();
        let networks = Networks::open(&self.bundle, self.next_bundle.as_deref(), security.trusted_keys());
        let networks = networks.map_err(|of_bundles| mistakes.extend(of_bundles)).ok();
        let identity = self.identity(&security.tls).map_err(|mistake| mistakes.push(mistake)).ok().flatten();
        let policy = self.policy(networks.as_ref());
        let policy = policy.map_err(|mistake| mistakes.push(format!("policy: {mistake}"))).ok().flatten();
        let role = self.role().map_err(|of_role| mistakes.extend(of_role)).ok();
        if let Some(role) = &role {
            mistakes.extend(self.certificate_mistake(security, role));
        }
        let Some((networks, role)) = networks.zip(role).filter(|_| mistakes.is_empty()) else {
            return Err(mistakes);
        };
        let JournalSettings { path, max_bytes, sync } = self.journal.clone();
        Ok(GroupConfig {
            role,
            policy,
            policy_file: self.policy.clone(),
            client_id: self.client_id.clone(),
            devices: self.devices.clone().map(|devices| devices.0).unwrap_or_default(),
            identity,
            take_over: self.take_over,
            model: self.model.clone(),
            journal: path.map(|path| JournalConfig { path, max_bytes: max_bytes.get(), sync }),
            limits: self.limits,
            ..GroupConfig::new(self.site.clone(), self.group.clone(), networks)
        })
    }

    /// The current network's policy with the changes of the policy file. Without a network the file is read for its mistakes.
    fn policy(&self, networks: Option<&Networks>) -> Result<Option<(Policy, PolicyId)>, PolicyFileError> {
        let Some(file) = &self.policy else { return Ok(None) };
        match networks {
            Some(networks) => {
                PolicyChanges::policy_of(file, &networks.current().calibrated_policy()).map(Some)
            }
            None => PolicyChanges::read(file).map(|_| None),
        }
    }

    /// A certificate of `headwater enroll` that is not that of this group's leader or edge.
    fn certificate_mistake(&self, security: &SecuritySettings, role: &Role) -> Option<String> {
        let file = self.certificate_file.as_ref().or(security.tls.certificate_file.as_ref())?;
        // A file that cannot be read is a mistake of its own.
        let own = Certificate::read(file).ok()?;
        let (site, group) = (self.site.as_str(), self.group.as_str());
        let fits = match role {
            Role::Leader { .. } => own.check_holder("leader", &[site, group]),
            Role::Edge { id, .. } => own.check_holder("edge", &[site, group, id.as_str()]),
        };
        fits.err().map(|mistake| format!("certificate_file: {mistake}"))
    }

    /// Files of the group's identity: those of the process, with the group's own certificate and key where it has them.
    pub fn tls(&self, of_process: &TlsSettings) -> TlsSettings {
        if self.certificate_file.is_none() && self.key_file.is_none() {
            return of_process.clone();
        }
        TlsSettings {
            certificate_file: self.certificate_file.clone(),
            key_file: self.key_file.clone(),
            ..of_process.clone()
        }
    }

    /// Certificate of the group with the authority of the process; `None` where the group has none of its own.
    fn identity(&self, tls: &TlsSettings) -> Result<Option<ClientIdentity>, String> {
        if self.certificate_file.is_none() && self.key_file.is_none() {
            return Ok(None);
        }
        // The keys of a group stand without a section.
        self.tls(tls).client().map_err(|mistake| {
            mistake.replace("tls.certificate_file", "certificate_file").replace("tls.key_file", "key_file")
        })
    }

    /// The role with its settings.
    ///
    /// # Errors
    /// Every setting that does not fit the role.
    pub fn role(&self) -> Result<Role, Vec<String>> {
        let of_other = |key: &str, role: &str| format!("{key}: only with role = {role:?}");
        let local_edges = self.local_edges.clone().map(|edges| edges.0);
        let edge = self.edge.and_then(|edge| EdgeIndex::new(edge.get()).ok());
        match (self.role, local_edges, edge) {
            (RoleName::Edge, None, Some(edge)) if !self.take_over => Ok(match self.edge_id.clone() {
                Some(id) => Role::Edge { edge, id },
                None => Role::edge(edge),
            }),
            (RoleName::Edge, local_edges, edge) => {
                let misplaced = local_edges.map(|_| of_other("local_edges", "leader"));
                let missing = edge.is_none().then(|| "edge: missing, and role is \"edge\"".to_owned());
                let take_over = self.take_over.then(|| of_other("take_over", "leader"));
                Err(misplaced.into_iter().chain(missing).chain(take_over).collect())
            }
            (RoleName::Leader, local_edges, None) if self.edge_id.is_none() => {
                Ok(Role::Leader { local_edges })
            }
            (RoleName::Leader, _, edge) => {
                let edge = edge.map(|_| of_other("edge", "edge"));
                let id = self.edge_id.as_ref().map(|_| of_other("edge_id", "edge"));
                Err(edge.into_iter().chain(id).collect())
            }
        }
    }
}
