//! The page `/status` of every program (`docs/health.md`).
//!
//! Fields may be added without a new `schema`; readers ignore fields that they do not know. Durations are in seconds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decision::{Degraded, Dropped};
use crate::ids::{Boot, DeviceId, EdgeId, GroupId, NetworkId, PolicyId, SampleId, SiteId, Slot};
use crate::notice::{InstanceId, Numbering};
use crate::utc_time::UtcTime;
use crate::words::words;

/// Version of the page.
pub const STATUS_SCHEMA: u32 = 1;

/// The page: the fields that every program has, and the fields of one kind of program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPage<T> {
    /// Version of the page: [`STATUS_SCHEMA`].
    pub schema: u32,
    /// Name of the program.
    pub program: String,
    /// Version of the program.
    pub version: String,
    /// Wall clock of the program.
    pub time: UtcTime,
    /// Time since the start of the program.
    pub uptime_s: u64,
    /// True while the program works; false once only a restart of the program helps.
    pub live: bool,
    /// True while the program takes work.
    pub ready: bool,
    /// Reason why the program takes no work; `None` while the program takes work, or if the reason is not known.
    pub unready_reason: Option<String>,
    /// Fields that only this kind of program has.
    #[serde(flatten)]
    pub own: T,
}

/// The fields of a device's page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Name of the device.
    pub device: DeviceId,
    /// Site of the device.
    pub site: SiteId,
    /// Group of the device.
    pub group: GroupId,
    /// Slot of the device.
    pub slot: Slot,
    /// Number of this start of the device.
    pub boot: Boot,
    /// The network that the device runs.
    pub network: NetworkId,
    /// Connection of the device to the broker.
    pub broker: DeviceBroker,
    /// Latest news of the leader at the device.
    pub leader: LeaderNews,
    /// Counts of the source's frames.
    pub source: SourceStatus,
    /// Counts of captures.
    pub captures: CaptureStatus,
    /// Samples that are not settled.
    pub spool: SpoolStatus,
    /// The certificate that the device shows the broker; `None` without one.
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
    /// Number of connections since the start of the device.
    pub connections: u64,
}

/// State of a connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerStatus {
    /// True while the connection stands.
    pub connected: bool,
    /// Reason why the connection does not stand; `None` without a known failure.
    pub reason: Option<String>,
}

/// Latest news of the leader at a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderNews {
    /// Time since the leader's last notice; `None` before the first.
    pub last_notice_s: Option<f64>,
    /// Reason why the leader refuses the device; `None` if the leader does not refuse the device.
    pub refusal: Option<String>,
}

/// Counts of the frames of a device's source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Frames from the source; not counted for an archive.
    pub frames: u64,
    /// Frames that the source did not deliver, by kind of fault.
    pub faults: BTreeMap<String, u64>,
    /// Samples whose frame in the archive cannot be read.
    pub broken_frames: u64,
    /// Reason why the frames give no answers, such as a frozen, dark or covered camera; `None` while samples are answered.
    #[serde(default)]
    pub frozen: Option<String>,
    /// Size and format of the first frame, such as `640x480 JPEG`; `None` before the first frame.
    #[serde(default)]
    pub format: Option<String>,
    /// Reason why no frames come now, such as a command that has ended; `None` while frames come.
    #[serde(default)]
    pub waits: Option<String>,
}

/// Counts of a device's captures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaptureStatus {
    /// Samples captured.
    pub captured: u64,
    /// Captures by the clock that came too late, or that a step of the wall clock passed over.
    pub missed: u64,
    /// Views dropped because the queue was full.
    pub shed: u64,
    /// Steps of the wall clock by at least half a period.
    pub clock_steps: u64,
    /// Time since the last capture; `None` before the first.
    pub last_capture_s: Option<f64>,
    /// Reason why the latest trigger is not answered; `None` once a later trigger is answered, or once the leader's account has set the
    /// newest id back.
    pub refused_trigger: Option<String>,
}

/// Samples of a device that are not settled, and counts of samples given up.
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
    /// Samples given up whose ids are lost too, so that the leader never hears of these samples.
    pub lost: u64,
}

