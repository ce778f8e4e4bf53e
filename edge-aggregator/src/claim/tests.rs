use std::time::Duration;

use headwater_protocol::status::GroupState;
use headwater_protocol::{DeviceState, InstanceId, LeaderClaim};
use tokio::time::Instant;

use super::*;

const OWN: InstanceId = InstanceId(5);
const SMALLER: InstanceId = InstanceId(4);
const LARGER: InstanceId = InstanceId(6);
const MOMENT: Duration = Duration::from_millis(1);

/// Number of the processes in the tests, whatever their name; `OTHER_NUMBER` is the number of a second process with the name `OWN`.
const NUMBER: InstanceId = InstanceId(50);
const OTHER_NUMBER: InstanceId = InstanceId(60);

/// The process with this name and the number [`NUMBER`]; with the name `OWN` it is the process under test.
fn process(instance: InstanceId) -> Process {
    Process { instance, number: NUMBER }
}

/// A second process, which runs with a copy of the journal of the process under test.
const COPY: Process = Process { instance: OWN, number: OTHER_NUMBER };

fn up(instance: InstanceId, term: u64, beat: u64) -> Vec<u8> {
    up_of(process(instance), term, beat)
}

fn up_of(process: Process, term: u64, beat: u64) -> Vec<u8> {
    claim_text(&LeaderClaim { beat, ..new_claim(process, term) })
}

fn down(instance: InstanceId, term: u64) -> Vec<u8> {
    claim_text(&LeaderClaim { state: DeviceState::Down, ..new_claim(process(instance), term) })
}

struct Starting {
    waiting: Waiting,
    now: Instant,
}

impl Starting {
    fn new(take_over: bool) -> Self {
        let mut starting = Self { waiting: Waiting::new(process(OWN), take_over), now: Instant::now() };
        starting.waiting.connected(starting.now);
        starting
    }

    fn receives(&mut self, payload: &[u8]) -> Step {
        self.waiting.receive(self.now, payload);
        self.step()
    }

    fn after(&mut self, time: Duration) -> Step {
        self.now += time;
        self.step()
    }

    fn step(&mut self) -> Step {
        self.waiting.step(self.now)
    }
}

fn led(term: u64, after_another: bool) -> Step {
    Step::Lead(Won { term, after_another })
}

#[test]
fn without_a_claim_a_leader_claims_after_a_moment_and_leads_when_its_claim_comes_back() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.step(), Step::Wait);
    assert_eq!(leader.after(LISTEN - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 1 });
    assert_eq!(leader.step(), Step::Wait);
    assert_eq!(leader.receives(&up(OWN, 1, 0)), led(1, false));
}

#[test]
fn a_claim_that_is_down_or_an_own_one_is_followed_at_once() {
    for (claim, after_another) in [(down(LARGER, 7), true), (up_of(COPY, 7, 3), false), (down(OWN, 7), false)]
    {
        let mut leader = Starting::new(false);
        assert_eq!(leader.receives(&claim), Step::Claim { term: 8 });
        assert_eq!(leader.receives(&up(OWN, 8, 0)), led(8, after_another));
    }
}

#[test]
fn a_leader_waits_for_another_until_it_is_down() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Wait);
    assert_eq!(leader.waiting.state(leader.now), (GroupState::Waiting, Some(LARGER)));
    assert_eq!(leader.after(SILENT * 3), Step::Wait, "a silent leader of another journal is not replaced");
    assert_eq!(leader.waiting.state(leader.now), (GroupState::WaitingForSilent, Some(LARGER)));
    assert_eq!(leader.receives(&up(LARGER, 7, 4)), Step::Wait);
    assert_eq!(leader.waiting.state(leader.now), (GroupState::Waiting, Some(LARGER)));
    assert_eq!(leader.receives(&down(LARGER, 6)), Step::Wait, "the last will of an earlier process");
    assert_eq!(leader.receives(&down(SMALLER, 7)), Step::Wait, "the last will of another one");
    assert_eq!(leader.receives(&down(LARGER, 7)), Step::Claim { term: 8 });
}

#[test]
fn a_claim_whose_beat_stands_still_is_that_of_a_silent_leader() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Wait);
    for _ in 0..4 {
        leader.after(SILENT / 4);
        assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Wait, "somebody publishes it again");
    }
    assert_eq!(leader.waiting.state(leader.now), (GroupState::WaitingForSilent, Some(LARGER)));
    leader.receives(&up(LARGER, 7, 4));
    assert_eq!(leader.waiting.state(leader.now), (GroupState::Waiting, Some(LARGER)));
}

