//! Recovery of the segments that an earlier process left in a folder.

use std::collections::btree_map;
use std::path::{Path, PathBuf};

use headwater_protocol::{NetworkId, SampleId};
use tracing::{info, warn};

use super::eviction::without_segment;
use super::given_up_ids::GivenUpIds;
use super::record::{ParsedRecord, Record};
use super::segment::{HEADER_BYTES, OpenedSegment, Segment};
use super::{Content, GiveUpReason, RecordPosition, Spool, SpoolEntry, segment_files};
use crate::error::DeviceError;

impl Spool {
    /// Opens the spool of a folder; a missing folder is made. Recovered answers are sent late. Of a cut or altered segment, readable
    /// records are kept and known ids are given up. Answers of another network are given up.
    ///
    /// # Errors
    /// [`DeviceError::Stored`] when the folder cannot be used.
    pub(crate) fn open(folder: PathBuf, max_bytes: u64, network: NetworkId) -> Result<Self, DeviceError> {
        let segments =
            segment_files::segments(&folder).map_err(|error| DeviceError::spool(&folder, error))?;
        let (ids, given_up) =
            GivenUpIds::open(&folder).map_err(|error| DeviceError::spool(&folder, error))?;
        let mut spool = Self::new(Some(folder), max_bytes, network);
        spool.ids = ids;
        for (number, path) in segments {
            // The number of an unreadable file is taken too.
            spool.last_number = number;
            spool.recover_segment(number, &path);
        }
        spool.recover_given_up(given_up);
        spool.shrink_to(max_bytes);
        if spool.len() > 0 {
            let (samples, bytes) = (spool.len(), spool.bytes());
            info!(samples, bytes, "samples of an earlier process are not settled: they are sent late");
        }
        Ok(spool)
    }

    fn recover_given_up(&mut self, given_up: Vec<SampleId>) {
        for sample in given_up {
            if let btree_map::Entry::Vacant(entry) = self.samples.entry(sample) {
                entry.insert(SpoolEntry { content: Content::GivenUp { in_segment: None }, is_sent: false });
                self.given_up += 1;
                self.without_segment += 1;
            }
        }
        self.ids.rewrite(without_segment(&self.samples));
        self.bound_given_up();
    }

    fn recover_segment(&mut self, number: u32, path: &Path) {
        let reason = match Segment::open(path) {
            Ok(OpenedSegment::Segment(segment, network, records)) => {
                self.segments.insert(number, segment);
                self.recover_records(number, network, &records, path);
                return self.remove_if_unused(number);
            }
            Ok(OpenedSegment::Empty) => match std::fs::remove_file(path) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Ok(OpenedSegment::NotASegment(reason)) => reason,
            Err(error) => error.to_string(),
        };
        warn!(file = %path.display(), reason, "a segment of the spool cannot be read: the file is left alone");
        self.counts.count(GiveUpReason::Unreadable, &reason);
    }

    fn recover_records(&mut self, segment: u32, network: NetworkId, records: &[u8], path: &Path) {
        let mut at = 0;
        loop {
            let position = RecordPosition { segment, offset: (HEADER_BYTES + at) as u32 };
            let (sample, give_up, length) = match Record::parse(&records[at..]) {
                ParsedRecord::Whole(record, length) => {
                    let is_other = network != self.network;
                    (record.sample, is_other.then_some(GiveUpReason::OtherNetwork), length)
                }
                ParsedRecord::Altered(sample, length) => (sample, Some(GiveUpReason::Unreadable), length),
                ParsedRecord::Torn(sample) => (sample, Some(GiveUpReason::Unreadable), records.len() - at),
                ParsedRecord::End => return,
                ParsedRecord::Unknown => {
                    let left = records.len() - at;
                    warn!(
                        file = %path.display(), offset = position.offset, left,
                        "a segment is cut or altered: the rest of it is ignored"
                    );
                    return self.counts.count(GiveUpReason::Unreadable, "the end of a segment");
                }
            };
            self.recover_sample(sample, position, give_up);
            at += length;
        }
    }

    fn recover_sample(&mut self, sample: SampleId, position: RecordPosition, give_up: Option<GiveUpReason>) {
        if let Some(segment) = self.segments.get_mut(&position.segment) {
            segment.count(sample);
        }
        // A later record of a sample replaces an earlier one.
        self.remove(sample);
        self.samples.insert(sample, SpoolEntry { content: Content::Stored(position), is_sent: false });
        if let Some(reason) = give_up {
            self.give_up(sample, reason, "from an earlier process");
        }
    }
}
