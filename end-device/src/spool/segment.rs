//! A segment of the spool: records one after the other, in a file or in memory. Records are appended and read by their offset; a segment is
//! removed as a whole.
//!
//! ```text
//! 0          8              40      44      46             46 + n  50 + n
//! +----------+--------------+-------+-------+--------------+-------+----------+ ...
//! | HWSPOOL2 | network id   | crc   | n     | owner, JSON  | crc   | record   |
//! +----------+--------------+-------+-------+--------------+-------+----------+ ...
//! ```
//!
//! The digit in `HWSPOOL2` is the format. The network id names the network of the answers, and the owner is their device. A segment in memory
//! has records alone. Nothing is synced to disk: a killed process loses no record, but a power failure may lose some.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use headwater_protocol::{NetworkId, SampleId};

use super::owner::Owner;
use super::record::{RECORD_HEADER_BYTES, Record, RecordHeader};
use crate::state_folder;

/// First bytes of a segment, before the digit of its format.
const MAGIC: &[u8; 7] = b"HWSPOOL";

/// Digit of the format that is written and read.
const FORMAT: u8 = b'0' + state_folder::FORMAT;

/// Bytes of the header up to its first check sum. This part has the same layout in every format.
const FIXED_BYTES: usize = 8 + 32 + 4;

/// A segment.
#[derive(Debug)]
pub(super) struct Segment {
    storage: Storage,
    /// Bytes of the header and of all records that were written whole.
    pub(super) bytes: u64,
    /// Number of records whose samples are still spooled.
    pub(super) live: u32,
    /// Number of records, those of removed samples included.
    pub(super) records: u32,
    /// Lowest and highest id of the records; `None` before the first record.
    pub(super) ids: Option<(SampleId, SampleId)>,
}

#[derive(Debug)]
enum Storage {
    /// A file. `writer` is set while the segment can be appended to.
    File {
        path: PathBuf,
        writer: Option<File>,
    },
    Memory(Vec<u8>),
}

/// Contents of a file that an earlier process left.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, taken apart at once")]
pub(super) enum FoundSegment {
    Whole(EarlierSegment),
    /// The file ends within [`FIXED_BYTES`]: the process was killed while it wrote the header.
    Cut,
    /// A segment of the format with this digit.
    OtherFormat(char),
}

/// A segment that an earlier process left.
#[derive(Debug)]
pub(super) struct EarlierSegment {
    pub(super) segment: Segment,
    pub(super) network: NetworkId,
    pub(super) owner: Owner,
    /// Bytes of all records.
    pub(super) records: Vec<u8>,
    /// Offset of the first record in the file.
    pub(super) first: usize,
}

impl Segment {
    /// Makes a segment in memory.
    pub(super) fn in_memory() -> Self {
        Self::of(Storage::Memory(Vec::new()), 0)
    }

