//! A segment: records one after the other, in a file or in memory. It is appended to, read by offset, and removed as a whole.
//!
//! ```text
//! 0          8              40      44
//! +----------+--------------+-------+----------+----------+ ...
//! | HWSPOOL1 | network id   | crc   | record   | record   |
//! +----------+--------------+-------+----------+----------+ ...
//! ```
//!
//! The network id is that of the answers. The first record of a file names the device (`owner.rs`). Nothing is synced: a killed process loses nothing, a machine without power may.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use headwater_protocol::{NetworkId, SampleId};

use super::owner::{FoundOwner, Owner};
use super::record::{RECORD_HEADER_BYTES, Record, RecordHeader};

/// Bytes before the first record.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + 32 + 4;

/// First bytes of a segment; the last digit is the version of the format.
const MAGIC: &[u8; 8] = b"HWSPOOL1";

/// A part of the spool.
#[derive(Debug)]
pub(super) struct Segment {
    storage: Storage,
    /// Bytes that were written whole.
    pub(super) bytes: u64,
    /// Records that are still needed.
    pub(super) live: u32,
    /// Records that were ever written.
    pub(super) records: u32,
    /// Lowest and highest id of the records.
    pub(super) ids: Option<(SampleId, SampleId)>,
}

#[derive(Debug)]
enum Storage {
    /// A file. `writer` is set while the segment can be appended to.
    File {
        path: PathBuf,
        writer: Option<File>,
        /// Owner of a file without a record, which the first record names.
        unnamed: Option<Owner>,
    },
    Memory(Vec<u8>),
}

/// A file that an earlier process left.
#[derive(Debug)]
pub(super) struct EarlierSegment {
    pub(super) segment: Segment,
    pub(super) network: NetworkId,
    /// The device whose answers it holds.
    pub(super) owner: FoundOwner,
    /// Bytes of the records of samples.
    pub(super) records: Vec<u8>,
    /// Offset of the first of them.
    pub(super) first: usize,
}

impl Segment {
    /// Makes a segment in memory.
    pub(super) fn in_memory(network: NetworkId) -> Self {
        Self::of(Storage::Memory(header(network)))
    }

    /// Makes a segment in a new file. A folder that is missing is made.
    ///
    /// # Errors
    /// When the file exists already or cannot be made.
    pub(super) fn create(path: PathBuf, network: NetworkId, owner: &Owner) -> io::Result<Self> {
        let mut writer = create_file(&path)?;
        if let Err(error) = writer.write_all(&header(network)) {
            // The next start would take the rest of it for a cut segment.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self::of(Storage::File { path, writer: Some(writer), unnamed: Some(owner.clone()) }))
    }

    /// A segment with its header alone.
    fn of(storage: Storage) -> Self {
        Self { storage, bytes: HEADER_BYTES as u64, live: 0, records: 0, ids: None }
    }

    /// Opens and reads a file of an earlier process, which is never appended to. `None` when the process was killed before the first
    /// record.
    ///
    /// # Errors
    /// When the file cannot be read, or is something else.
    pub(super) fn open(path: &Path) -> io::Result<Option<EarlierSegment>> {
        let found = fs::metadata(path)?.len();
        if found > MAX_FILE_BYTES {
            let reason = format!("expected a segment of at most {MAX_FILE_BYTES} bytes, found {found}");
            return Err(io::Error::other(reason));
        }
        let mut records = fs::read(path)?;
        let bytes = records.len() as u64;
        if records.len() < HEADER_BYTES && records.iter().zip(MAGIC).all(|(found, byte)| found == byte) {
            return Ok(None);
        }
        let network = network_of(&records)
            .ok_or_else(|| io::Error::other("expected a segment of the spool, found something else"))?;
        let owner = Owner::of(&records[HEADER_BYTES..]);
        let first = match &owner {
            FoundOwner::Named(_, length) => HEADER_BYTES + length,
            FoundOwner::Unreadable | FoundOwner::None => HEADER_BYTES,
        };
        records.drain(..first);
        let storage = Storage::File { path: path.to_path_buf(), writer: None, unnamed: None };
        let segment = Self { bytes, ..Self::of(storage) };
        Ok(Some(EarlierSegment { segment, network, owner, records, first }))
    }

    /// Appends a record; returns its offset.
    ///
    /// # Errors
    /// When it cannot be written whole. The part that was written is cut off, and the segment takes no more records.
    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<u32> {
        let mut named_bytes = 0;
        match &mut self.storage {
            Storage::Memory(bytes) => record.write(bytes),
            Storage::File { writer, unnamed, .. } => {
                let mut file = writer.take().ok_or(io::ErrorKind::ReadOnlyFilesystem)?;
                // One write, so that a killed process leaves at most one torn record.
                let mut bytes = unnamed.take().map(|owner| owner.record(record.sample)).unwrap_or_default();
                named_bytes = bytes.len();
                record.write(&mut bytes);
                if let Err(error) = file.write_all(&bytes) {
                    // If even this fails, the next start finds a torn record.
                    let _ = file.set_len(self.bytes);
                    return Err(error);
                }
                *writer = Some(file);
            }
        }
        let offset = self.bytes + named_bytes as u64;
        self.bytes = offset + record.bytes() as u64;
        self.count(record.sample);
        Ok(offset as u32)
    }

    /// Counts a record of the segment.
    pub(super) fn count(&mut self, sample: SampleId) {
        self.live += 1;
        self.records += 1;
        let (lowest, highest) = self.ids.unwrap_or((sample, sample));
        self.ids = Some((lowest.min(sample), highest.max(sample)));
    }

    /// Ends appending.
    pub(super) fn close(&mut self) {
        if let Storage::File { writer, .. } = &mut self.storage {
            *writer = None;
        }
    }

    /// Reads the bytes of the record at `offset`, for [`Record::parse`]. An altered file yields wrong or too few bytes.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self, offset: u32) -> io::Result<Vec<u8>> {
        match &self.storage {
            Storage::Memory(bytes) => self.read_record(bytes.get(offset as usize..).unwrap_or_default()),
            Storage::File { path, .. } => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(offset.into()))?;
                self.read_record(file)
            }
        }
    }

    fn read_record(&self, mut input: impl Read) -> io::Result<Vec<u8>> {
        let mut header = [0; RECORD_HEADER_BYTES];
        input.read_exact(&mut header)?;
        let mut bytes = header.to_vec();
        if let Some(header) = RecordHeader::parse(&header) {
            // A header never makes us read more than was written.
            let rest = (header.rest_bytes() as u64).min(self.bytes);
            input.take(rest).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Removes the segment.
    ///
    /// # Errors
    /// When its file cannot be removed; the next start finds it again.
    pub(super) fn remove(self) -> io::Result<()> {
        match self.storage {
            Storage::Memory(_) => Ok(()),
            Storage::File { path, writer, .. } => {
                drop(writer);
                super::remove_file(&path)
            }
        }
    }
}

fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    match (options.open(path), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            options.open(path)
        }
        (opened, _) => opened,
    }
}

