//! The soak: faults drawn by chance, one after the other, for hours; every sample must have one end.

use std::time::{Duration, Instant};

use headwater_group::GroupClient;

use super::account::Reference;
use super::faults::{self, Extent, Fault, Row, Target, next_random};
use super::{PERIOD_MS, Site};

/// Groups of the site: with six devices each and a sample every [`PERIOD_MS`], 600 views a second, a fifth of the views of the load.
pub const SOAK_GROUPS: usize = 5;

/// Bytes at which journals are compacted, the least that the settings allow: every journal is compacted several times an hour.
pub const JOURNAL_BYTES: u64 = 4 << 20;

/// Time of one fault with the calm before and after.
const EACH: Duration = Duration::from_secs(20);

/// Time for which a part stands still, a clock is wrong, or a disk is full.
const PAUSE: Duration = Duration::from_secs(8);

/// Faults that are drawn.
const FAULTS: [Fault; 14] = [
    Fault::Kill(Target::Device),
    Fault::Kill(Target::Aggregator),
    Fault::Kill(Target::Cloud),
    Fault::Kill(Target::Broker),
    Fault::Kill(Target::ForgetfulBroker),
    Fault::Stop(Target::Device),
    Fault::Stop(Target::Aggregator),
    Fault::Stop(Target::Cloud),
    Fault::Stop(Target::Broker),
    Fault::Clock(Target::Device, 3600),
    Fault::Clock(Target::Device, -3600),
    Fault::Clock(Target::Aggregator, 3600),
    Fault::Clock(Target::Aggregator, -3600),
    Fault::FullDisk,
];

/// Lets faults happen for `time`, a fault every 20 s, and returns a row for each kind of fault that was drawn. `each` gets every row as it
/// ends, with its number.
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
        let fault = FAULTS[next_random(&mut random) as usize % FAULTS.len()];
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
