//! The networks that a leader holds: the current one, and the next while devices switch over one by one.

use headwater_protocol::{EdgeSet, SlotSet};

use super::devices::Devices;
use super::open::{Open, Sizes};
use super::{Exits, Generation, LeaderConfig};

/// Open samples kept for reuse of their buffers.
const SPARE: usize = 64;

/// One network, and who runs it.
pub(super) struct Held {
    pub(super) config: LeaderConfig,
    pub(super) sizes: Sizes,
    pub(super) exits: Exits,
    /// Logits of an exit; a field so that no event allocates.
    pub(super) logits: Vec<f32>,
    pub(super) devices: Devices,
    /// Edges that are up.
    pub(super) edges_up: EdgeSet,
    #[expect(clippy::vec_box, reason = "an open sample moves between the map and here without being copied")]
    spare: Vec<Box<Open>>,
}

impl Held {
    pub(super) fn new(config: LeaderConfig, exits: Exits) -> Self {
        let classes = config.labels.len();
        let maps_bytes = config.cloud_sources() * config.cloud_map_bytes;
        let sizes = Sizes { slots: config.slots, classes, edges: config.edges.len(), maps_bytes };
        let logits = vec![0.0; classes];
        Self {
            config,
            sizes,
            exits,
            logits,
            devices: Devices::new(),
            edges_up: EdgeSet::EMPTY,
            spare: Vec::new(),
        }
    }

    /// An open sample with buffers of this network's sizes.
    pub(super) fn fresh(&mut self, generation: Generation) -> Box<Open> {
        self.spare.pop().unwrap_or_else(|| Box::new(Open::new(self.sizes, generation)))
    }

    pub(super) fn retire(&mut self, open: Box<Open>) {
        if self.spare.len() < SPARE {
            self.spare.push(open);
        }
    }

    pub(super) fn label(&self, class: u16) -> String {
        self.config.labels.get(usize::from(class)).cloned().unwrap_or_default()
    }

    /// Every slot of the network.
    pub(super) fn every_slot(&self) -> SlotSet {
        SlotSet::first(self.sizes.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    #[test]
    fn a_bounded_number_of_closed_samples_is_kept_for_reuse() {
        let mut held = Held::new(config(), Exits { local: None, edge: None });
        for _ in 0..=SPARE {
            held.retire(Box::new(Open::new(held.sizes, Generation::Current)));
        }
        assert_eq!(held.spare.len(), SPARE);
        held.fresh(Generation::Current);
        assert_eq!(held.spare.len(), SPARE - 1);
    }
}
