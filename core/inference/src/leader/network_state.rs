//! The state that a leader keeps for each of its networks.

use headwater_protocol::{EdgeSet, SampleId};

use super::devices::Devices;
use super::earlier_policies::EarlierPolicies;
use super::open_sample::OpenSample;
use super::{Exits, Generation, LeaderConfig, Micros};

/// Largest number of closed samples kept for their buffers.
const MAX_SPARE: usize = 64;

/// One network with its exits, and the devices and edges that run it.
pub(super) struct NetworkState {
    pub(super) config: LeaderConfig,
    /// Policies before that of `config`.
    pub(super) earlier_policies: EarlierPolicies,
    pub(super) exits: Exits,
    /// Logits of an exit; a field so that no event allocates.
    pub(super) logits: Vec<f32>,
    pub(super) devices: Devices,
    /// Edges that are up.
    pub(super) edges_up: EdgeSet,
    #[expect(clippy::vec_box, reason = "an open sample moves between the map and here without being copied")]
    spare: Vec<Box<OpenSample>>,
}

impl NetworkState {
    pub(super) fn new(config: LeaderConfig, exits: Exits) -> Self {
        let logits = vec![0.0; config.classes()];
        let (devices, edges_up) = (Devices::new(), EdgeSet::EMPTY);
        let earlier_policies = EarlierPolicies::default();
        Self { config, earlier_policies, exits, logits, devices, edges_up, spare: Vec::new() }
    }

    /// A sample with buffers of this network's sizes, to be decided under the present policy.
    pub(super) fn new_sample(
        &mut self,
        generation: Generation,
        sample: SampleId,
        captured: Micros,
    ) -> Box<OpenSample> {
        let spare = self.spare.pop();
        let mut open = spare.unwrap_or_else(|| Box::new(OpenSample::new(&self.config, generation)));
        open.reset(sample, captured);
        open.policy = self.config.policy_id;
        open
    }

    /// Keeps the buffers of a closed sample for the next one.
    pub(super) fn recycle(&mut self, closed: Box<OpenSample>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(closed);
        }
    }

    /// Name of a class; empty for a class that the network does not have.
    pub(super) fn label(&self, class: u16) -> String {
        self.config.labels.get(usize::from(class)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    #[test]
    fn a_bounded_number_of_closed_samples_is_kept_for_reuse() {
        let mut state = NetworkState::new(config(), Exits { local: None, edge: None });
        for _ in 0..=MAX_SPARE {
            state.recycle(Box::new(OpenSample::new(&state.config, Generation::Current)));
        }
        assert_eq!(state.spare.len(), MAX_SPARE);
        state.new_sample(Generation::Current, SampleId(1), Micros(0));
        assert_eq!(state.spare.len(), MAX_SPARE - 1);
    }
}
