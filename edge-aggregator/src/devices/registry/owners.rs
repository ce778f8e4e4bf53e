//! Slots that the setting `devices` gives to devices by name.
//!
//! A device that the setting does not name is refused. The broker may keep such a device's birth for ever, since a revoked device has no
//! right to clear it. So the leader clears the birth, once for each boot. A device that is running publishes its birth again, and stays
//! refused in the status.

use headwater_inference::leader::Micros;
use headwater_protocol::{DeviceId, Fault, Slot};
use tracing::info;

use super::session::SessionEvent;
use super::{DeviceIndex, Registry};
use crate::devices::message_format::{Change, Refusal};

/// Most births that wait to be cleared. In an edge births wait for ever: only the leader may clear a birth.
pub(super) const MAX_BIRTHS_TO_CLEAR: usize = 1024;

/// Most births that are cleared in a minute, each with a log line: as many as the largest network has slots. The bound is needed because
/// at a broker without access rules anybody can publish births under any name.
pub(super) const MAX_CLEARS: u32 = 64;

impl Registry {
    /// Replaces the list of device ids by slot; an empty list lets any device claim any slot. Devices that are not named any more lose
    /// their slots; devices that were refused and are named now fill their slots.
    pub(crate) fn set_owners(&mut self, owners: Vec<DeviceId>, now: Micros, changes: &mut Vec<Change>) {
        self.state.owners = owners;
        let owners = &self.state.owners;
        self.state.births_to_clear.retain(|id| !owners.is_empty() && !owners.contains(id));
        let with_birth = self.state.devices.iter().filter(|device| device.session.start().is_some());
        let with_birth: Vec<_> = with_birth.map(|device| device.index).collect();
        with_birth.iter().for_each(|index| self.clear_if_foreign(*index));
        let (refused, accepted): (Vec<_>, Vec<_>) =
            with_birth.into_iter().partition(|index| self.state.devices[index.at].session.is_of_stranger());
        let lost: Vec<_> = accepted.into_iter().filter(|index| self.judge_again(*index, now)).collect();
        // Slots become free before others fill them.
        lost.into_iter().for_each(|index| self.update_holders(index, now, changes));
        for index in refused {
            if self.judge_again(index, now) {
                self.update_holders(index, now, changes);
            }
        }
        self.tell_names(changes);
    }

    /// Judges the claim of a device again. Returns true if the device was accepted before and is refused now, or the other way round.
    fn judge_again(&mut self, index: DeviceIndex, now: Micros) -> bool {
        let device = &self.state.devices[index.at];
        let Some(start) = device.session.start() else { return false };
        // Other faults lie in the birth alone, and another list of devices does not change them.
        if !matches!(start.refusal, None | Some(Fault::UnknownDevice | Fault::WrongNumbering)) {
            return false;
        }
        let refusal = self.claim_refusal(&device.id, start.claim.slot, start.numbering);
        let fault = refusal.as_ref().map(|(fault, _)| *fault);
        self.state.devices[index.at].session.on(SessionEvent::Judged(fault));
        match (start.refusal, refusal) {
            (None, None) => false,
            (Some(_), None) => true,
            (None, Some((fault, why))) => {
                self.refuse_birth(index, fault, &why, now);
                true
            }
            (Some(_), Some((fault, why))) => {
                self.state.devices[index.at].note_refusal(fault, &why);
                false
            }
        }
    }

    /// Clears waiting births by `clear`, which returns whether the link took the message: at most [`MAX_CLEARS`] a minute. The others wait.
    pub(crate) fn clear_births(&mut self, now: Micros, mut clear: impl FnMut(&DeviceId) -> bool) {
        while let Some(device) = self.state.births_to_clear.front() {
            if !self.clear_limit.has_room(now) || !clear(device) {
                return;
            }
            self.clear_limit.take(now);
            let waiting = self.state.births_to_clear.len() - 1;
            info!(%device, waiting, "clearing the retained birth: the setting `devices` does not name this device");
            self.state.births_to_clear.pop_front();
        }
    }

    /// The refusal of a device that claims a slot which the setting `devices` gives to another device.
    pub(super) fn wrong_owner(&self, id: &DeviceId, slot: Slot) -> Option<Refusal> {
        let owner = self.state.owners.get(slot.index()).filter(|owner| *owner != id)?;
        let why = format!("slot {slot} is that of {owner} by the setting `devices` of the group");
        Some((Fault::UnknownDevice, why))
    }

    /// Queues the birth of a device to be cleared, if the setting `devices` names other devices alone; once for each boot.
    pub(super) fn clear_if_foreign(&mut self, index: DeviceIndex) {
        let device = &mut self.state.devices[index.at];
        let Some(boot) = device.session.start().map(|start| start.boot) else { return };
        if self.state.owners.is_empty() || self.state.owners.contains(&device.id) {
            device.cleared_boot = None;
            return;
        }
        if device.cleared_boot == Some(boot) {
            return;
        }
        if !self.state.births_to_clear.contains(&device.id) {
            if self.state.births_to_clear.len() == MAX_BIRTHS_TO_CLEAR {
                // The device's next birth tries again.
                return;
            }
            self.state.births_to_clear.push_back(device.id.clone());
        }
        device.cleared_boot = Some(boot);
    }
}
