//! The spool as a whole: bounds, restarts, damage, settling, and files of format 1.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::eviction::MIN_BYTES;
use super::given_up::MAX_GIVEN_UP;
use super::owner::tests::owner;
use super::segment::header;
use super::send_schedule::{MAX_OUTSTANDING, RESEND_US};
use super::*;
use crate::error::DeviceError;

const NETWORK: NetworkId = NetworkId([7; 32]);
const MANY_BYTES: u64 = 64 << 20;

fn folder(dir: &Path) -> SpoolFolder {
    SpoolFolder { path: dir.join("spool"), owner: owner("cam-2") }
}

fn open(dir: &Path, max_bytes: u64) -> Spool {
    open_folder(&folder(dir), max_bytes, NETWORK).unwrap()
}

fn open_folder(folder: &SpoolFolder, max_bytes: u64, network: NetworkId) -> Result<Spool, DeviceError> {
    Spool::open(folder, max_bytes, network, SharedReport::default())
}

fn on_disk(max_bytes: u64) -> (tempfile::TempDir, Spool) {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path(), max_bytes);
    (dir, spool)
}

fn in_memory(max_bytes: u64) -> Spool {
    Spool::in_memory(max_bytes, NETWORK, SharedReport::default())
}

/// Numbers of damaged files and of segments of other devices that the spool counted.
fn counted(spool: &Spool) -> (u64, u64) {
    let report = spool.report.lock();
    (report.state_damaged, report.segments_of_others)
}

/// The start of the device.
const NOW: Timestamp = Timestamp { us: 0, since_1970: Duration::from_secs(1_000_000) };

/// A late answer with this many bytes of features.
fn answer(sample: u64, features: usize) -> Answer {
    Answer {
        sample: SampleId(sample),
        captured_us: NOW.us_of(sample * 3),
        sent_us: 0,
        message: (0..20).map(|at| (sample * 7 + at) as u8).collect(),
        features: vec![sample as u8; features],
        is_late: true,
        passed_over: 0,
    }
}

fn put(spool: &mut Spool, sample: u64) {
    put_of(spool, sample, 40, None);
}

fn put_of(spool: &mut Spool, sample: u64, features: usize, due_us: Option<u64>) {
    spool.put(&answer(sample, features), NOW, due_us);
}

#[track_caller]
fn check_whole(spool: &mut Spool, sample: u64) {
    assert_eq!(spool.read(SampleId(sample), NOW), Some(answer(sample, 40)));
}

