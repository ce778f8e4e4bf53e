use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use headwater_protocol::testing::decision;
use headwater_protocol::{Dropped, Numbering};
use tempfile::TempDir;

use super::disk::RESERVE_BYTES;
use super::small_disk::SmallDisk;
use super::*;
use crate::settings::group::JournalSync;

fn new_config(max_bytes: u64) -> (TempDir, JournalSettings) {
    let folder = TempDir::new().unwrap();
    let path = Some(folder.path().join("journal"));
    (folder, JournalSettings { path, max_bytes, sync: JournalSync::Never })
}

fn path(config: &JournalSettings) -> &Path {
    config.path.as_deref().unwrap()
}

fn opened(sample: u64) -> Entry {
    Entry::Opened(SampleId(sample))
}

fn decided(sample: u64) -> Entry {
    Entry::Decided(decision(sample))
}

async fn written(journal: &mut Journal, entries: &[Entry]) {
    entries.iter().for_each(|entry| journal.append(entry));
    assert_eq!(journal.flush().await, Flush::Written);
}

/// The entries of a leader that has forgotten every sample up to `floor`.
fn closed_up_to(floor: u64) -> std::array::IntoIter<Entry, 1> {
    [Entry::ClosedRanges { floor: Some(SampleId(floor)), ranges: Vec::new() }].into_iter()
}

