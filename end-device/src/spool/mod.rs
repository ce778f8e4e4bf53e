//! The spool: answers that wait to be sent late, in segments on disk or in memory.
//!
//! ```text
//! index in memory                    folder
//! sample 7  --> segment 1, offset --> 00000001.seg   oldest: evicted first
//! sample 8  --> segment 2, offset --> 00000002.seg   newest: appended to
//! sample 3  --> given up          --> given_up       ids alone
//! ```
//!
//! A segment names the device whose answers it holds (`owner.rs`). A new process reads the segments again (`recovery.rs`). A spool with too
//! many bytes evicts its oldest segment (`eviction.rs`): it keeps the ids of the evicted samples, and reports these to the leader as given
//! up. Times are microseconds since the device's start.

mod eviction;
mod given_up;
mod owner;
mod record;
mod recovery;
mod segment;
mod send_schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use headwater_protocol::{NetworkId, SampleId, SettledNotice};
use tracing::{info, warn};

use given_up::GivenUpIds;
pub(crate) use owner::Owner;
use record::{ParsedRecord, Record};
use segment::Segment;
use send_schedule::SendSchedule;

use crate::answer::Answer;
use crate::give_up_reason::GiveUpReason;
use crate::report::SharedReport;
use crate::timestamp::Timestamp;

/// Unsettled samples, bounded by bytes.
#[derive(Debug)]
pub(crate) struct Spool {
    samples: BTreeMap<SampleId, SpoolEntry>,
    segments: BTreeMap<u32, Segment>,
    /// Number of the segment to which records are appended; `None` if the next record begins a new segment.
    current: Option<u32>,
    last_number: u32,
    schedule: SendSchedule,
    /// Number of given-up samples.
    given_up: usize,
    /// Number of given-up samples that lie in no segment.
    without_segment: usize,
    /// File of the ids of given-up samples that no segment holds.
    ids: GivenUpIds,
    /// Counts samples that are given up, and files that are set aside.
    report: SharedReport,
    folder: Option<SpoolFolder>,
    network: NetworkId,
    max_bytes: u64,
    segment_bytes: u64,
    /// True while the disk takes no samples.
    disk_failing: bool,
}

/// The folder of a spool.
#[derive(Clone, Debug)]
pub(crate) struct SpoolFolder {
    pub(crate) path: PathBuf,
    /// The device that uses the folder.
    pub(crate) owner: Owner,
}

/// Index entry of a sample.
#[derive(Clone, Copy, Debug)]
enum SpoolEntry {
    Stored(RecordPosition),
    /// Only the id is left. The next process finds the id in the record of this segment or, without a segment, in the file of ids.
    GivenUp {
        in_segment: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug)]
struct RecordPosition {
    segment: u32,
    offset: u32,
}

/// Length at which a segment takes no more records, in bytes; smaller in a spool with fewer bytes than [`SEGMENTS`] such segments.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Smallest number of segments in a full spool. Eviction removes one segment at a time.
const SEGMENTS: u64 = 16;

/// Largest size of a spool in memory, in bytes.
const MAX_BYTES_IN_MEMORY: u64 = 1 << 20;

impl Spool {
    /// Makes an empty spool in memory; [`Spool::open`] makes one in a folder.
    pub(crate) fn in_memory(max_bytes: u64, network: NetworkId, report: SharedReport) -> Self {
        Self::new(None, max_bytes.min(MAX_BYTES_IN_MEMORY), network, report)
    }

    fn new(folder: Option<SpoolFolder>, max_bytes: u64, network: NetworkId, report: SharedReport) -> Self {
        Self {
            samples: BTreeMap::new(),
            segments: BTreeMap::new(),
            current: None,
            last_number: 0,
            schedule: SendSchedule::default(),
            given_up: 0,
            without_segment: 0,
            ids: GivenUpIds::default(),
            report,
            folder,
            network,
            max_bytes,
            segment_bytes: (max_bytes / SEGMENTS).min(SEGMENT_BYTES),
            disk_failing: false,
        }
    }

    /// Adds an answer, or gives it up if it cannot be stored. `due_us` is the time from which an answer that was sent in time on the present
    /// connection is sent late; `None` for any other answer, which is due at once.
    pub(crate) fn put(&mut self, answer: &Answer, now: Timestamp, due_us: Option<u64>) {
        let sample = answer.sample;
        let record = &Record {
            sample,
            captured_unix_ms: now.unix_ms_of(answer.captured_us),
            answer: &answer.message,
            features: &answer.features,
        };
        self.remove(sample);
        if let Some(due_us) = due_us {
            self.schedule.wait(sample, due_us);
        }
        let written = match self.make_space(record) {
            true => self.write(record).map_err(|error| (given_up::reason_of(&error), error.to_string())),
            false => Err((GiveUpReason::SPOOL_FULL, format!("expected space for {} bytes", record.bytes()))),
        };
        match written {
            Ok(position) => {
                self.samples.insert(sample, SpoolEntry::Stored(position));
                if std::mem::take(&mut self.disk_failing) {
                    info!(sample = %sample, "the spool can be written again");
                    self.ids.rewrite(eviction::without_segment(&self.samples));
                }
            }
            Err((reason, detail)) => {
                let entry = SpoolEntry::GivenUp { in_segment: None };
                self.insert_given_up(sample, entry, reason, &detail);
            }
        }
    }

    /// Gives up a sample: only its id is left, which is reported to the leader.
    pub(crate) fn give_up(&mut self, sample: SampleId, reason: GiveUpReason, detail: &str) {
        let in_segment = match self.samples.get(&sample) {
            Some(SpoolEntry::GivenUp { .. }) => return,
            Some(SpoolEntry::Stored(position)) => Some(position.segment),
            None => None,
        };
        let entry = SpoolEntry::GivenUp { in_segment };
        self.insert_given_up(sample, entry, reason, detail);
    }

