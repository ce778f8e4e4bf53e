//! The page `/status` of every program (`docs/health.md`).
//!
//! Fields may be added without a new `schema`; readers ignore what they do not know. Times are seconds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decision::{Degraded, Dropped};
use crate::ids::{Boot, DeviceId, EdgeId, GroupId, NetworkId, PolicyId, SiteId, Slot};
use crate::notice::{InstanceId, Numbering};
use crate::utc_time::UtcTime;
use crate::words::words;

/// Version of the page.
pub const STATUS_SCHEMA: u32 = 1;

/// The page: fields of every program, and the program's own part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPage<T> {
    /// [`STATUS_SCHEMA`].
    pub schema: u32,
    /// Name of the program.
    pub program: String,
    /// Its version.
    pub version: String,
    /// Its wall clock.
    pub time: UtcTime,
    /// Time since its start.
    pub uptime_s: u64,
    /// Whether it works.
    pub live: bool,
    /// Whether it takes work.
    pub ready: bool,
    /// Why it takes none.
    pub unready_reason: Option<String>,
    /// Its own part.
    #[serde(flatten)]
    pub own: T,
}

/// Own part of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its name.
    pub device: DeviceId,
    /// Its site.
    pub site: SiteId,
    /// Its group.
    pub group: GroupId,
    /// Its slot.
    pub slot: Slot,
    /// Number of its start.
    pub boot: Boot,
    /// The network that it runs.
    pub network: NetworkId,
    /// Its connection to the broker.
    pub broker: DeviceBroker,
    /// News of the leader.
    pub leader: LeaderNews,
    /// Frames of the source.
    pub source: SourceStatus,
    /// Samples captured.
    pub captures: CaptureStatus,
    /// Unsettled samples.
    pub spool: SpoolStatus,
    /// The certificate that it shows the broker.
    pub certificate: Option<CertificateStatus>,
}

/// Connection of a device to the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceBroker {
    /// Address of the broker.
    pub address: String,
    /// State of the connection.
    #[serde(flatten)]
    pub link: BrokerStatus,
    /// Connections since the start.
    pub connections: u64,
}

/// State of a connection to the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// Whether it stands.
    pub connected: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

/// News that a device has of its leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderNews {
    /// Time since its last notice.
    pub last_notice_s: Option<f64>,
    /// Why it refuses the device.
    pub refusal: Option<String>,
}

/// Frames of a device's source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Frames of a source other than an archive.
    pub frames: u64,
    /// Missing frames by kind.
    pub faults: BTreeMap<String, u64>,
    /// Samples of broken frames of an archive.
    pub broken_frames: u64,
}

/// Samples that a device captured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureStatus {
    /// Samples.
    pub captured: u64,
    /// Captures by the clock that were passed over.
    pub missed: u64,
    /// Views shed by a full queue.
    pub shed: u64,
    /// Steps of the wall clock.
    pub clock_steps: u64,
    /// Time since the last one.
    pub last_capture_s: Option<f64>,
}

/// Unsettled samples of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpoolStatus {
    /// Samples in the spool.
    pub samples: u64,
    /// Bytes of the spool.
    pub bytes: u64,
    /// Samples in memory.
    pub in_memory: u64,
    /// Samples given up, by reason.
    pub given_up: BTreeMap<String, u64>,
    /// Samples of which not even the id is left.
    pub lost: u64,
}

/// A certificate in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// When it expires, seconds since 1970.
    pub expires_unix_s: u64,
    /// Whether newer files cannot be used.
    pub reload_failed: bool,
}

/// Own part of an aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregatorStatus {
    /// The cloud; `None` without one.
    pub cloud: Option<CloudLink>,
    /// The groups in the order of the settings.
    pub groups: Vec<GroupStatus>,
}

/// Connection of an aggregator to the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudLink {
    /// Address of the cloud.
    pub url: String,
    /// Its state: `up`, `failing` or `breaker_open`.
    pub state: String,
}

/// A group of an aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its site.
    pub site: SiteId,
    /// Its name.
    pub group: GroupId,
    /// `leader` or `edge`.
    pub role: String,
    /// Name of the edge; `None` for a leader.
    pub edge: Option<EdgeId>,
    /// The current network, and the next one if there is one.
    pub networks: Vec<NetworkId>,
    /// State of this process in the group; absent before its first count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<GroupState>,
    /// Why the group has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counts by its role; absent before the first.
    #[serde(flatten)]
    pub counts: Option<RoleStatus>,
}

/// Part of a group by the role of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RoleStatus {
    /// It is a leader.
    Leader(Box<LeaderStatus>),
    /// It is an edge.
    Edge(EdgeRoleStatus),
}

impl GroupStatus {
    /// The leader's part.
    pub fn leader(&self) -> Option<&LeaderStatus> {
        match &self.counts {
            Some(RoleStatus::Leader(counts)) => Some(counts),
            Some(RoleStatus::Edge(_)) | None => None,
        }
    }

    /// The connection to the broker.
    pub fn broker(&self) -> Option<&BrokerStatus> {
        self.counts.as_ref().map(|counts| match counts {
            RoleStatus::Leader(counts) => &counts.broker,
            RoleStatus::Edge(counts) => &counts.broker,
        })
    }
}

