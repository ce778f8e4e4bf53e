//! A network of a leader: its configuration, its exits and buffers for reuse.

use headwater_protocol::{PolicyId, SampleId};

use super::open_sample::OpenSample;
use super::{Exits, Generation, LeaderConfig, Micros};

/// Largest number of closed samples kept for their buffers.
const MAX_SPARE: usize = 64;

/// One network with its exits. [`NetworkState`](super::network_state::NetworkState) has the part that events change.
pub(super) struct Network {
    /// Configuration at the start; the policy that applies now is in the network's state.
    pub(super) config: LeaderConfig,
    pub(super) exits: Exits,
    /// Logits of an exit; a field so that no event allocates.
    pub(super) logits: Vec<f32>,
    #[expect(clippy::vec_box, reason = "an open sample moves between the map and here without being copied")]
    spare: Vec<Box<OpenSample>>,
}

impl Network {
    pub(super) fn new(config: LeaderConfig, exits: Exits) -> Self {
        let logits = vec![0.0; config.classes()];
        Self { config, exits, logits, spare: Vec::new() }
    }

    /// A sample with buffers of this network's sizes, to be decided under `policy`.
    pub(super) fn new_sample(
        &mut self,
        generation: Generation,
        sample: SampleId,
        captured: Micros,
        policy: PolicyId,
    ) -> Box<OpenSample> {
        let spare = self.spare.pop();
        let mut open = spare.unwrap_or_else(|| Box::new(OpenSample::new(&self.config, generation)));
        open.reset(sample, captured);
        open.policy = policy;
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
        let mut network = Network::new(config(), Exits { local: None, edge: None });
        for _ in 0..=MAX_SPARE {
            network.recycle(Box::new(OpenSample::new(&network.config, Generation::Current)));
        }
        assert_eq!(network.spare.len(), MAX_SPARE);
        network.new_sample(Generation::Current, SampleId(1), Micros(0), PolicyId::default());
        assert_eq!(network.spare.len(), MAX_SPARE - 1);
    }
}
