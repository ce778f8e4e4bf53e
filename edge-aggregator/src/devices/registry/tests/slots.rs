//! Births and statuses: who fills a slot, and who loses it.

use super::*;

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
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.starts("a", 0, 1), []);
}

#[test]
fn the_last_will_of_an_earlier_boot_does_not_end_a_later_session() {
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.starts("a", 0, 2), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.status("a", Down, 1), []);
    assert_eq!(group.status("a", Down, 2), [down(claim(0))]);
}

#[test]
fn a_last_will_that_arrives_before_its_birth_still_counts() {
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.status("a", Down, 2), [], "of another boot");
    assert_eq!(
        group.birth("a", 0, 2),
        [down(claim(0))],
        "the first session is over, the second ended already"
    );
}

#[test]
fn a_session_is_up_again_after_a_reconnect_though_its_last_will_was_sent() {
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.status("a", Down, 1), [down(claim(0))]);
    assert_eq!(group.starts("a", 0, 1), [up(claim(0))]);
}

#[test]
fn a_second_device_on_a_slot_is_refused_until_the_first_one_goes() {
    let mut group = Group::of([("a", 0)]);
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
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.starts("a", 2, 2), [down(claim(0)), up(claim(2))]);
}

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn made_up_names_are_bounded_and_take_no_room_from_devices() {
    let mut group = Group::of([("a", 0)]);
    group.birth("quiet", 1, 1);
    for i in 0..5000 {
        let index = group.index(&format!("no-{i}"));
        group.registry.refuse(index, Fault::UnknownDevice, "made up", group.now);
    }
    assert_eq!(group.registry.state.devices.len(), 2 + MAX_STRANGERS);
    assert_eq!(group.registry.state.by_id.len(), 2 + MAX_STRANGERS);
    let counts = group.registry.counts.lock().clone();
    assert_eq!(counts.forgotten_devices, 5000 - MAX_STRANGERS as u64);
    assert_eq!(counts.refused_forgotten["unknown_device"], 5000 - MAX_STRANGERS as u64);
    assert_eq!(counts.refused.len(), MAX_STRANGERS);
    assert_eq!((group.admits("a", 1), group.admits("quiet", 1)), (Ok(0), Ok(1)));
    assert_eq!(group.starts("late", 2, 1), [up(claim(2))], "a device that comes after the flood");
}

#[test]
fn made_up_births_take_no_room_from_a_device_in_a_slot() {
    let mut group = Group::of([("a", 0)]);
    group.after(MOMENT);
    for i in 0..2 * MAX_DEVICES {
        group.birth(&format!("no-{i}"), 0, 1);
        group.after(MOMENT);
    }
    assert!(group.registry.state.devices.len() <= MAX_DEVICES + MAX_STRANGERS);
    assert_eq!(group.admits("a", 1), Ok(0));
}

#[test]
fn births_that_nobody_stands_behind_crowd_out_no_device() {
    let mut group = Group::new();
    for (slot, id) in ["a", "b", "c"].into_iter().enumerate() {
        group.kept(id, slot as u8, 1);
    }
    // The device `spare` is the successor of `a`, and has a status.
    group.kept("spare", 0, 1);
    for i in 0..2 * MAX_DEVICES {
        let kept = Arrival { is_retained: true, ..group.live() };
        let id = format!("no-{i}");
        group.introduces_by(kept, &id, &Group::birth_of(OURS, &id, 0, 1));
        group.after(MOMENT);
    }
    assert!(["a", "b", "c"].map(|id| group.admits(id, 1)).iter().all(Result::is_ok));
    assert_eq!(group.status("a", Down, 1), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("spare", 1), Ok(0));
}

#[test]
fn devices_whose_births_come_first_outlast_made_up_births_until_their_statuses_come() {
    let mut group = Group::new();
    let made_up = (0..2 * MAX_DEVICES).map(|i| (format!("no-{i}"), 0));
    for (id, slot) in ["a", "b", "c"].map(str::to_owned).into_iter().zip(0..).chain(made_up) {
        let kept = Arrival { is_retained: true, ..group.live() };
        group.introduces_by(kept, &id, &Group::birth_of(OURS, &id, slot, 1));
        group.after(MOMENT);
    }
    for id in ["a", "b", "c"] {
        group.status(id, Up, 1);
        assert!(group.admits(id, 1).is_ok(), "{id}");
    }
}

#[test]
fn a_device_that_is_crowded_out_counts_as_forgotten_once() {
    let mut group = Group::new();
    for i in 0..=MAX_DEVICES {
        group.birth(&format!("no-{i}"), 0, 1);
    }
    assert_eq!(group.registry.counts.lock().forgotten_devices, 1);
    for i in 0..MAX_STRANGERS {
        group.after(MOMENT);
        group.index(&format!("made-up-{i}"));
    }
    assert_eq!(group.registry.counts.lock().forgotten_devices, 1, "its place was taken");
    group.index("one-more");
    assert_eq!(group.registry.counts.lock().forgotten_devices, 2);
}