fn due(spool: &mut Spool, now_us: u64, max_due: usize) -> Vec<u64> {
    spool.due(now_us, max_due).into_iter().map(|sample| sample.0).collect()
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = (fs::read_dir(dir.join("spool")).unwrap())
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn notice(closed: &[(u64, u64)], late: &[u64]) -> SettledNotice {
    SettledNotice {
        late: late.iter().map(|id| SampleId(*id)).collect(),
        closed: closed.iter().map(|(first, last)| (SampleId(*first), SampleId(*last))).collect(),
        ..SettledNotice::default()
    }
}

fn is_given_up(spool: &mut Spool, sample: u64) -> bool {
    spool.read(SampleId(sample), NOW).is_none() && spool.samples.contains_key(&SampleId(sample))
}

fn given_up(spool: &Spool) -> Vec<(&'static str, u64)> {
    spool.report.lock().given_up.iter().map(|(reason, count)| (*reason, *count)).collect()
}

#[test]
fn the_next_start_finds_spooled_samples_and_removes_segments_whose_samples_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    for start in 0..3 {
        let mut spool = open(dir.path(), MANY_BYTES);
        assert_eq!(spool.len(), 2 * start as usize);
        (0..2 * start).for_each(|sample| check_whole(&mut spool, sample));
        put(&mut spool, 2 * start);
        put(&mut spool, 2 * start + 1);
        assert!(spool.is_on_disk());
    }
    assert_eq!(files(dir.path()), ["00000001.seg", "00000002.seg", "00000003.seg"]);
    let mut spool = open(dir.path(), MANY_BYTES);
    assert_eq!(due(&mut spool, 0, 9), [0, 1, 2, 3, 4, 5]);
    spool.settle(&notice(&[], &[0, 1, 3, 99]));
    assert_eq!(files(dir.path()), ["00000002.seg", "00000003.seg"]);
    spool.settle(&notice(&[], &[2, 4, 5]));
    assert_eq!((spool.len(), spool.bytes()), (0, 0));
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn a_sample_sent_late_is_sent_again_until_it_is_settled() {
    let mut spool = in_memory(MANY_BYTES);
    (0..1000).for_each(|sample| put(&mut spool, sample));
    let first = due(&mut spool, 0, 1000);
    assert_eq!(first, (0..MAX_OUTSTANDING as u64).collect::<Vec<_>>());
    first.iter().for_each(|sample| spool.sent_late(SampleId(*sample), 0));
    assert_eq!(due(&mut spool, RESEND_US - 1, 9), [0; 0]);
    spool.settle(&notice(&[], &[1]));
    assert_eq!(due(&mut spool, RESEND_US - 1, 9), [256]);
    assert_eq!(due(&mut spool, RESEND_US, 3), [0, 2, 3]);
}

#[test]
fn over_its_bound_the_oldest_segment_is_evicted_and_its_ids_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for mut spool in [open(dir.path(), 64 << 10), in_memory(64 << 10)] {
        (0..1000).for_each(|sample| put_of(&mut spool, sample, 1000, None));
        assert!(spool.bytes() <= 64 << 10, "{}", spool.bytes());
        assert_eq!(spool.len(), 1000, "all ids are there");
        let kept = (0..1000).filter(|sample| !is_given_up(&mut spool, *sample)).count() as u64;
        assert!((50..65).contains(&kept), "{kept}");
        assert!(!is_given_up(&mut spool, 999) && is_given_up(&mut spool, 0));
        assert_eq!(given_up(&spool), [("spool_full", 1000 - kept)]);
        assert_eq!(due(&mut spool, 0, 2), [0, 1]);
        spool.settle(&notice(&[], &(0..1000).collect::<Vec<_>>()));
        assert_eq!((spool.len(), spool.bytes()), (0, 0));
    }
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn the_next_start_knows_the_given_up_samples() {
    let (dir, mut spool) = on_disk(64 << 10);
    (0..200).for_each(|sample| put_of(&mut spool, sample, 1000, None));
    let kept = (0..200).filter(|sample| !is_given_up(&mut spool, *sample)).count();
    drop(spool);
    let mut spool = open(dir.path(), 64 << 10);
    assert_eq!(due(&mut spool, 0, 999).len(), 200);
    assert_eq!((0..200).filter(|sample| !is_given_up(&mut spool, *sample)).count(), kept);
    spool.settle(&notice(&[], &[0]));
    assert_eq!(open(dir.path(), 64 << 10).len(), 200, "the file of ids goes when none is left");
    spool.settle(&notice(&[], &(0..200).collect::<Vec<_>>()));
    assert_eq!(files(dir.path()), [""; 0]);
}

#[test]
fn small_samples_count_as_much_as_they_take_in_memory() {
    let mut spool = in_memory(64 << 10);
    (0..1000).for_each(|sample| put_of(&mut spool, sample, 0, None));
    let kept = (0..1000).filter(|sample| !is_given_up(&mut spool, *sample)).count() as u64;
    assert!(kept <= (64 << 10) / MIN_BYTES, "{kept}");
}

#[test]
fn a_sample_larger_than_the_spool_is_given_up_alone() {
    let mut spool = in_memory(4 << 10);
    put(&mut spool, 0);
    put_of(&mut spool, 1, 5000, None);
    check_whole(&mut spool, 0);
    assert!(is_given_up(&mut spool, 1));
}

#[test]
fn a_lower_bound_holds_for_recovered_samples() {
    let (dir, mut spool) = on_disk(MANY_BYTES);
    (0..100).for_each(|sample| put_of(&mut spool, sample, 5000, None));
    drop(spool);
    let spool = open(dir.path(), 300 << 10);
    assert!(spool.bytes() <= 300 << 10, "{}", spool.bytes());
    assert_eq!(spool.len(), 100);
}

#[test]
fn the_ids_of_given_up_samples_are_bounded() {
    let mut spool = in_memory(0);
    let most = MAX_GIVEN_UP as u64;
    (0..most + 3).for_each(|sample| put(&mut spool, sample));
    assert_eq!((spool.len() as u64, spool.report.lock().lost), (most, 3));
    assert_eq!(due(&mut spool, 0, 1), [3], "the lowest are forgotten");
    spool.settle(&notice(&[], &[3]));
    put(&mut spool, most + 3);
    assert_eq!(spool.report.lock().lost, 3);
}

#[test]
fn answers_of_another_network_are_given_up_and_their_segment_stays_until_they_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let other = NetworkId([8; 32]);
    let mut spool = open_folder(&folder(dir.path()), MANY_BYTES, other).unwrap();
    put(&mut spool, 1);
    put(&mut spool, 2);
    drop(spool);
    for _ in 0..2 {
        let mut spool = open(dir.path(), MANY_BYTES);
        assert!(is_given_up(&mut spool, 1) && is_given_up(&mut spool, 2));
        assert_eq!(given_up(&spool), [("other_network", 2)]);
        assert_eq!(due(&mut spool, 0, 9), [1, 2]);
    }
    open(dir.path(), MANY_BYTES).settle(&notice(&[], &[1, 2]));
    assert_eq!(files(dir.path()), [""; 0]);
}

