//! Settings of one group.

use std::path::PathBuf;
use std::time::Duration;

use headwater_inference::leader::smoothing::Smoothing;
use headwater_link::QoS;
use headwater_protocol::{DeviceId, EdgeId, EdgeIndex, GroupId, SiteId};
use headwater_settings::{List, Misfit, TlsSettings, default, optional, required, section, settings, switch};
use headwater_transport::tls::ClientIdentity;
use serde::Deserialize;

settings! {
    /// Settings of one group.
    #[derive(Clone, Debug)]
    pub struct GroupSettings {
        /// Site of the group.
        pub site: SiteId = default("home"),
        /// Name of the group.
        pub group: GroupId = default("demo"),
        /// Bundle that the devices run.
        pub bundle: PathBuf = required("network.hwb"),
        /// Bundle that devices are switching to, while they are restarted with it one by one (docs/rollover.md). Its own policy applies.
        pub next_bundle: Option<PathBuf> = optional("next.hwb"),
        /// File with changes to the bundle's thresholds and timing (TOML); see docs/policy.toml. SIGHUP reads the file again.
        pub policy: Option<PathBuf> = optional("policy.toml"),
        /// "leader" decides. "edge" runs one edge section of a network with several edges (configuration f).
        pub role: RoleName = default("leader").word(),
        /// Only for role "leader": edges of the network that run in this process, counted from 0. Left out: the only edge of a network with one
        /// edge, no edge of a network with several.
        pub local_edges: Option<List<usize>> = optional("[0]"),
        /// Only for role "edge": index of the edge in the network, from 0.
        pub edge: Option<u8> = optional("0").within(0..=MAX_EDGE),
        /// Only for role "edge": name in topics. Left out: "edge-" and the index.
        pub edge_id: Option<EdgeId> = optional("edge-0"),
        /// MQTT client id. Left out: made from site, group, role and a random number. A broker ends the connection of an earlier client with the
        /// same id.
        pub client_id: Option<String> = optional("leader"),
        /// Ids of the devices, one for each slot in order, with commas between: other devices are refused. Left out: a device has the slot that
        /// it claims first, and loses it to another one only by silence (`silent_device_ms`). SIGHUP reads the list again.
        pub devices: Vec<DeviceId> = optional("cam-0,cam-1"),
        /// Certificate of this group's leader or edge at the broker (PEM), where a process has several groups. Left out: that in `[tls]`.
        pub certificate_file: Option<PathBuf> = optional("/etc/headwater/demo/certificate.pem"),
        /// Private key of the certificate (PEM).
        pub key_file: Option<PathBuf> = optional("/etc/headwater/demo/key.pem"),
        /// Only for role "leader": replace a leader of the group that is up, once at the start. Without it a second leader waits until the first
        /// one has ended.
        pub take_over: bool = switch(),
        /// Name of the group's model at the cloud service. Left out: the name in `[cloud]`.
        pub model: Option<String> = optional("headwater"),
        /// Open samples. One more sample drops the oldest as `shed`.
        pub max_open: usize = default("4096").within(1..=65_536),
        /// Only for role "leader": results also list each view with its device and time of capture, and the probability of every class. A
        /// result of six views nearly doubles in size. A device's setting `name_frames` adds frame and file, also without this setting.
        pub details: bool = switch(),
        /// MQTT quality of service of requests for features. 0 is faster; a lost request degrades one sample. 1 is acknowledged.
        pub request_qos: QoS = default("0"),
        /// Shortest time in ms between two publications of the settled samples. A group that decides few samples and drops none publishes after
        /// five times as long. Five times as long must stay below `keep_ms` of the devices.
        pub settled_every_ms: u32 = default("100").within(1..=60_000),
        /// Time in ms without a message after which a device loses its slot to another device that claims it; half of it while other devices
        /// send. Longer than the time between two samples.
        pub silent_device_ms: u32 = default("10000").within(100..=86_400_000),
        /// Largest difference in ms between the time of a sample and this machine's clock, where ids tell the time. Samples beyond it are
        /// refused, and their devices are named in the log. Late samples may be 21 days old.
        pub max_clock_difference_ms: u32 = default("600000").within(1..=86_400_000),
        /// Section `[journal]`.
        pub journal: JournalSettings = section(),
        /// Section `[smoothing]`.
        pub smoothing: SmoothingSettings = section(),
    }
}

