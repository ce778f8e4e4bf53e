//! What is answered and not settled, and was not sent on the present connection or is too much or too old for memory: kept in segments,
//! sent late.
//!
//! Segments are files (`segment.rs`) where there is a folder for them, and lie in memory otherwise. What is in which segment is known in
//! memory alone; a new life reads the segments again (`opening.rs`). Over its bound the spool gives up its oldest segment: of those
//! samples only the ids are left, and the leader is told that they are given up. Times come in as microseconds since the device's start.

mod folder;
mod given_up;
mod ids;
mod opening;
mod record;
mod room;
mod schedule;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use headwater_protocol::{NetworkId, SampleId, SettledNotice};
use tracing::warn;

pub(crate) use given_up::{Counts, GivenUp};
use ids::Ids;
use record::Found;
pub(crate) use record::Record;
use schedule::Schedule;
use segment::Segment;

/// Unsettled samples, bounded by bytes.
#[derive(Debug)]
pub(crate) struct Spool {
    samples: BTreeMap<SampleId, Entry>,
    segments: BTreeMap<u32, Segment>,
    /// The segment that is appended to.
    current: Option<u32>,
    last_number: u32,
    schedule: Schedule,
    /// No sample below it was sent in time on the present connection.
    sent_from: SampleId,
    /// Samples that are given up.
    given_up: usize,
    /// Those of them that lie in no segment.
    without_segment: usize,
    /// Their ids, for the next life.
    ids: Ids,
    counts: Counts,
    folder: Option<PathBuf>,
    network: NetworkId,
    most_bytes: u64,
    segment_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    what: What,
    /// Sent in time on the present connection: settled as soon as the leader is past it.
    is_sent: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Kept(Place),
    /// What is left of it lies in that segment, and is found again there by the next life; or nothing is but its id.
    GivenUp(Option<u32>),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u32,
    at: u32,
}

/// A spooled sample, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spooled {
    /// As it was answered.
    Answer {
        /// Milliseconds since 1970.
        captured_unix_ms: u64,
        /// A whole message of the protocol.
        answer: Vec<u8>,
        /// The features kept with it.
        features: Vec<u8>,
    },
    /// Nothing is left of it but its id.
    GivenUp,
}

/// Largest segment that is appended to.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Smallest part of the bound that is given up at once.
const SEGMENTS: u64 = 16;

/// Most bytes where they lie in memory.
const MOST_IN_MEMORY: u64 = 1 << 20;

impl Spool {
    /// One in memory that is empty; [`Spool::open`] makes one in a folder.
    pub(crate) fn in_memory(most_bytes: u64, network: NetworkId) -> Self {
        Self::new(None, most_bytes.min(MOST_IN_MEMORY), network)
    }

    fn new(folder: Option<PathBuf>, most_bytes: u64, network: NetworkId) -> Self {
        Self {
            samples: BTreeMap::new(),
            segments: BTreeMap::new(),
            current: None,
            last_number: 0,
            schedule: Schedule::default(),
            sent_from: SampleId(u64::MAX),
            given_up: 0,
            without_segment: 0,
            ids: Ids::default(),
            counts: Counts::default(),
            folder,
            network,
            most_bytes,
            segment_bytes: (most_bytes / SEGMENTS).min(SEGMENT_BYTES),
        }
    }

    /// Takes a sample in. One that was sent in time on the present connection is sent late from `due_us` on, any other at once.
    pub(crate) fn put(&mut self, record: &Record<'_>, due_us: Option<u64>) {
        let sample = record.sample;
        self.forget(sample);
        if let Some(due_us) = due_us {
            self.schedule.wait(sample, due_us);
            self.sent_from = self.sent_from.min(sample);
        }
        let is_sent = due_us.is_some();
        let kept = match self.make_room(record) {
            true => self.write(record).map_err(|error| (GivenUp::Disk, error.to_string())),
            false => Err((GivenUp::SpoolFull, format!("expected room for {} bytes", record.bytes()))),
        };
        match kept {
            Ok(place) => {
                self.samples.insert(sample, Entry { what: What::Kept(place), is_sent });
            }
            Err((reason, what)) => self.give_up_as(sample, is_sent, None, reason, &what),
        }
    }

    /// Gives up a sample: nothing is left of it but its id, of which the leader is told.
    pub(crate) fn give_up(&mut self, sample: SampleId, reason: GivenUp, what: &str) {
        let (is_sent, segment) = match self.samples.get(&sample) {
            Some(Entry { what: What::GivenUp(_), .. }) => return,
            Some(Entry { what: What::Kept(place), is_sent }) => (*is_sent, Some(place.segment)),
            None => (false, None),
        };
        self.give_up_as(sample, is_sent, segment, reason, what);
    }

