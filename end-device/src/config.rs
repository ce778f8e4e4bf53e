//! What a device is told at its start.

use std::path::PathBuf;

use headwater_inference::policy::Policy;
use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{DeviceId, GroupId, PolicyId, SiteId, Slot};

/// Settings of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Site it stands at.
    pub site: SiteId,
    /// Group whose samples it sees.
    pub group: GroupId,
    /// Its name, one of a kind in the group.
    pub id: DeviceId,
    /// The slot of the network it fills.
    pub slot: Slot,
    /// The broker.
    pub broker: BrokerAddress,
    /// What runs its section.
    pub engine: EngineChoice,
    /// The library of ONNX Runtime; `None` looks in the usual places.
    pub onnxruntime: Option<PathBuf>,
    /// Policy in place of the bundle's, with its id; for a device that is alone and has an exit of its own.
    pub policy: Option<(Policy, PolicyId)>,
    /// What makes it capture.
    pub capture: Capture,
    /// What it does about a frame that cannot be read.
    pub on_broken_frame: OnBrokenFrame,
    /// How summaries and features are sent.
    pub upward_qos: QoS,
    /// Unsettled samples kept in memory; those before them are spooled. Fewer saves memory.
    pub keep_samples: usize,
    /// Milliseconds that an unsettled sample is kept in memory; then it is spooled, and sent again, late. Must outlast the leader's window
    /// and its waits.
    pub keep_ms: u64,
    /// Bytes of the spool, which keeps what is unsettled and could not be sent or is too much for memory; over it the oldest is given up.
    /// In `state_dir` where there is one, else in memory and at most 1 MiB. 0: no spool.
    pub spool_bytes: u64,
    /// Captured views that may wait for the section. When one more comes, the oldest is given up.
    pub queue_samples: usize,
    /// Folder for what must outlive a restart (the boot number, the spool); `None` takes the boot number from the clock.
    pub state_dir: Option<PathBuf>,
    /// Seconds between pings on an idle connection.
    pub keep_alive_s: u16,
    /// Milliseconds that a shutdown may take to send what is captured and say goodbye.
    pub grace_ms: u64,
}

/// What runs the section of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    /// Its packed form; as ONNX in tract where the bundle has none.
    Packed,
    /// Its ONNX, in tract.
    Tract,
    /// Its ONNX, in ONNX Runtime; in tract where no library is named and none is found.
    Ort,
}

/// What makes a device capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// A message on the group's topic `trigger`.
    Trigger,
    /// Its own clock: sample `k` at `k * period_ms` since 1970, the middle of its period.
    Clock {
        /// Milliseconds between samples; the same at every device of the group.
        period_ms: u64,
    },
    /// Its source: each frame is a sample, whose id is the wall clock in milliseconds. For a group of one device, without triggers.
    Source,
}

/// What a device does about a frame that cannot be read. Either way it is named and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBrokenFrame {
    /// Stay silent for its sample: the slot is missing there.
    Skip,
    /// Refuse to start.
    Fatal,
}

impl DeviceConfig {
    /// A device with every other setting at its default.
    pub fn new(site: SiteId, group: GroupId, id: DeviceId, slot: Slot, broker: BrokerAddress) -> Self {
        Self {
            site,
            group,
            id,
            slot,
            broker,
            engine: EngineChoice::Packed,
            onnxruntime: None,
            policy: None,
            capture: Capture::Trigger,
            on_broken_frame: OnBrokenFrame::Skip,
            upward_qos: QoS::AtMostOnce,
            keep_samples: 1024,
            keep_ms: 5000,
            spool_bytes: 64 << 20,
            queue_samples: 128,
            state_dir: None,
            keep_alive_s: 10,
            grace_ms: 2000,
        }
    }
}
