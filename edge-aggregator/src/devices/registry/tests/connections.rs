//! Statuses that the broker kept, and connections of devices that end together with the leader's.

use super::*;

#[test]
fn a_device_that_is_known_down_stays_down_by_a_status_that_the_broker_kept() {
    let ended = ClaimState::Down(CONNECTION_ENDED);
    let in_slot = ClaimState::InSlot(Generation::Current);
    for sign in ["status", "birth", "answer", "new boot"] {
        let mut group = Group::of([("a", 0)]);
        group.status("a", Down, 1);
        assert_eq!(group.claim_of("a").0, ended);
        group.kept_status("a", Up, 1);
        group.kept_status("a", Up, 1);
        assert_eq!(group.claim_of("a").0, ended, "the broker lost the end of the device");
        match sign {
            "status" => drop(group.status("a", Up, 1)),
            "birth" => drop(group.birth("a", 0, 1)),
            "answer" => assert_eq!(group.admits("a", 1), Ok(0)),
            _ => {
                group.birth("a", 0, 2);
                group.kept_status("a", Up, 2);
                assert_eq!(group.claim_of("a"), (in_slot, false), "of a newer boot");
                continue;
            }
        }
        assert_eq!(group.claim_of("a"), (in_slot, true), "{sign}");
    }
}

#[test]
fn a_device_whose_connection_ended_with_the_brokers_is_believed_when_the_broker_is_back() {
    for (seconds, expected) in
        [(1, ClaimState::InSlot(Generation::Current)), (60, ClaimState::Down(CONNECTION_ENDED))]
    {
        let mut group = Group::of([("a", 0)]);
        group.status("a", Down, 1);
        group.after(Duration::from_secs(seconds));
        group.registry.disconnected(group.now);
        group.registry.connected();
        group.kept_status("a", Up, 1);
        assert_eq!(group.claim_of("a").0, expected, "{seconds} s before the broker's end");
    }
}

#[test]
fn a_device_with_kept_messages_alone_is_not_live_until_it_sends() {
    let mut group = Group::new();
    group.kept("a", 0, 1);
    assert_eq!(group.claim_of("a"), (ClaimState::InSlot(Generation::Current), false));
    assert_eq!(group.admits("a", 1), Ok(0));
    assert!(group.claim_of("a").1);
    group.registry.connected();
    assert!(!group.claim_of("a").1, "the leader's connection is new");
    group.kept_status("a", Up, 1);
    assert!(!group.claim_of("a").1);
    group.status("a", Up, 1);
    assert!(group.claim_of("a").1);
    group.kept_status("a", Down, 1);
    assert_eq!(group.claim_of("a").0, ClaimState::Down(CONNECTION_ENDED));
}

#[test]
fn the_end_of_another_start_is_no_sign_of_the_present_one() {
    let mut group = Group::new();
    group.kept("a", 0, 2);
    group.status("a", Down, 1);
    assert_eq!(group.claim_of("a"), (ClaimState::InSlot(Generation::Current), false));
    group.status("a", Down, 2);
    group.kept_status("a", Up, 2);
    group.status("a", Down, 1);
    assert_eq!(
        group.claim_of("a").0,
        ClaimState::Down(CONNECTION_ENDED),
        "a broker that crashed kept an old status"
    );
}

#[test]
fn a_birth_and_the_end_of_another_start_are_named_as_that_in_either_order() {
    let other_start = ClaimState::Down("its birth and its status at the broker are of different starts");
    let mut group = Group::new();
    group.birth("a", 0, 2);
    group.kept_status("a", Down, 1);
    assert_eq!(group.claim_of("a").0, other_start);
    group.kept_status("b", Down, 1);
    group.birth("b", 1, 2);
    assert_eq!(group.claim_of("b").0, other_start);
    group.status("b", Down, 2);
    assert_eq!(group.claim_of("b").0, ClaimState::Down(CONNECTION_ENDED));
}

#[test]
fn a_device_that_never_was_connected_is_named_as_that() {
    let mut group = Group::new();
    group.birth("a", 0, 1);
    let (claim, _) = group.claim_of("a");
    assert_eq!(claim, ClaimState::Down("it has introduced itself and no status of it is at the broker"));
    group.status("a", Up, 2);
    let (claim, _) = group.claim_of("a");
    assert_eq!(claim, ClaimState::Down("its birth and its status at the broker are of different starts"));
}
