//! Records one after the other, in a file or in memory: appended to, read at a place, removed as a whole.
//!
//! A file begins with eight bytes that say what it is, the whole id of the network its answers come from, and a sum of both. Nothing is
//! synced: a process that is killed loses nothing it has written, and that is what is promised.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use headwater_protocol::{NetworkId, SampleId};

use super::record::{Found, HEAD_BYTES, Head, Record};

/// Bytes before the first record.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + 32 + 4;

/// What a segment begins with; its last digit is the version of the form.
const MAGIC: &[u8; 8] = b"HWSPOOL1";

/// Some records of the spool.
#[derive(Debug)]
pub(super) struct Segment {
    medium: Medium,
    /// Bytes of it that were written whole.
    bytes: u64,
    /// Records that are still wanted.
    pub(super) live: u32,
    /// Records that were ever in it.
    pub(super) records: u32,
    /// Lowest and highest id among them.
    pub(super) ids: Option<(SampleId, SampleId)>,
}

#[derive(Debug)]
enum Medium {
    /// `writer` is there while it is appended to.
    File {
        path: PathBuf,
        writer: Option<File>,
    },
    Memory(Vec<u8>),
}

/// What a file of an earlier life holds.
#[derive(Debug)]
pub(super) enum Opened {
    /// A segment of a network.
    Segment(Segment, NetworkId, Vec<u8>),
    /// Nothing: the process was killed before the first record.
    Nothing,
    /// Something else, for people.
    NoSegment(String),
}

impl Segment {
    /// A new one, in a file that is not there yet or in memory.
    ///
    /// # Errors
    /// When the file is there already or cannot be made.
    pub(super) fn create(path: Option<PathBuf>, network: NetworkId) -> io::Result<Self> {
        let header = header(network);
        let bytes = header.len() as u64;
        let medium = match path {
            None => Medium::Memory(header),
            Some(path) => {
                let mut writer = OpenOptions::new().write(true).create_new(true).open(&path)?;
                if let Err(error) = writer.write_all(&header) {
                    // What is left of it would be taken for a segment that was cut.
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
                Medium::File { path, writer: Some(writer) }
            }
        };
        Ok(Self { medium, bytes, live: 0, records: 0, ids: None })
    }

    /// Opens a file of an earlier life, and reads it; it is not appended to.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(path: &Path) -> io::Result<Opened> {
        let found = fs::metadata(path)?.len();
        if found > MOST_FILE_BYTES {
            let reason = format!("expected a segment of at most {MOST_FILE_BYTES} bytes, found {found}");
            return Ok(Opened::NoSegment(reason));
        }
        let mut contents = fs::read(path)?;
        if contents.len() < HEADER_BYTES && contents.iter().zip(MAGIC).all(|(found, byte)| found == byte) {
            return Ok(Opened::Nothing);
        }
        let Some(network) = network_of(&contents) else {
            return Ok(Opened::NoSegment("expected a segment of the spool, found something else".into()));
        };
        let medium = Medium::File { path: path.to_path_buf(), writer: None };
        let segment = Self { medium, bytes: contents.len() as u64, live: 0, records: 0, ids: None };
        contents.drain(..HEADER_BYTES);
        Ok(Opened::Segment(segment, network, contents))
    }

    /// Writes a record; returns its place.
    ///
    /// # Errors
    /// When it cannot be written whole: what was is taken back, and nothing more can be appended.
    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<u32> {
        let place = self.bytes as u32;
        match &mut self.medium {
            Medium::Memory(bytes) => record.write(bytes),
            Medium::File { writer, .. } => {
                let mut file = writer.take().ok_or(io::ErrorKind::ReadOnlyFilesystem)?;
                // In one piece, so that a process that is killed leaves at most one record torn.
                let mut bytes = Vec::with_capacity(record.bytes());
                record.write(&mut bytes);
                if let Err(error) = file.write_all(&bytes) {
                    // Where even this fails the rest is found torn at the next start.
                    let _ = file.set_len(self.bytes);
                    return Err(error);
                }
                *writer = Some(file);
            }
        }
        self.bytes += record.bytes() as u64;
        self.counts(record.sample);
        Ok(place)
    }

