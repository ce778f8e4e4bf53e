//! Devices of a group and the slots that they fill, from birth certificates and status messages.
//!
//! A device fills its slot while its birth and its status `up` name the same boot. A device whose slot is taken is refused, and fills
//! the slot when the slot becomes free.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::{Event, Generation};
use headwater_protocol::{
    Birth, Boot, DeviceId, DeviceState, Fault, MqttHandling, NetworkId, SampleId, Slot, SlotSet, Status,
};
use tracing::warn;

use crate::inbox::{Change, MessageFormat};
use crate::report::Refusals;

/// Devices that are remembered: more than a group has, fewer than a flood of made-up names would need.
const MAX_DEVICES: usize = 1024;

/// Position of a device in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIndex(usize);

/// All devices of the group.
#[derive(Debug)]
pub(crate) struct Registry {
    formats: Arc<PerNetwork<MessageFormat>>,
    devices: Vec<Device>,
    by_id: HashMap<DeviceId, DeviceIndex>,
    /// The device in each slot, with the network that it runs. A slot has one device, whichever network that device runs.
    holders: Vec<Option<(DeviceIndex, Generation)>>,
}

impl Registry {
    pub(crate) fn new(formats: Arc<PerNetwork<MessageFormat>>) -> Self {
        let slots = formats.iter().map(|(_, format)| format.slots).max().unwrap_or(0);
        Self { formats, devices: Vec::new(), by_id: HashMap::new(), holders: vec![None; slots] }
    }

    /// The device of that name; `None` when [`MAX_DEVICES`] others are remembered.
    pub(crate) fn device(&mut self, id: &DeviceId) -> Option<DeviceIndex> {
        if let Some(&index) = self.by_id.get(id) {
            return Some(index);
        }
        if self.devices.len() == MAX_DEVICES {
            return None;
        }
        let index = DeviceIndex(self.devices.len());
        self.devices.push(Device::new(id.clone()));
        self.by_id.insert(id.clone(), index);
        Some(index)
    }

    /// Takes the birth certificate of a device.
    pub(crate) fn set_birth(&mut self, index: DeviceIndex, birth: &Birth, changes: &mut Vec<Change>) {
        let known = self.formats.iter().find(|(_, known)| known.network == birth.network);
        let generation = known.map_or(Generation::Current, |(generation, _)| generation);
        let refusal = self.refusal(index, birth, known.map(|(_, known)| known.slots));
        let device = &mut self.devices[index.0];
        device.set_birth(birth, generation, refusal.as_ref().map(|(fault, _)| *fault));
        if let Some((fault, why)) = refusal {
            device.refuse(fault, &why);
        }
        self.update_holders(index, changes);
    }

    /// The reason why a birth is refused. `slots` is the number of slots of its network; `None` for a network of another group.
    fn refusal(&self, index: DeviceIndex, birth: &Birth, slots: Option<usize>) -> Option<(Fault, String)> {
        let id = &self.devices[index.0].id;
        if birth.device != *id {
            let why = format!("birth: the topic names {id}, the text {}", birth.device);
            return Some((Fault::Malformed, why));
        }
        let Some(slots) = slots else {
            return Some((Fault::WrongNetwork, wrong_network(&self.formats, birth.network)));
        };
        let why = || format!("slot: expected 0 to {}, found {}", slots - 1, birth.slot);
        (birth.slot.index() >= slots).then(|| (Fault::Malformed, why()))
    }

    /// Takes the status of a device, which its last will may have sent.
    pub(crate) fn set_status(&mut self, index: DeviceIndex, status: Status, changes: &mut Vec<Change>) {
        self.devices[index.0].set_status(status);
        self.update_holders(index, changes);
    }

    /// The retained birth was cleared: the device left for good.
    pub(crate) fn clear_birth(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        self.devices[index.0].session = None;
        self.update_holders(index, changes);
    }

    /// The network that the device runs by its birth, under which its messages are read; the current network before a birth.
    pub(crate) fn generation(&self, index: DeviceIndex) -> Generation {
        self.devices[index.0].session.map_or(Generation::Current, |session| session.claim.generation)
    }

    /// The slot of a message with this boot.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] before the birth of that boot, [`Fault::SlotTaken`] while another device fills the slot, or
    /// the fault for which the birth was refused.
    pub(crate) fn admit(&self, index: DeviceIndex, boot: Boot) -> Result<Slot, Fault> {
        let session = self.devices[index.0].session.filter(|session| session.boot == boot);
        let session = session.ok_or(Fault::UnknownDevice)?;
        if let Some(fault) = session.refusal {
            return Err(fault);
        }
        let slot = session.claim.slot;
        match self.holders.get(slot.index()).copied().flatten() {
            // An empty slot: the status of this device is on the way, or the last messages of its session are.
            None => Ok(slot),
            Some((holder, _)) if holder == index => Ok(slot),
            Some(_) => Err(Fault::SlotTaken),
        }
    }

    /// Id of the device's first sample in its session; 0 where triggers give the ids.
    pub(crate) fn first_sample(&self, index: DeviceIndex) -> SampleId {
        self.devices[index.0].session.map_or(SampleId(0), |session| session.first_sample)
    }

    /// The newest first sample of all devices that fill a slot.
    pub(crate) fn newest_first_sample(&self) -> SampleId {
        let holders = self.holders.iter().flatten();
        holders.map(|(holder, _)| self.first_sample(*holder)).max().unwrap_or_default()
    }

