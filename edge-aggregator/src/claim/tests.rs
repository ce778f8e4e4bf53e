use std::time::Duration;

use headwater_protocol::{DeviceState, InstanceId, LeaderClaim};
use tokio::time::Instant;

use super::*;
use crate::report::LeadState;

const OWN: InstanceId = InstanceId(5);
const SMALLER: InstanceId = InstanceId(4);
const LARGER: InstanceId = InstanceId(6);
const MOMENT: Duration = Duration::from_millis(1);

fn up(instance: InstanceId, term: u64, beat: u64) -> Vec<u8> {
    claim_text(&LeaderClaim { beat, ..new_claim(instance, term) })
}

fn down(instance: InstanceId, term: u64) -> Vec<u8> {
    claim_text(&LeaderClaim { state: DeviceState::Down, ..new_claim(instance, term) })
}

struct Starting {
    waiting: Waiting,
    now: Instant,
}

impl Starting {
    fn new(take_over: bool) -> Self {
        let mut starting = Self { waiting: Waiting::new(OWN, take_over), now: Instant::now() };
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
    for (claim, after_another) in [(down(LARGER, 7), true), (up(OWN, 7, 3), false), (down(OWN, 7), false)] {
        let mut leader = Starting::new(false);
        assert_eq!(leader.receives(&claim), Step::Claim { term: 8 });
        assert_eq!(leader.receives(&up(OWN, 8, 0)), led(8, after_another));
    }
}

#[test]
fn a_leader_waits_for_another_until_it_is_down() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Wait);
    assert_eq!(leader.waiting.state(leader.now), (LeadState::Waiting, Some(LARGER)));
    assert_eq!(leader.after(SILENT * 3), Step::Wait, "a silent leader of another journal is not replaced");
    assert_eq!(leader.waiting.state(leader.now), (LeadState::WaitingForSilent, Some(LARGER)));
    assert_eq!(leader.receives(&up(LARGER, 7, 4)), Step::Wait);
    assert_eq!(leader.waiting.state(leader.now), (LeadState::Waiting, Some(LARGER)));
    assert_eq!(leader.receives(&down(LARGER, 6)), Step::Wait, "the last will of an earlier process");
    assert_eq!(leader.receives(&down(SMALLER, 7)), Step::Wait, "the last will of another one");
    assert_eq!(leader.receives(&down(LARGER, 7)), Step::Claim { term: 8 });
}

#[test]
fn an_operator_may_take_over_once() {
    let mut leader = Starting::new(true);
    assert_eq!(leader.receives(&up(LARGER, 7, 3)), Step::Claim { term: 8 });
    assert_eq!(leader.receives(&up(LARGER, 7, 4)), Step::Wait, "an older claim changes nothing");
    assert_eq!(leader.receives(&up(OWN, 8, 0)), led(8, true));
    leader.waiting.lost(leader.now, new_claim(LARGER, 9));
    leader.waiting.connected(leader.now);
    assert_eq!(leader.receives(&up(LARGER, 9, 1)), Step::Wait);
}

#[test]
fn of_two_claims_of_one_term_the_first_one_counts() {
    let mut leader = Starting::new(false);
    assert_eq!(leader.after(LISTEN), Step::Claim { term: 1 });
    assert_eq!(leader.receives(&up(SMALLER, 1, 0)), Step::Wait);
    assert_eq!(leader.receives(&up(OWN, 1, 0)), Step::Wait, "it came second");
    assert_eq!(leader.waiting.state(leader.now), (LeadState::Waiting, Some(SMALLER)));
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
    let long = LeaderClaim { software: "x".repeat(129), ..new_claim(LARGER, 7) };
    assert_eq!(leader.receives(&claim_text(&long)), Step::Wait);
    assert_eq!(leader.after(LISTEN), Step::Claim { term: 1 });
}

#[test]
fn a_copy_of_the_own_journal_is_replaced_only_when_it_is_silent() {
    let mut leader = Starting::new(false);
    leader.waiting.lost(leader.now, new_claim(OWN, 9));
    leader.waiting.connected(leader.now);
    assert_eq!(leader.receives(&up(OWN, 9, 1)), Step::Wait);
    assert_eq!(leader.after(SILENT - MOMENT), Step::Wait);
    assert_eq!(leader.after(MOMENT), Step::Claim { term: 10 });
}

fn held() -> (HeldClaim, Instant) {
    let (mut held, now) = (HeldClaim::new(new_claim(OWN, 3)), Instant::now());
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
    // The first publication was before the confirmation.
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
