//! Which device fills which slot, from what devices say of themselves.
//!
//! A device fills its slot from the moment its birth and its status `up` name the same boot, until its status or last will
//! says `down` for that boot. One that comes while its slot is taken is refused, and let in when the slot falls free.

use std::collections::HashMap;

use headwater_inference::leader::Generation;
use headwater_protocol::{Birth, Boot, DeviceId, Fault, NetworkId, SampleId, Slot, Status};

use crate::device::{Device, Place};
use crate::report::DeviceRefusals;

/// Most devices that are remembered; more than a group has, less than a flood of made-up names would need.
const MOST_DEVICES: usize = 1024;

/// A slot changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A device fills it.
    Up(Place),
    /// Nobody fills it.
    Down(Place),
}

/// A network whose devices are let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) generation: Generation,
    pub(crate) network: NetworkId,
    pub(crate) slots: usize,
}

/// Position of a device in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIndex(usize);

/// All devices of the group.
#[derive(Debug)]
pub(crate) struct Registry {
    networks: Vec<Known>,
    devices: Vec<Device>,
    by_id: HashMap<DeviceId, DeviceIndex>,
    /// Which device fills each slot, and under which network: a slot has one device, whichever of the networks it runs.
    holders: Vec<Option<(DeviceIndex, Generation)>>,
}

impl Registry {
    pub(crate) fn new(networks: Vec<Known>) -> Self {
        let slots = networks.iter().map(|known| known.slots).max().unwrap_or(0);
        Self { networks, devices: Vec::new(), by_id: HashMap::new(), holders: vec![None; slots] }
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
        let known = self.networks.iter().find(|known| known.network == birth.network);
        let device = &mut self.devices[index.0];
        let refusal = if birth.device != device.id {
            Some((
                Fault::Malformed,
                format!("birth: the topic names {}, the text {}", device.id, birth.device),
            ))
        } else if let Some(Known { slots, .. }) = known {
            (birth.slot.index() >= *slots).then(|| {
                (Fault::Malformed, format!("slot: expected 0 to {}, found {}", slots - 1, birth.slot))
            })
        } else {
            let ours: Vec<String> = self.networks.iter().map(|known| known.network.short()).collect();
            let (ours, theirs) = (ours.join(" or "), birth.network.short());
            Some((
                Fault::WrongNetwork,
                format!("network: expected {ours}, found {theirs}: give it this group's bundle"),
            ))
        };
        let generation = known.map_or(Generation::Current, |known| known.generation);
        device.introduced(birth, generation, refusal.as_ref().map(|(fault, _)| *fault));
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

    /// The network that the device said it runs, by which its messages are read; the current one of a device that said nothing yet.
    pub(crate) fn generation(&self, index: DeviceIndex) -> Generation {
        self.devices[index.0].life().map_or(Generation::Current, |life| life.place.generation)
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
        let slot = life.place.slot;
        match self.holders.get(slot.index()).copied().flatten() {
            // A slot that nobody fills yet: its status is on the way, or its last messages still are.
            None => Ok(slot),
            Some((holder, _)) if holder == index => Ok(slot),
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
        holders.map(|(holder, _)| self.sample_at_birth(*holder)).max().unwrap_or_default()
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
        let wanted = self.devices[index.0].wanted_place();
        let held = self.holders.iter().enumerate().find_map(|(slot, holder)| {
            let (_, generation) = holder.filter(|(holder, _)| *holder == index)?;
            Some(Place { slot: Slot::try_from(slot as u8).ok()?, generation })
        });
        if let Some(held) = held.filter(|held| wanted != Some(*held)) {
            self.holders[held.slot.index()] = None;
            changes.push(Change::Down(held));
            if wanted.map(|place| place.slot) != Some(held.slot) {
                let wants = |other: &DeviceIndex| {
                    self.devices[other.0].wanted_place().map(|place| place.slot) == Some(held.slot)
                };
                if let Some(heir) = (0..self.devices.len()).map(DeviceIndex).find(wants) {
                    self.fill(heir, changes);
                }
            }
        }
        self.fill(index, changes);
    }

    fn fill(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        let Some(place) = self.devices[index.0].wanted_place() else { return };
        let Some(holder) = self.holders.get_mut(place.slot.index()) else { return };
        match *holder {
            None => {
                *holder = Some((index, place.generation));
                changes.push(Change::Up(place));
            }
            Some((holder, _)) if holder == index => {}
            Some((holder, _)) => {
                let why = format!(
                    "slot {} is filled by {}: give one of them another slot",
                    place.slot, self.devices[holder.0].id
                );
                self.devices[index.0].refuse(Fault::SlotTaken, &why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
