//! The state of a leading group as one value, for recordings and replays, which are not built yet.
//!
//! Not in the state are: edges in the leader's process, the journal, the cloud and the broker, whose answers come as events; a policy
//! command that is being executed; the devices in the report, which the first check lists again; the edges' wait for features, which is
//! still to be added.

use headwater_inference::leader::{LeaderState, StateError};
use headwater_protocol::{SampleId, Schema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::devices::device_watch::DeviceWatch;
use crate::devices::refused_devices::RefusedDevices;
use crate::devices::registry::RegistryState;
use crate::devices::remote_edges::RemoteEdgesState;
use crate::group::worker::Worker;
use crate::publishing::settled_schedule::LastPublication;

/// State of the leader, its registry and its event loop between two rounds.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct RecordedState {
    format: Schema<1>,
    leader: LeaderState,
    devices: RegistryState,
    edges: RemoteEdgesState,
    device_watch: DeviceWatch,
    refused: RefusedDevices,
    settled: LastPublication,
    last_sample: Option<SampleId>,
}

/// Reason why a group cannot go on from a state.
#[derive(Debug, Error)]
pub(crate) enum RecordedStateError {
    #[error(transparent)]
    Leader(#[from] StateError),
    #[error("state of a group: expected devices and edges of its networks, found others")]
    Devices,
}

impl Worker {
    /// The state between two rounds; `None` while actions wait for the journal.
    pub(crate) fn state(&self) -> Option<RecordedState> {
        self.actions.is_empty().then(|| RecordedState {
            format: Schema,
            leader: self.leader.state().clone(),
            devices: self.inbox.devices.state.clone(),
            edges: self.inbox.edges.state.clone(),
            device_watch: self.device_watch.clone(),
            refused: self.refused.clone(),
            settled: self.settled.last.clone(),
            last_sample: self.last_sample,
        })
    }

    /// Goes on from a state of a group with the same networks. Call this before the first round.
    ///
    /// # Errors
    /// The state does not fit the networks; the group then stays as it was.
    pub(crate) fn set_state(&mut self, state: RecordedState) -> Result<(), RecordedStateError> {
        if !self.inbox.devices.fits(&state.devices) || !self.inbox.edges.fits(&state.edges) {
            return Err(RecordedStateError::Devices);
        }
        self.leader.set_state(state.leader)?;
        (self.inbox.devices.state, self.inbox.edges.state) = (state.devices, state.edges);
        (self.device_watch, self.refused) = (state.device_watch, state.refused);
        (self.settled.last, self.last_sample) = (state.settled, state.last_sample);
        Ok(())
    }
}
