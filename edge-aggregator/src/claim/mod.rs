//! Election of the leader of a group: claims on the retained topic `leader`.
//!
//! ```text
//!           no claim, `down`, or own claim         own claim comes back first
//! [Waiting] ──────────────────────────────> claims ──────────────────────────> leads [HeldClaim]
//!     ^                                        │                                  │
//!     └──── another claim comes back first ────┴─ another claim of a higher term ─┘
//! ```
//!
//! The broker puts all claims into one order: of two claims with the same term, the first one counts. A leader publishes its claim every
//! [`BEAT`]. A process that is restarted with the same journal has the same name, and claims at once after the claim of the earlier process.
//! If another process publishes a claim with this process's name and term, a second process runs with a copy of the journal.
//!
//! A leader that is silent for [`SILENT`] is named in the log. Another process then replaces it only if that process has the same
//! journal, or if the silent leader never led (it published its claim once). With `--take-over` a process does not wait for silence.

mod held;
mod instance;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use held::HeldClaim;
pub(crate) use instance::instance_of_journal;
pub(crate) use waiting::{Step, Waiting, Won};

use std::time::Duration;

use headwater_protocol::{DeviceState, InstanceId, LeaderClaim, Schema, UtcTime};
use headwater_transport::random;

/// Time between two publications of a leader's claim.
pub(crate) const BEAT: Duration = Duration::from_secs(5);

/// A leader whose claim was not published for this time is silent.
pub(crate) const SILENT: Duration = Duration::from_secs(20);

/// Wait for the retained claim after the broker has accepted the subscription. A claim that comes later, but before this process's own
/// claim, still counts.
pub(crate) const LISTEN: Duration = Duration::from_millis(300);

/// Longest wait for this process's own claim to come back, and shortest time between two repairs of an altered claim.
const RETRY: Duration = Duration::from_secs(1);

/// A process that leads or waits: the name of its journal, and a random number that two processes with copies of one journal do not share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) instance: InstanceId,
    pub(crate) number: InstanceId,
}

impl Process {
    /// A new process with the name of its journal; draws the random number.
    pub(crate) fn new(instance: InstanceId) -> Self {
        Self { instance, number: InstanceId(random()) }
    }

    /// True if this process published `claim`.
    fn published(self, claim: &LeaderClaim) -> bool {
        claim.instance == self.instance && claim.process == self.number
    }
}

/// A claim of `process` for this term, not published yet.
pub(crate) fn new_claim(process: Process, term: u64) -> LeaderClaim {
    LeaderClaim {
        schema: Schema,
        instance: process.instance,
        process: process.number,
        term,
        state: DeviceState::Up,
        software: concat!("headwater-aggregator/", env!("CARGO_PKG_VERSION")).into(),
        since: UtcTime::from(std::time::SystemTime::now()).to_string(),
        beat: 0,
    }
}

/// Longest text in one field of a claim, in bytes; the log shows these texts.
const MAX_TEXT_BYTES: usize = 128;

/// Reads a claim.
///
/// # Errors
/// A sentence that names the mistake.
fn read_claim(payload: &[u8]) -> Result<LeaderClaim, String> {
    let claim = LeaderClaim::read(payload)?;
    for (name, text) in [("software", &claim.software), ("since", &claim.since)] {
        if text.len() > MAX_TEXT_BYTES {
            let found = text.len();
            return Err(format!("leader: {name}: expected at most {MAX_TEXT_BYTES} bytes, found {found}"));
        }
    }
    Ok(claim)
}

pub(crate) fn claim_text(claim: &LeaderClaim) -> Vec<u8> {
    serde_json::to_vec(claim).expect("names and numbers have a JSON form")
}