    /// What is spooled of a sample. What cannot be read is given up.
    pub(crate) fn read(&mut self, sample: SampleId) -> Option<Spooled> {
        let place = match self.samples.get(&sample)?.what {
            What::Kept(place) => place,
            What::GivenUp(_) => return Some(Spooled::GivenUp),
        };
        let unreadable = match self.segments.get(&place.segment).map(|segment| segment.read(place.at)) {
            Some(Ok(bytes)) => match Record::find(&bytes) {
                Found::Whole(record, _) if record.sample == sample => {
                    return Some(Spooled::Answer {
                        captured_unix_ms: record.captured_unix_ms,
                        answer: record.answer.to_vec(),
                        features: record.features.to_vec(),
                    });
                }
                _ => "the segment is not as it was written".into(),
            },
            Some(Err(error)) => error.to_string(),
            None => "its segment is gone".into(),
        };
        self.give_up(sample, GivenUp::Unreadable, &unreadable);
        Some(Spooled::GivenUp)
    }

    /// The lowest samples that are to be sent late now, at most so many.
    pub(crate) fn due(&mut self, now_us: u64, most: usize) -> Vec<SampleId> {
        self.schedule.due(self.samples.keys().copied(), self.samples.len(), now_us, most)
    }

    /// A sample was sent late.
    pub(crate) fn sent_late(&mut self, sample: SampleId, now_us: u64) {
        if self.samples.contains_key(&sample) {
            self.schedule.sent(sample, now_us);
        }
    }

    /// Frees what the leader says is decided or dropped.
    pub(crate) fn settle(&mut self, notice: &SettledNotice) {
        self.settle_sent(notice);
        for sample in &notice.late {
            self.forget(*sample);
        }
    }

    /// The connection is lost: what was sent on it may never have arrived.
    pub(crate) fn disconnected(&mut self) {
        self.schedule.forget_all();
        self.samples.values_mut().for_each(|entry| entry.is_sent = false);
        self.sent_from = SampleId(u64::MAX);
    }

    /// Samples in it.
    pub(crate) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The highest id in it.
    pub(crate) fn newest(&self) -> Option<SampleId> {
        self.samples.last_key_value().map(|(sample, _)| *sample)
    }

    /// Bytes of its segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(Segment::bytes).sum()
    }

    /// What was given up so far.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// True when it outlives the process.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.folder.is_some()
    }

    fn settle_sent(&mut self, notice: &SettledNotice) {
        let (Some(since), highest) = (notice.since, notice.account.highest) else { return };
        let from = since.max(self.sent_from);
        if from > highest {
            return;
        }
        let settled: Vec<SampleId> = self
            .samples
            .range(from..=highest)
            .filter(|(_, entry)| entry.is_sent)
            .map(|(id, _)| *id)
            .collect();
        settled.into_iter().for_each(|sample| self.forget(sample));
        if since <= self.sent_from {
            self.sent_from = SampleId(highest.0.saturating_add(1));
        }
    }

    fn write(&mut self, record: &Record<'_>) -> io::Result<Place> {
        let number = self.appendable()?;
        let segment = self.segments.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        match segment.append(record) {
            Ok(at) => Ok(Place { segment: number, at }),
            Err(error) => {
                self.current = None;
                self.remove_if_free(number);
                Err(error)
            }
        }
    }

    /// The segment to append to.
    fn appendable(&mut self) -> io::Result<u32> {
        if let Some(number) = self.current
            && let Some(segment) = self.segments.get_mut(&number)
        {
            if segment.bytes() < self.segment_bytes {
                return Ok(number);
            }
            segment.close();
        }
        let segment = loop {
            self.last_number = self.last_number.checked_add(1).ok_or(io::ErrorKind::QuotaExceeded)?;
            let path = self.folder.as_deref().map(|folder| folder::path(folder, self.last_number));
            match Segment::create(path, self.network) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => break created?,
            }
        };
        self.segments.insert(self.last_number, segment);
        self.current = Some(self.last_number);
        Ok(self.last_number)
    }

    fn forget(&mut self, sample: SampleId) {
        let Some(entry) = self.samples.remove(&sample) else { return };
        self.schedule.forget(sample);
        let segment = match entry.what {
            What::Kept(place) => Some(place.segment),
            What::GivenUp(segment) => {
                self.given_up -= 1;
                if segment.is_none() {
                    self.without_segment -= 1;
                    if self.without_segment == 0 {
                        self.ids.write_anew(std::iter::empty());
                    }
                }
                segment
            }
        };
        if let Some(number) = segment
            && let Some(segment) = self.segments.get_mut(&number)
        {
            segment.live = segment.live.saturating_sub(1);
            self.remove_if_free(number);
        }
    }

    fn remove_if_free(&mut self, number: u32) {
        if self.segments.get(&number).is_some_and(|segment| segment.live == 0)
            && let Some(segment) = self.segments.remove(&number)
        {
            remove(segment);
            if self.current == Some(number) {
                self.current = None;
            }
        }
    }
}

fn remove(segment: Segment) {
    if let Err(error) = segment.remove() {
        warn!(%error, "a segment of the spool cannot be removed; the next life finds it again");
    }
}
