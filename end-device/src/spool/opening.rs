//! The segments that an earlier life left in a folder.

use std::collections::btree_map;
use std::io;
use std::path::{Path, PathBuf};

use headwater_protocol::{NetworkId, SampleId};
use tracing::{info, warn};

use super::ids::Ids;
use super::record::{Found, Record};
use super::room::without_segment;
use super::segment::{HEADER_BYTES, Opened, Segment};
use super::{Entry, GivenUp, Place, Spool, What, folder};
use crate::error::DeviceError;

impl Spool {
    /// Opens a folder, which is made when it is not there; what earlier lives left in it is sent late. Of a segment that is cut or altered
    /// what can be read is taken, and what of the rest is known by its id is given up. Answers of another network are given up.
    ///
    /// # Errors
    /// [`DeviceError::Spool`] when the folder cannot be used.
    pub(crate) fn open(folder: PathBuf, most_bytes: u64, network: NetworkId) -> Result<Self, DeviceError> {
        let fail = |error: io::Error| DeviceError::Spool { path: folder.clone(), reason: error.to_string() };
        let segments = folder::segments(&folder).map_err(fail)?;
        let (ids, given_up) = Ids::open(&folder).map_err(fail)?;
        let mut spool = Self::new(Some(folder), most_bytes, network);
        spool.ids = ids;
        for (number, path) in segments {
            // Also where it is not taken: its name is.
            spool.last_number = number;
            spool.take(number, &path);
        }
        spool.take_given_up(given_up);
        spool.shrink_to(most_bytes);
        if spool.len() > 0 {
            let (samples, bytes) = (spool.len(), spool.bytes());
            info!(samples, bytes, "samples of an earlier life are not settled: they are sent late");
        }
        Ok(spool)
    }

    fn take_given_up(&mut self, given_up: Vec<SampleId>) {
        for sample in given_up {
            if let btree_map::Entry::Vacant(entry) = self.samples.entry(sample) {
                entry.insert(Entry { what: What::GivenUp(None), is_sent: false });
                self.given_up += 1;
                self.without_segment += 1;
            }
        }
        self.ids.write_anew(without_segment(&self.samples));
        self.bound_given_up();
    }

    fn take(&mut self, number: u32, path: &Path) {
        let reason = match Segment::open(path) {
            Ok(Opened::Segment(segment, network, records)) => {
                self.segments.insert(number, segment);
                self.take_records(number, network == self.network, &records, path);
                return self.remove_if_free(number);
            }
            Ok(Opened::Nothing) => match std::fs::remove_file(path) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Ok(Opened::NoSegment(reason)) => reason,
            Err(error) => error.to_string(),
        };
        warn!(file = %path.display(), reason, "a segment of the spool cannot be read: it is left alone");
        self.counts.count(GivenUp::Unreadable, &reason);
    }

    fn take_records(&mut self, number: u32, is_our_network: bool, records: &[u8], path: &Path) {
        let mut at = 0;
        loop {
            let place = Place { segment: number, at: (HEADER_BYTES + at) as u32 };
            let (sample, given_up, whole) = match Record::find(&records[at..]) {
                Found::Whole(record, whole) if is_our_network => (record.sample, None, whole),
                Found::Whole(record, whole) => (record.sample, Some(GivenUp::OtherNetwork), whole),
                Found::Altered(sample, whole) => (sample, Some(GivenUp::Unreadable), whole),
                Found::Torn(sample) => (sample, Some(GivenUp::Unreadable), records.len() - at),
                Found::End => return,
                Found::Unknown => {
                    let left = records.len() - at;
                    warn!(file = %path.display(), at = place.at, left, "a segment is cut or altered: left out from there");
                    return self.counts.count(GivenUp::Unreadable, "the end of a segment");
                }
            };
            self.take_sample(sample, place, given_up);
            at += whole;
        }
    }

    fn take_sample(&mut self, sample: SampleId, place: Place, given_up: Option<GivenUp>) {
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.counts(sample);
        }
        // The later record of a sample is the one that counts.
        self.forget(sample);
        self.samples.insert(sample, Entry { what: What::Kept(place), is_sent: false });
        if let Some(reason) = given_up {
            self.give_up(sample, reason, "left by an earlier life");
        }
    }
}
