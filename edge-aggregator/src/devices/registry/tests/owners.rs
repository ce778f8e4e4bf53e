//! Groups whose settings name the device of each slot.

use headwater_transport::LOG_WINDOW;

use super::*;
use crate::devices::registry::owners::{MAX_BIRTHS_TO_CLEAR, MAX_CLEARS};

#[test]
fn a_slot_is_filled_by_the_device_that_the_settings_name_alone() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    group.starts("other", 0, 1);
    assert_eq!(group.admits("other", 1), Err(Fault::UnknownDevice));
    group.starts("b", 0, 1);
    assert_eq!(group.admits("b", 1), Err(Fault::UnknownDevice), "the slot of another device of the group");
    group.starts("a", 0, 1);
    assert_eq!(group.admits("a", 1), Ok(0));
    // However long the owner is silent, no other device gets the owner's slot.
    group.after(Duration::from_secs(3600));
    group.starts("other", 0, 2);
    assert_eq!(group.admits("other", 2), Err(Fault::UnknownDevice));
}

#[test]
fn another_list_of_devices_ends_the_session_of_one_and_fills_the_slot_with_the_next() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    group.starts("a", 0, 1);
    group.starts("b", 1, 1);
    group.starts("new", 0, 1);
    assert_eq!(group.admits("new", 1), Err(Fault::UnknownDevice));
    assert_eq!(group.owned_by(["new", "b", "c"]), [down(claim(0)), up(claim(0))]);
    assert_eq!((group.admits("new", 1), group.admits("a", 1)), (Ok(0), Err(Fault::UnknownDevice)));
    assert_eq!(group.admits("b", 1), Ok(1), "the list names it as before");
    assert_eq!(group.owned_by(["new", "b", "c"]), [], "the same list changes nothing");
}

#[test]
fn the_birth_of_a_device_that_the_settings_do_not_name_is_cleared_once_for_each_boot() {
    let mut group = Group::of([("a", 0)]);
    group.starts("stolen", 1, 7);
    assert!(group.births_to_clear().is_empty(), "without a list any device may come");
    group.owned_by(["a", "b", "c"]);
    assert_eq!(group.births_to_clear(), ["stolen"]);
    // A device that is running publishes its birth again after the leader has cleared it.
    group.clears_birth("stolen");
    group.birth("stolen", 1, 7);
    assert!(group.births_to_clear().is_empty(), "the same boot");
    group.birth("stolen", 1, 8);
    assert_eq!(group.births_to_clear(), ["stolen"]);
    group.starts("b", 2, 1);
    assert!(group.births_to_clear().is_empty(), "a device of the group with a wrong slot stays refused");
    assert_eq!(group.admits("b", 1), Err(Fault::UnknownDevice));
}

#[test]
fn a_list_clears_the_births_of_all_devices_that_it_does_not_name_whatever_they_were_refused_for() {
    let mut group = Group::new();
    group.birth_under(NetworkId([8; 32]), "other-network", 0, 1);
    group.birth("no-slot", 3, 1);
    group.numbered_birth("no-period", 0, Numbering::Clock { period_ms: 0 });
    group.birth_under(NetworkId([8; 32]), "a", 0, 1);
    group.owned_by(["a", "b", "c"]);
    assert_eq!(group.births_to_clear(), ["other-network", "no-slot", "no-period"]);
}

#[test]
fn a_device_that_a_list_names_is_judged_like_a_new_one() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    group.numbered_birth("new", 0, Numbering::Clock { period_ms: 0 });
    group.status("new", DeviceState::Up, 1);
    assert_eq!(group.owned_by(["new", "b", "c"]), []);
    assert_eq!((group.admits("new", 1), group.registry.state.numbering), (Err(Fault::Malformed), None));
    // If two devices name different numberings, the group takes the numbering of the first device.
    let (clock, faster) = (Numbering::Clock { period_ms: 200 }, Numbering::Clock { period_ms: 100 });
    for (id, slot, numbering) in [("x", 1, clock), ("y", 2, faster)] {
        group.numbered_birth(id, slot, numbering);
        group.status(id, DeviceState::Up, 1);
    }
    group.owned_by(["new", "x", "y"]);
    assert_eq!((group.admits("x", 1), group.admits("y", 1)), (Ok(1), Err(Fault::WrongNumbering)));
    group.owned_by(["new", "x", "z"]);
    assert_eq!(group.admits("y", 1), Err(Fault::UnknownDevice));
}

