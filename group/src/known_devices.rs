//! Devices of the group, as their retained messages describe them.

use std::collections::BTreeMap;

use headwater_protocol::{Birth, DeviceId, DeviceState, DeviceTopic, Slot, Status};
use serde_json::from_slice;

/// Every device whose birth or status the client has received.
#[derive(Clone, Debug, Default)]
pub struct KnownDevices {
    by_id: BTreeMap<DeviceId, KnownDevice>,
}

/// Latest birth and status of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownDevice {
    /// Slot, software and network of the device.
    pub birth: Option<Birth>,
    /// Whether the device is up, and in which boot.
    pub status: Option<Status>,
}

impl KnownDevice {
    /// Whether birth and status name the same boot, and the device is up in it.
    pub fn is_up(&self) -> bool {
        match (&self.birth, &self.status) {
            (Some(birth), Some(status)) => status.state == DeviceState::Up && status.boot == birth.boot,
            _ => false,
        }
    }
}

impl KnownDevices {
    /// Every known device, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&DeviceId, &KnownDevice)> {
        self.by_id.iter()
    }

    /// Slots whose device is up, in order.
    pub fn slots_up(&self) -> Vec<Slot> {
        let up = self.by_id.values().filter(|device| device.is_up());
        let mut slots: Vec<_> =
            up.filter_map(|device| device.birth.as_ref()).map(|birth| birth.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Reads a birth or a status. A message that cannot be read clears what was known, as an empty one does.
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
    use headwater_protocol::{Boot, NetworkId};

    fn id() -> DeviceId {
        DeviceId::new("cam-3").unwrap()
    }

    fn devices(birth_boot: u16, status_boot: u16, state: DeviceState) -> KnownDevices {
        let birth = Birth {
            device: id(),
            slot: Slot::new(3).unwrap(),
            boot: Boot(birth_boot),
            software: String::new(),
            network: NetworkId([0; 32]),
            sample: None,
            capabilities: Vec::new(),
        };
        let status = Status { state, boot: Boot(status_boot) };
        let mut devices = KnownDevices::default();
        devices.receive(id(), DeviceTopic::Birth, &serde_json::to_vec(&birth).unwrap());
        devices.receive(id(), DeviceTopic::Status, &serde_json::to_vec(&status).unwrap());
        devices
    }

    #[test]
    fn a_slot_is_up_when_birth_and_status_agree_on_the_boot() {
        assert_eq!(devices(1, 1, DeviceState::Up).slots_up(), [Slot::new(3).unwrap()]);
        assert_eq!(devices(1, 2, DeviceState::Up).slots_up(), []);
        assert_eq!(devices(1, 1, DeviceState::Down).slots_up(), []);
    }

    #[test]
    fn an_unreadable_birth_takes_the_slot_down() {
        let mut devices = devices(1, 1, DeviceState::Up);
        devices.receive(id(), DeviceTopic::Birth, b"{\"device\":");
        assert_eq!(devices.slots_up(), []);
    }
}
