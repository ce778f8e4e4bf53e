//! Eviction: a spool with too many bytes gives up the samples of its oldest segment, and a spool with too many given-up samples forgets their
//! lowest ids.

use std::collections::BTreeMap;

use headwater_protocol::SampleId;

use super::given_up::MAX_GIVEN_UP;
use super::record::Record;
use super::segment::{self, Segment};
use super::{Spool, SpoolEntry};
use crate::give_up_reason::GiveUpReason;

/// Smallest number of bytes that a sample counts as. The sample's entry in memory takes about a tenth of these bytes, so memory is bounded
/// as well.
pub(super) const MIN_BYTES: u64 = 512;

impl Spool {
    /// Evicts the oldest segments until a record fits; returns false if the record with the header of a segment is larger than the whole spool.
    pub(super) fn make_space(&mut self, record: &Record<'_>) -> bool {
        let header =
            self.folder.as_ref().map_or(0, |folder| segment::header(self.network, &folder.owner).len());
        let needed = (record.bytes() as u64).max(MIN_BYTES) + header as u64;
        if needed > self.max_bytes {
            return false;
        }
        self.shrink_to(self.max_bytes - needed);
        true
    }

    /// Evicts the oldest segments until the samples of the spool count as at most `max_bytes`.
    pub(super) fn shrink_to(&mut self, max_bytes: u64) {
        let counted = |segment: &Segment| segment.bytes.max(u64::from(segment.records) * MIN_BYTES);
        let mut taken: u64 = self.segments.values().map(counted).sum();
        while taken > max_bytes {
            let Some((number, segment)) = self.segments.pop_first() else { return };
            taken -= counted(&segment);
            self.evict(number, segment);
        }
    }

    fn evict(&mut self, number: u32, segment: Segment) {
        if self.current == Some(number) {
            self.current = None;
        }
        let Some((lowest, highest)) = segment.ids else { return };
        let is_inside = |entry: &SpoolEntry| entry.segment() == Some(number);
        let inside = self.samples.range(lowest..=highest).filter(|(_, entry)| is_inside(entry));
        let inside: Vec<(SampleId, SpoolEntry)> = inside.map(|(sample, entry)| (*sample, *entry)).collect();
        let given_up = SpoolEntry::GivenUp { in_segment: None };
        for (sample, entry) in inside {
            match entry {
                SpoolEntry::Stored(_) => {
                    self.insert_given_up(sample, given_up, GiveUpReason::SPOOL_FULL, "the spool is full");
                }
                SpoolEntry::GivenUp { .. } => {
                    self.samples.insert(sample, given_up);
                    self.write_id(sample);
                }
            }
        }
        super::remove_segment(segment);
    }

    /// Inserts a given-up sample in place of its answer, and counts it.
    pub(super) fn insert_given_up(
        &mut self,
        sample: SampleId,
        entry: SpoolEntry,
        reason: GiveUpReason,
        detail: &str,
    ) {
        self.report.count_given_up(reason, detail);
        self.schedule.message_changed(sample);
        self.samples.insert(sample, entry);
        self.given_up += 1;
        if entry.segment().is_none() {
            self.write_id(sample);
        }
        self.bound_given_up();
    }

    /// Forgets the lowest ids of given-up samples while there are too many.
    pub(super) fn bound_given_up(&mut self) {
        while self.given_up > MAX_GIVEN_UP {
            let lowest = self.samples.iter().find(|(_, entry)| entry.is_given_up());
            let Some(lowest) = lowest.map(|(sample, _)| *sample) else { return };
            self.remove(lowest);
            self.report.count_lost();
        }
    }

    /// Writes the id of a given-up sample that lies in no segment.
    fn write_id(&mut self, sample: SampleId) {
        self.without_segment += 1;
        if self.ids.append(sample) {
            self.ids.rewrite(without_segment(&self.samples));
        }
    }
}

/// Given-up samples that lie in no segment.
pub(super) fn without_segment(samples: &BTreeMap<SampleId, SpoolEntry>) -> impl Iterator<Item = SampleId> {
    samples.iter().filter(|(_, entry)| entry.segment().is_none()).map(|(sample, _)| *sample)
}
