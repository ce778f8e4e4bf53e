//! Which devices the leader waits for.

use headwater_protocol::{Slot, SlotSet};

/// Windows that a device may miss in a row before the leader stops waiting for it.
const MAX_MISSED_WINDOWS: u8 = 3;

/// Which slots are up, and how many windows in a row each missed.
pub(super) struct Devices {
    pub(super) up: SlotSet,
    missed_windows: [u8; Slot::MAX],
}

impl Devices {
    pub(super) fn new() -> Self {
        Self { up: SlotSet::EMPTY, missed_windows: [0; Slot::MAX] }
    }

    pub(super) fn set_up(&mut self, slot: Slot) {
        self.up.insert(slot);
        self.missed_windows[slot.index()] = 0;
    }

    /// Slots whose answer a window waits for.
    pub(super) fn awaited(&self) -> SlotSet {
        self.up.iter().filter(|slot| self.missed_windows[slot.index()] < MAX_MISSED_WINDOWS).collect()
    }

    /// Counts the missed windows when a window closes; `answered` are the slots that were in time.
    pub(super) fn window_closed(&mut self, answered: SlotSet) {
        for slot in self.up.iter() {
            let missed_windows = &mut self.missed_windows[slot.index()];
            *missed_windows = if answered.contains(slot) { 0 } else { missed_windows.saturating_add(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_missed_three_windows_in_a_row_is_not_awaited_until_it_is_in_time_again() {
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
