//! Slots that the setting `devices` gives to devices by name.
//!
//! A device that the setting does not name is refused. The broker may keep its birth for ever: a revoked device has no right to clear it. So
//! the leader clears it, once for each boot. A device that lives publishes its birth again, and stays refused in the status.

use headwater_protocol::{DeviceId, Fault, Slot};

use super::{DeviceIndex, Registry};
use crate::inbox::{Change, Refusal};

/// Births that wait to be cleared.
const MAX_BIRTHS_TO_CLEAR: usize = 1024;

impl Registry {
    /// Takes the ids of the devices by slot, none where any device may claim any slot. Devices that are not named any more lose their slots;
    /// devices that were refused and are named now fill theirs.
    pub(crate) fn set_owners(&mut self, owners: Vec<DeviceId>, changes: &mut Vec<Change>) {
        self.owners = owners;
        // Slots become free before others fill them.
        for at in 0..self.devices.len() {
            let device = &self.devices[at];
            let Some(session) = device.session.filter(|session| session.refusal.is_none()) else { continue };
            let index = device.index;
            let Some((fault, why)) = self.wrong_owner(&self.devices[at].id, session.claim.slot) else {
                continue;
            };
            self.set_refusal(index, Some(fault));
            self.refuse_birth(index, fault, &why);
            self.clear_if_foreign(index);
            self.update_holders(index, changes);
        }
        for at in 0..self.devices.len() {
            let device = &self.devices[at];
            let Some(session) =
                device.session.filter(|session| session.refusal == Some(Fault::UnknownDevice))
            else {
                continue;
            };
            let index = device.index;
            let refusal = self.wrong_owner(&device.id, session.claim.slot);
            match refusal.or_else(|| self.wrong_numbering(session.numbering)) {
                Some((fault, why)) => {
                    self.set_refusal(index, Some(fault));
                    self.devices[at].note_refusal(fault, &why);
                }
                None => {
                    self.set_refusal(index, None);
                    self.update_holders(index, changes);
                }
            }
        }
    }

    /// Takes the devices whose retained births are to be cleared.
    pub(crate) fn take_births_to_clear(&mut self) -> Vec<DeviceId> {
        std::mem::take(&mut self.births_to_clear)
    }

    /// Puts back devices whose births could not be cleared yet.
    pub(crate) fn clear_later(&mut self, ids: impl IntoIterator<Item = DeviceId>) {
        let room = MAX_BIRTHS_TO_CLEAR.saturating_sub(self.births_to_clear.len());
        self.births_to_clear.extend(ids.into_iter().take(room));
    }

    /// The refusal of a device whose slot has another owner.
    pub(super) fn wrong_owner(&self, id: &DeviceId, slot: Slot) -> Option<Refusal> {
        let owner = self.owners.get(slot.index()).filter(|owner| *owner != id)?;
        let why = format!("slot {slot} is that of {owner} by the setting `devices` of the group");
        Some((Fault::UnknownDevice, why))
    }

    /// Asks for the birth of a device to be cleared, where the setting `devices` names others alone; once for each boot.
    pub(super) fn clear_if_foreign(&mut self, index: DeviceIndex) {
        let device = &mut self.devices[index.at];
        let Some(boot) = device.session.map(|session| session.boot) else { return };
        let is_foreign = !self.owners.is_empty() && !self.owners.contains(&device.id);
        if is_foreign && device.cleared_boot.replace(boot) != Some(boot) {
            let id = device.id.clone();
            self.clear_later([id]);
        }
    }

    fn set_refusal(&mut self, index: DeviceIndex, refusal: Option<Fault>) {
        if let Some(session) = &mut self.devices[index.at].session {
            session.refusal = refusal;
        }
    }
}