#[test]
fn a_forgotten_name_that_comes_back_is_another_device() {
    let mut group = Group::new();
    let first = group.index("b");
    assert!(group.registry.is_current(first));
    for i in 0..MAX_STRANGERS {
        group.after(MOMENT);
        group.index(&format!("no-{i}"));
    }
    assert!(!group.registry.is_current(first));
    assert_ne!(group.index("b"), first);
}

#[test]
fn a_silent_device_loses_its_slot_to_another_one_that_claims_the_slot() {
    let mut group = Group::of([("ghost", 0)]);
    group.after(SILENT_AFTER * 10);
    assert_eq!(group.registry.next_timer(), None, "nobody else claims the slot");
    assert_eq!(group.starts("new", 0, 1), []);
    assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
    assert_eq!(group.admits("new", 1), Err(Fault::SlotTaken));
    assert_eq!(group.registry.next_timer(), Some(group.now + MOMENT));
    assert_eq!(group.after(MOMENT), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("new", 1), Ok(0));
    assert_eq!((group.registry.counts.lock().replaced_devices, group.registry.next_timer()), (1, None));
}

#[test]
fn while_other_devices_send_a_device_is_silent_after_half_the_time() {
    let mut group = Group::of([("ghost", 0), ("other", 1), ("new", 0)]);
    group.after(MOMENT);
    assert_eq!(group.admits("other", 1), Ok(1));
    assert_eq!(group.after(SILENT_AFTER / 2 - MOMENT * 2), []);
    assert_eq!(group.after(MOMENT), [down(claim(0)), up(claim(0))]);
}

#[test]
fn a_device_that_sends_keeps_its_slot_and_loses_it_once_it_is_silent() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    for _ in 0..5 {
        assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
        assert_eq!((group.admits("a", 1), group.admits("b", 1)), (Ok(0), Err(Fault::SlotTaken)));
    }
    assert_eq!(group.after(SILENT_AFTER), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Ok(0));
}

#[test]
fn a_device_that_was_only_quiet_gets_its_slot_back() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    group.after(SILENT_AFTER);
    assert_eq!(group.admits("b", 1), Ok(0));
    assert_eq!(group.admits("a", 1), Ok(0), "the next trigger finds both");
    assert_eq!(group.changes(), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
}

#[test]
fn a_quiet_device_gets_its_slot_back_though_its_last_will_came_meanwhile() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    group.after(SILENT_AFTER);
    assert_eq!(group.status("a", Down, 1), []);
    assert_eq!(group.admits("a", 1), Err(Fault::SlotTaken), "its session has ended");
    assert_eq!(group.starts("a", 0, 1), []);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.changes(), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
}

#[test]
fn a_device_that_comes_back_after_its_successor_has_settled_is_refused() {
    let mut group = Group::of([("a", 0), ("b", 0)]);
    group.after(SILENT_AFTER);
    assert_eq!(group.admits("b", 1), Ok(0));
    group.after(SILENT_AFTER);
    assert_eq!(group.admits("b", 1), Ok(0));
    assert_eq!(group.admits("a", 1), Err(Fault::SlotTaken));
    assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
    assert_eq!(group.after(MOMENT), [down(claim(0)), up(claim(0))], "its successor is silent now");
    assert_eq!(group.admits("a", 1), Ok(0));
}

#[test]
fn an_empty_birth_ends_no_session_that_sends() {
    let mut group = Group::of([("a", 0)]);
    assert_eq!(group.clears_birth("a"), []);
    assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.after(SILENT_AFTER * 10), []);
    assert_eq!(group.admits("a", 1), Ok(0));
}

#[test]
fn a_device_whose_birth_was_cleared_is_forgotten_when_it_is_silent_or_down() {
    let mut group = Group::of([("a", 0)]);
    group.clears_birth("a");
    assert_eq!(group.after(SILENT_AFTER), [down(claim(0))]);
    assert_eq!(group.admits("a", 1), Err(Fault::UnknownDevice));
    group.starts("b", 1, 1);
    group.clears_birth("b");
    assert_eq!(group.status("b", Down, 1), [down(claim(1))]);
    assert_eq!(group.admits("b", 1), Err(Fault::UnknownDevice));
    group.starts("c", 2, 1);
    group.status("c", Down, 1);
    group.clears_birth("c");
    assert_eq!(group.admits("c", 1), Err(Fault::UnknownDevice));
}

#[test]
fn births_with_alternating_boots_are_logged_once_a_minute() {
    let mut group = Group::new();
    let index = group.index("a");
    let mut lines = 0;
    for boot in 0..600 {
        group.birth_under(NetworkId([8; 32]), "a", 0, boot % 2);
        let device = &group.registry.state.devices[index.at];
        lines += usize::from(device.logged.iter().any(|logged| logged.at == group.now));
        group.after(Duration::from_millis(500));
    }
    assert_eq!(lines, 5, "one a minute in five minutes");
    assert_eq!(group.refused("a")["wrong_network"], 600);
}

#[test]
fn a_device_that_comes_back_with_the_next_network_keeps_its_slot_and_no_other_takes_it() {
    let mut group = Group::of([("a", 0)]);
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
