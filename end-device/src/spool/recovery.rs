//! Recovery of the segments that an earlier process left in a folder: `00000001.seg`, `00000002.seg`, ...

use std::collections::btree_map;
use std::path::{Path, PathBuf};
use std::{fs, io};

use headwater_protocol::{NetworkId, SampleId};
use tracing::{info, warn};

use super::eviction::without_segment;
use super::given_up::GivenUpIds;
use super::record::{ParsedRecord, RECORD_HEADER_BYTES, Record};
use super::segment::{EarlierSegment, FoundSegment, Segment};
use super::{Owner, RecordPosition, Spool, SpoolEntry, SpoolFolder, given_up};
use crate::error::DeviceError;
use crate::give_up_reason::GiveUpReason;
use crate::report::SharedReport;
use crate::state_folder::{Aside, is_disk_full, is_set_aside, other_format, set_aside};

impl Spool {
    /// Opens the spool of a folder; a missing folder is made. Recovered answers are sent late. The readable records of a cut or altered
    /// segment are kept, and samples of which only the id is readable are given up. Answers of another network are given up. Segments of
    /// another device and files that cannot be read are set aside.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] when the folder cannot be used, or has files of another format.
    pub(crate) fn open(
        folder: &SpoolFolder,
        max_bytes: u64,
        network: NetworkId,
        report: SharedReport,
    ) -> Result<Self, DeviceError> {
        let unusable = |error: io::Error| DeviceError::unusable("spool in", folder.path.display(), error);
        let segments = segments(&folder.path).map_err(unusable)?;
        let (ids, given_up) = GivenUpIds::open(&folder.path, &report)?;
        let mut spool = Self::new(Some(folder.clone()), max_bytes, network, report);
        spool.ids = ids;
        for (number, path) in segments {
            // The number of an unreadable file is not used again.
            spool.last_number = number;
            spool.recover_segment(number, &path, &folder.owner)?;
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
                entry.insert(SpoolEntry::GivenUp { in_segment: None });
                self.given_up += 1;
                self.without_segment += 1;
            }
        }
        self.ids.rewrite(without_segment(&self.samples));
        self.bound_given_up();
    }

    fn recover_segment(&mut self, number: u32, path: &Path, owner: &Owner) -> Result<(), DeviceError> {
        let damage = match Segment::open(path) {
            Ok(FoundSegment::OtherFormat(found)) => return Err(other_format(path, found)),
            Ok(FoundSegment::Whole(earlier)) if earlier.owner == *owner => {
                self.recover_records(number, earlier, path);
                self.remove_if_unused(number);
                None
            }
            Ok(FoundSegment::Whole(earlier)) => {
                let reason = format!("its answers are those of {}; this is {owner}", earlier.owner);
                set_aside(path, Aside::OTHER_DEVICE, &reason);
                self.report.lock().segments_of_others += 1;
                None
            }
            Ok(FoundSegment::Cut) => fs::remove_file(path).err(),
            Err(error) => Some(error),
        };
        if let Some(damage) = damage.map(|error| error.to_string()) {
            set_aside(path, Aside::DAMAGED, &damage);
            self.report.lock().state_damaged += 1;
            self.report.count_given_up(GiveUpReason::UNREADABLE, &damage);
        }
        Ok(())
    }

    fn recover_records(&mut self, segment: u32, earlier: EarlierSegment, path: &Path) {
        let EarlierSegment { segment: file, network, records, first, .. } = earlier;
        self.segments.insert(segment, file);
        let mut at = 0;
        loop {
            let position = RecordPosition { segment, offset: (first + at) as u32 };
            let (sample, give_up, length) = match Record::parse(&records[at..]) {
                ParsedRecord::Whole(record, length) => {
                    let is_other = network != self.network;
                    (record.sample, is_other.then_some(GiveUpReason::OTHER_NETWORK), length)
                }
                ParsedRecord::Altered(sample, length) => (sample, Some(GiveUpReason::UNREADABLE), length),
                ParsedRecord::End => return,
                ParsedRecord::Unknown => {
                    let bytes = unknown_bytes(&records[at..]);
                    warn!(
                        file = %path.display(), offset = position.offset, bytes,
                        "a segment is cut or altered: these bytes are no samples and are ignored"
                    );
                    // Fewer bytes than a record's header are left by a killed process, and are no damage.
                    self.report.lock().state_damaged += u64::from(bytes >= RECORD_HEADER_BYTES);
                    self.report.count_given_up(GiveUpReason::UNREADABLE, "a part of a segment");
                    at += bytes;
                    continue;
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
        // A later record of a sample replaces an earlier record.
        self.remove(sample);
        self.samples.insert(sample, SpoolEntry::Stored(position));
        if let Some(reason) = give_up {
            self.give_up(sample, reason, "from an earlier process");
        }
    }
}

/// Number of bytes before the next record, or of all bytes if no record follows.
fn unknown_bytes(records: &[u8]) -> usize {
    let is_record = |from: &usize| match Record::parse(&records[*from..]) {
        ParsedRecord::Whole(..) | ParsedRecord::Altered(..) => true,
        ParsedRecord::Unknown | ParsedRecord::End => false,
    };
    (1..records.len()).find(is_record).unwrap_or(records.len())
}

/// Extension of a segment's file name.
const EXTENSION: &str = "seg";

/// The path of a segment.
pub(super) fn segment_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}.{EXTENSION}"))
}

/// The segments of a folder in the order in which they were written. A missing folder is made. Files that do not belong to the spool are
/// logged and left alone.
///
/// # Errors
/// When the folder cannot be made or read.
fn segments(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    match fs::create_dir_all(folder) {
        // The disk is full: the first sample makes the folder once there is room.
        Err(error) if is_disk_full(&error) => return Ok(Vec::new()),
        made => made?,
    }
    let mut segments = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        match number(&file) {
            Some(number) => segments.push((number, file)),
            None if is_known(&file) => {}
            None => warn!(file = %file.display(), "not a segment of the spool: the file is left alone"),
        }
    }
    segments.sort();
    Ok(segments)
}

/// True for the spool's own files that are no segments.
fn is_known(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == given_up::FILE || is_set_aside(name))
}

fn number(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?;
    let number = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok()?;
    // Only the spelling that `segment_path` writes is a segment.
    (name == segment_path(Path::new(""), number).to_str()?).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_distinguished_from_other_files_and_come_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/here");
        assert_eq!(segments(&folder).unwrap(), []);
        for name in ["00000010.seg", "00000009.seg", "1.seg", "+0000001.seg", "x.seg", "00000001.seg.new"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let found: Vec<u32> = segments(&folder).unwrap().into_iter().map(|(number, _)| number).collect();
        assert_eq!(found, [9, 10]);
    }
}
