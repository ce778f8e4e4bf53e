use std::collections::BTreeMap;

use headwater_protocol::DeviceState;

use super::*;

const OURS: NetworkId = NetworkId([7; 32]);
const NEXT: NetworkId = NetworkId([6; 32]);

struct Group {
    registry: Registry,
    changes: Vec<Change>,
}

impl Group {
    fn new() -> Self {
        let network = |generation, network| Known { generation, network, slots: 3 };
        let networks = vec![network(Generation::Current, OURS), network(Generation::Next, NEXT)];
        Self { registry: Registry::new(networks), changes: Vec::new() }
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
        self.registry.birth(index, &birth, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn birth(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        self.birth_under(OURS, id, slot, boot)
    }

    fn says(&mut self, id: &str, state: DeviceState, boot: u16) -> Vec<Change> {
        let index = self.index(id);
        self.registry.status(index, Status { state, boot: Boot(boot) }, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn starts(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let mut changes = self.birth(id, slot, boot);
        changes.extend(self.says(id, DeviceState::Up, boot));
        changes
    }

    fn admits(&mut self, id: &str, boot: u16) -> Result<usize, Fault> {
        let index = self.index(id);
        self.registry.admit(index, Boot(boot)).map(Slot::index)
    }

    fn refused(&self, id: &str) -> BTreeMap<&'static str, u64> {
        let all = self.registry.refusals();
        all.into_iter()
            .find(|device| device.device.as_str() == id)
            .map(|device| device.refused)
            .unwrap_or_default()
    }
}

fn place(slot: u8) -> Place {
    place_under(Generation::Current, slot)
}

fn place_under(generation: Generation, slot: u8) -> Place {
    Place { slot: Slot::new(slot).unwrap(), generation }
}

use DeviceState::{Down, Up};

#[test]
fn a_device_fills_its_slot_when_birth_and_status_agree_in_either_order() {
    let mut group = Group::new();
    assert_eq!(group.birth("a", 1, 4), []);
    assert_eq!(group.says("a", Up, 4), [Change::Up(place(1))]);
    assert_eq!(group.says("b", Up, 9), []);
    assert_eq!(group.birth("b", 2, 9), [Change::Up(place(2))]);
    assert_eq!(group.says("a", Down, 4), [Change::Down(place(1))]);
    assert_eq!(group.registry.filled(), 0b100);
}

#[test]
fn saying_the_same_again_after_a_reconnect_changes_nothing() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("a", 0, 1), []);
}

#[test]
fn the_will_of_an_earlier_life_does_not_end_a_later_one() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("a", 0, 2), [Change::Down(place(0)), Change::Up(place(0))]);
    assert_eq!(group.says("a", Down, 1), []);
    assert_eq!(group.says("a", Down, 2), [Change::Down(place(0))]);
}

#[test]
fn a_will_that_overtakes_its_birth_still_counts() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.says("a", Down, 2), [], "another life's");
    assert_eq!(
        group.birth("a", 0, 2),
        [Change::Down(place(0))],
        "the first life is over, the second ended already"
    );
}

#[test]
fn a_life_is_up_again_after_a_reconnect_though_its_will_spoke() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.says("a", Down, 1), [Change::Down(place(0))]);
    assert_eq!(group.starts("a", 0, 1), [Change::Up(place(0))]);
}

#[test]
fn a_second_device_on_a_slot_is_refused_until_the_first_goes() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.starts("b", 0, 1), []);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
    assert_eq!(group.refused("b"), BTreeMap::from([("slot_taken", 1)]));
    assert_eq!(group.says("a", Down, 1), [Change::Down(place(0)), Change::Up(place(0))]);
    assert_eq!(group.admits("b", 1), Ok(0));
    assert_eq!(group.admits("a", 1), Err(Fault::SlotTaken));
}

#[test]
fn a_device_of_another_network_is_refused_and_its_slot_stays_empty() {
    let mut group = Group::new();
    assert_eq!(group.birth_under(NetworkId([8; 32]), "a", 0, 1), []);
    assert_eq!(group.says("a", Up, 1), []);
    assert_eq!(group.admits("a", 1), Err(Fault::WrongNetwork));
    assert_eq!(group.refused("a"), BTreeMap::from([("wrong_network", 1)]));
    assert_eq!(group.birth("a", 0, 2), []);
    assert_eq!(group.says("a", Up, 2), [Change::Up(place(0))], "a later life has the right bundle");
}

#[test]
fn a_device_is_unknown_until_the_birth_of_its_life() {
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
    assert_eq!(group.starts("a", 2, 2), [Change::Down(place(0)), Change::Up(place(2))]);
}

#[test]
fn made_up_names_do_not_fill_the_memory() {
    let mut registry =
        Registry::new(vec![Known { generation: Generation::Current, network: OURS, slots: 1 }]);
    for i in 0..MOST_DEVICES {
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
    changes.extend(group.says("a", Up, 2));
    group.starts("b", 0, 1);
    let next = place_under(Generation::Next, 0);
    assert_eq!(changes, [Change::Down(place(0)), Change::Up(next)]);
    let a = group.index("a");
    assert_eq!(group.registry.generation(a), Generation::Next);
    assert_eq!(group.admits("a", 2), Ok(0));
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
    assert_eq!(group.says("a", Down, 2), [Change::Down(next), Change::Up(place(0))], "the other one's turn");
}
