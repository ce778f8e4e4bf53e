use std::collections::BTreeMap;

use headwater_protocol::DeviceState;

use super::*;
use crate::inbox::tests::format;

const OURS: NetworkId = NetworkId([7; 32]);
const NEXT: NetworkId = NetworkId([6; 32]);

struct Group {
    registry: Registry,
    changes: Vec<Change>,
}

impl Group {
    fn new() -> Self {
        let format = |network| MessageFormat { slots: 3, ..format(network) };
        let formats = PerNetwork { current: format(OURS), next: Some(format(NEXT)) };
        Self { registry: Registry::new(Arc::new(formats)), changes: Vec::new() }
    }

    fn index(&mut self, id: &str) -> DeviceIndex {
        self.registry.device(&DeviceId::new(id).unwrap()).unwrap()
    }

    fn birth_under(&mut self, network: NetworkId, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let birth = Birth {
            device: DeviceId::new(id).unwrap(),
            slot: Slot::new(slot).unwrap(),
            boot: Boot(boot),
            software: "test".into(),
            network,
            sample: None,
            capabilities: Vec::new(),
        };
        let index = self.index(id);
        self.registry.set_birth(index, &birth, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn birth(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        self.birth_under(OURS, id, slot, boot)
    }

    fn status(&mut self, id: &str, state: DeviceState, boot: u16) -> Vec<Change> {
        let index = self.index(id);
        self.registry.set_status(index, Status { state, boot: Boot(boot) }, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn starts(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let mut changes = self.birth(id, slot, boot);
        changes.extend(self.status(id, DeviceState::Up, boot));
        changes
    }

    fn admits(&mut self, id: &str, boot: u16) -> Result<usize, Fault> {
        let index = self.index(id);
        self.registry.admit(index, Boot(boot)).map(Slot::index)
    }

    fn refused(&self, id: &str) -> BTreeMap<&'static str, u64> {
        self.registry.refusals().remove(&DeviceId::new(id).unwrap()).unwrap_or_default()
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

use DeviceState::{Down, Up};

#[test]
fn a_device_fills_its_slot_when_birth_and_status_agree_in_either_order() {
    let mut group = Group::new();
    assert_eq!(group.birth("a", 1, 4), []);
    assert_eq!(group.status("a", Up, 4), [up(claim(1))]);
    assert_eq!(group.status("b", Up, 9), []);
    assert_eq!(group.birth("b", 2, 9), [up(claim(2))]);
    assert_eq!(group.status("a", Down, 4), [down(claim(1))]);
    assert_eq!(group.registry.filled(), SlotSet::from_bits(0b100));
}

#[test]
fn the_same_birth_and_status_after_a_reconnect_change_nothing() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("a", 0, 1), []);
}

#[test]
fn the_last_will_of_an_earlier_boot_does_not_end_a_later_session() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("a", 0, 2), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.status("a", Down, 1), []);
    assert_eq!(group.status("a", Down, 2), [down(claim(0))]);
}

#[test]
fn a_last_will_that_arrives_before_its_birth_still_counts() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.status("a", Down, 2), [], "of another boot");
    assert_eq!(
        group.birth("a", 0, 2),
        [down(claim(0))],
        "the first session is over, the second ended already"
    );
}

#[test]
fn a_session_is_up_again_after_a_reconnect_though_its_last_will_was_sent() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.status("a", Down, 1), [down(claim(0))]);
    assert_eq!(group.starts("a", 0, 1), [up(claim(0))]);
}

#[test]
fn a_second_device_on_a_slot_is_refused_until_the_first_one_goes() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("b", 0, 1), []);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
    assert_eq!(group.refused("b"), BTreeMap::from([("slot_taken", 1)]));
    assert_eq!(group.status("a", Down, 1), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Ok(0));
    assert_eq!(group.admits("a", 1), Err(Fault::SlotTaken));
}

#[test]
fn a_device_of_another_network_is_refused_and_its_slot_stays_empty() {
    let mut group = Group::new();
    assert_eq!(group.birth_under(NetworkId([8; 32]), "a", 0, 1), []);
    assert_eq!(group.status("a", Up, 1), []);
    assert_eq!(group.admits("a", 1), Err(Fault::WrongNetwork));
    assert_eq!(group.refused("a"), BTreeMap::from([("wrong_network", 1)]));
    assert_eq!(group.birth("a", 0, 2), []);
    assert_eq!(group.status("a", Up, 2), [up(claim(0))], "a later boot has the right bundle");
}

#[test]
fn a_device_is_unknown_before_the_birth_of_its_boot() {
    let mut group = Group::new();
    assert_eq!(group.admits("a", 1), Err(Fault::UnknownDevice));
    group.starts("a", 0, 1);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.admits("a", 2), Err(Fault::UnknownDevice));
}

#[test]
fn a_slot_outside_the_network_is_refused() {
    let mut group = Group::new();
    assert_eq!(group.starts("a", 3, 1), []);
    assert_eq!(group.admits("a", 1), Err(Fault::Malformed));
}

#[test]
fn a_device_may_move_to_another_slot() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("a", 2, 2), [down(claim(0)), up(claim(2))]);
}

#[test]
fn the_number_of_remembered_names_is_bounded() {
    let mut registry = Registry::new(Arc::new(PerNetwork::new(format(OURS))));
    for i in 0..MAX_DEVICES {
        assert!(registry.device(&DeviceId::new(format!("d{i}")).unwrap()).is_some());
    }
    assert!(registry.device(&DeviceId::new("one-more").unwrap()).is_none());
    assert!(registry.device(&DeviceId::new("d0").unwrap()).is_some());
}

#[test]
fn a_device_that_comes_back_with_the_next_network_keeps_its_slot_and_no_other_takes_it() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    let mut changes = group.birth_under(NEXT, "a", 0, 2);
    changes.extend(group.status("a", Up, 2));
    group.starts("b", 0, 1);
    let next = claim_under(Generation::Next, 0);
    assert_eq!(changes, [down(claim(0)), up(next)]);
    let a = group.index("a");
    assert_eq!(group.registry.generation(a), Generation::Next);
    assert_eq!(group.admits("a", 2), Ok(0));
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
    assert_eq!(group.status("a", Down, 2), [down(next), up(claim(0))], "the slot goes to the other device");
}