    /// Counts a refusal of a device.
    pub(crate) fn refuse(&mut self, index: DeviceIndex, fault: Fault, why: &str) {
        self.devices[index.0].refuse(fault, why);
    }

    /// Every device with refusals.
    pub(crate) fn refusals(&self) -> BTreeMap<DeviceId, Refusals> {
        let with_refusals = self.devices.iter().filter(|device| !device.refused.is_empty());
        with_refusals.map(|device| (device.id.clone(), device.refused.clone())).collect()
    }

    /// Slots that a device fills.
    pub(crate) fn filled(&self) -> SlotSet {
        let slots = Slot::first(self.holders.len()).zip(&self.holders);
        slots.filter(|(_, holder)| holder.is_some()).map(|(slot, _)| slot).collect()
    }

    /// Updates the holders of slots after a change of one device.
    fn update_holders(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        let claim = self.devices[index.0].claimed_slot();
        let holds = Slot::first(self.holders.len()).zip(&self.holders).find_map(|(slot, holder)| {
            let (_, generation) = holder.filter(|(holder, _)| *holder == index)?;
            Some(NetworkSlot { slot, generation })
        });
        if let Some(left) = holds.filter(|holds| claim != Some(*holds)) {
            self.holders[left.slot.index()] = None;
            changes.push((left.generation, Event::DeviceDown { slot: left.slot }));
            if claim.map(|claim| claim.slot) != Some(left.slot) {
                let claims = |other: &DeviceIndex| {
                    self.devices[other.0].claimed_slot().map(|claim| claim.slot) == Some(left.slot)
                };
                if let Some(successor) = (0..self.devices.len()).map(DeviceIndex).find(claims) {
                    self.fill(successor, changes);
                }
            }
        }
        self.fill(index, changes);
    }

    /// Puts a device into the slot that it claims, or refuses the device while another one holds the slot.
    fn fill(&mut self, index: DeviceIndex, changes: &mut Vec<Change>) {
        let Some(claim) = self.devices[index.0].claimed_slot() else { return };
        let Some(holder) = self.holders.get_mut(claim.slot.index()) else { return };
        match *holder {
            None => {
                *holder = Some((index, claim.generation));
                changes.push((claim.generation, Event::DeviceUp { slot: claim.slot }));
            }
            Some((holder, _)) if holder == index => {}
            Some((holder, _)) => {
                let holder = &self.devices[holder.0].id;
                let why = format!("slot {} is filled by {holder}: give one of them another slot", claim.slot);
                self.devices[index.0].refuse(Fault::SlotTaken, &why);
            }
        }
    }
}

/// One device, from its first message on.
#[derive(Debug)]
struct Device {
    id: DeviceId,
    session: Option<Session>,
    status: Option<Status>,
    /// A boot that ended before its birth arrived, or while another boot was current.
    ended: Option<Boot>,
    refused: Refusals,
    /// Faults already logged in this session.
    logged: Vec<Fault>,
}

/// A slot under a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NetworkSlot {
    slot: Slot,
    generation: Generation,
}

/// Birth certificate of a boot, checked against the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    claim: NetworkSlot,
    boot: Boot,
    /// Id of the first sample by the device's clock; 0 where triggers give the ids.
    first_sample: SampleId,
    /// Reason why this session is refused.
    refusal: Option<Fault>,
}

impl Device {
    fn new(id: DeviceId) -> Self {
        Self { id, session: None, status: None, ended: None, refused: Refusals::new(), logged: Vec::new() }
    }

    /// The slot that the device claims now: its session is accepted, and its status is up for the same boot.
    fn claimed_slot(&self) -> Option<NetworkSlot> {
        let session = self.session.filter(|session| session.refusal.is_none())?;
        let status = self.status.as_ref()?;
        (status.state == DeviceState::Up && status.boot == session.boot).then_some(session.claim)
    }

    fn set_birth(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.session.is_none_or(|session| session.boot != birth.boot) {
            self.logged.clear();
        }
        let first_sample = birth.sample.unwrap_or_default();
        let claim = NetworkSlot { slot: birth.slot, generation };
        self.session = Some(Session { claim, boot: birth.boot, first_sample, refusal });
        if self.ended == Some(birth.boot) {
            self.status = Some(Status { state: DeviceState::Down, boot: birth.boot });
        }
    }

    fn set_status(&mut self, status: Status) {
        let is_current = self.session.is_none_or(|session| session.boot == status.boot);
        if status.state == DeviceState::Down && !is_current {
            // The last will of another boot must not end this session.
            self.ended = Some(status.boot);
            return;
        }
        if status.state == DeviceState::Up && self.ended == Some(status.boot) {
            self.ended = None;
        }
        self.status = Some(status);
    }

    /// Counts a refusal. Where the error table asks for it, the first refusal of a kind is logged in each session.
    fn refuse(&mut self, fault: Fault, why: &str) {
        *self.refused.entry(fault.code()).or_default() += 1;
        if fault.mqtt() == MqttHandling::CountAndName && !self.logged.contains(&fault) {
            self.logged.push(fault);
            warn!(device = %self.id, fault = fault.code(), why, "a device was refused; more refusals of this session are only counted");
        }
    }
}

/// The sentence for a device or edge with the bundle of another group.
pub(crate) fn wrong_network(ours: &PerNetwork<MessageFormat>, found: NetworkId) -> String {
    let ours: Vec<String> = ours.iter().map(|(_, format)| format.network.short()).collect();
    let (ours, found) = (ours.join(" or "), found.short());
    format!("network: expected {ours}, found {found}: give it this group's bundle")
}

#[cfg(test)]
mod tests;
