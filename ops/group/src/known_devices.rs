//! Devices of the group, as their retained messages describe them.

use std::collections::BTreeMap;

use headwater_protocol::{Birth, DeviceId, DeviceState, DeviceTopic, NetworkId, Numbering, SlotSet, Status};
use serde_json::from_slice;

/// Every device whose birth or status the client has received.
#[derive(Clone, Debug, Default)]
pub struct KnownDevices {
    by_id: BTreeMap<DeviceId, KnownDevice>,
}

#[derive(Clone, Debug, Default)]
struct KnownDevice {
    birth: Option<Birth>,
    status: Option<Status>,
}

impl KnownDevice {
    /// The birth of the device, if the device is up and its status names the same boot as the birth.
    fn birth_up(&self) -> Option<&Birth> {
        let (birth, status) = (self.birth.as_ref()?, self.status.as_ref()?);
        (status.state == DeviceState::Up && status.boot == birth.boot).then_some(birth)
    }
}

impl KnownDevices {
    /// Slots whose device is up.
    pub fn slots_up(&self) -> SlotSet {
        self.births_up().map(|birth| birth.slot).collect()
    }

    /// Network of the devices that are up. If their networks differ, the network of the most devices; `None` if no device is up.
    pub fn network_up(&self) -> Option<NetworkId> {
        let mut devices: BTreeMap<NetworkId, usize> = BTreeMap::new();
        self.births_up().for_each(|birth| *devices.entry(birth.network).or_default() += 1);
        devices.into_iter().max_by_key(|(_, count)| *count).map(|(network, _)| network)
    }

    /// Returns true when at least one device that is up captures by triggers, or has a birth without a numbering.
    pub fn takes_triggers(&self) -> bool {
        self.births_up().any(|birth| matches!(birth.numbering, None | Some(Numbering::Trigger)))
    }

    fn births_up(&self) -> impl Iterator<Item = &Birth> {
        self.by_id.values().filter_map(KnownDevice::birth_up)
    }

    /// Stores a birth or a status of a device. An empty or unreadable message clears the stored birth or status.
    pub(crate) fn receive(&mut self, id: DeviceId, leaf: DeviceTopic, payload: &[u8]) {
        let device = self.by_id.entry(id).or_default();
        match leaf {
            DeviceTopic::Birth => device.birth = from_slice(payload).ok(),
            DeviceTopic::Status => device.status = from_slice(payload).ok(),
            DeviceTopic::Summary
            | DeviceTopic::Features
            | DeviceTopic::Decision
            | DeviceTopic::Frame
            | DeviceTopic::Cmd => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::{Boot, Schema, Slot};

    fn id() -> DeviceId {
        DeviceId::new("cam-3").unwrap()
    }

    fn devices(birth_boot: u16, status_boot: u16, state: DeviceState) -> KnownDevices {
        let birth = Birth {
            schema: Schema,
            device: id(),
            slot: Slot::new(3).unwrap(),
            boot: Boot(birth_boot),
            software: String::new(),
            network: NetworkId([0; 32]),
            numbering: None,
            policy: None,
            capabilities: Vec::new(),
        };
        let status = Status { schema: Schema, state, boot: Boot(status_boot), frozen: None };
        let mut devices = KnownDevices::default();
        devices.receive(id(), DeviceTopic::Birth, &serde_json::to_vec(&birth).unwrap());
        devices.receive(id(), DeviceTopic::Status, &serde_json::to_vec(&status).unwrap());
        devices
    }

    #[test]
    fn a_slot_is_up_when_birth_and_status_agree_on_the_boot() {
        assert_eq!(devices(1, 1, DeviceState::Up).slots_up(), SlotSet::single(Slot::new(3).unwrap()));
        assert_eq!(devices(1, 2, DeviceState::Up).slots_up(), SlotSet::EMPTY);
        assert_eq!(devices(1, 1, DeviceState::Down).slots_up(), SlotSet::EMPTY);
    }

    #[test]
    fn the_network_and_the_numbering_are_those_of_the_devices_that_are_up() {
        let up = devices(1, 1, DeviceState::Up);
        assert_eq!((up.network_up(), up.takes_triggers()), (Some(NetworkId([0; 32])), true));
        let down = devices(1, 1, DeviceState::Down);
        assert_eq!((down.network_up(), down.takes_triggers()), (None, false));
    }

    #[test]
    fn an_unreadable_birth_takes_the_slot_down() {
        let mut devices = devices(1, 1, DeviceState::Up);
        devices.receive(id(), DeviceTopic::Birth, b"{\"device\":");
        assert_eq!(devices.slots_up(), SlotSet::EMPTY);
    }
}