/// State of a process in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// It does not work yet.
    Starting,
    /// It leads.
    Leading,
    /// It waits for another leader.
    Waiting,
    /// It waits for another leader that is silent.
    WaitingForSilent,
    /// It is an edge that works.
    Up,
    /// It ended by itself, or did not start.
    Failed,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// A leader's part of its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderStatus {
    /// Who leads.
    pub leader: LeadStatus,
    /// Its connection to the broker.
    pub broker: BrokerStatus,
    /// The policy under which samples are opened, while it leads.
    pub policy: Option<PolicyId>,
    /// How samples are numbered.
    pub numbering: Option<Numbering>,
    /// Counts of samples.
    pub samples: SampleCounts,
    /// Counts of requests to the cloud.
    pub cloud: CloudRequests,
    /// The journal.
    pub journal: JournalStatus,
    /// The devices by name.
    pub devices: Vec<GroupDevice>,
    /// Slots without a device.
    pub empty_slots: Vec<Slot>,
    /// Edges in other processes that are up.
    pub edges_up: usize,
}

/// Claim of a leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeadStatus {
    /// Name of this process as a leader.
    pub instance: Option<InstanceId>,
    /// Term of its claim.
    pub term: u64,
    /// The leader for which it waits.
    pub waits_for: Option<InstanceId>,
    /// Why the broker refused its claim.
    pub claim_refused: Option<String>,
}

/// Counts of a leader's samples since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Open samples.
    pub open: u64,
    /// Awaited samples.
    pub awaited: u64,
    /// Decisions.
    pub decided: u64,
    /// Dropped samples by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Degraded decisions by reason.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Decisions published again.
    pub republished: u64,
    /// Results that the broker has not acknowledged.
    pub unacknowledged: u64,
    /// Results that wait for the broker.
    pub waiting_for_broker: u64,
}

/// Counts of a leader's requests to the cloud since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudRequests {
    /// Requests.
    pub asked: u64,
    /// Answers.
    pub answered: u64,
    /// Requests without an answer, by reason.
    pub failed: BTreeMap<Degraded, u64>,
    /// Refused requests by code of the error table.
    pub refused: BTreeMap<String, u64>,
    /// Whether the cloud serves another network.
    pub other_network: bool,
}

/// The journal of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Its folder; `None` without a journal.
    pub path: Option<PathBuf>,
    /// Whether there is no room for decisions.
    pub full: bool,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Bytes that could not be read at the start.
    pub unreadable_bytes: u64,
}

/// A device as its leader knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupDevice {
    /// Its name.
    pub name: DeviceId,
    /// Its slot.
    pub slot: Slot,
    /// Its state.
    pub state: ReportedState,
    /// Time since its state began.
    pub since_s: f64,
    /// Time since its last accepted message.
    pub last_message_s: f64,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// Its software.
    pub version: String,
}

words! {
    /// State of a device as its leader reports it.
    ReportedState {
        /// It fills its slot and answers.
        Up = "up",
        /// It answers after the window.
        Late = "late",
        /// It is up and does not answer.
        Silent = "silent",
        /// It comes and goes.
        Flapping = "flapping",
        /// It runs another network.
        WrongNetwork = "wrong_network",
        /// Its birth is refused, or its slot is taken.
        Refused = "refused",
        /// Its clock differs from its group's.
        ClockOff = "clock_off",
        /// Its connection has ended.
        Down = "down",
    }
    /// A state of a later version.
    Unknown
}

/// An edge's part of its group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeRoleStatus {
    /// Its connection to the broker.
    pub broker: BrokerStatus,
    /// Counts of samples.
    pub samples: EdgeCounts,
}

/// Counts of an edge's samples since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeCounts {
    /// Answers.
    pub answered: u64,
    /// Samples given up.
    pub gone: u64,
    /// Failures of the section.
    pub section_failures: u64,
}

/// Own part of a cloud service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudStatus {
    /// Models that are served, the current network first.
    pub models: Vec<ModelStatus>,
    /// Counts of requests.
    pub requests: RequestCounts,
    /// The certificate of the server.
    pub certificate: Option<CertificateStatus>,
}

/// A model of a cloud service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// Its name.
    pub name: String,
    /// Its network.
    pub network: NetworkId,
    /// `current` or `next`.
    pub generation: String,
    /// Engine that runs it.
    pub engine: String,
    /// Its state: `loading`, `ready`, `stopped` or `failed`.
    pub state: String,
    /// Requests that wait.
    pub waiting_requests: usize,
    /// Most requests that may wait.
    pub max_requests: usize,
    /// Samples answered.
    pub samples: Option<u64>,
}

/// Counts of a cloud service's requests since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Answers.
    pub answered: u64,
    /// Refusals by code of the error table.
    pub refused: BTreeMap<String, u64>,
    /// Requests whose deadline had passed.
    pub skipped_deadline: u64,
    /// Requests whose caller had gone.
    pub skipped_caller_gone: u64,
}
