//! Silent devices, and slots that two devices claim.

use headwater_inference::leader::{Event, Micros};
use headwater_protocol::{Fault, Slot};
use tracing::warn;

use super::session::SessionEvent;
use super::{Device, DeviceIndex, Registry};
use crate::devices::message_format::Change;

impl Registry {
    /// Forgets silent devices whose birth was cleared, and gives the slots of silent devices to other devices that claim these slots.
    pub(crate) fn tick(&mut self, now: Micros, changes: &mut Vec<Change>) {
        let gone = |(index, at): &(DeviceIndex, Micros)| (now >= *at + self.silent_after).then_some(*index);
        for index in self.state.cleared.iter().filter_map(gone).collect::<Vec<_>>() {
            if !self.is_current(index) {
                self.state.cleared.retain(|(cleared, _)| *cleared != index);
                continue;
            }
            warn!(device = %self.state.devices[index.at].id, "a device whose birth was cleared is silent, and is forgotten");
            self.forget_session(index);
            self.update_holders(index, now, changes);
        }
        let is_over = |(slot, since): &(Slot, Micros)| {
            self.contest_ends(*slot, *since).is_none_or(|end| end <= now).then_some(*slot)
        };
        for slot in self.state.contests.iter().filter_map(is_over).collect::<Vec<_>>() {
            self.end_contest(slot, now, changes);
        }
    }

    /// Time of the next [`Registry::tick`] that changes something.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        let cleared = self.state.cleared.iter().map(|(_, at)| *at + self.silent_after);
        let contests = self.state.contests.iter();
        let contests = contests.map(|(slot, since)| self.contest_ends(*slot, *since).unwrap_or(*since));
        cleared.chain(contests).min()
    }

    /// Time at which the device in a contested slot counts as silent, if it sends nothing before; `None` for an empty slot.
    fn contest_ends(&self, slot: Slot, since: Micros) -> Option<Micros> {
        let holder = self.state.holders.get(slot.index()).copied().flatten()?;
        let heard = self.state.devices[holder.device.at].heard.max(since);
        // While other devices answer samples, a living device would answer too: half of the time is enough.
        let others_send = self.state.last_accepted.is_some_and(|accepted| accepted > heard);
        Some(heard + if others_send { self.silent_after / 2 } else { self.silent_after })
    }

    /// Takes the slot from a silent device in it, if another device still claims the slot.
    fn end_contest(&mut self, slot: Slot, now: Micros, changes: &mut Vec<Change>) {
        self.state.contests.retain(|(contested, _)| *contested != slot);
        let Some(holder) = self.state.holders.get(slot.index()).copied().flatten() else { return };
        let Some(successor) = self.successor(slot, holder.device) else { return };
        let silent_us = now.since(self.state.devices[holder.device.at].heard);
        warn!(
            %slot, device = %self.state.devices[holder.device.at].id, successor = %self.state.devices[successor.at].id,
            silent_s = silent_us / 1_000_000, "a silent device loses its slot to another one that claims the slot"
        );
        self.counts.lock().replaced_devices += 1;
        self.state.devices[holder.device.at].session.on(SessionEvent::Silent);
        self.update_holders(holder.device, now, changes);
    }

    /// The device other than `holder` that claims a slot; of several, the one that was heard last. `None` if no other device claims the
    /// slot.
    pub(super) fn successor(&self, slot: Slot, holder: DeviceIndex) -> Option<DeviceIndex> {
        let claims = |device: &&Device| device.session.claimed_slot().is_some_and(|claim| claim.slot == slot);
        let others = self.state.devices.iter().filter(|device| device.index != holder);
        others.filter(claims).max_by_key(|device| device.heard).map(|device| device.index)
    }

    /// Gives a slot back to a device that lost it by silence and sends again, unless the device in the slot sent its first message at least
    /// `silent_after` ago.
    pub(super) fn return_to_slot(
        &mut self,
        index: DeviceIndex,
        slot: Slot,
        now: Micros,
        changes: &mut Vec<Change>,
    ) {
        let holder = self.state.holders.get(slot.index()).copied().flatten();
        self.state.devices[index.at].session.on(SessionEvent::Returned);
        let Some(holder) = holder else { return self.update_holders(index, now, changes) };
        if holder.spoke.is_some_and(|spoke| now >= spoke + self.silent_after) {
            // From now on the device claims the slot like any other device.
            return self.update_holders(index, now, changes);
        }
        self.state.holders[slot.index()] = None;
        changes.push((holder.generation, Event::DeviceDown { slot }));
        self.update_holders(index, now, changes);
        let why = format!("slot {slot} is filled by {} again, which sends", self.state.devices[index.at].id);
        self.refuse_birth(holder.device, Fault::SlotTaken, &why, now);
        self.contest(slot, now);
    }

    /// Notes that a device claims a slot that another device fills.
    pub(super) fn contest(&mut self, slot: Slot, now: Micros) {
        if !self.state.contests.iter().any(|(contested, _)| *contested == slot) {
            self.state.contests.push((slot, now));
        }
    }
}
