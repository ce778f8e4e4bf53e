//! The devices that the leader waits for.

use headwater_protocol::{Slot, SlotSet};
use serde::{Deserialize, Serialize};

use super::Micros;

/// Number of windows missed in a row after which the leader stops waiting for a device.
pub(super) const MAX_MISSED_WINDOWS: u8 = 3;

/// The slots that are up, and the number of windows in a row that each slot has missed.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Devices {
    pub(super) up: SlotSet,
    #[serde(with = "super::by_slot")]
    missed_windows: [u8; Slot::MAX],
    /// Times at which the latest windows closed, the oldest first; `None` while fewer windows have closed.
    closed: [Option<Micros>; MAX_MISSED_WINDOWS as usize],
}

impl Devices {
    pub(super) fn new() -> Self {
        Self { up: SlotSet::EMPTY, missed_windows: [0; Slot::MAX], closed: Default::default() }
    }

    pub(super) fn set_up(&mut self, slot: Slot) {
        self.up.insert(slot);
        self.missed_windows[slot.index()] = 0;
    }

    /// Slots whose answer a window waits for.
    pub(super) fn awaited(&self) -> SlotSet {
        self.up.iter().filter(|slot| self.missed_windows[slot.index()] < MAX_MISSED_WINDOWS).collect()
    }

    /// End of the first of the latest three windows, for a slot that is up and answered none of the three; `None` for any other slot.
    pub(super) fn unanswered_since(&self, slot: Slot) -> Option<Micros> {
        let is_up = self.up.contains(slot);
        let missed = self.missed_windows.get(slot.index()).filter(|_| is_up)?;
        self.closed[0].filter(|_| *missed >= MAX_MISSED_WINDOWS)
    }

    /// Counts the missed windows when a window closes; `answered` are the slots that were in time.
    pub(super) fn window_closed(&mut self, now: Micros, answered: SlotSet) {
        self.closed.rotate_left(1);
        if let Some(last) = self.closed.last_mut() {
            *last = Some(now);
        }
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
        let silent = Slot::first(2).last().expect("two slots");
        for (at, expected) in [(10, 0b11), (20, 0b11), (30, 0b01)] {
            assert_eq!(devices.unanswered_since(silent), None);
            devices.window_closed(Micros(at), SlotSet::from_bits(0b01));
            assert_eq!(devices.awaited().bits(), expected);
        }
        assert_eq!(devices.unanswered_since(silent), Some(Micros(10)));
        devices.window_closed(Micros(40), SlotSet::from_bits(0b01));
        assert_eq!(devices.unanswered_since(silent), Some(Micros(20)), "of the latest three windows");
        devices.window_closed(Micros(50), SlotSet::from_bits(0b11));
        assert_eq!(devices.awaited().bits(), 0b11);
        assert_eq!(devices.unanswered_since(silent), None);
    }
}
