//! Names of the devices by slot, which the leader writes into decisions.

use headwater_inference::leader::{Event, Generation};
use headwater_protocol::{DeviceId, Slot};

use super::Registry;
use crate::devices::message_format::Change;

impl Registry {
    /// Adds an event for each slot whose name has changed since the leader was told.
    pub(super) fn tell_names(&mut self, changes: &mut Vec<Change>) {
        Slot::first(self.state.holders.len()).for_each(|slot| self.tell_name(slot, changes));
    }

    /// Adds an event for the name of a slot's device, if the name has changed: the device that fills the slot or filled it last, else the
    /// owner by the setting `devices`, else a device whose accepted birth names the slot.
    pub(super) fn tell_name(&mut self, slot: Slot, changes: &mut Vec<Change>) {
        let last = self.state.last_holders[slot.index()].as_ref();
        let known = last.or_else(|| self.state.owners.get(slot.index())).or_else(|| self.born_in(slot));
        if let Some(id) =
            known.filter(|id| self.state.told_names[slot.index()].as_ref() != Some(*id)).cloned()
        {
            changes.push((Generation::Current, Event::DeviceNamed { slot, name: id.as_str().into() }));
            self.state.told_names[slot.index()] = Some(id);
        }
    }

    /// A device whose accepted birth names the slot. The birth may be a retained one, of a device that was down before this start.
    fn born_in(&self, slot: Slot) -> Option<&DeviceId> {
        let accepted = self.state.devices.iter().filter(|device| !device.session.is_of_stranger());
        let mut born =
            accepted.filter(|device| device.session.start().is_some_and(|start| start.claim.slot == slot));
        born.next().map(|device| &device.id)
    }
}
