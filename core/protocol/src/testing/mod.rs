//! Messages for the tests of this and other crates.

use crate::decision::{Decision, HopBytes, Stages};
use crate::exit::Exit;
use crate::exit_record::{LeaveReason, TimeSource};
use crate::ids::{Boot, DeviceId, NetworkId, PolicyId, SampleId, Slot};
use crate::json_version::Schema;
use crate::notice::Birth;
use crate::presence::Presence;

/// A sure decision at the exit `local` of a network with three slots, all of them missing. A test changes the fields that it is about.
pub fn decision(sample: u64) -> Decision {
    Decision {
        schema: Schema,
        sample: SampleId(sample),
        captured_at: None,
        captured_by: TimeSource::Unknown,
        class: Some(2),
        label: Some("class 2".into()),
        undecided: None,
        confidence: 0.5,
        exit: Exit::LOCAL,
        left: LeaveReason::Sure,
        exits: Vec::new(),
        presence: Presence::missing(3),
        missing: Vec::new(),
        degraded: Vec::new(),
        network: NetworkId([7; 32]),
        policy: PolicyId([8; 8]),
        stages: Stages { opened_us: 1, window_us: 1, decided_us: 1, ..Stages::default() },
        bytes: HopBytes::default(),
        views: Vec::new(),
        scores: Vec::new(),
        smoothed: None,
    }
}

/// The birth of a device with boot number 1, which names no numbering. A test changes the fields that it is about.
///
/// # Panics
/// For a wrong name, and for a slot above the limit.
pub fn birth(device: &str, slot: u8, network: NetworkId) -> Birth {
    Birth {
        schema: Schema,
        device: DeviceId::new(device).expect("a name"),
        slot: Slot::new(slot).expect("a slot"),
        boot: Boot(1),
        software: "test".into(),
        network,
        numbering: None,
        policy: None,
        capabilities: Vec::new(),
    }
}
