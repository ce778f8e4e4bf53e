//! `.npz`: a zip of `.npy` members, stored or deflated.
//!
//! ```text
//! +--------+------+--------+------+- ... -+-----------+-----------------------+
//! | header | data | header | data |       | directory | record of the end     |
//! +--------+------+--------+------+- ... -+-----------+-----------------------+
//! ```
//! Sizes and checksums come from the directory: a writer that streams leaves them out of the headers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::Array;
use crate::DataError;
use crate::error::Mismatch;

/// Signature and length, in bytes, of a member's header.
const MEMBER: (u32, usize) = (0x0403_4b50, 30);
/// Signature and length, in bytes, of a directory entry.
const ENTRY: (u32, usize) = (0x0201_4b50, 46);
/// Signature and length, in bytes, of the record at the end of the directory.
const END: (u32, usize) = (0x0605_4b50, 22);
/// Longest comment after that record, in bytes.
const MAX_COMMENT_BYTES: u64 = 0xffff;
/// Longest directory, in bytes.
const MAX_DIRECTORY_BYTES: u32 = 1 << 20;
const MAX_MEMBERS: usize = 1024;
/// Longest array, in bytes.
const MAX_ARRAY_BYTES: u32 = 1 << 30;
/// Marks a number that is in a zip64 record instead.
const IN_ZIP64: u32 = u32::MAX;

/// Arrays of a file. Each one is read on request.
#[derive(Debug)]
pub(crate) struct Npz {
    path: PathBuf,
    file: File,
    members: BTreeMap<String, Member>,
}

/// Directory entry of a member.
#[derive(Clone, Copy, Debug)]
struct Member {
    compression: u16,
    checksum: u32,
    packed_bytes: u32,
    bytes: u32,
    offset: u32,
}

impl Npz {
    /// Opens a file and reads its directory.
    ///
    /// # Errors
    /// [`DataError::Read`]; [`DataError::Damaged`] for a file that is no zip, is damaged, encrypted or in zip64 form.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let mut file = File::open(path).map_err(DataError::read(path.display()))?;
        let members = read_directory(&mut file).map_err(|error| fault(path, "", error))?;
        Ok(Self { path: path.into(), file, members })
    }

    /// Reads an array.
    ///
    /// # Errors
    /// [`DataError`]: there is none of that name, its bytes are damaged, or [`Array::parse`] refuses it.
    pub(crate) fn array(&mut self, name: &str) -> Result<Array, DataError> {
        let Some(member) = self.members.get(name).copied() else {
            let found = self.members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Mismatch::new(format!("an array `{name}`"), found).wrong_file(self.path.display()));
        };
        let bytes =
            self.read(member).map_err(|error| fault(&self.path, &format!("array `{name}`: "), error))?;
        Array::parse(bytes).map_err(|mismatch| self.wrong_array(name, mismatch))
    }

    /// Error for an array of another kind than the reader needs.
    pub(crate) fn wrong_array(&self, name: &str, mismatch: Mismatch) -> DataError {
        mismatch.wrong_file(format!("{}: array `{name}`", self.path.display()))
    }

    fn read(&mut self, member: Member) -> io::Result<Vec<u8>> {
        if member.bytes > MAX_ARRAY_BYTES {
            return Err(invalid(format!("{} bytes, more than {MAX_ARRAY_BYTES}", member.bytes)));
        }
        let header = read_at(&mut self.file, member.offset.into(), MEMBER.1 as u64)?;
        if header.len() < MEMBER.1 || u32_at(&header, 0) != MEMBER.0 {
            return Err(invalid("no member at the offset in the directory"));
        }
        let name_and_extra = i64::from(u16_at(&header, 26)) + i64::from(u16_at(&header, 28));
        self.file.seek(SeekFrom::Current(name_and_extra))?;
        let packed = (&mut self.file).take(member.packed_bytes.into());
        let source: Box<dyn Read + '_> = match member.compression {
            0 => Box::new(packed),
            8 => Box::new(DeflateDecoder::new(packed)),
            other => return Err(invalid(format!("compression {other}, not 0 (none) or 8 (deflate)"))),
        };
        // The buffer grows with the bytes that arrive, so a wrong directory costs no memory.
        let mut bytes = Vec::new();
        source.take(u64::from(member.bytes) + 1).read_to_end(&mut bytes)?;
        if bytes.len() != member.bytes as usize {
            let more = if bytes.len() > member.bytes as usize { "more" } else { "fewer" };
            return Err(invalid(format!("{more} than the {} bytes of the directory", member.bytes)));
        }
        let mut checksum = Crc::new();
        checksum.update(&bytes);
        if checksum.sum() != member.checksum {
            return Err(invalid("another checksum than in the directory"));
        }
        Ok(bytes)
    }
}

