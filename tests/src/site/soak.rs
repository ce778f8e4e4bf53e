//! The soak: for hours, a kill about every 20 s and another fault between two kills, both drawn at random; every sample must have one end.

use std::time::{Duration, Instant};

use headwater_group::GroupClient;

use super::account::Reference;
use super::faults::{self, Extent, Fault, Row, Target, next_random};
use super::{PERIOD_MS, Site};

/// Number of groups. Six devices in each, with a sample every [`PERIOD_MS`], make 600 views a second: a fifth of the default load.
pub const SOAK_GROUPS: usize = 5;

/// Bytes at which a journal is compacted: the least that the settings allow, so that every journal is compacted several times an hour.
pub const JOURNAL_BYTES: u64 = 4 << 20;

/// Time of one fault with the calm before and after it. The wait for the ends of the samples comes after this time.
const EACH: Duration = Duration::from_secs(9);

/// Time for which a part is stopped, a clock is wrong, or a disk is full.
const PAUSE: Duration = Duration::from_secs(5);

/// The fault of a round: a kill in an even round, another fault that can be repeated in an odd round.
fn drawn(round: usize, random: &mut u64) -> Fault {
    let is_kill = |fault: &Fault| matches!(fault, Fault::Kill(_));
    let can_be_repeated = |fault: &Fault| !matches!(fault, Fault::None | Fault::Renew | Fault::Revoke);
    let all = faults::ROWS.into_iter().chain([Fault::Kill(Target::ForgetfulBroker)]).filter(can_be_repeated);
    let faults: Vec<_> = all.filter(|fault| is_kill(fault) == round.is_multiple_of(2)).collect();
    faults[next_random(random) as usize % faults.len()]
}

/// Lets faults happen for `time`, and returns a row for each fault that was drawn. `each` is called after each round, with the number of the
/// round and its row.
///
/// # Panics
/// As [`faults::run`].
pub async fn run(
    site: &mut Site,
    clients: &mut [GroupClient],
    reference: &Reference,
    (time, seed): (Duration, u64),
    mut each: impl FnMut(usize, &Row),
) -> Vec<Row> {
    let samples = EACH.as_millis() as u64 / PERIOD_MS * site.groups.len() as u64;
    let (until, mut random) = (Instant::now() + time, seed);
    let mut rows: Vec<Row> = Vec::new();
    for round in 0.. {
        if Instant::now() >= until {
            break;
        }
        let fault = drawn(round, &mut random);
        // An account grows with each sample, and only the samples of this round are compared, so each round begins an empty account.
        clients.iter_mut().for_each(GroupClient::begin_account);
        let extent = Extent { samples, kills: 1, pause: PAUSE, seed: next_random(&mut random) };
        let row = faults::run(fault, site, clients, (reference, extent)).await;
        each(round, &row);
        match rows.iter_mut().find(|sum| sum.fault == fault) {
            Some(sum) => sum.add(row),
            None => rows.push(row),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_fault_is_a_kill_and_all_faults_are_drawn() {
        let mut random = 1;
        let drawn: Vec<_> = (0..1000).map(|round| drawn(round, &mut random)).collect();
        assert!(drawn.iter().step_by(2).all(|fault| matches!(fault, Fault::Kill(_))));
        assert!(!drawn.iter().skip(1).step_by(2).any(|fault| matches!(fault, Fault::Kill(_))));
        let parts =
            [Target::Device, Target::Aggregator, Target::Cloud, Target::Broker, Target::ForgetfulBroker];
        assert!(parts.into_iter().all(|part| drawn.contains(&Fault::Kill(part))));
        assert!(
            [Fault::FullDisk, Fault::Clock(Target::Device, -3600)].iter().all(|fault| drawn.contains(fault))
        );
    }
}