#[test]
fn an_operator_may_take_over_once() {
    let mut leader = Starting::new(true);
    assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Claim { term: 8 });
    assert_eq!(leader.receives(&up(LARGER, 7, 4)), Step::Wait, "an older claim changes nothing");
    assert_eq!(leader.receives(&up(OWN, 8, 0)), led(8, true));
    leader.waiting.lost(leader.now, new_claim(process(LARGER), 9));
    leader.waiting.connected(leader.now);
    assert_eq!(leader.receives(&up(LARGER, 9, 1)), Step::Wait);
}

#[test]
fn of_two_claims_of_one_term_the_first_one_counts() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.after(LISTEN), Step::Claim { term: 1 });
    assert_eq!(leader.receives(&up(SMALLER, 1, 0)), Step::Wait);
    assert_eq!(leader.receives(&up(OWN, 1, 0)), Step::Wait, "it came second");
    assert_eq!(leader.waiting.state(leader.now), (GroupState::Waiting, Some(SMALLER)));
    let mut first = Starting::new(false);
    assert_eq!(first.after(LISTEN), Step::Claim { term: 1 });
    assert_eq!(first.receives(&up(OWN, 1, 0)), led(1, false));
}

#[test]
fn a_broker_that_forgets_the_claim_of_a_living_leader_does_not_make_a_second_one() {
    let mut leader = Starting::new(false);
    leader.receives(&up(LARGER, 7, 3));
    leader.waiting.disconnected();
    assert_eq!(leader.after(SILENT * 2), Step::Wait, "without a connection");
    leader.waiting.connected(leader.now);
    assert_eq!(leader.after(SILENT - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 8 });
}

#[test]
fn a_cleared_claim_waits_for_its_leader() {
    let mut leader = Starting::new(false);
    leader.receives(&up(LARGER, 7, 3));
    assert_eq!(leader.receives(b""), Step::Wait);
    assert_eq!(leader.after(SILENT - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 8 });
}

#[test]
fn a_claim_that_does_not_come_back_is_published_again() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.after(LISTEN), Step::Claim { term: 1 });
    assert_eq!(leader.after(RETRY - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 1 });
}

#[test]
fn garbage_and_impossible_terms_are_no_claims() {
    let mut leader = Starting::new(false);
    for garbage in [&b"{"[..], b"null", &[0xff; 300], br#"{"instance":"x"}"#] {
        assert_eq!(leader.receives(garbage), Step::Wait);
    }
    assert_eq!(leader.receives(&up(LARGER, LeaderClaim::MAX_TERM + 1, 0)), Step::Wait);
    let long = LeaderClaim { software: "x".repeat(129), ..new_claim(process(LARGER), 7) };
    assert_eq!(leader.receives(&claim_text(&long)), Step::Wait);
    assert_eq!(leader.after(LISTEN), Step::Claim { term: 1 });
}

#[test]
fn a_copy_of_the_own_journal_is_replaced_only_when_it_is_silent() {
    let mut leader = Starting::new(false);
    leader.waiting.lost(leader.now, new_claim(COPY, 9));
    leader.waiting.connected(leader.now);
    assert_eq!(leader.receives(&up_of(COPY, 9, 1)), Step::Wait);
    assert_eq!(leader.after(SILENT - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 10 });
}

fn held() -> (HeldClaim, Instant) {
    let (mut held, now) = (HeldClaim::new(new_claim(process(OWN), 3)), Instant::now());
    held.connected(now);
    assert!(held.due(now).is_some());
    (held, now)
}

fn confirmed() -> (HeldClaim, Instant) {
    let (mut held, now) = held();
    assert!(held.receive(now, &up(OWN, 3, 1)));
    (held, now)
}

#[test]
fn a_leader_renews_its_claim_on_every_beat() {
    let (mut held, now) = confirmed();
    assert!(!held.receive(now, &up(OWN, 3, 1)), "it is confirmed once");
    // The claim was published once before it was confirmed, so the next beat is 2.
    let first = held.timer().unwrap();
    let beat = |held: &mut HeldClaim, now| LeaderClaim::read(&held.due(now).unwrap()).unwrap().beat;
    assert_eq!(beat(&mut held, first), 2);
    assert_eq!(held.due(first + BEAT - MOMENT), None);
    assert_eq!(beat(&mut held, first + BEAT), 3);
}