/// Offset of the first record in a segment, in bytes.
fn first_record() -> usize {
    header(NETWORK, &owner("cam-2")).len()
}

/// A folder with one segment of the samples 0, 1 and 2, and the path and the bytes of this segment.
fn three() -> (tempfile::TempDir, std::path::PathBuf, Vec<u8>) {
    let (dir, mut spool) = on_disk(MANY_BYTES);
    (0..3).for_each(|sample| put(&mut spool, sample));
    let file = dir.path().join("spool/00000001.seg");
    let bytes = fs::read(&file).unwrap();
    (dir, file, bytes)
}

#[test]
fn a_segment_cut_at_any_byte_of_its_last_record_keeps_the_records_before() {
    let (dir, file, bytes) = three();
    let first = first_record();
    let record = (bytes.len() - first) / 3;
    for left in 0..record {
        fs::write(&file, &bytes[..first + 2 * record + left]).unwrap();
        let mut spool = open(dir.path(), MANY_BYTES);
        (0..2).for_each(|sample| check_whole(&mut spool, sample));
        // If the record's header is cut, not even the sample's id is known.
        let is_known = left >= record::RECORD_HEADER_BYTES;
        assert_eq!(spool.len(), if is_known { 3 } else { 2 }, "{left} bytes are left");
        assert_eq!(is_given_up(&mut spool, 2), is_known);
        assert_eq!(given_up(&spool), if left == 0 { vec![] } else { vec![("unreadable", 1)] });
        put(&mut spool, 3);
        check_whole(&mut spool, 3);
        spool.settle(&notice(&[], &[3]));
    }
}

#[test]
fn a_byte_altered_anywhere_is_never_taken_for_an_answer() {
    let (dir, file, bytes) = three();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1 << (at % 8);
        fs::write(&file, &altered).unwrap();
        let mut spool = open(dir.path(), MANY_BYTES);
        for sample in spool.due(0, 9) {
            if !is_given_up(&mut spool, sample.0) {
                check_whole(&mut spool, sample.0);
            }
        }
        assert_eq!(given_up(&spool), [("unreadable", 1)], "altered at {at}");
    }
}

#[test]
fn a_file_altered_while_it_is_in_use_is_noticed_when_it_is_read() {
    let (dir, file, mut bytes) = three();
    let mut spool = open(dir.path(), MANY_BYTES);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert!(is_given_up(&mut spool, 2));
    fs::write(&file, &bytes[..first_record() + 3]).unwrap();
    assert!(is_given_up(&mut spool, 0));
    fs::remove_file(&file).unwrap();
    assert!(is_given_up(&mut spool, 1));
    assert_eq!(given_up(&spool), [("unreadable", 3)]);
    assert_eq!(due(&mut spool, 0, 9), [0, 1, 2]);
}