#[test]
fn a_slot_does_not_pass_through_a_device_that_the_list_does_not_name_either() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    assert_eq!(group.owned_by(["new", "x", "y"]), [down(claim(0))]);
}

#[test]
fn births_under_made_up_names_are_cleared_a_number_of_times_a_minute() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    for name in 0..2 * MAX_CLEARS {
        group.birth(&format!("n{name}"), 0, 1);
        group.birth(&format!("n{name}"), 0, 2);
    }
    for _ in 0..2 * MAX_CLEARS {
        group.registry.clear_births(group.now, |_| false);
    }
    assert_eq!(group.births_to_clear().len(), MAX_CLEARS as usize, "the link takes messages again");
    assert!(group.births_to_clear().is_empty(), "the others wait");
    group.after(LOG_WINDOW);
    assert_eq!(group.births_to_clear().len(), MAX_CLEARS as usize, "each name once");
    group.after(LOG_WINDOW);
    assert!(group.births_to_clear().is_empty());
}

#[test]
fn a_birth_that_finds_no_room_among_those_to_clear_is_cleared_when_it_comes_again() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    for name in 0..MAX_BIRTHS_TO_CLEAR {
        group.birth(&format!("n{name}"), 0, 1);
    }
    group.birth("stolen", 0, 1);
    for _ in 0..MAX_BIRTHS_TO_CLEAR.div_ceil(MAX_CLEARS as usize) {
        assert!(!group.births_to_clear().contains(&"stolen".to_owned()));
        group.after(LOG_WINDOW);
    }
    group.birth("stolen", 0, 1);
    assert_eq!(group.births_to_clear(), ["stolen"]);
}

#[test]
fn a_device_that_is_named_before_its_birth_was_cleared_keeps_it() {
    let mut group = Group::new();
    group.owned_by(["a", "b", "c"]);
    group.starts("new", 0, 1);
    assert_eq!(group.owned_by(["new", "b", "c"]), [up(claim(0))]);
    assert!(group.births_to_clear().is_empty());
    group.owned_by(["a", "b", "c"]);
    assert_eq!(group.births_to_clear(), ["new"]);
}

#[test]
fn a_slot_keeps_the_name_of_its_device_and_a_slot_that_nobody_knows_has_none() {
    let mut group = Group::new();
    let name =
        |group: &Group, slot: u8| group.names.get(&Slot::new(slot).unwrap()).cloned().unwrap_or_default();
    assert_eq!(name(&group, 2), "");
    group.birth("cam-2", 2, 1);
    assert_eq!(name(&group, 2), "cam-2", "a retained birth of a device that is down");
    group.status("cam-2", DeviceState::Up, 1);
    group.status("cam-2", DeviceState::Down, 1);
    group.birth("other", 2, 5);
    assert_eq!(name(&group, 2), "cam-2", "the last holder of the slot");
    group.status("other", DeviceState::Up, 5);
    assert_eq!(name(&group, 2), "other");
    group.owned_by(["owner-0", "owner-1", "owner-2"]);
    assert_eq!([1, 2].map(|slot| name(&group, slot)), ["owner-1", "other"]);
}

#[test]
fn a_slot_has_the_name_of_its_next_device_after_the_end_of_the_one_before() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    let index = group.index("a");
    group.registry.set_status(index, status(Down, Boot(1)), group.live(), &mut group.changes);
    let named = (Generation::Current, Event::DeviceNamed { slot: claim(0).slot, name: "b".into() });
    assert_eq!(group.changes, [down(claim(0)), named, up(claim(0))]);
}
