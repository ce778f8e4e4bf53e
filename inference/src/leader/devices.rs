//! Which devices the leader waits for.

use headwater_protocol::Slot;

/// Windows in a row a device may miss before it is not waited for.
const MISSES_UNTIL_NOT_WAITED: u8 = 3;

/// Liveness of every slot.
pub(super) struct Devices {
    up: u64,
    misses: [u8; Slot::MAX],
}

impl Devices {
    pub(super) fn new() -> Self {
        Self { up: 0, misses: [0; Slot::MAX] }
    }

    pub(super) fn set_up(&mut self, slot: Slot) {
        self.up |= 1 << slot.index();
        self.misses[slot.index()] = 0;
    }

    pub(super) fn set_down(&mut self, slot: Slot) {
        self.up &= !(1 << slot.index());
    }

    /// Slots that are up.
    pub(super) fn up(&self) -> u64 {
        self.up
    }

    /// Slots whose answer a window waits for.
    pub(super) fn awaited(&self) -> u64 {
        let mut awaited = self.up;
        let mut rest = self.up;
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if self.misses[slot] >= MISSES_UNTIL_NOT_WAITED {
                awaited &= !(1 << slot);
            }
        }
        awaited
    }

    /// A window closed: who answered in time, who did not.
    pub(super) fn window_closed(&mut self, answered: u64) {
        let mut rest = self.up;
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let misses = &mut self.misses[slot];
            *misses = if answered >> slot & 1 == 1 { 0 } else { misses.saturating_add(1) };
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
            devices.window_closed(0b01);
            assert_eq!(devices.awaited(), expected);
        }
        devices.window_closed(0b11);
        assert_eq!(devices.awaited(), 0b11);
    }
}
