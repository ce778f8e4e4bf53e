//! The state of a leader: everything that an event may read and an earlier event has changed.

use std::collections::BTreeMap;

use headwater_protocol::{NetworkId, SampleId, Schema, Slot};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::awaited::AwaitedSamples;
use super::early_answers::EarlyAnswers;
use super::{Counts, Leader};
use crate::bundle::PerNetwork;
use crate::leader::Micros;
use crate::leader::clock_offsets::ClockOffsets;
use crate::leader::closed::ClosedSamples;
use crate::leader::network_state::NetworkState;
use crate::leader::open_sample::OpenSample;
use crate::leader::plausible_ids::{DEFAULT_CLOCK_DIFFERENCE_MS, PlausibleIds};
use crate::leader::smoothing::Votes;
use crate::leader::timers::Timers;

/// State of a [`Leader`] between two events, with its format. A leader of the same networks goes on from there with the same actions.
#[derive(Clone, Serialize, Deserialize)]
pub struct LeaderState {
    format: Schema<1>,
    pub(in crate::leader) networks: PerNetwork<NetworkState>,
    pub(in crate::leader) plausible_ids: PlausibleIds,
    pub(super) clock_offsets: ClockOffsets,
    /// Names of the devices by slot, for decisions.
    pub(super) device_names: BTreeMap<Slot, Box<str>>,
    pub(super) open: BTreeMap<SampleId, Box<OpenSample>>,
    pub(super) awaited: AwaitedSamples,
    /// Answers that came before their triggers.
    pub(super) early: EarlyAnswers,
    pub(super) closed: ClosedSamples,
    /// Votes of the latest decisions; empty without smoothing.
    #[serde(default, skip_serializing_if = "Votes::is_empty")]
    pub(super) votes: Votes,
    pub(super) timers: Timers,
    pub(super) newest: SampleId,
    pub(super) counts: Counts,
    /// Time of the event being handled, or of the latest one.
    pub(super) now: Micros,
}

/// A state that a leader cannot go on from.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// A state of a leader of other networks.
    #[error("state of a leader: networks: expected {}, found {}", list(expected), list(found))]
    Networks {
        /// Networks of this leader, the current one first.
        expected: Vec<NetworkId>,
        /// Networks of the state.
        found: Vec<NetworkId>,
    },
    /// A sample whose values do not fit its network.
    #[error(
        "state of a leader: sample {0}: expected values for the slots and classes of its network, found others"
    )]
    Sample(SampleId),
}

impl LeaderState {
    pub(super) fn new(current: NetworkState) -> Self {
        Self {
            format: Schema,
            networks: PerNetwork::new(current),
            plausible_ids: PlausibleIds::new(DEFAULT_CLOCK_DIFFERENCE_MS),
            clock_offsets: ClockOffsets::new(),
            device_names: BTreeMap::new(),
            open: BTreeMap::new(),
            awaited: AwaitedSamples::default(),
            early: EarlyAnswers::default(),
            closed: ClosedSamples::default(),
            votes: Votes::default(),
            timers: Timers::default(),
            newest: SampleId(0),
            counts: Counts::default(),
            now: Micros(0),
        }
    }
}

impl Leader {
    /// The state between two events.
    pub fn state(&self) -> &LeaderState {
        &self.state
    }

    /// Goes on from a state of a leader of the same networks. Policies, counts and the allowed clock difference come from the
    /// state.
    ///
    /// # Errors
    /// When the state is of other networks, or one of its samples does not fit its network. The leader then stays as it was.
    pub fn set_state(&mut self, state: LeaderState) -> Result<(), StateError> {
        let expected: Vec<_> = self.networks.iter().map(|(_, network)| network.config.network).collect();
        let found: Vec<_> = state.networks.iter().map(|(_, network)| network.network).collect();
        if expected != found {
            return Err(StateError::Networks { expected, found });
        }
        match self.first_misfit(&state) {
            Some(sample) => Err(StateError::Sample(sample)),
            None => {
                self.state = state;
                Ok(())
            }
        }
    }

    /// The first sample of a state that does not fit its network; `None` if all fit.
    fn first_misfit(&self, state: &LeaderState) -> Option<SampleId> {
        let fits_open = |sample: SampleId, open: &OpenSample| {
            let network = self.networks.get(open.generation);
            open.sample == sample && network.is_some_and(|network| open.fits(&network.config))
        };
        let open = state.open.iter().filter(|(sample, open)| !fits_open(**sample, open));
        let revisable = state.closed.revisable().filter(|revisable| {
            let mut networks = self.networks.iter();
            let network = networks.find(|(_, network)| network.config.network == revisable.decision.network);
            !network.is_some_and(|(_, network)| revisable.device_classes.fits(network.config.slots))
        });
        open.map(|(sample, _)| *sample)
            .chain(revisable.map(|revisable| revisable.decision.sample))
            .chain(self.first_early_misfit(&state.early))
            .next()
    }
}

fn list(networks: &[NetworkId]) -> String {
    networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}