    /// Counts a record that is in it.
    pub(super) fn counts(&mut self, sample: SampleId) {
        self.live += 1;
        self.records += 1;
        let (lowest, highest) = self.ids.unwrap_or((sample, sample));
        self.ids = Some((lowest.min(sample), highest.max(sample)));
    }

    /// Appends no more.
    pub(super) fn close(&mut self) {
        if let Medium::File { writer, .. } = &mut self.medium {
            *writer = None;
        }
    }

    /// The bytes of the record at a place, for [`Record::find`]; fewer or others when the file is not as it was written.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self, place: u32) -> io::Result<Vec<u8>> {
        match &self.medium {
            Medium::Memory(bytes) => {
                let rest = bytes.get(place as usize..).unwrap_or_default();
                let whole = match Record::find(rest) {
                    Found::Whole(_, whole) | Found::Altered(_, whole) => whole,
                    _ => 0,
                };
                Ok(rest[..whole].to_vec())
            }
            Medium::File { path, .. } => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(place.into()))?;
                let mut head = [0; HEAD_BYTES];
                file.read_exact(&mut head)?;
                let mut bytes = head.to_vec();
                if let Some(head) = Head::read(&head) {
                    // No more is there than was written, whatever the head says.
                    let rest = (head.rest_bytes() as u64).min(self.bytes);
                    file.take(rest).read_to_end(&mut bytes)?;
                }
                Ok(bytes)
            }
        }
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes it.
    ///
    /// # Errors
    /// When its file cannot be removed; the next life finds it again.
    pub(super) fn remove(self) -> io::Result<()> {
        match self.medium {
            Medium::Memory(_) => Ok(()),
            Medium::File { path, writer } => {
                drop(writer);
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Largest file that is read: a segment and its last record are much smaller.
const MOST_FILE_BYTES: u64 = 64 << 20;

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
    use super::*;

    const NETWORK: NetworkId = NetworkId([7; 32]);

    fn record(sample: u64) -> Record<'static> {
        Record { sample: SampleId(sample), captured_unix_ms: 5, answer: b"answer", features: b"features" }
    }

    #[track_caller]
    fn check_reads(segment: &Segment, place: u32, expected: Record<'_>) {
        let bytes = segment.read(place).unwrap();
        assert_eq!(Record::find(&bytes), Found::Whole(expected, expected.bytes()));
    }

    #[test]
    fn records_are_read_back_from_a_file_and_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        for path in [None, Some(dir.path().join("00000001.seg"))] {
            let mut segment = Segment::create(path, NETWORK).unwrap();
            let places = [1, 2].map(|sample| segment.append(&record(sample)).unwrap());
            check_reads(&segment, places[1], record(2));
            check_reads(&segment, places[0], record(1));
            assert_eq!((segment.live, segment.ids), (2, Some((SampleId(1), SampleId(2)))));
            assert_eq!(segment.bytes(), (HEADER_BYTES + 2 * record(1).bytes()) as u64);
            segment.remove().unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_of_an_earlier_life_says_its_network() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        let mut segment = Segment::create(Some(path.clone()), NETWORK).unwrap();
        segment.append(&record(1)).unwrap();
        drop(segment);
        let Opened::Segment(mut segment, network, records) = Segment::open(&path).unwrap() else { panic!() };
        assert_eq!(network, NETWORK);
        assert_eq!(Record::find(&records), Found::Whole(record(1), records.len()));
        check_reads(&segment, HEADER_BYTES as u32, record(1));
        assert!(segment.append(&record(2)).is_err(), "what an earlier life wrote is not appended to");
    }

    #[test]
    fn a_header_that_is_cut_is_nothing_and_one_that_is_altered_is_no_segment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        for end in 0..HEADER_BYTES {
            fs::write(&path, &header(NETWORK)[..end]).unwrap();
            assert!(matches!(Segment::open(&path).unwrap(), Opened::Nothing), "cut at {end}");
            let mut altered = header(NETWORK);
            altered[end] ^= 1;
            fs::write(&path, altered).unwrap();
            assert!(matches!(Segment::open(&path).unwrap(), Opened::NoSegment(_)), "altered at {end}");
        }
    }

    #[test]
    fn a_file_that_is_there_already_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000001.seg");
        fs::write(&path, "mine").unwrap();
        assert!(Segment::create(Some(path.clone()), NETWORK).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