#[tokio::test]
async fn a_restart_finds_decisions_and_open_samples() {
    let (_folder, config) = new_config(1 << 20);
    let (mut journal, recovered) = Journal::open(&config).unwrap();
    assert_eq!(recovered, Recovered::default());
    written(&mut journal, &[opened(1), opened(2), decided(1)]).await;
    drop(journal);
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!(recovered.decisions, [decision(1)]);
    assert_eq!(recovered.open, [SampleId(2)]);
    assert_eq!((recovered.settled.decided, recovered.settled.highest), (1, SampleId(1)));
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_counted_and_overwritten() {
    let (_folder, config) = new_config(1 << 20);
    let (mut journal, _) = Journal::open(&config).unwrap();
    written(&mut journal, &[opened(1), decided(1)]).await;
    drop(journal);
    let whole = std::fs::read(path(&config)).unwrap();
    for torn in [&b"{\"opened\":2"[..], b"{\"opened\":2}", b"\0\0\0"] {
        std::fs::write(path(&config), [&whole, torn].concat()).unwrap();
        let (mut journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!(journal.counts.torn_bytes, torn.len() as u64);
        assert_eq!(recovered.open, []);
        written(&mut journal, &[opened(3)]).await;
        drop(journal);
        let (journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!((journal.counts.torn_bytes, recovered.open), (0, vec![SampleId(3)]));
    }
}

fn store(journal: &mut Journal) -> &mut Store {
    journal.store.as_mut().unwrap()
}

/// Files whose names begin with the journal's name, a dot and `middle`, sorted by name.
fn files_beside(config: &JournalSettings, middle: &str) -> Vec<PathBuf> {
    let name = path(config).file_name().unwrap().to_str().unwrap();
    let prefix = format!("{name}.{middle}");
    let files = std::fs::read_dir(path(config).parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(&prefix)).collect();
    files.sort();
    files
}

/// The line of the format, followed by the lines of these entries.
fn lines(entries: &[Entry]) -> Vec<u8> {
    let mut lines = Vec::new();
    Entry::Format(FORMAT).write_line(&mut lines);
    entries.iter().for_each(|entry| entry.write_line(&mut lines));
    lines
}

/// After a power loss a page of a file may be zero: lines before and after the page count.
#[tokio::test]
async fn a_zero_page_is_set_aside_and_every_line_outside_it_counts() {
    let (_folder, config) = new_config(1 << 20);
    let (before, after) = (lines(&[opened(1), decided(1), opened(2)]), lines(&[opened(4), decided(4)]));
    let page = [&b"{\"decided\":{\"sam"[..], &[0; 4096][..], b"cloud\":1}}\n"].concat();
    // The second stretch of zeros ends where a line begins.
    let text = [&before[..], &page, &after, &[0; 512], &lines(&[opened(5)])].concat();
    std::fs::write(path(&config), &text).unwrap();
    let (mut journal, recovered) = Journal::open(&config).unwrap();
    assert_eq!(recovered.decisions, [decision(1), decision(4)]);
    assert_eq!(recovered.open, [SampleId(2), SampleId(5)]);
    assert_eq!(journal.counts.unreadable_bytes, page.len() as u64 + 512);
    let kept = files_beside(&config, "damaged-");
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read(&kept[0]).unwrap(), text, "the damaged file is kept as it was");
    written(&mut journal, &[decided(5)]).await;
    drop(journal);
    let (journal, recovered) = Journal::open(&config).unwrap();
    assert_eq!((recovered.decisions.len(), recovered.open), (3, vec![SampleId(2)]));
    assert_eq!(journal.counts.unreadable_bytes, 0, "the file was mended");
}

#[track_caller]
fn check_refused_untouched(text: &[u8]) {
    let (_folder, config) = new_config(1 << 20);
    std::fs::write(path(&config), text).unwrap();
    let error = Journal::open(&config).unwrap_err();
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error}");
    assert!(error.to_string().contains("--journal-path"), "{error}");
    assert!(std::fs::read(path(&config)).unwrap() == text, "the file is changed");
    assert_eq!(files_beside(&config, ""), [] as [PathBuf; 0], "files beside it");
}

#[test]
fn a_file_that_is_no_journal_is_refused_and_not_changed() {
    check_refused_untouched(b"no entry\nno entry either\n");
    check_refused_untouched(b"{\"users\":[1,2,3]}");
    check_refused_untouched(b"{\"opened\":1,\"closed\":2}\n");
    check_refused_untouched(b"\n\n\n");
    // A large file without a newline, and a large file of zeros.
    check_refused_untouched(&vec![b'x'; 40 << 20]);
    check_refused_untouched(&vec![0; 2 << 20]);
}

#[test]
fn a_journal_of_another_format_is_refused_by_its_number_and_not_changed() {
    // A leader of an earlier release wrote the journal `of_1`, of format 1.
    let of_1 = include_bytes!("../../tests/fixtures/journals/format-1.jsonl");
    let of_4 = [b"{\"format\":4}\n".to_vec(), lines(&[opened(1)])].concat();
    for (found, text) in [(1, &of_1[..]), (1, b"{\"decided\":{\"sam\":1}}\n\0"), (4, &of_4)] {
        let (_folder, config) = new_config(1 << 20);
        std::fs::write(path(&config), text).unwrap();
        let error = Journal::open(&config).unwrap_err().to_string();
        let expected = format!(
            "journal {}: expected format 3, found format {found}; the file is left as it is; start once with the release that wrote it \
             until no sample is open and then move it away, or name another file (--journal-path)",
            path(&config).display()
        );
        assert_eq!(error, expected);
        assert!(std::fs::read(path(&config)).unwrap() == text, "the file is changed");
        assert_eq!(files_beside(&config, ""), [] as [PathBuf; 0], "files beside it");
    }
}

#[test]
fn a_journal_of_format_2_is_continued() {
    let (_folder, config) = new_config(1 << 20);
    let whole = String::from_utf8(lines(&[opened(1), opened(2), decided(1)])).unwrap();
    let without_sums: String =
        whole.lines().map(|line| line.split_once('\t').unwrap().0.to_owned() + "\n").collect();
    std::fs::write(path(&config), without_sums.replace(r#"{"format":3}"#, r#"{"format":2}"#)).unwrap();
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!((recovered.open, recovered.decisions.len()), (vec![SampleId(2)], 1));
}

/// Each process says the format again before the first line that it adds.
#[tokio::test]
async fn a_journal_whose_first_line_was_damaged_is_mended_if_another_line_says_the_format() {
    let whole = [lines(&[opened(1), decided(1)]), lines(&[opened(2)])].concat();
    let format = lines(&[]).len();
    for (at, byte) in [(0, 0), (4, b'x'), (format - 1, 0), (format - 1, b'x')] {
        let (_folder, config) = new_config(1 << 20);
        let mut text = whole.clone();
        text[at] = byte;
        std::fs::write(path(&config), text).unwrap();
        let (mut journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!(
            (recovered.decisions.len(), recovered.open.last()),
            (1, Some(&SampleId(2))),
            "{at} {byte}"
        );
        written(&mut journal, &[decided(2)]).await;
        drop(journal);
        let (journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!((recovered.decisions.len(), journal.counts.unreadable_bytes), (2, 0), "{at} {byte}");
    }
}

/// Lines of format 1 look like lines of the present format, and must not count as such when the first line is lost.
#[test]
fn a_journal_in_which_no_line_says_the_format_is_kept_and_begun_again() {
    let of_1 = include_str!("../../tests/fixtures/journals/format-1.jsonl").split_once('\n').unwrap().1;
    let text = [&b"damage\n"[..], of_1.as_bytes()].concat();
    let (folder, config) = new_config(1 << 20);
    std::fs::write(path(&config), &text).unwrap();
    let obstacle = folder.path().join("journal.new");
    std::fs::create_dir(&obstacle).unwrap();
    let error = Journal::open(&config).unwrap_err();
    assert!(matches!(error, JournalError::Open { .. }), "{error}");
    std::fs::remove_dir(&obstacle).unwrap();
    let (journal, recovered) = Journal::open(&config).unwrap();
    assert_eq!(recovered, Recovered::default());
    assert_eq!(journal.counts.unreadable_bytes, text.len() as u64);
    assert_eq!(std::fs::read(&files_beside(&config, "damaged-")[0]).unwrap(), text);
}

#[tokio::test]
async fn a_journal_begins_with_its_format_also_after_a_first_write_that_failed() {
    let (_folder, config) = new_config(1 << 20);
    let disk = Arc::new(SmallDisk::new(10));
    let (mut journal, _) = Journal::open_on(disk.clone(), &config).unwrap();
    journal.append(&opened(1));
    assert_eq!(journal.flush().await, Flush::Failed);
    disk.free.store(1 << 30, Relaxed);
    written(&mut journal, &[opened(2)]).await;
    written(&mut journal, &[opened(3)]).await;
    drop(journal);
    written(&mut Journal::open(&config).unwrap().0, &[opened(4)]).await;
    let text = std::fs::read_to_string(path(&config)).unwrap();
    let entries: Vec<_> = text.lines().map(|line| line.split_once('\t').unwrap().0).collect();
    let expected =
        [r#"{"format":3}"#, r#"{"opened":2}"#, r#"{"opened":3}"#, r#"{"format":3}"#, r#"{"opened":4}"#];
    assert_eq!(entries, expected);
}

#[test]
fn a_journal_has_one_writer() {
    let (_folder, config) = new_config(1 << 20);
    let first = Journal::open(&config).unwrap();
    assert!(matches!(Journal::open(&config).unwrap_err(), JournalError::Locked { .. }));
    drop(first);
    assert!(Journal::open(&config).is_ok());
}

#[test]
fn a_missing_folder_is_named() {
    let (folder, config) = new_config(1);
    let config = JournalSettings { path: Some(folder.path().join("none/journal")), ..config };
    let error = Journal::open(&config).unwrap_err();
    assert!(error.to_string().contains("none/journal"), "{error}");
}

/// Writes 10,000 samples, about 5 MB, to a journal bounded at 300 KB. The lines that must stay are twice as large as the bound, so the
/// file is compacted whenever it has grown to twice the size of these lines.
#[tokio::test]
async fn a_bounded_journal_keeps_the_settled_counts_the_open_samples_and_the_latest_decisions() {
    let (_folder, config) = new_config(300_000);
    let config = JournalSettings { sync: JournalSync::Always, ..config };
    let (mut journal, _) = Journal::open(&config).unwrap();
    let mut settled = Settled::default();
    written(&mut journal, &[opened(7), Entry::Dropped { sample: SampleId(8), reason: Dropped::Shed }]).await;
    settled.dropped.insert(Dropped::Shed, 1);
    for round in 0..100 {
        let samples = 10 + round * 100..110 + round * 100;
        let entries: Vec<_> = samples.clone().flat_map(|sample| [opened(sample), decided(sample)]).collect();
        written(&mut journal, &entries).await;
        settled.decided += 100;
        settled.highest = SampleId(samples.end - 1);
        let ranges = vec![(SampleId(10), SampleId(samples.end - 1))];
        let entries = [
            Entry::Numbering(Some(Numbering::Trigger)),
            Entry::ClosedRanges { floor: Some(SampleId(6)), ranges },
        ];
        journal.compact_if_full(&settled, entries.into_iter(), [SampleId(7)].into_iter());
    }
    assert!(journal.counts.compactions > 2);
    let size = std::fs::metadata(path(&config)).unwrap().len();
    assert!(size < 1_500_000, "{size}");
    drop(journal);
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!(recovered.settled, Settled { highest: SampleId(10_009), ..settled });
    assert_eq!(recovered.open, [SampleId(7)]);
    assert_eq!(recovered.decisions.last(), Some(&decision(10_009)));
    assert_eq!(recovered.decisions.len(), MAX_WHOLE_LINES);
    assert_eq!((recovered.floor, recovered.numbering), (Some(SampleId(6)), Some(Numbering::Trigger)));
    let is_closed =
        |id| recovered.closed.iter().any(|(first, last)| (*first..=*last).contains(&SampleId(id)));
    assert!(is_closed(10) && is_closed(10_009));
    assert!(!is_closed(9), "a sample that never opened");
}

#[tokio::test]
async fn a_compaction_counts_a_result_that_the_broker_refused_once() {
    let (_folder, config) = new_config(1);
    let (mut journal, _) = Journal::open(&config).unwrap();
    let refused = Entry::Dropped { sample: SampleId(1), reason: Dropped::ResultRefused };
    written(&mut journal, &[decided(1), decided(2), refused]).await;
    let settled = Settled { highest: SampleId(2), decided: 1, dropped: [(Dropped::ResultRefused, 1)].into() };
    let ranges = Entry::ClosedRanges { floor: None, ranges: vec![(SampleId(1), SampleId(2))] };
    journal.compact_if_full(&settled, [ranges].into_iter(), std::iter::empty());
    assert_eq!(journal.counts.compactions, 1);
    drop(journal);
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!((recovered.settled, recovered.decisions), (settled, vec![decision(2)]));
}

#[tokio::test]
async fn lines_before_a_new_numbering_do_not_come_back_when_the_file_is_compacted() {
    let (_folder, config) = new_config(1);
    let (mut journal, _) = Journal::open(&config).unwrap();
    let implausible = Entry::Dropped { sample: SampleId(1 << 40), reason: Dropped::Shed };
    written(&mut journal, &[decided(1 << 40), implausible, Entry::Numbering(None), decided(3)]).await;
    let settled = Settled { highest: SampleId(3), decided: 2, dropped: [(Dropped::Shed, 1)].into() };
    for reopened in [false, true] {
        if reopened {
            drop(journal);
            journal = Journal::open(&config).unwrap().0;
        }
        let ranges = vec![(SampleId(3), SampleId(3))];
        let entries = [Entry::ClosedRanges { floor: None, ranges: ranges.clone() }];
        journal.compact_if_full(&settled, entries.into_iter(), std::iter::empty());
        let text = std::fs::read(path(&config)).unwrap();
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let recovered = replay(lines.map(|line| Entry::read_line(line).unwrap()));
        assert_eq!((recovered.settled.clone(), recovered.decisions), (settled.clone(), vec![decision(3)]));
        assert_eq!(recovered.closed.first(), ranges.first());
    }
}

/// The file grows until it is compacted; the number of remembered lines stays bounded.
#[tokio::test]
async fn only_the_latest_lines_are_remembered() {
    let (_folder, config) = new_config(1 << 30);
    let (mut journal, _) = Journal::open(&config).unwrap();
    for round in 0..50 {
        let entries: Vec<_> = (round * 100..round * 100 + 100).map(decided).collect();
        written(&mut journal, &entries).await;
        assert!(store(&mut journal).closed.len() <= 2 * MAX_WHOLE_LINES);
    }
}

#[tokio::test]
async fn without_a_file_nothing_is_written() {
    let none = JournalSettings { path: None, max_bytes: 1, sync: JournalSync::Never };
    let (mut journal, _) = Journal::open(&none).unwrap();
    written(&mut journal, &[opened(1), decided(1)]).await;
    assert_eq!(journal.counts, JournalCounts::default());
}

#[test]
fn the_three_newest_damaged_files_are_kept() {
    let (_folder, config) = new_config(1 << 20);
    for round in 1..=12 {
        let text = [lines(&[opened(round)]), b"damage\n".to_vec(), lines(&[decided(round)])].concat();
        std::fs::write(path(&config), text).unwrap();
        let (journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!((journal.counts.unreadable_bytes, recovered.decisions.len()), (7, 1));
    }
    let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    let mut kept: Vec<_> = files_beside(&config, "damaged-").iter().map(name).collect();
    kept.sort();
    assert_eq!(kept, ["journal.damaged-10", "journal.damaged-11", "journal.damaged-12"]);
}

/// The two texts are left by a kill within the first line, the zeros by a power loss before the first page was written.
#[test]
fn a_journal_that_lost_its_first_line_is_begun_again() {
    for text in [&b"{\"opened\":1"[..], b"{\"dec", &[0; 4096]] {
        let (_folder, config) = new_config(1 << 20);
        std::fs::write(path(&config), text).unwrap();
        let (_, recovered) = Journal::open(&config).unwrap();
        assert_eq!(recovered, Recovered::default());
        assert_eq!(std::fs::read(&files_beside(&config, "damaged-")[0]).unwrap(), text);
    }
}

#[tokio::test]
async fn a_damaged_journal_that_cannot_be_set_aside_goes_on_in_its_file() {
    let (folder, config) = new_config(1 << 20);
    // A folder with the name of the new file, so that the file cannot be made.
    std::fs::create_dir(folder.path().join("journal.new")).unwrap();
    std::fs::write(path(&config), [lines(&[opened(1)]), b"damage at the end".to_vec()].concat()).unwrap();
    for samples in 1..4 {
        let (mut journal, recovered) = Journal::open(&config).unwrap();
        assert_eq!(recovered.open, (1..=samples).map(SampleId).collect::<Vec<_>>());
        written(&mut journal, &[opened(samples + 1)]).await;
        assert_eq!(files_beside(&config, "damaged-").len(), 0);
    }
}

#[test]
fn every_line_outside_the_damage_counts_wherever_the_damage_is() {
    let whole = lines(&(1..=6).flat_map(|sample| [opened(sample), decided(sample)]).collect::<Vec<_>>());
    let last = lines(&[opened(7)]);
    for start in (0..whole.len()).step_by(97) {
        for (length, byte) in [(1, 0), (300, 0), (1, b'x'), (300, 0xff), (40, b'\n')] {
            let (_folder, config) = new_config(1 << 20);
            let mut text = whole.clone();
            let end = whole.len().min(start + length);
            text[start..end].fill(byte);
            std::fs::write(path(&config), [&text[..], &last].concat()).unwrap();
            let disk = Arc::new(SmallDisk::new(1 << 30));
            let (_, recovered) = Journal::open_on(disk, &config).unwrap();
            let mut at = 0;
            let mut untouched = whole.split_inclusive(|byte| *byte == b'\n').filter(|line| {
                at += line.len();
                at <= start || at - line.len() > end
            });
            // The damage may have taken the newline in front of the last line.
            let is_last_apart = end < whole.len() || matches!(byte, 0 | b'\n');
            assert!(!is_last_apart || recovered.open.contains(&SampleId(7)), "{start} {length} {byte}");
            let found: BTreeSet<_> = recovered.decisions.iter().map(|decision| decision.sample).collect();
            assert!(
                untouched.all(|line| match Entry::read_line(line).unwrap() {
                    Entry::Decided(decision) => found.contains(&decision.sample),
                    _ => true,
                }),
                "{start} {length} {byte}"
            );
        }
    }
}

#[tokio::test]
async fn sync_always_syncs_the_folder_of_a_file_that_is_new_or_was_replaced() {
    for (sync, expected) in [(JournalSync::Always, [1, 1, 2]), (JournalSync::Never, [0; 3])] {
        let (_folder, config) = new_config(1);
        let config = JournalSettings { sync, ..config };
        let disk = Arc::new(SmallDisk::new(1 << 30));
        let (mut journal, _) = Journal::open_on(disk.clone(), &config).unwrap();
        let mut syncs = vec![disk.folder_syncs.load(Relaxed)];
        written(&mut journal, &[opened(1)]).await;
        written(&mut journal, &[decided(1)]).await;
        syncs.push(disk.folder_syncs.load(Relaxed));
        journal.compact_if_full(&Settled::default(), closed_up_to(1), [].into_iter());
        written(&mut journal, &[opened(2)]).await;
        syncs.push(disk.folder_syncs.load(Relaxed));
        assert_eq!(syncs, expected);
    }
}

#[test]
fn the_folder_of_a_file_can_be_synced() {
    let folder = TempDir::new().unwrap();
    SystemDisk.sync_folder_of(&folder.path().join("journal")).unwrap();
    SystemDisk.sync_folder_of(Path::new("journal")).unwrap();
    assert!(SystemDisk.sync_folder_of(&folder.path().join("none/journal")).is_err());
}

#[tokio::test]
async fn a_failed_compaction_leaves_the_old_file_in_use_and_is_tried_again_later() {
    let (folder, config) = new_config(1);
    let obstacle = folder.path().join("journal.new");
    std::fs::create_dir(&obstacle).unwrap();
    let (mut journal, _) = Journal::open(&config).unwrap();
    let settled = Settled { highest: SampleId(1), decided: 1, ..Settled::default() };
    let compact = |journal: &mut Journal| {
        journal.compact_if_full(&settled, closed_up_to(1), [].into_iter());
        (journal.counts.compactions, journal.counts.failed_compactions)
    };
    written(&mut journal, &[opened(1), decided(1)]).await;
    assert_eq!(compact(&mut journal), (0, 1));
    assert_eq!(compact(&mut journal), (0, 1), "not tried again at once");
    assert!(store(&mut journal).compact_after.is_some_and(|after| after > Instant::now()));
    std::fs::remove_dir(&obstacle).unwrap();
    store(&mut journal).compact_after = Some(Instant::now());
    assert_eq!(compact(&mut journal), (1, 1));
    written(&mut journal, &[opened(2)]).await;
    drop(journal);
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!((recovered.decisions, recovered.open), (vec![decision(1)], vec![SampleId(2)]));
}

#[tokio::test]
async fn on_a_full_disk_open_samples_use_the_reserve_and_then_nothing_is_decided_until_there_is_room() {
    let (_folder, config) = new_config(1 << 30);
    let disk = Arc::new(SmallDisk::new(3 * RESERVE_BYTES));
    let (mut journal, _) = Journal::open_on(disk.clone(), &config).unwrap();
    assert!(journal.has_room() && files_beside(&config, "reserve").len() == 1);
    written(&mut journal, &[opened(1), opened(2)]).await;

    // Another program takes the room: the decision in flight is still written.
    disk.free.store(10, Relaxed);
    written(&mut journal, &[decided(1)]).await;
    assert!(!journal.has_room() && journal.counts.is_full);
    assert_eq!(files_beside(&config, "reserve").len(), 0, "the reserve is used");

    // The rest of the reserve is gone too: the write fails, and the file keeps no part of the entry.
    disk.free.store(10, Relaxed);
    journal.append(&decided(2));
    assert_eq!(journal.flush().await, Flush::Failed);
    let now = Instant::now();
    assert!(journal.next_try().is_some_and(|at| at <= now + RETRY && journal.may_write(at)));
    assert!(!journal.may_write(now - RETRY), "not tried again at once");
    assert_eq!(journal.flush().await, Flush::Written, "the buffer is empty");

    // Room is back.
    disk.free.store(4 * RESERVE_BYTES, Relaxed);
    written(&mut journal, &[decided(2)]).await;
    assert!(!journal.has_room(), "nothing is reserved yet");
    journal.reserve_again(Instant::now() + RETRY);
    assert!(journal.has_room() && !journal.counts.is_full && journal.next_try().is_none());
    written(&mut journal, &[opened(3)]).await;
    assert_eq!(journal.counts.failed_writes, 1);
    drop(journal);
    let (journal, recovered) = Journal::open_on(disk, &config).unwrap();
    assert_eq!(recovered.decisions, [decision(1), decision(2)]);
    assert_eq!((recovered.open, journal.counts.torn_bytes), (vec![SampleId(3)], 0));
    assert_eq!(journal.counts.unreadable_bytes, 0);
}

#[test]
fn a_leader_that_starts_on_a_full_disk_waits_for_room() {
    let (_folder, config) = new_config(1 << 20);
    let disk = Arc::new(SmallDisk::new(100));
    let (mut journal, _) = Journal::open_on(disk.clone(), &config).unwrap();
    assert!(!journal.has_room() && journal.counts.is_full);
    let mut now = Instant::now();
    for (free, has_room) in [(100, false), (2 * RESERVE_BYTES - 1, false), (2 * RESERVE_BYTES, true)] {
        disk.free.store(free, Relaxed);
        now += RETRY;
        journal.reserve_again(now);
        assert_eq!(journal.has_room(), has_room, "{free}");
    }
}

/// The lines of a failed batch must not be compacted into the file.
#[tokio::test]
async fn lines_that_were_not_written_are_forgotten() {
    let (_folder, config) = new_config(1);
    let disk = Arc::new(SmallDisk::new(1 << 30));
    let (mut journal, _) = Journal::open_on(disk.clone(), &config).unwrap();
    written(&mut journal, &[opened(1), decided(1)]).await;
    let free = disk.free.swap(0, Relaxed);
    disk.release(&path(&config).with_added_extension("reserve"));
    disk.free.store(0, Relaxed);
    journal.append(&decided(2));
    assert_eq!(journal.flush().await, Flush::Failed);
    disk.free.store(free, Relaxed);
    written(&mut journal, &[opened(3)]).await;
    journal.reserve_again(Instant::now() + RETRY);
    let settled = Settled { highest: SampleId(1), decided: 1, ..Settled::default() };
    journal.compact_if_full(&settled, closed_up_to(1), [SampleId(3)].into_iter());
    assert_eq!(journal.counts.compactions, 1);
    drop(journal);
    let (_, recovered) = Journal::open(&config).unwrap();
    assert_eq!((recovered.decisions, recovered.open), (vec![decision(1)], vec![SampleId(3)]));
}
