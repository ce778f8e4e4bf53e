//! Random bytes as a journal: every valid line must survive writing and reading, and a leader must start with all valid lines.
//!
//! Lines end at a newline or a zero byte, as in the aggregator's reader. That reader itself is not run here, because it needs a file.

#![no_main]

use headwater_inference::leader::journal::{Entry, replay};
use headwater_inference::leader::{Event, Exits, Generation, Leader, LeaderConfig, Micros, Now};
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_protocol::{NetworkId, PolicyId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| matches!(byte, b'\n' | 0));
    let entries: Vec<Entry> = lines.filter_map(|line| Entry::read_line(line).ok()).collect();
    entries.iter().for_each(check_entry);
    check_restart(entries);
});

fn check_entry(entry: &Entry) {
    let mut line = Vec::new();
    entry.write_line(&mut line);
    let (end, text) = line.split_last().expect("every entry is written");
    assert!(*end == b'\n' && !text.contains(&b'\n') && !text.contains(&0), "more than one line");
    let read =
        Entry::read_line(text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)));
    assert_eq!(&read, entry);
}

/// Starts a leader with the journal, compacts the journal, and starts another leader, which must have the same account.
fn check_restart(entries: Vec<Entry>) {
    let mut actions = Vec::new();
    let mut leader = leader();
    leader.recover(replay(entries), &mut actions);
    // Without an answer for an hour every awaited sample is dropped.
    let at = |hours: u64| Now { since_start: Micros::from_ms(3_600_000 * hours), wall_ms: 1_763_856_000_000 };
    leader.handle(at(0), Generation::Current, Event::Connected, &mut actions);
    leader.handle(at(1), Generation::Current, Event::Tick, &mut actions);
    assert_eq!(leader.unfinished_samples().count(), 0);
    leader.notice();

    let account = Entry::Settled(leader.settled().clone());
    let compacted: Vec<Entry> = std::iter::once(account).chain(leader.journal_entries()).collect();
    compacted.iter().for_each(check_entry);
    let mut next = self::leader();
    next.recover(replay(compacted), &mut actions);
    assert_eq!(next.settled(), leader.settled(), "the account of a compacted journal");
}

fn leader() -> Leader {
    let config = LeaderConfig {
        network: NetworkId([7; 32]),
        policy_id: PolicyId([9; 8]),
        policy: Policy::default(),
        labels: vec!["car".into(), "bus".into()],
        class_prior: vec![0.5; 2],
        configuration: Configuration::C,
        slots: 2,
        edges: Vec::new(),
        score_bytes: 8,
        packed_bytes: 2,
        cloud_map_bytes: 2,
        max_open_samples: 64,
    };
    Leader::new(config, Exits { local: None, edge: None })
}
