//! The registry against births and statuses of made-up devices.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_protocol::Boot;
use headwater_protocol::DeviceState;

use super::*;
use crate::devices::inbox::tests::{birth, format, status};
use DeviceState::{Down, Up};

mod connections;
mod numbering;
mod owners;
mod refusals;
mod slots;

const OURS: NetworkId = NetworkId([7; 32]);
const NEXT: NetworkId = NetworkId([6; 32]);

struct Group {
    registry: Registry,
    now: Micros,
    changes: Vec<Change>,
    /// Names that the leader was told, by slot.
    names: BTreeMap<Slot, String>,
}

impl Group {
    fn new() -> Self {
        let format = |network| MessageFormat { slots: 3, ..format(network) };
        let formats = PerNetwork { current: format(OURS), next: Some(format(NEXT)) };
        Self {
            registry: Registry::new(Arc::new(formats), Arc::default()),
            now: Micros(0),
            changes: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    /// A group in which these devices have started one after the other, each for a slot and with boot 1.
    fn of<const COUNT: usize>(devices: [(&str, u8); COUNT]) -> Self {
        let mut group = Self::new();
        devices.iter().for_each(|(id, slot)| drop(group.starts(id, *slot, 1)));
        group
    }

    /// The changes since the last call, except names, which go to `names`.
    fn changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.retain(|(_, event)| match event {
            Event::DeviceNamed { slot, name } => {
                self.names.insert(*slot, name.to_string());
                false
            }
            _ => true,
        });
        changes
    }

    fn index(&mut self, id: &str) -> DeviceIndex {
        self.registry.device(&DeviceId::new(id).unwrap(), self.now)
    }

    fn live(&self) -> Arrival {
        Arrival { now: self.now, is_retained: false }
    }

    fn introduces(&mut self, id: &str, birth: &Birth) -> Vec<Change> {
        self.introduces_by(self.live(), id, birth)
    }

    fn introduces_by(&mut self, arrival: Arrival, id: &str, birth: &Birth) -> Vec<Change> {
        let index = self.index(id);
        self.registry.set_birth(index, birth, arrival, &mut self.changes);
        self.changes()
    }

    fn birth_under(&mut self, network: NetworkId, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let birth = Self::birth_of(network, id, slot, boot);
        self.introduces(id, &birth)
    }

    /// The birth of a device that numbers its samples in this way.
    fn numbered_birth(&mut self, id: &str, slot: u8, numbering: Numbering) -> Vec<Change> {
        let birth = Birth { numbering: Some(numbering), ..Self::birth_of(OURS, id, slot, 1) };
        self.introduces(id, &birth)
    }

    fn birth_of(network: NetworkId, id: &str, slot: u8, boot: u16) -> Birth {
        Birth { boot: Boot(boot), ..birth(id, slot, network) }
    }

    fn birth(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        self.birth_under(OURS, id, slot, boot)
    }

    fn status(&mut self, id: &str, state: DeviceState, boot: u16) -> Vec<Change> {
        self.status_by(self.live(), id, state, boot)
    }

    fn status_by(&mut self, arrival: Arrival, id: &str, state: DeviceState, boot: u16) -> Vec<Change> {
        let index = self.index(id);
        self.registry.set_status(index, status(state, Boot(boot)), arrival, &mut self.changes);
        self.changes()
    }

    /// A status that the broker had kept from before the leader's connection.
    fn kept_status(&mut self, id: &str, state: DeviceState, boot: u16) {
        self.status_by(Arrival { is_retained: true, ..self.live() }, id, state, boot);
    }

    /// Birth and status of a device, both kept by the broker.
    fn kept(&mut self, id: &str, slot: u8, boot: u16) {
        let kept = Arrival { is_retained: true, ..self.live() };
        self.introduces_by(kept, id, &Self::birth_of(OURS, id, slot, boot));
        self.kept_status(id, Up, boot);
    }

    /// Claim of a device, and the device's field `is_live`.
    fn claim_of(&self, id: &str) -> (ClaimState<'_>, bool) {
        let device = self.registry.registered(self.now).find(|device| device.id.as_str() == id);
        device.map(|device| (device.claim, device.is_live)).expect("a device with a birth")
    }

    fn starts(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let mut changes = self.birth(id, slot, boot);
        changes.extend(self.status(id, DeviceState::Up, boot));
        changes
    }

    fn admits(&mut self, id: &str, boot: u16) -> Result<usize, Fault> {
        let index = self.index(id);
        if self.registry.state.devices[index.at].session.start().is_some_and(|start| start.boot != Boot(boot))
        {
            // A message of another boot than the birth names another session.
            return Err(Fault::UnknownDevice);
        }
        self.registry.admit(index, self.now, &mut self.changes).map(Slot::index)
    }

    /// Lets time pass, and returns the changes.
    fn after(&mut self, time: Duration) -> Vec<Change> {
        self.now = self.now + time;
        self.registry.tick(self.now, &mut self.changes);
        self.changes()
    }

    fn clears_birth(&mut self, id: &str) -> Vec<Change> {
        let index = self.index(id);
        self.registry.clear_birth(index, self.now, &mut self.changes);
        self.changes()
    }

    fn owned_by(&mut self, ids: [&str; 3]) -> Vec<Change> {
        let owners = ids.map(|id| DeviceId::new(id).unwrap()).to_vec();
        self.registry.set_owners(owners, self.now, &mut self.changes);
        self.changes()
    }

    /// Names of the devices whose births are cleared at the broker now.
    fn births_to_clear(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        self.registry.clear_births(self.now, |device| {
            names.push(device.to_string());
            true
        });
        names
    }

    fn refused(&self, id: &str) -> BTreeMap<&'static str, u64> {
        let counts = self.registry.counts.lock();
        counts.refused.get(&DeviceId::new(id).unwrap()).cloned().unwrap_or_default()
    }
}

fn claim(slot: u8) -> NetworkSlot {
    claim_under(Generation::Current, slot)
}

fn claim_under(generation: Generation, slot: u8) -> NetworkSlot {
    NetworkSlot { slot: Slot::new(slot).unwrap(), generation }
}

fn up(NetworkSlot { slot, generation }: NetworkSlot) -> Change {
    (generation, Event::DeviceUp { slot })
}

fn down(NetworkSlot { slot, generation }: NetworkSlot) -> Change {
    (generation, Event::DeviceDown { slot })
}