/// A certificate in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// End of the certificate's validity, seconds since 1970.
    pub expires_unix_s: u64,
    /// True when newer files of the certificate were found but cannot be used.
    pub reload_failed: bool,
}

/// The fields of an aggregator's page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregatorStatus {
    /// Connection to the cloud; `None` without a cloud.
    pub cloud: Option<CloudLink>,
    /// The groups in the order of the settings.
    pub groups: Vec<GroupStatus>,
}

/// Connection of an aggregator to the cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudLink {
    /// Address of the cloud.
    pub url: String,
    /// State of the connection: `up`, `failing` or `breaker_open`.
    pub state: String,
}

/// A group of an aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Site of the group.
    pub site: SiteId,
    /// Name of the group.
    pub group: GroupId,
    /// Role of this process: `leader` or `edge`.
    pub role: String,
    /// Name of the edge; `None` for a leader.
    pub edge: Option<EdgeId>,
    /// The current network, and the next one if there is one.
    pub networks: Vec<NetworkId>,
    /// State of this process in the group; absent until the process has reported for the first time or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<GroupState>,
    /// Reason why the group has failed; absent unless the state is `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Fields for the role of this process; absent until the process has reported for the first time.
    #[serde(flatten)]
    pub counts: Option<RoleStatus>,
}

/// Fields of a group for the role of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RoleStatus {
    /// The process leads the group, or waits to lead.
    Leader(Box<LeaderStatus>),
    /// The process is an edge of the group.
    Edge(EdgeRoleStatus),
}

impl GroupStatus {
    /// Fields of a leader; `None` for an edge, and before the first report.
    pub fn leader(&self) -> Option<&LeaderStatus> {
        match &self.counts {
            Some(RoleStatus::Leader(counts)) => Some(counts),
            Some(RoleStatus::Edge(_)) | None => None,
        }
    }

    /// Connection to the broker; `None` before the first report.
    pub fn broker(&self) -> Option<&BrokerStatus> {
        self.counts.as_ref().map(|counts| match counts {
            RoleStatus::Leader(counts) => &counts.broker,
            RoleStatus::Edge(counts) => &counts.broker,
        })
    }
}

/// State of a process in a group. The metric of a leader's state counts the variants from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// The process connects to the broker, or asks who leads.
    #[default]
    Starting,
    /// The process leads.
    Leading,
    /// Another process leads; this process waits until that leader ends.
    Waiting,
    /// Another process leads but is silent; this process waits, and an operator may replace that leader.
    WaitingForSilent,
    /// The process is an edge with a connection to the broker.
    Up,
    /// The group ended by itself, or did not start.
    Failed,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// Fields of a group that this process leads or waits to lead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaderStatus {
    /// The claim of this process, or the leader for which it waits.
    pub leader: LeadStatus,
    /// Connection of the process to the broker.
    pub broker: BrokerStatus,
    /// The policy under which new samples are decided; `None` while the process does not lead.
    pub policy: Option<PolicyId>,
    /// Numbering of samples; `None` while it is not known.
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

/// Claim of a process that leads or waits to lead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeadStatus {
    /// Name of this process as a leader, which stays with its journal; `None` while there is none.
    pub instance: Option<InstanceId>,
    /// Number of the claim of this process; a new leader takes a higher one.
    pub term: u64,
    /// The leader for whose end this process waits; `None` if this process does not wait.
    pub waits_for: Option<InstanceId>,
    /// Reason why the broker refused the claim of this process; `None` if the broker did not refuse the claim.
    pub claim_refused: Option<String>,
}

/// Counts of a leader's samples since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Samples that are open now.
    pub open: u64,
    /// Samples that were triggered, or open at a restart, and that no device has answered yet.
    pub awaited: u64,
    /// The latest trigger, if its id is too far ahead to be believed before a second trigger near this id comes.
    #[serde(default)]
    pub unconfirmed_trigger: Option<SampleId>,
    /// Decisions.
    pub decided: u64,
    /// Dropped samples, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Decisions that may differ from those of the complete network, by reason.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Decisions published again.
    pub republished: u64,
    /// Results sent that the broker has not acknowledged yet.
    pub unacknowledged: u64,
    /// Results that wait to be sent to the broker.
    pub waiting_for_broker: u64,
}

