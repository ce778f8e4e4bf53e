//! The soak: a kill every 20 s or so, and another fault between two kills, drawn by chance, for hours; every sample must have one end.

use std::time::{Duration, Instant};

use headwater_group::GroupClient;

use super::account::Reference;
use super::faults::{self, Extent, Fault, Row, Target, next_random};
use super::{PERIOD_MS, Site};

/// Groups of the site: with six devices each and a sample every [`PERIOD_MS`], 600 views a second, a fifth of the views of the load.
pub const SOAK_GROUPS: usize = 5;

/// Bytes at which journals are compacted, the least that the settings allow: every journal is compacted several times an hour.
pub const JOURNAL_BYTES: u64 = 4 << 20;

/// Time of one fault with the calm before and after; then its samples are waited for. Every second fault is a kill.
const EACH: Duration = Duration::from_secs(9);

/// Time for which a part stands still, a clock is wrong, or a disk is full.
const PAUSE: Duration = Duration::from_secs(5);

/// The fault of a round: a kill in every even round, any other fault that can be repeated in the odd ones.
fn drawn(round: usize, random: &mut u64) -> Fault {
    let is_kill = |fault: &Fault| matches!(fault, Fault::Kill(_));
    let can_be_repeated = |fault: &Fault| !matches!(fault, Fault::None | Fault::Renew | Fault::Revoke);
    let all = faults::ROWS.into_iter().chain([Fault::Kill(Target::ForgetfulBroker)]).filter(can_be_repeated);
    let faults: Vec<_> = all.filter(|fault| is_kill(fault) == round.is_multiple_of(2)).collect();
    faults[next_random(random) as usize % faults.len()]
}

/// Lets faults happen for `time`, and returns a row for each kind of fault that was drawn. `each` gets every row as it ends, with its number.
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
        // The accounts grow with each sample, and only those of the row are compared.
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