/// Highest index of an edge.
const MAX_EDGE: u64 = EdgeIndex::MAX as u64 - 1;

/// Role of a process in a group, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// The leader.
    Leader,
    /// An edge, which runs one edge section for the leader.
    Edge,
}

/// Role of a process in a group, with the settings of that role.
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

settings! {
    /// Section `[journal]`.
    #[derive(Clone, Debug)]
    pub struct JournalSettings {
        /// File in which decisions are written before they are published. Left out: nothing is kept over a restart, and samples that
        /// devices still hold are decided again.
        pub path: Option<PathBuf> = optional("/var/lib/headwater/demo.journal"),
        /// Size in bytes at which the file is compacted. A small journal is compacted often.
        pub max_bytes: u64 = default("67108864").within(4_194_304..=1_099_511_627_776),
        /// "never" survives a SIGKILL. "always" waits for the disk and survives a power loss.
        pub sync: JournalSync = default("never").word(),
    }
}

settings! {
    /// Section `[smoothing]`.
    #[derive(Clone, Debug)]
    pub struct SmoothingSettings {
        /// Only for role "leader": a second answer in each result, the class of most of so many latest decisions, this one included
        /// (docs/protocol.md). The decision itself stays as it is. More are steadier and follow a change later. 0: none.
        pub last: usize = default("0").within(0..=100),
        /// Time in ms between the captures of two decisions after which earlier ones count no more.
        pub reset_ms: u32 = default("10000").within(1..=86_400_000),
    }
}

impl SmoothingSettings {
    /// The smoothing; `None` where it is off.
    pub(crate) fn smoothing(&self) -> Option<Smoothing> {
        (self.last > 0).then_some(Smoothing { last: self.last, reset_ms: self.reset_ms })
    }
}

impl GroupSettings {
    /// Site and name of the group.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.site, self.group)
    }

    pub(crate) fn check(&self) -> Vec<Misfit> {
        let names = &self.devices;
        let again = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
        let again = again
            .map(|(_, name)| Misfit::new("devices", format!("expected each name once, found {name} again")));
        self.role().err().unwrap_or_default().into_iter().chain(again).collect()
    }

    /// Time without a message after which a device loses its slot to another device that claims the slot.
    pub(crate) fn silent_after(&self) -> Duration {
        Duration::from_millis(self.silent_device_ms.into())
    }

    /// TLS files of the group: the files of the process, in which the group's certificate and key replace the process's if the group has its
    /// own.
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

    /// Certificate of the group with the authority of the process; `None` if the group has no certificate of its own.
    pub(crate) fn identity(&self, tls: &TlsSettings) -> Result<Option<ClientIdentity>, String> {
        if self.certificate_file.is_none() && self.key_file.is_none() {
            return Ok(None);
        }
        // In the table of a group these settings have no section in front.
        self.tls(tls).client().map_err(|mistake| {
            mistake.replace("tls.certificate_file", "certificate_file").replace("tls.key_file", "key_file")
        })
    }

    /// The role with its settings.
    ///
    /// # Errors
    /// Every setting that does not fit the role.
    pub fn role(&self) -> Result<Role, Vec<Misfit>> {
        let of_other =
            |key: &str, role: &str| Misfit::new(key, format!("only with role = {role:?}")).with("role");
        let leaders_only = || {
            let smooths = self.smoothing.last > 0;
            let switches =
                [("take_over", self.take_over), ("details", self.details), ("smoothing.last", smooths)];
            switches.into_iter().filter(|(_, is_on)| *is_on).map(|(key, _)| of_other(key, "leader"))
        };
        let local_edges = self.local_edges.clone().map(|edges| edges.0);
        let edge = self.edge.and_then(|edge| EdgeIndex::new(edge).ok());
        match (self.role, local_edges, edge) {
            (RoleName::Edge, None, Some(edge)) if leaders_only().next().is_none() => {
                Ok(match self.edge_id.clone() {
                    Some(id) => Role::Edge { edge, id },
                    None => Role::edge(edge),
                })
            }
            (RoleName::Edge, local_edges, edge) => {
                let misplaced = local_edges.map(|_| of_other("local_edges", "leader"));
                let missing =
                    edge.is_none().then(|| Misfit::new("edge", "missing, and role is \"edge\"").with("role"));
                Err(misplaced.into_iter().chain(missing).chain(leaders_only()).collect())
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

impl Role {
    /// An edge named `edge-` and its position in the network.
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
