use std::collections::BTreeSet;

use headwater_protocol::{Decision, Exit, HopBytes, NetworkId, PolicyId, Presence, Stages};
use tempfile::TempDir;

use super::*;

fn config(folder: &TempDir, max_bytes: u64) -> JournalConfig {
    JournalConfig { path: folder.path().join("journal"), max_bytes, sync: JournalSync::Never }
}

fn decision(sample: u64) -> Decision {
    Decision {
        sample: SampleId(sample),
        class: 3,
        label: "coat".into(),
        confidence: 0.5,
        exit: Exit::Local,
        presence: Presence::missing(6),
        degraded: Vec::new(),
        network: NetworkId([1; 32]),
        policy: PolicyId([2; 8]),
        stages: Stages::default(),
        bytes: HopBytes::default(),
    }
}

fn opened(sample: u64) -> Entry {
    Entry::Opened(SampleId(sample))
}

fn decided(sample: u64) -> Entry {
    Entry::Decided(decision(sample))
}

async fn written(journal: &mut Journal, entries: &[Entry]) {
    entries.iter().for_each(|entry| journal.append(entry));
    journal.flush().await.unwrap();
}

#[tokio::test]
async fn a_restart_finds_decisions_and_open_samples() {
    let folder = TempDir::new().unwrap();
    let (mut journal, recovered) = Journal::open(Some(&config(&folder, 1 << 20))).unwrap();
    assert_eq!(recovered, Recovered::default());
    written(&mut journal, &[opened(1), opened(2), decided(1)]).await;
    drop(journal);
    let (_, recovered) = Journal::open(Some(&config(&folder, 1 << 20))).unwrap();
    assert_eq!(recovered.decisions, [decision(1)]);
    assert_eq!(recovered.open, [SampleId(2)]);
    assert_eq!((recovered.settled.decided, recovered.settled.highest), (1, SampleId(1)));
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_counted_and_overwritten() {
    let folder = TempDir::new().unwrap();
    let config = config(&folder, 1 << 20);
    let (mut journal, _) = Journal::open(Some(&config)).unwrap();
    written(&mut journal, &[opened(1), decided(1)]).await;
    drop(journal);
    let whole = std::fs::read(&config.path).unwrap();
    for torn in [&b"{\"opened\":2"[..], b"{\"opened\":2}", b"\0\0\0"] {
        std::fs::write(&config.path, [&whole, torn].concat()).unwrap();
        let (mut journal, recovered) = Journal::open(Some(&config)).unwrap();
        assert_eq!(journal.counts.torn_bytes, torn.len() as u64);
        assert_eq!(recovered.open, []);
        written(&mut journal, &[opened(3)]).await;
        drop(journal);
        let (journal, recovered) = Journal::open(Some(&config)).unwrap();
        assert_eq!((journal.counts.torn_bytes, recovered.open), (0, vec![SampleId(3)]));
    }
}

#[test]
fn a_file_that_is_no_journal_is_refused_and_not_changed() {
    let folder = TempDir::new().unwrap();
    let config = config(&folder, 1 << 20);
    let text = "{\"opened\":1}\nno entry\n{\"opened\":2}\n";
    std::fs::write(&config.path, text).unwrap();
    let error = Journal::open(Some(&config)).unwrap_err();
    assert!(matches!(error, JournalError::NotAnEntry { line: 2, .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&config.path).unwrap(), text);
}

#[test]
fn a_journal_has_one_writer() {
    let folder = TempDir::new().unwrap();
    let config = config(&folder, 1 << 20);
    let first = Journal::open(Some(&config)).unwrap();
    assert!(matches!(Journal::open(Some(&config)).unwrap_err(), JournalError::Locked { .. }));
    drop(first);
    assert!(Journal::open(Some(&config)).is_ok());
}

#[test]
fn a_missing_folder_is_named() {
    let folder = TempDir::new().unwrap();
    let config =
        JournalConfig { path: folder.path().join("none/journal"), max_bytes: 1, sync: JournalSync::Never };
    let error = Journal::open(Some(&config)).unwrap_err();
    assert!(error.to_string().contains("none/journal"), "{error}");
}

/// 10,000 samples of some 5 MB in a journal bounded at 300 KB. The lines that must stay are twice that size, so the file is compacted
/// at twice their size.
#[tokio::test]
async fn a_bounded_journal_keeps_the_settled_counts_the_open_samples_and_the_latest_decisions() {
    let folder = TempDir::new().unwrap();
    let config = JournalConfig { sync: JournalSync::Always, ..config(&folder, 300_000) };
    let (mut journal, _) = Journal::open(Some(&config)).unwrap();
    let mut settled = Settled::default();
    written(&mut journal, &[opened(7), Entry::Dropped { sample: SampleId(8), reason: Dropped::Shed }]).await;
    settled.dropped.insert(Dropped::Shed, 1);
    for round in 0..100 {
        let samples = 10 + round * 100..110 + round * 100;
        let entries: Vec<_> = samples.clone().flat_map(|sample| [opened(sample), decided(sample)]).collect();
        written(&mut journal, &entries).await;
        settled.decided += 100;
        settled.highest = SampleId(samples.end - 1);
        let closed = (10..samples.end).map(SampleId);
        journal.compact_if_full(&settled, (SampleId(6), closed), [SampleId(7)].into_iter()).unwrap();
    }
    assert!(journal.counts.compactions > 2);
    let size = std::fs::metadata(&config.path).unwrap().len();
    assert!(size < 1_500_000, "{size}");
    drop(journal);
    let (_, recovered) = Journal::open(Some(&config)).unwrap();
    assert_eq!(recovered.settled, Settled { highest: SampleId(10_009), ..settled });
    assert_eq!(recovered.open, [SampleId(7)]);
    assert_eq!(recovered.decisions.last(), Some(&decision(10_009)));
    assert_eq!(recovered.decisions.len(), MAX_WHOLE_LINES);
    assert_eq!(recovered.floor, SampleId(6));
    let closed: BTreeSet<SampleId> = recovered.closed.into_iter().collect();
    assert!(closed.contains(&SampleId(10)) && closed.contains(&SampleId(10_009)));
    assert!(!closed.contains(&SampleId(9)), "a sample that never opened");
}

#[tokio::test]
async fn without_a_file_entries_are_only_counted() {
    let (mut journal, _) = Journal::open(None).unwrap();
    written(&mut journal, &[opened(1), decided(1)]).await;
    assert_eq!(journal.counts, JournalCounts { entries: 2, ..JournalCounts::default() });
}
