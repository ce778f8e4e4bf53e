use std::collections::BTreeMap;
use std::time::Duration;

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
        self.registry.device(&DeviceId::new(id).unwrap())
    }

    fn birth_under(&mut self, network: NetworkId, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let birth = Self::birth_of(network, id, slot, boot);
        let index = self.index(id);
        self.registry.set_birth(index, &birth, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    /// The birth of a device that numbers its samples in this way.
    fn numbered_birth(&mut self, id: &str, slot: u8, numbering: Numbering) -> Vec<Change> {
        let birth = Birth { numbering: Some(numbering), ..Self::birth_of(OURS, id, slot, 1) };
        let index = self.index(id);
        self.registry.set_birth(index, &birth, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn birth_of(network: NetworkId, id: &str, slot: u8, boot: u16) -> Birth {
        Birth {
            device: DeviceId::new(id).unwrap(),
            slot: Slot::new(slot).unwrap(),
            boot: Boot(boot),
            software: "test".into(),
            network,
            sample: None,
            numbering: None,
            capabilities: Vec::new(),
        }
    }

    fn birth(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        self.birth_under(OURS, id, slot, boot)
    }

    fn status(&mut self, id: &str, state: DeviceState, boot: u16) -> Vec<Change> {
        let index = self.index(id);
        self.registry.set_status(index, Status { state, boot: Boot(boot) }, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    /// A status that the broker had kept from before the leader's connection.
    fn kept_status(&mut self, id: &str, state: DeviceState, boot: u16) {
        self.registry.set_retained(true);
        self.status(id, state, boot);
        self.registry.set_retained(false);
    }

    /// Claim of a device, and whether a message of it came on this connection.
    fn claim_of(&self, id: &str) -> (ClaimState<'_>, bool) {
        let device = self.registry.registered().find(|device| device.id.as_str() == id);
        device.map(|device| (device.claim, device.is_live)).expect("a device with a birth")
    }

    fn starts(&mut self, id: &str, slot: u8, boot: u16) -> Vec<Change> {
        let mut changes = self.birth(id, slot, boot);
        changes.extend(self.status(id, DeviceState::Up, boot));
        changes
    }

    fn admits(&mut self, id: &str, boot: u16) -> Result<usize, Fault> {
        let index = self.index(id);
        self.registry.admit(index, Boot(boot), &mut self.changes).map(Slot::index)
    }

    /// Lets time pass.
    fn after(&mut self, time: Duration) -> Vec<Change> {
        self.registry.set_now(self.registry.now + time);
        self.registry.tick(&mut self.changes);
        std::mem::take(&mut self.changes)
    }

    fn clears_birth(&mut self, id: &str) -> Vec<Change> {
        let index = self.index(id);
        self.registry.clear_birth(index, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    /// Sets the ids of the devices by slot.
    fn owned_by(&mut self, ids: [&str; 3]) -> Vec<Change> {
        let owners = ids.map(|id| DeviceId::new(id).unwrap()).to_vec();
        self.registry.set_owners(owners, &mut self.changes);
        std::mem::take(&mut self.changes)
    }

    /// Names of the devices whose births are to be cleared at the broker.
    fn births_to_clear(&mut self) -> Vec<String> {
        self.registry.take_births_to_clear().iter().map(ToString::to_string).collect()
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

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn made_up_names_are_bounded_and_take_no_room_from_devices() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.birth("quiet", 1, 1);
    for i in 0..5000 {
        let index = group.index(&format!("no-{i}"));
        group.registry.refuse(index, Fault::UnknownDevice, "made up");
    }
    assert_eq!(group.registry.devices.len(), 2 + MAX_STRANGERS);
    assert_eq!(group.registry.by_id.len(), 2 + MAX_STRANGERS);
    assert_eq!(group.registry.forgotten, 5000 - MAX_STRANGERS as u64);
    assert_eq!(group.registry.forgotten_refusals()["unknown_device"], 5000 - MAX_STRANGERS as u64);
    assert_eq!((group.admits("a", 1), group.admits("quiet", 1)), (Ok(0), Ok(1)));
    assert_eq!(group.starts("late", 2, 1), [up(claim(2))], "a device that comes after the flood");
}

#[test]
fn made_up_births_take_no_room_from_a_device_in_a_slot() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.after(MOMENT);
    for i in 0..2 * MAX_DEVICES {
        group.birth(&format!("no-{i}"), 0, 1);
        group.after(MOMENT);
    }
    assert!(group.registry.devices.len() <= MAX_DEVICES + MAX_STRANGERS);
    assert_eq!(group.admits("a", 1), Ok(0));
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
    let mut group = Group::new();
    group.starts("ghost", 0, 1);
    group.after(SILENT_AFTER * 10);
    assert_eq!(group.registry.next_timer(), None, "nobody else claims the slot");
    assert_eq!(group.starts("new", 0, 1), []);
    assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
    assert_eq!(group.admits("new", 1), Err(Fault::SlotTaken));
    assert_eq!(group.registry.next_timer(), Some(group.registry.now + MOMENT));
    assert_eq!(group.after(MOMENT), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("new", 1), Ok(0));
    assert_eq!((group.registry.replaced, group.registry.next_timer()), (1, None));
}

#[test]
fn while_other_devices_send_a_device_is_silent_after_half_the_time() {
    let mut group = Group::new();
    group.starts("ghost", 0, 1);
    group.starts("other", 1, 1);
    group.starts("new", 0, 1);
    group.after(MOMENT);
    assert_eq!(group.admits("other", 1), Ok(1));
    assert_eq!(group.after(SILENT_AFTER / 2 - MOMENT * 2), []);
    assert_eq!(group.after(MOMENT), [down(claim(0)), up(claim(0))]);
}

#[test]
fn a_device_that_sends_keeps_its_slot_and_loses_it_once_it_is_silent() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.starts("b", 0, 1);
    for _ in 0..5 {
        assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
        assert_eq!((group.admits("a", 1), group.admits("b", 1)), (Ok(0), Err(Fault::SlotTaken)));
    }
    assert_eq!(group.after(SILENT_AFTER), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Ok(0));
}

#[test]
fn a_device_that_was_only_quiet_gets_its_slot_back() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.starts("b", 0, 1);
    group.after(SILENT_AFTER);
    assert_eq!(group.admits("b", 1), Ok(0));
    assert_eq!(group.admits("a", 1), Ok(0), "the next trigger finds both");
    assert_eq!(std::mem::take(&mut group.changes), [down(claim(0)), up(claim(0))]);
    assert_eq!(group.admits("b", 1), Err(Fault::SlotTaken));
}

#[test]
fn a_device_that_comes_back_after_its_successor_has_settled_is_refused() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.starts("b", 0, 1);
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
    let mut group = Group::new();
    group.starts("a", 0, 1);
    assert_eq!(group.clears_birth("a"), []);
    assert_eq!(group.after(SILENT_AFTER - MOMENT), []);
    assert_eq!(group.admits("a", 1), Ok(0));
    assert_eq!(group.after(SILENT_AFTER * 10), []);
    assert_eq!(group.admits("a", 1), Ok(0));
}

#[test]
fn a_device_whose_birth_was_cleared_is_forgotten_when_it_is_silent_or_down() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
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
        let device = &group.registry.devices[index.at];
        lines += usize::from(device.logged.iter().any(|logged| logged.at == group.registry.now));
        group.after(Duration::from_millis(500));
    }
    assert_eq!(lines, 5, "one a minute in five minutes");
    assert_eq!(group.refused("a")["wrong_network"], 600);
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

#[test]
fn the_first_device_in_a_slot_gives_the_group_its_numbering() {
    let (clock, faster) = (Numbering::Clock { period_ms: 200 }, Numbering::Clock { period_ms: 100 });
    let mut group = Group::new();
    // Births alone teach nothing: a retained one may be that of a device that left.
    assert_eq!(group.numbered_birth("ghost", 2, faster), []);
    assert_eq!(group.numbered_birth("a", 0, clock), []);
    assert_eq!(group.registry.numbering, None);
    let slot = claim(0).slot;
    let learned =
        [Event::Numbering(clock), Event::DeviceUp { slot }].map(|event| (Generation::Current, event));
    assert_eq!(group.status("a", DeviceState::Up, 1), learned);
    // Earlier and later births with another numbering are refused; one without is not.
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
    group.registry.numbering = Some(Numbering::Trigger);
    group.numbered_birth("a", 0, Numbering::Source);
    assert_eq!(group.admits("a", 1), Err(Fault::WrongNumbering));
    group.numbered_birth("a", 0, Numbering::Trigger);
    assert_eq!(group.admits("a", 1), Ok(0));
    let mut group = Group::new();
    group.numbered_birth("a", 0, Numbering::Clock { period_ms: 0 });
    assert_eq!(group.admits("a", 1), Err(Fault::Malformed));
    group.status("a", DeviceState::Up, 1);
    assert_eq!(group.registry.numbering, None);
}

#[test]
fn the_sentence_of_a_wrong_numbering_names_both_and_what_to_do() {
    let mut group = Group::new();
    group.registry.numbering = Some(Numbering::Clock { period_ms: 100 });
    let (fault, why) = group.registry.wrong_numbering(Some(Numbering::Clock { period_ms: 200 })).unwrap();
    assert_eq!(fault, Fault::WrongNumbering);
    let expected = "numbering: expected clock with a period of 100 ms, found clock with a period of 200 ms: give it the group's, or \
                    start the aggregator once with --new-numbering and the group's name";
    assert_eq!(why, expected);
    assert_eq!(group.registry.wrong_numbering(None), None);
}

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
    // However long the owner is silent, nobody else gets its slot.
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
    let mut group = Group::new();
    group.starts("a", 0, 1);
    group.starts("stolen", 1, 7);
    assert!(group.births_to_clear().is_empty(), "without a list any device may come");
    group.owned_by(["a", "b", "c"]);
    assert_eq!(group.births_to_clear(), ["stolen"]);
    // A device that lives publishes its birth again.
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
fn a_slot_keeps_the_name_of_its_device_and_a_slot_that_nobody_knows_is_named_by_its_number() {
    let mut group = Group::new();
    let name = |group: &Group, slot: u8| group.registry.device_name(Slot::new(slot).unwrap());
    assert_eq!(name(&group, 2), "slot 2");
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
fn a_device_that_is_known_down_stays_down_by_a_status_that_the_broker_kept() {
    let ended = ClaimState::Down(CONNECTION_ENDED);
    let in_slot = ClaimState::InSlot(Generation::Current);
    for sign in ["status", "birth", "answer", "new boot"] {
        let mut group = Group::new();
        group.starts("a", 0, 1);
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
        let mut group = Group::new();
        group.starts("a", 0, 1);
        group.status("a", Down, 1);
        let later = group.registry.now + Duration::from_secs(seconds);
        group.registry.set_now(later);
        group.registry.disconnected();
        group.registry.connected();
        group.kept_status("a", Up, 1);
        assert_eq!(group.claim_of("a").0, expected, "{seconds} s before the broker's end");
    }
}

#[test]
fn a_device_with_kept_messages_alone_is_not_live_until_it_sends() {
    let mut group = Group::new();
    group.registry.set_retained(true);
    group.starts("a", 0, 1);
    group.registry.set_retained(false);
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
fn a_device_that_never_was_connected_is_named_as_that() {
    let mut group = Group::new();
    group.birth("a", 0, 1);
    let (claim, _) = group.claim_of("a");
    assert_eq!(claim, ClaimState::Down("it has introduced itself and no status of it is at the broker"));
    group.status("a", Up, 2);
    let (claim, _) = group.claim_of("a");
    assert_eq!(claim, ClaimState::Down("its birth and its status at the broker are of different starts"));
}

#[test]
fn a_birth_that_names_another_device_is_refused_with_that_reason_before_any_status() {
    let mut group = Group::new();
    let index = group.index("mismatch");
    let birth = Group::birth_of(OURS, "a", 0, 1);
    group.registry.set_birth(index, &birth, &mut group.changes);
    let (claim, _) = group.claim_of("mismatch");
    assert_eq!(claim, ClaimState::Refused(Fault::Malformed, "birth: the topic names mismatch, the text a"));
}

#[test]
fn the_software_of_a_birth_has_no_control_characters() {
    let mut group = Group::new();
    let index = group.index("a");
    let software = "agent\u{1b}[2J/1\n.0".into();
    let birth = Birth { software, ..Group::birth_of(OURS, "a", 0, 1) };
    group.registry.set_birth(index, &birth, &mut group.changes);
    let software: Vec<_> = group.registry.registered().map(|device| device.software.to_owned()).collect();
    assert_eq!(software, ["agent[2J/1.0"]);
}

#[test]
fn the_log_lines_about_refused_devices_are_bounded_over_all_names() {
    let mut group = Group::new();
    group.starts("a", 0, 1);
    for name in 0..500 {
        group.starts(&format!("n{name}"), 0, 1);
    }
    let logged = group.registry.devices.iter().filter(|device| !device.logged.is_empty()).count();
    assert_eq!(logged, MAX_REFUSAL_LINES as usize);
}