/// Converts an error: invalid data is damage of the file, the rest comes from the file system.
fn fault(path: &Path, at: &str, error: io::Error) -> DataError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            let expected = "a .npz (a zip of .npy arrays, as numpy.savez writes it)";
            Mismatch::new(expected, format!("{at}{error}")).damaged(path.display())
        }
        _ => DataError::read(path.display())(error),
    }
}

fn invalid(found: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, found.into())
}

fn read_directory(file: &mut File) -> io::Result<BTreeMap<String, Member>> {
    let length = file.metadata()?.len();
    let tail_bytes = length.min(END.1 as u64 + MAX_COMMENT_BYTES);
    let tail = read_at(file, length - tail_bytes, tail_bytes)?;
    let end = (0..tail.len().saturating_sub(END.1 - 1))
        .rev()
        .map(|at| &tail[at..])
        .find(|end| u32_at(end, 0) == END.0 && end.len() == END.1 + usize::from(u16_at(end, 20)));
    let end = end.ok_or_else(|| invalid(format!("{length} bytes without a directory at their end")))?;
    let (count, bytes, offset) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
    if count == u16::MAX || bytes == IN_ZIP64 || offset == IN_ZIP64 {
        return Err(invalid("the zip64 form, for files of 4 GB and more"));
    }
    if bytes > MAX_DIRECTORY_BYTES || u64::from(offset) + u64::from(bytes) > length {
        return Err(invalid(format!("a directory of {bytes} bytes at {offset} in {length} bytes")));
    }
    let directory = read_at(file, offset.into(), bytes.into())?;
    members(&directory, count.into()).map_err(invalid)
}

/// Directory entries by the name of their array. An error describes the fault.
fn members(mut directory: &[u8], count: usize) -> Result<BTreeMap<String, Member>, String> {
    if count > MAX_MEMBERS {
        return Err(format!("{count} members, more than {MAX_MEMBERS}"));
    }
    let mut members = BTreeMap::new();
    for _ in 0..count {
        if directory.len() < ENTRY.1 || u32_at(directory, 0) != ENTRY.0 {
            return Err("a damaged directory".into());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(directory, at)));
        let Some(rest) = directory.get(ENTRY.1 + name + extra + comment..) else {
            return Err("a directory that is cut off".into());
        };
        let member = Member {
            compression: u16_at(directory, 10),
            checksum: u32_at(directory, 16),
            packed_bytes: u32_at(directory, 20),
            bytes: u32_at(directory, 24),
            offset: u32_at(directory, 42),
        };
        let name = String::from_utf8_lossy(&directory[ENTRY.1..ENTRY.1 + name]).into_owned();
        if u16_at(directory, 8) & 1 == 1 {
            return Err(format!("`{name}` encrypted"));
        }
        if [member.packed_bytes, member.bytes, member.offset].contains(&IN_ZIP64) {
            return Err(format!("`{name}` in the zip64 form, for members of 4 GB and more"));
        }
        directory = rest;
        if let Some(array) = name.strip_suffix(".npy")
            && members.insert(array.to_owned(), member).is_some()
        {
            return Err(format!("two members `{name}`"));
        }
    }
    Ok(members)
}

/// Reads up to `bytes` bytes from `offset`; fewer at the end of the file.
fn read_at(file: &mut File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = Vec::new();
    file.take(bytes).read_to_end(&mut piece)?;
    Ok(piece)
}

/// Little-endian number at a position within `bytes`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Little-endian number at a position within `bytes`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