#[test]
fn a_segment_of_format_1_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let of_1 = include_bytes!("../../tests/fixtures/format-1/spool/00000001.seg");
    fs::create_dir(dir.path().join("spool")).unwrap();
    let path = dir.path().join("spool/00000001.seg");
    fs::write(&path, of_1).unwrap();
    let error = open_folder(&folder(dir.path()), MANY_BYTES, NETWORK).unwrap_err().to_string();
    let expected = format!(
        "state folder {}: expected format 2, found format 1: start once with the release that wrote it until its spool is empty and then \
         move the folder away, or name another one (state_dir)",
        path.display()
    );
    assert_eq!(error, expected);
    assert_eq!(fs::read(&path).unwrap(), of_1);
}

#[test]
fn files_that_are_no_segments_are_left_alone_or_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("spool")).unwrap();
    let path = |name: &str| dir.path().join("spool").join(name);
    fs::write(path("notes.txt"), "mine").unwrap();
    fs::write(path("00000004.seg"), "mine as well").unwrap();
    fs::write(path("00000005.seg"), "HWSP").unwrap();
    fs::create_dir(path("00000006.seg")).unwrap();
    fs::write(path("00000007.seg"), "").unwrap();
    let mut spool = open(dir.path(), MANY_BYTES);
    assert_eq!((given_up(&spool), counted(&spool)), (vec![("unreadable", 2)], (2, 0)));
    put(&mut spool, 1);
    let expected = ["00000004.seg.damaged-1", "00000006.seg.damaged-2", "00000008.seg", "notes.txt"];
    assert_eq!(files(dir.path()), expected);
    assert_eq!(fs::read(path("00000004.seg.damaged-1")).unwrap(), b"mine as well");
    let mut spool = open(dir.path(), MANY_BYTES);
    check_whole(&mut spool, 1);
    assert_eq!((given_up(&spool), counted(&spool)), (vec![], (0, 0)), "they are no trouble any more");
}

/// After a power loss, pages that were not written are zero.
#[test]
fn zero_pages_in_a_segment_cost_only_the_samples_in_them() {
    let (dir, file, bytes) = three();
    let first = first_record();
    let record = (bytes.len() - first) / 3;
    // Zeros in the segment's header, in all of the second record, in a part of it, in the last record, and everywhere.
    for (from, to, left) in [
        (0, first, vec![]),
        (first + record, first + 2 * record, vec![0, 2]),
        (first + record + 4, first + record + 40, vec![0, 2]),
        (first + 2 * record, bytes.len(), vec![0, 1]),
        (0, bytes.len(), vec![]),
    ] {
        let mut zeroed = bytes.clone();
        zeroed[from..to].fill(0);
        zeroed.extend_from_slice(&[0; 300]);
        for name in fs::read_dir(file.parent().unwrap()).unwrap() {
            fs::remove_file(name.unwrap().path()).unwrap();
        }
        fs::write(&file, &zeroed).unwrap();
        let mut spool = open(dir.path(), MANY_BYTES);
        assert_eq!(due(&mut spool, 0, 9), left, "zero from {from} to {to}");
        left.iter().for_each(|sample| check_whole(&mut spool, *sample));
        assert!(counted(&spool).0 > 0 && !given_up(&spool).is_empty());
        put(&mut spool, 9);
        check_whole(&mut spool, 9);
    }
}

#[test]
fn a_segment_of_another_device_is_set_aside_and_never_sent() {
    let changes: [fn(&mut Owner); 4] = [
        |owner| owner.device = headwater_protocol::DeviceId::new("cam-3").unwrap(),
        |owner| owner.slot = headwater_protocol::Slot::new(3).unwrap(),
        |owner| owner.group = headwater_protocol::GroupId::new("door").unwrap(),
        |owner| owner.site = headwater_protocol::SiteId::new("yard").unwrap(),
    ];
    for change in changes {
        let (dir, file, bytes) = three();
        let mut other = folder(dir.path());
        change(&mut other.owner);
        let mut spool = open_folder(&other, MANY_BYTES, NETWORK).unwrap();
        assert_eq!((spool.len(), counted(&spool), given_up(&spool)), (0, (0, 1), vec![]));
        put(&mut spool, 7);
        assert_eq!(files(dir.path()), ["00000001.seg.other-1", "00000002.seg"]);
        // An operator puts the file back for the device that it belongs to.
        fs::rename(file.with_extension("seg.other-1"), &file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), bytes);
        let mut spool = open(dir.path(), MANY_BYTES);
        assert_eq!((due(&mut spool, 0, 9), counted(&spool)), (vec![0, 1, 2], (0, 1)));
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("spool"), "a file").unwrap();
    let error = open_folder(&folder(dir.path()), MANY_BYTES, NETWORK).unwrap_err().to_string();
    assert!(error.starts_with("spool in ") && error.contains("spool: "), "{error}");
}

