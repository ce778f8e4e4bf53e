//! Which ids of new samples are plausible.
//!
//! The newest id decides how short ids are widened, what devices free and what counts as too late. One faulty device must not move
//! it. An id is plausible up to [`MAX_AHEAD`] after the newest id that a trigger, the journal or another device named.

use headwater_protocol::{SampleId, Slot, SlotSet};

/// Samples by which one device may be ahead of the others.
pub(super) const MAX_AHEAD: u64 = 256;

/// The ids that triggers and devices named so far.
pub(super) struct PlausibleIds {
    /// Newest id of a trigger or of the journal.
    pub(super) confirmed: SampleId,
    /// Newest id that each slot named.
    by_slot: [SampleId; Slot::MAX],
}

impl PlausibleIds {
    pub(super) fn new() -> Self {
        Self { confirmed: SampleId(0), by_slot: [SampleId(0); Slot::MAX] }
    }

    /// Takes an id of a trigger or of the journal.
    pub(super) fn confirm(&mut self, sample: SampleId) {
        self.confirmed = self.confirmed.max(sample);
    }

    /// Takes an id that a slot named.
    pub(super) fn claim(&mut self, slot: Slot, sample: SampleId) {
        let newest = &mut self.by_slot[slot.index()];
        *newest = sample.max(*newest);
    }

    /// Whether the id that `slot` names is plausible. An implausible id is kept too, so that a second device can confirm it. The only
    /// slot that is up is always plausible.
    pub(super) fn is_plausible(&mut self, slot: Slot, sample: SampleId, up: SlotSet) -> bool {
        self.claim(slot, sample);
        if sample.0 <= self.confirmed.0.saturating_add(MAX_AHEAD) {
            return true;
        }
        let others = up - SlotSet::single(slot);
        let newest = others.iter().map(|other| self.by_slot[other.index()]).max();
        newest.is_none_or(|newest| sample.0 <= newest.0.saturating_add(MAX_AHEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: u8) -> Slot {
        Slot::new(index).expect("below 64")
    }

    #[test]
    fn an_id_far_ahead_is_implausible_until_a_second_device_names_it() {
        let mut ids = PlausibleIds::new();
        assert!(ids.is_plausible(slot(0), SampleId(MAX_AHEAD), SlotSet::from_bits(0b11)));
        assert!(!ids.is_plausible(slot(0), SampleId(1_000_000), SlotSet::from_bits(0b11)));
        assert!(
            !ids.is_plausible(slot(0), SampleId(1_000_001), SlotSet::from_bits(0b11)),
            "the same device does not confirm its own id"
        );
        assert!(ids.is_plausible(slot(1), SampleId(1_000_002), SlotSet::from_bits(0b11)));
        assert!(ids.is_plausible(slot(0), SampleId(1_000_003), SlotSet::from_bits(0b11)));
    }

    #[test]
    fn ids_of_a_trigger_and_of_the_only_device_are_plausible() {
        let mut ids = PlausibleIds::new();
        assert!(ids.is_plausible(slot(3), SampleId(1 << 40), SlotSet::from_bits(0b1000)));
        ids.confirm(SampleId(1 << 50));
        assert!(ids.is_plausible(slot(0), SampleId(1 << 50), SlotSet::from_bits(0b1001)));
    }

    #[test]
    fn the_newest_confirmed_id_is_the_largest_of_a_trigger() {
        let mut ids = PlausibleIds::new();
        assert_eq!(ids.confirmed, SampleId(0));
        ids.confirm(SampleId(7));
        ids.confirm(SampleId(3));
        assert_eq!(ids.confirmed, SampleId(7));
    }
}