/// Largest file that is read: a segment and its last record are much smaller.
const MAX_FILE_BYTES: u64 = 64 << 20;

fn header(network: NetworkId) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &network.0].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn network_of(contents: &[u8]) -> Option<NetworkId> {
    let header: &[u8; HEADER_BYTES] = contents.first_chunk()?;
    let (fields, crc) = header.split_at(HEADER_BYTES - 4);
    let network = fields.strip_prefix(MAGIC)?;
    let is_whole = crc == crc32fast::hash(fields).to_le_bytes();
    is_whole.then(|| network.try_into().ok().map(NetworkId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::owner::tests::owner;
    use super::super::record::ParsedRecord;
    use super::*;

    const NETWORK: NetworkId = NetworkId([7; 32]);

    fn record(sample: u64) -> Record<'static> {
        Record { sample: SampleId(sample), captured_unix_ms: 5, answer: b"answer", features: b"features" }
    }

    #[track_caller]
    fn check_reads(segment: &Segment, offset: u32, expected: Record<'_>) {
        let bytes = segment.read(offset).unwrap();
        assert_eq!(Record::parse(&bytes), ParsedRecord::Whole(expected, expected.bytes()));
    }

    #[test]
    fn records_are_read_back_from_a_file_and_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made/00000001.seg");
        let named_bytes = owner("cam-2").record(SampleId(1)).len();
        for (mut segment, named_bytes) in [
            (Segment::in_memory(NETWORK), 0),
            (Segment::create(file, NETWORK, &owner("cam-2")).unwrap(), named_bytes),
        ] {
            let offsets = [1, 2].map(|sample| segment.append(&record(sample)).unwrap());
            check_reads(&segment, offsets[1], record(2));
            check_reads(&segment, offsets[0], record(1));
            assert_eq!((segment.live, segment.ids), (2, Some((SampleId(1), SampleId(2)))));
            assert_eq!(segment.bytes, (HEADER_BYTES + named_bytes + 2 * record(1).bytes()) as u64);
            segment.remove().unwrap();
        }
        assert_eq!(fs::read_dir(dir.path().join("made")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_an_earlier_process_names_its_network_and_its_device() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        let mut segment = Segment::create(path.clone(), NETWORK, &owner("cam-2")).unwrap();
        let offset = segment.append(&record(1)).unwrap();
        drop(segment);
        let found = Segment::open(&path).unwrap().unwrap();
        let EarlierSegment { mut segment, network, owner, records, first } = found;
        assert_eq!((network, first), (NETWORK, offset as usize));
        assert!(matches!(owner, FoundOwner::Named(owner, _) if owner.device.as_str() == "cam-2"));
        assert_eq!(Record::parse(&records), ParsedRecord::Whole(record(1), records.len()));
        check_reads(&segment, offset, record(1));
        assert!(segment.append(&record(2)).is_err(), "a file of an earlier process is not appended to");
    }

    #[test]
    fn a_cut_header_is_empty_and_an_altered_one_is_no_segment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        for end in 0..HEADER_BYTES {
            fs::write(&path, &header(NETWORK)[..end]).unwrap();
            assert!(Segment::open(&path).unwrap().is_none(), "cut at {end}");
            let mut altered = header(NETWORK);
            altered[end] ^= 1;
            fs::write(&path, altered).unwrap();
            let error = Segment::open(&path).unwrap_err();
            assert!(error.to_string().contains("found something else"), "altered at {end}: {error}");
        }
    }

    #[test]
    fn a_file_that_exists_already_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        fs::write(&path, "mine").unwrap();
        assert!(Segment::create(path.clone(), NETWORK, &owner("cam-2")).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
