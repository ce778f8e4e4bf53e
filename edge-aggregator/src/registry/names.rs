//! Names of the devices by slot, for decisions.

use headwater_protocol::Slot;

use super::Registry;

impl Registry {
    /// Name of a slot's device: the device that fills the slot or filled it last, else the owner by the setting `devices`, else one whose
    /// accepted birth names the slot. Where no device is known, the name is that of the slot, which no device can have.
    pub(crate) fn device_name(&self, slot: Slot) -> String {
        let last = self.last_holders.get(slot.index()).and_then(Option::as_ref);
        let known = last.or_else(|| self.owners.get(slot.index())).or_else(|| self.born_in(slot));
        known.map_or_else(|| format!("slot {slot}"), ToString::to_string)
    }

    /// A device whose accepted birth names the slot, such as the retained birth of a device that is down since before this start.
    fn born_in(&self, slot: Slot) -> Option<&headwater_protocol::DeviceId> {
        let accepted = self.devices.iter().filter(|device| !device.is_stranger());
        let mut born =
            accepted.filter(|device| device.session.is_some_and(|session| session.claim.slot == slot));
        born.next().map(|device| &device.id)
    }
}