#[test]
fn a_sample_that_cannot_be_written_is_given_up_and_later_ones_are_kept() {
    let (dir, mut spool) = on_disk(MANY_BYTES);
    put(&mut spool, 1);
    spool.settle(&notice(&[], &[1]));
    let folder = dir.path().join("spool");
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    put(&mut spool, 2);
    assert!(is_given_up(&mut spool, 2));
    assert_eq!(given_up(&spool), [("disk", 1)]);
    fs::remove_file(&folder).unwrap();
    put(&mut spool, 3);
    check_whole(&mut spool, 3);
    assert_eq!(due(&mut spool, 0, 9), [2, 3]);
    drop(spool);
    let mut spool = open(dir.path(), MANY_BYTES);
    assert!(is_given_up(&mut spool, 2), "its id was written as soon as there was room");
    check_whole(&mut spool, 3);
}

#[test]
fn a_sample_given_up_by_the_agent_is_due_again() {
    let mut spool = in_memory(MANY_BYTES);
    put(&mut spool, 1);
    spool.sent_late(SampleId(1), 0);
    assert_eq!(due(&mut spool, 1, 9), [0; 0]);
    spool.give_up(SampleId(1), GiveUpReason::REFUSED, "too large");
    spool.give_up(SampleId(2), GiveUpReason::REFUSED, "too large");
    assert_eq!(due(&mut spool, 1, 9), [1, 2]);
    assert_eq!(given_up(&spool), [("refused", 2)]);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize, bool),
    SendLate(usize),
    Settle((u64, u64), Vec<u64>),
    Disconnect,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let sample = 0..60_u64;
    prop_oneof![
        6 => (sample.clone(), 0..3000_usize, any::<bool>()).prop_map(|(id, bytes, sent)| Step::Put(id, bytes, sent)),
        2 => (0..40_usize).prop_map(Step::SendLate),
        2 => ((sample.clone(), sample.clone()), vec(sample, 0..6)).prop_map(|(closed, late)| Step::Settle(closed, late)),
        1 => Just(Step::Disconnect),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the spool with a map from each spooled sample to the number of bytes of its features.
    #[test]
    fn nothing_is_lost_and_nothing_comes_back_before_a_restart(steps in vec(step(), 0..80)) {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = open(dir.path(), MANY_BYTES);
        // Small segments give many segments.
        spool.segment_bytes = 6000;
        let mut model: BTreeMap<u64, usize> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(id, bytes, is_sent) => {
                    put_of(&mut spool, id, bytes, is_sent.then_some(0));
                    model.insert(id, bytes);
                }
                Step::SendLate(max_due) => due(&mut spool, 1, max_due).into_iter().for_each(|id| spool.sent_late(SampleId(id), 1)),
                Step::Settle(closed, late) => {
                    let notice = notice(&[closed], &late);
                    spool.settle(&notice);
                    model.retain(|id, _| !late.contains(id) && !notice.covers(SampleId(*id)));
                }
                Step::Disconnect => spool.disconnected(),
                Step::Restart => {
                    spool = open(dir.path(), MANY_BYTES);
                    spool.segment_bytes = 6000;
                    // A settled sample comes back with the segment that holds its record; the leader settles it once more.
                    let settled: Vec<u64> =
                        spool.samples.keys().map(|id| id.0).filter(|id| !model.contains_key(id)).collect();
                    spool.settle(&notice(&[], &settled));
                }
            }
            let ids: Vec<u64> = spool.samples.keys().map(|id| id.0).collect();
            prop_assert_eq!(&ids, &model.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(spool.segments.values().map(|segment| segment.live as usize).sum::<usize>(), model.len());
            prop_assert_eq!(files(dir.path()).len(), spool.segments.len());
        }
        for (id, bytes) in model {
            prop_assert_eq!(spool.read(SampleId(id), NOW), Some(answer(id, bytes)));
        }
    }
}