    /// Reads an answer, which is marked late. `None` if the spool lacks the sample or has only its id, or if the answer cannot be read and is
    /// given up.
    pub(crate) fn read(&mut self, sample: SampleId, now: Timestamp) -> Option<Answer> {
        let SpoolEntry::Stored(position) = *self.samples.get(&sample)? else { return None };
        let unreadable = match self.segments.get(&position.segment).map(|found| found.read(position.offset)) {
            Some(Ok(bytes)) => match Record::parse(&bytes) {
                ParsedRecord::Whole(record, _) if record.sample == sample => {
                    return Some(Answer {
                        sample,
                        captured_us: now.us_of_past(record.captured_unix_ms),
                        sent_us: 0,
                        message: Bytes::copy_from_slice(record.answer),
                        features: record.features.to_vec(),
                        is_late: true,
                        passed_over: 0,
                    });
                }
                _ => "the segment was altered".into(),
            },
            Some(Err(error)) => error.to_string(),
            None => "its segment is gone".into(),
        };
        self.give_up(sample, GiveUpReason::UNREADABLE, &unreadable);
        None
    }

    /// The lowest ids of due samples, at most `max_due`.
    pub(crate) fn due(&mut self, now_us: u64, max_due: usize) -> Vec<SampleId> {
        self.schedule.due(self.samples.keys().copied(), now_us, max_due)
    }

    /// Notes that a sample was sent late.
    pub(crate) fn sent_late(&mut self, sample: SampleId, now_us: u64) {
        if self.samples.contains_key(&sample) {
            self.schedule.sent(sample, now_us);
        }
    }

    /// Removes the samples that the notice names as settled, also those for which the leader has no answer of this device.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        for (first, last) in notice.closed.iter().filter(|(first, last)| first <= last) {
            let settled: Vec<SampleId> =
                self.samples.range(*first..=*last).map(|(sample, _)| *sample).collect();
            settled.into_iter().for_each(|sample| self.remove(sample));
        }
        for sample in &notice.late {
            self.remove(*sample);
        }
    }

    /// Makes all samples due: messages sent on the lost connection may never have arrived.
    pub(crate) fn disconnected(&mut self) {
        self.schedule.disconnected();
    }

    /// Number of samples, given-up ones included.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The highest id of a spooled sample, given-up ones included; `None` if the spool is empty.
    pub(crate) fn newest(&self) -> Option<SampleId> {
        self.samples.last_key_value().map(|(sample, _)| *sample)
    }

    /// Bytes of the segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// True when the spool outlives the process.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.folder.is_some()
    }

    /// True when the spool takes answers, and not only the ids of given-up samples.
    pub(crate) fn holds_answers(&self) -> bool {
        self.max_bytes > 0
    }

    fn write(&mut self, record: &Record<'_>) -> io::Result<RecordPosition> {
        let number = self.appendable()?;
        let segment = self.segments.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        match segment.append(record) {
            Ok(offset) => Ok(RecordPosition { segment: number, offset }),
            Err(error) => {
                self.current = None;
                self.remove_if_unused(number);
                self.disk_failing = true;
                Err(error)
            }
        }
    }

    /// The number of a segment that takes another record: the current segment, or a new one if there is none or it is full.
    fn appendable(&mut self) -> io::Result<u32> {
        if let Some(number) = self.current
            && let Some(segment) = self.segments.get_mut(&number)
        {
            if segment.bytes < self.segment_bytes {
                return Ok(number);
            }
            segment.close();
        }
        let segment = loop {
            self.last_number = self.last_number.checked_add(1).ok_or(io::ErrorKind::QuotaExceeded)?;
            let Some(SpoolFolder { path, owner, .. }) = &self.folder else {
                break Segment::in_memory();
            };
            let path = recovery::segment_path(path, self.last_number);
            match Segment::create(path, self.network, owner) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    self.disk_failing = true;
                    return Err(error);
                }
                Ok(created) => break created,
            }
        };
        self.segments.insert(self.last_number, segment);
        self.current = Some(self.last_number);
        Ok(self.last_number)
    }

    fn remove(&mut self, sample: SampleId) {
        let Some(entry) = self.samples.remove(&sample) else { return };
        self.schedule.remove(sample);
        self.given_up -= usize::from(entry.is_given_up());
        if entry.segment().is_none() {
            self.without_segment -= 1;
            if self.without_segment == 0 {
                self.ids.rewrite(std::iter::empty());
            }
        }
        if let Some(number) = entry.segment()
            && let Some(segment) = self.segments.get_mut(&number)
        {
            segment.live = segment.live.saturating_sub(1);
            self.remove_if_unused(number);
        }
    }

    fn remove_if_unused(&mut self, number: u32) {
        if self.segments.get(&number).is_some_and(|segment| segment.live == 0)
            && let Some(segment) = self.segments.remove(&number)
        {
            remove_segment(segment);
            if self.current == Some(number) {
                self.current = None;
            }
        }
    }
}

impl SpoolEntry {
    fn segment(&self) -> Option<u32> {
        match *self {
            Self::Stored(position) => Some(position.segment),
            Self::GivenUp { in_segment } => in_segment,
        }
    }

    fn is_given_up(&self) -> bool {
        matches!(self, Self::GivenUp { .. })
    }
}

fn remove_segment(segment: Segment) {
    if let Err(error) = segment.remove() {
        warn!(%error, "a segment of the spool cannot be removed; the next start finds it again");
    }
}

/// Removes a file; a missing file is no error.
fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
