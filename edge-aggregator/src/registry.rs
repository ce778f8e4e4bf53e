//! Which device fills which slot, from what devices say of themselves.
//!
//! A device fills its slot from the moment its birth and its status `up` name the same boot, until its status or last will
//! says `down` for that boot. One that comes while its slot is taken is refused, and let in when the slot falls free.

use std::collections::HashMap;

use headwater_protocol::{Birth, Boot, DeviceId, Fault, NetworkId, SampleId, Slot, Status};

use crate::device::Device;
use crate::report::DeviceRefusals;

/// Most devices that are remembered; more than a group has, less than a flood of made-up names would need.
const MOST_DEVICES: usize = 1024;

/// A slot changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A device fills it.
    Up(Slot),
    /// Nobody fills it.
    Down(Slot),
}

/// Position of a device in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIndex(usize);

/// All devices of the group.
#[derive(Debug)]
pub(crate) struct Registry {
    network: NetworkId,
    slots: usize,
    devices: Vec<Device>,
    by_id: HashMap<DeviceId, DeviceIndex>,
    /// Which device fills each slot.
    holders: Vec<Option<DeviceIndex>>,
}

impl Registry {
    pub(crate) fn new(network: NetworkId, slots: usize) -> Self {
        Self { network, slots, devices: Vec::new(), by_id: HashMap::new(), holders: vec![None; slots] }
    }

    /// The device of that name; `None` when no more are remembered.
    pub(crate) fn device(&mut self, id: &DeviceId) -> Option<DeviceIndex> {
        if let Some(&index) = self.by_id.get(id) {
            return Some(index);
        }
        if self.devices.len() == MOST_DEVICES {
            return None;
        }
        let index = DeviceIndex(self.devices.len());
        self.devices.push(Device::new(id.clone()));
        self.by_id.insert(id.clone(), index);
        Some(index)
    }

    /// A device introduces itself.
    pub(crate) fn birth(&mut self, index: DeviceIndex, birth: &Birth, changes: &mut Vec<Change>) {
        let device = &mut self.devices[index.0];
        let refusal = if birth.device != device.id {
            Some((
                Fault::Malformed,
                format!("birth: the topic names {}, the text {}", device.id, birth.device),
            ))
        } else if birth.network != self.network {
            let (ours, theirs) = (self.network.short(), birth.network.short());
            Some((
                Fault::WrongNetwork,
                format!("network: expected {ours}, found {theirs}: give it this group's bundle"),
            ))
        } else if birth.slot.index() >= self.slots {
            Some((Fault::Malformed, format!("slot: expected 0 to {}, found {}", self.slots - 1, birth.slot)))
        } else {
            None
        };
        device.introduced(birth, refusal.as_ref().map(|(fault, _)| *fault));
        if let Some((fault, why)) = refusal {
            device.refuse(fault, &why);
        }
        self.settle(index, changes);
    }

    /// A device says that it is up or down, or its last will does.
    pub(crate) fn status(&mut self, index: DeviceIndex, status: Status, changes: &mut Vec<Change>) {
        self.devices[index.0].says(status);
        self.settle(index, changes);
    }

    /// The retained birth was cleared: the device left for good.
    pub(crate) fn forget(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        self.devices[index.0].forgotten();
        self.settle(index, changes);
    }

    /// The slot for which a message of this boot speaks.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] before the birth of that life, [`Fault::SlotTaken`] while another device fills the slot, or
    /// the fault for which the birth was refused.
    pub(crate) fn admit(&self, index: DeviceIndex, boot: Boot) -> Result<Slot, Fault> {
        let life =
            self.devices[index.0].life().filter(|life| life.boot == boot).ok_or(Fault::UnknownDevice)?;
        if let Some(fault) = life.refusal {
            return Err(fault);
        }
        match self.holders.get(life.slot.index()).copied().flatten() {
            // A slot that nobody fills yet: its status is on the way, or its last messages still are.
            None => Ok(life.slot),
            Some(holder) if holder == index => Ok(life.slot),
            Some(_) => Err(Fault::SlotTaken),
        }
    }

    /// The id of the device's samples when its life began; 0 where triggers give the ids.
    pub(crate) fn sample_at_birth(&self, index: DeviceIndex) -> SampleId {
        self.devices[index.0].life().map_or(SampleId(0), |life| life.sample)
    }

    /// The newest of those of all devices that fill a slot.
    pub(crate) fn newest_at_birth(&self) -> SampleId {
        let holders = self.holders.iter().flatten();
        holders.map(|holder| self.sample_at_birth(*holder)).max().unwrap_or_default()
    }

    /// Counts a refusal under its device.
    pub(crate) fn refuse(&mut self, index: DeviceIndex, fault: Fault, why: &str) {
        self.devices[index.0].refuse(fault, why);
    }

    /// Refusals of every device that has any.
    pub(crate) fn refusals(&self) -> Vec<DeviceRefusals> {
        let some = self.devices.iter().filter(|device| !device.refusals().is_empty());
        some.map(|device| DeviceRefusals { device: device.id.clone(), refused: device.refusals().clone() })
            .collect()
    }

    /// Bit `i` set where a device fills slot `i`.
    pub(crate) fn filled(&self) -> u64 {
        let holders = self.holders.iter().enumerate();
        holders.fold(0, |mask, (slot, holder)| mask | u64::from(holder.is_some()) << slot)
    }

    /// Brings the holders in line with what the device now wants.
    fn settle(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        let wanted = self.devices[index.0].wanted_slot();
        let held = self.holders.iter().position(|holder| *holder == Some(index));
        if let Some(held) = held.filter(|&held| wanted.map(Slot::index) != Some(held)) {
            self.holders[held] = None;
            changes.extend(Slot::first(self.slots).nth(held).map(Change::Down));
            let heir = (0..self.devices.len())
                .map(DeviceIndex)
                .find(|other| self.devices[other.0].wanted_slot().map(Slot::index) == Some(held));
            if let Some(heir) = heir {
                self.fill(heir, changes);
            }
        }
        self.fill(index, changes);
    }

    fn fill(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        let Some(slot) = self.devices[index.0].wanted_slot() else { return };
        let Some(holder) = self.holders.get_mut(slot.index()) else { return };
        match *holder {
            None => {
                *holder = Some(index);
                changes.push(Change::Up(slot));
            }
            Some(holder) if holder == index => {}
            Some(holder) => {
                let why = format!(
                    "slot {slot} is filled by {}: give one of them another slot",
                    self.devices[holder.0].id
                );
                self.devices[index.0].refuse(Fault::SlotTaken, &why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
