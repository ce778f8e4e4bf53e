//! The group's numbering of samples.

use super::*;

#[test]
fn the_first_device_in_a_slot_gives_the_group_its_numbering() {
    let (clock, faster) = (Numbering::Clock { period_ms: 200 }, Numbering::Clock { period_ms: 100 });
    let mut group = Group::new();
    // Births alone give the group no numbering: the device of a retained birth may have left.
    assert_eq!(group.numbered_birth("ghost", 2, faster), []);
    assert_eq!(group.numbered_birth("a", 0, clock), []);
    assert_eq!(group.registry.state.numbering, None);
    let slot = claim(0).slot;
    let learned =
        [Event::Numbering(clock), Event::DeviceUp { slot }].map(|event| (Generation::Current, event));
    assert_eq!(group.status("a", DeviceState::Up, 1), learned);
    // Earlier and later births with another numbering are refused; a birth without a numbering is not.
    assert_eq!(group.admits("ghost", 1), Err(Fault::WrongNumbering));
    assert_eq!(group.status("ghost", DeviceState::Up, 1), []);
    for other in [faster, Numbering::Source, Numbering::Trigger] {
        group.numbered_birth("b", 1, other);
        assert_eq!(group.admits("b", 1), Err(Fault::WrongNumbering));
    }
    assert_eq!(
        (group.refused("ghost"), group.refused("b")),
        ([("wrong_numbering", 1)].into(), [("wrong_numbering", 3)].into())
    );
    group.numbered_birth("b", 1, clock);
    assert_eq!(group.admits("b", 1), Ok(1));
    group.starts("old", 2, 1);
    assert_eq!(group.admits("old", 1), Ok(2));
}

#[test]
fn a_numbering_from_the_journal_counts_and_one_without_a_period_is_malformed() {
    let mut group = Group::new();
    group.registry.state.numbering = Some(Numbering::Trigger);
    group.numbered_birth("a", 0, Numbering::Source);
    assert_eq!(group.admits("a", 1), Err(Fault::WrongNumbering));
    group.numbered_birth("a", 0, Numbering::Trigger);
    assert_eq!(group.admits("a", 1), Ok(0));
    let mut group = Group::new();
    group.numbered_birth("a", 0, Numbering::Clock { period_ms: 0 });
    assert_eq!(group.admits("a", 1), Err(Fault::Malformed));
    group.status("a", DeviceState::Up, 1);
    assert_eq!(group.registry.state.numbering, None);
}

#[test]
fn the_sentence_of_a_wrong_numbering_names_both_and_what_to_do() {
    let mut group = Group::new();
    group.registry.state.numbering = Some(Numbering::Clock { period_ms: 100 });
    let (fault, why) = group.registry.wrong_numbering(Some(Numbering::Clock { period_ms: 200 })).unwrap();
    assert_eq!(fault, Fault::WrongNumbering);
    let expected = "numbering: expected clock with a period of 100 ms, found clock with a period of 200 ms: give it the group's, or \
                    begin a new numbering (`headwater-aggregator --new-numbering GROUP`, or `headwater up --new-numbering`)";
    assert_eq!(why, expected);
    assert_eq!(group.registry.wrong_numbering(None), None);
}
