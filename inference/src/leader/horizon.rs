//! How far ahead a sample may lie to be believed.
//!
//! The newest id decides how headers are widened, what `settled` tells the devices to free, and what counts as a straggler; so
//! no single device may move it. An id is believed up to [`MOST_AHEAD`] past what a trigger named or two devices claimed.

use headwater_protocol::{SampleId, Slot, SlotSet};

/// Samples that one device may be ahead of the others.
pub(super) const MOST_AHEAD: u64 = 256;

pub(super) struct Horizon {
    /// Named by a trigger or by the journal.
    known: SampleId,
    /// Newest id each slot ever claimed.
    claimed: [SampleId; Slot::MAX],
}

impl Horizon {
    pub(super) fn new() -> Self {
        Self { known: SampleId(0), claimed: [SampleId(0); Slot::MAX] }
    }

    /// A trigger or the journal named this sample.
    pub(super) fn reach(&mut self, sample: SampleId) {
        self.known = self.known.max(sample);
    }

    /// The newest sample that was named by more than a device.
    pub(super) fn known(&self) -> SampleId {
        self.known
    }

    /// `slot` named this sample.
    pub(super) fn claim(&mut self, slot: Slot, sample: SampleId) {
        let claimed = &mut self.claimed[slot.index()];
        *claimed = sample.max(*claimed);
    }

    /// Whether the sample that `slot` names is to be believed; its claim is remembered either way, so that a second device
    /// can bear it out. Where no other slot is up there is nobody to ask.
    pub(super) fn believes(&mut self, slot: Slot, sample: SampleId, up: SlotSet) -> bool {
        self.claim(slot, sample);
        if sample.0 <= self.known.0.saturating_add(MOST_AHEAD) {
            return true;
        }
        let others = up - SlotSet::single(slot);
        let newest = others.iter().map(|other| self.claimed[other.index()]).max();
        newest.is_none_or(|newest| sample.0 <= newest.0.saturating_add(MOST_AHEAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: u8) -> Slot {
        Slot::new(index).expect("below 64")
    }

    #[test]
    fn one_device_far_ahead_is_not_believed_until_another_bears_it_out() {
        let mut horizon = Horizon::new();
        assert!(horizon.believes(slot(0), SampleId(MOST_AHEAD), SlotSet::from_bits(0b11)));
        assert!(!horizon.believes(slot(0), SampleId(1_000_000), SlotSet::from_bits(0b11)));
        assert!(
            !horizon.believes(slot(0), SampleId(1_000_001), SlotSet::from_bits(0b11)),
            "its own word is not another's"
        );
        assert!(horizon.believes(slot(1), SampleId(1_000_002), SlotSet::from_bits(0b11)));
        assert!(horizon.believes(slot(0), SampleId(1_000_003), SlotSet::from_bits(0b11)));
    }

    #[test]
    fn a_trigger_and_a_lone_device_are_believed() {
        let mut horizon = Horizon::new();
        assert!(horizon.believes(slot(3), SampleId(1 << 40), SlotSet::from_bits(0b1000)));
        horizon.reach(SampleId(1 << 50));
        assert!(horizon.believes(slot(0), SampleId(1 << 50), SlotSet::from_bits(0b1001)));
    }

    #[test]
    fn the_newest_known_sample_is_the_largest_that_was_named() {
        let mut horizon = Horizon::new();
        assert_eq!(horizon.known(), SampleId(0));
        horizon.reach(SampleId(7));
        horizon.reach(SampleId(3));
        assert_eq!(horizon.known(), SampleId(7));
    }
}