    /// Makes a segment in a new file. A folder that is missing is made.
    ///
    /// # Errors
    /// When the file exists already or cannot be made.
    pub(super) fn create(path: PathBuf, network: NetworkId, owner: &Owner) -> io::Result<Self> {
        let mut writer = create_file(&path)?;
        let header = header(network, owner);
        if let Err(error) = writer.write_all(&header) {
            // The next start would take a part of a header for a cut or damaged segment.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self::of(Storage::File { path, writer: Some(writer) }, header.len()))
    }

    fn of(storage: Storage, bytes: usize) -> Self {
        Self { storage, bytes: bytes as u64, live: 0, records: 0, ids: None }
    }

    /// Opens and reads a file of an earlier process, which is never appended to.
    ///
    /// # Errors
    /// When the file cannot be read, is larger than [`MAX_FILE_BYTES`], or is no segment.
    pub(super) fn open(path: &Path) -> io::Result<FoundSegment> {
        let found = fs::metadata(path)?.len();
        if found > MAX_FILE_BYTES {
            let reason = format!("expected a segment of at most {MAX_FILE_BYTES} bytes, found {found}");
            return Err(io::Error::other(reason));
        }
        let mut records = fs::read(path)?;
        let bytes = records.len();
        let other = || io::Error::other("expected a segment of the spool, found something else");
        let Some(fixed) = records.first_chunk::<FIXED_BYTES>() else {
            let start = [&MAGIC[..], &[FORMAT]].concat();
            let is_cut = records.iter().zip(&start).all(|(found, byte)| found == byte);
            return if is_cut { Ok(FoundSegment::Cut) } else { Err(other()) };
        };
        let (format, network) = format_and_network(fixed).ok_or_else(other)?;
        if format != FORMAT {
            return Ok(FoundSegment::OtherFormat(format.into()));
        }
        let (owner, owner_bytes) = owner_of(&records[FIXED_BYTES..]).ok_or_else(other)?;
        let first = FIXED_BYTES + owner_bytes;
        records.drain(..first);
        let segment = Self::of(Storage::File { path: path.to_path_buf(), writer: None }, bytes);
        Ok(FoundSegment::Whole(EarlierSegment { segment, network, owner, records, first }))
    }

    /// Appends a record; returns its offset.
    ///
    /// # Errors
    /// When the record cannot be written whole. The part that was written is cut off, and the segment takes no more records.
    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<u32> {
        match &mut self.storage {
            Storage::Memory(bytes) => record.write(bytes),
            Storage::File { writer, .. } => {
                let mut file = writer.take().ok_or(io::ErrorKind::ReadOnlyFilesystem)?;
                // One write, so that a killed process leaves at most one torn record.
                let mut bytes = Vec::new();
                record.write(&mut bytes);
                if let Err(error) = file.write_all(&bytes) {
                    // If the cut fails too, the next start finds a torn record.
                    let _ = file.set_len(self.bytes);
                    return Err(error);
                }
                *writer = Some(file);
            }
        }
        let offset = self.bytes;
        self.bytes = offset + record.bytes() as u64;
        self.count(record.sample);
        Ok(offset as u32)
    }

    /// Counts a record in `live`, `records` and `ids`.
    pub(super) fn count(&mut self, sample: SampleId) {
        self.live += 1;
        self.records += 1;
        let (lowest, highest) = self.ids.unwrap_or((sample, sample));
        self.ids = Some((lowest.min(sample), highest.max(sample)));
    }

    /// Closes the file: no more records are appended.
    pub(super) fn close(&mut self) {
        if let Storage::File { writer, .. } = &mut self.storage {
            *writer = None;
        }
    }

    /// Reads the bytes of the record at `offset`, for [`Record::parse`]. An altered file yields wrong or too few bytes.
    ///
    /// # Errors
    /// When the record cannot be read.
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
            // A wrong length in a header must not lead to a read of more bytes than were written.
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

/// Largest file that is read, in bytes. A segment is much smaller, also with a long last record.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The bytes in front of the first record of a file.
pub(super) fn header(network: NetworkId, owner: &Owner) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &[FORMAT], &network.0].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    // The owner is a slot and three names of at most 64 bytes, so its length fits 16 bits.
    let owner = serde_json::json!(owner).to_string();
    bytes.extend_from_slice(&(owner.len() as u16).to_le_bytes());
    bytes.extend_from_slice(owner.as_bytes());
    bytes.extend_from_slice(&crc32fast::hash(owner.as_bytes()).to_le_bytes());
    bytes
}

fn format_and_network(header: &[u8; FIXED_BYTES]) -> Option<(u8, NetworkId)> {
    let (fields, crc) = header.split_at(FIXED_BYTES - 4);
    let (format, network) = fields.strip_prefix(MAGIC)?.split_first()?;
    let is_whole = crc == crc32fast::hash(fields).to_le_bytes();
    is_whole.then(|| network.try_into().ok().map(|network| (*format, NetworkId(network)))).flatten()
}

/// Reads the owner at the start of these bytes. Also returns the number of bytes of the owner, its length and its check sum. `None` if the
/// owner is cut or altered.
fn owner_of(bytes: &[u8]) -> Option<(Owner, usize)> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (owner, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let is_whole = rest.starts_with(&crc32fast::hash(owner).to_le_bytes());
    let found = serde_json::from_slice(owner).ok().filter(|_| is_whole)?;
    Some((found, 2 + owner.len() + 4))
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
        let owner = owner("cam-2");
        for (mut segment, header_bytes) in [
            (Segment::in_memory(), 0),
            (Segment::create(file, NETWORK, &owner).unwrap(), header(NETWORK, &owner).len()),
        ] {
            let offsets = [1, 2].map(|sample| segment.append(&record(sample)).unwrap());
            check_reads(&segment, offsets[1], record(2));
            check_reads(&segment, offsets[0], record(1));
            assert_eq!((segment.live, segment.ids), (2, Some((SampleId(1), SampleId(2)))));
            assert_eq!(segment.bytes, (header_bytes + 2 * record(1).bytes()) as u64);
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
        let FoundSegment::Whole(found) = Segment::open(&path).unwrap() else { panic!("a whole segment") };
        let EarlierSegment { mut segment, network, owner, records, first } = found;
        assert_eq!((network, first), (NETWORK, offset as usize));
        assert_eq!(owner.device.as_str(), "cam-2");
        assert_eq!(Record::parse(&records), ParsedRecord::Whole(record(1), records.len()));
        check_reads(&segment, offset, record(1));
        assert!(segment.append(&record(2)).is_err(), "a file of an earlier process is not appended to");
    }

    #[test]
    fn a_cut_header_is_empty_and_an_altered_one_is_no_segment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        let header = header(NETWORK, &owner("cam-2"));
        for end in 0..header.len() {
            fs::write(&path, &header[..end]).unwrap();
            let is_empty = matches!(Segment::open(&path), Ok(FoundSegment::Cut));
            assert_eq!(is_empty, end < FIXED_BYTES, "cut at {end}");
            let mut altered = header.clone();
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
