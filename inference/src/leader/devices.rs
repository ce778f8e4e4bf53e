//! Which devices the leader waits for.

use headwater_protocol::{Slot, SlotSet};

/// Windows in a row a device may miss before it is not waited for.
const MISSES_UNTIL_NOT_WAITED: u8 = 3;

/// Liveness of every slot.
pub(super) struct Devices {
    up: SlotSet,
    misses: [u8; Slot::MAX],
}

impl Devices {
    pub(super) fn new() -> Self {
        Self { up: SlotSet::EMPTY, misses: [0; Slot::MAX] }
    }

    pub(super) fn set_up(&mut self, slot: Slot) {
        self.up.insert(slot);
        self.misses[slot.index()] = 0;
    }

    pub(super) fn set_down(&mut self, slot: Slot) {
        self.up.remove(slot);
    }

    /// Slots that are up.
    pub(super) fn up(&self) -> SlotSet {
        self.up
    }

    /// Slots whose answer a window waits for.
    pub(super) fn awaited(&self) -> SlotSet {
        self.up.iter().filter(|slot| self.misses[slot.index()] < MISSES_UNTIL_NOT_WAITED).collect()
    }

    /// A window closed: who answered in time, who did not.
    pub(super) fn window_closed(&mut self, answered: SlotSet) {
        for slot in self.up.iter() {
            let misses = &mut self.misses[slot.index()];
            *misses = if answered.contains(slot) { 0 } else { misses.saturating_add(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_missed_windows_in_a_row_end_the_waiting_until_it_is_in_time_again() {
        let mut devices = Devices::new();
        for slot in Slot::first(2) {
            devices.set_up(slot);
        }
        for expected in [0b11, 0b11, 0b01] {
            devices.window_closed(SlotSet::from_bits(0b01));
            assert_eq!(devices.awaited().bits(), expected);
        }
        devices.window_closed(SlotSet::from_bits(0b11));
        assert_eq!(devices.awaited().bits(), 0b11);
    }
}