#[test]
fn a_higher_term_ends_a_lead_and_a_lower_one_is_repaired() {
    let (mut held, now) = confirmed();
    for altered in [&b""[..], b"{}", &up(LARGER, 2, 9), &down(OWN, 3), &down(LARGER, 9), &up(LARGER, 3, 0)] {
        held.receive(now, altered);
        assert_eq!(held.taken_over(), None);
        assert_eq!(held.timer(), Some(now + RETRY), "at most one repair in a while");
    }
    assert!(held.due(now + RETRY).is_some());
    held.receive(now, &up(SMALLER, 4, 0));
    assert_eq!(held.taken_over().map(|claim| claim.instance), Some(SMALLER));
    assert_eq!(held.due(now + BEAT * 2), None, "a leader that was replaced claims nothing");
}

#[test]
fn the_claim_that_came_second_does_not_end_the_lead_of_the_first_one() {
    let (mut held, now) = held();
    held.receive(now, &up(LARGER, 3, 0));
    assert_eq!(held.taken_over(), None);
    assert!(held.receive(now, &up(OWN, 3, 1)));
}

#[test]
fn a_claim_whose_process_never_led_is_followed_when_it_is_silent() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.receives(&up(LARGER, 7, 0)), Step::Wait);
    assert_eq!(leader.after(SILENT - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 8 });
}

#[test]
fn of_two_leaders_with_one_term_the_larger_name_stays() {
    let (mut held, now) = confirmed();
    held.receive(now, &up(SMALLER, 3, 1));
    assert_eq!(held.taken_over(), None);
    held.receive(now, &up(LARGER, 3, 1));
    assert!(held.taken_over().is_some());
}

#[test]
fn a_leader_that_was_away_finds_its_successor() {
    let (mut held, now) = confirmed();
    held.disconnected();
    assert_eq!((held.timer(), held.due(now + BEAT * 2)), (None, None));
    held.connected(now);
    assert!(!held.receive(now, &up(LARGER, 4, 2)));
    assert!(held.taken_over().is_some());
}

#[test]
fn of_two_processes_with_copies_of_one_journal_that_claim_at_once_the_first_one_leads() {
    for retained in [None, Some(up_of(Process { number: InstanceId(1), ..COPY }, 7, 3))] {
        let number = |is_first| if is_first { NUMBER } else { OTHER_NUMBER };
        let mut both = [true, false].map(|is_first| {
            let own = Process { instance: OWN, number: number(is_first) };
            let mut starting = Starting { waiting: Waiting::new(own, false), now: Instant::now() };
            starting.waiting.connected(starting.now);
            starting
        });
        let term = if retained.is_some() { 8 } else { 1 };
        for leader in &mut both {
            match &retained {
                // An earlier process with this journal left the claim: both processes claim at once.
                Some(claim) => assert_eq!(leader.receives(claim), Step::Claim { term }),
                None => assert_eq!(leader.after(LISTEN), Step::Claim { term }),
            }
        }
        // The broker gives both claims to both processes in one order.
        let claims =
            [true, false].map(|is_first| up_of(Process { instance: OWN, number: number(is_first) }, term, 0));
        let [first, second] = &mut both;
        assert_eq!(first.receives(&claims[0]), led(term, false));
        assert_eq!(second.receives(&claims[0]), Step::Wait);
        assert_eq!(second.receives(&claims[1]), Step::Wait, "it came second");
        assert_eq!(second.waiting.state(second.now), (GroupState::Waiting, Some(OWN)));
        assert_eq!(second.after(SILENT - MOMENT), Step::Wait);
        let last_will = LeaderClaim {
            state: DeviceState::Down,
            ..new_claim(Process { instance: OWN, number: NUMBER }, term)
        };
        assert_eq!(second.receives(&claim_text(&last_will)), Step::Claim { term: term + 1 });
        let own = up_of(Process { instance: OWN, number: OTHER_NUMBER }, term + 1, 0);
        assert_eq!(second.receives(&own), led(term + 1, true), "the other one may have decided its samples");
    }
}

#[test]
fn a_leader_is_not_confirmed_by_the_claim_of_a_process_with_a_copy_of_its_journal() {
    let (mut held, now) = held();
    assert!(!held.receive(now, &up_of(COPY, 3, 0)), "a claim that came second");
    assert_eq!(held.taken_over(), None);
    assert!(held.receive(now, &up(OWN, 3, 1)));
}

#[test]
fn of_two_leaders_with_copies_of_one_journal_and_one_term_one_stays() {
    let larger = COPY;
    let smaller = Process { number: InstanceId(NUMBER.0 - 1), ..COPY };
    for (other, stays) in [(larger, false), (smaller, true)] {
        let (mut held, now) = confirmed();
        held.receive(now, &up_of(other, 3, 1));
        assert_eq!(held.taken_over().is_none(), stays);
    }
}