/// Counts of a leader's requests to the cloud since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudRequests {
    /// Requests started.
    pub asked: u64,
    /// Answers with logits, answers after the deadline included.
    pub answered: u64,
    /// Requests without an answer in time, by reason.
    pub failed: BTreeMap<Degraded, u64>,
    /// Requests that the cloud refused, by code of the error table.
    pub refused: BTreeMap<String, u64>,
    /// True when the cloud serves other networks than the group's, or has no model of the group's name.
    pub other_network: bool,
}

/// The journal of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Folder of the journal; `None` without a journal.
    pub path: Option<PathBuf>,
    /// True when the journal has no room for more decisions.
    pub full: bool,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Bytes of the journal that could not be read at the start.
    pub unreadable_bytes: u64,
}

/// A device as its leader knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupDevice {
    /// Name of the device.
    pub name: DeviceId,
    /// Slot of the device; `None` if its birth cannot be read.
    pub slot: Option<Slot>,
    /// State of the device.
    pub state: ReportedState,
    /// Time since the state began.
    pub since_s: f64,
    /// Time since the last accepted message of the device.
    pub last_message_s: f64,
    /// Reason why the device is in this state; `None` if the state says all.
    pub reason: Option<String>,
    /// Name and version of the device's software.
    pub version: String,
}

words! {
    /// State of a device as its leader reports it.
    ReportedState {
        /// The device fills its slot and answers.
        Up = "up",
        /// The device answers after the window.
        Late = "late",
        /// The device is up and does not answer.
        Silent = "silent",
        /// The device is up, and its camera is frozen, dark or covered.
        Frozen = "frozen",
        /// The device comes and goes.
        Flapping = "flapping",
        /// The device runs another network.
        WrongNetwork = "wrong_network",
        /// The birth of the device is refused, or its slot is taken.
        Refused = "refused",
        /// The clock of the device differs from its group's.
        ClockOff = "clock_off",
        /// The connection of the device has ended.
        Down = "down",
    }
    /// A state of a later version.
    Unknown
}

/// Fields of a group in which this process is an edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeRoleStatus {
    /// Connection of the process to the broker.
    pub broker: BrokerStatus,
    /// Counts of samples.
    pub samples: EdgeCounts,
}

/// Counts of an edge's samples since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeCounts {
    /// Samples for which the edge sent scores and map.
    pub answered: u64,
    /// Samples of which no features reached the edge in time.
    pub gone: u64,
    /// Runs of the edge's section that failed.
    pub section_failures: u64,
}

/// The fields of a cloud service's page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudStatus {
    /// Models that are served, the current network first.
    pub models: Vec<ModelStatus>,
    /// Counts of requests.
    pub requests: RequestCounts,
    /// The certificate of the server; `None` without one.
    pub certificate: Option<CertificateStatus>,
}

/// A model of a cloud service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// Name of the model.
    pub name: String,
    /// Network of the model.
    pub network: NetworkId,
    /// Generation of the network: `current` or `next`.
    pub generation: String,
    /// Engine that runs the model.
    pub engine: String,
    /// State of the model: `loading`, `ready`, `stopped` or `failed`.
    pub state: String,
    /// Requests that wait now.
    pub waiting_requests: usize,
    /// Largest number of requests that may wait.
    pub max_requests: usize,
    /// Number of samples answered; `None` while the service has no count for the network.
    pub samples: Option<u64>,
}

/// Counts of a cloud service's requests since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Requests answered.
    pub answered: u64,
    /// Requests refused, by code of the error table.
    pub refused: BTreeMap<String, u64>,
    /// Requests not run because their deadline had passed.
    pub skipped_deadline: u64,
    /// Requests not run because the caller had gone.
    pub skipped_caller_gone: u64,
}
