//! `.npz`: a zip of `.npy` members, stored or deflated.
//!
//! ```text
//! +--------+------+--------+------+- ... -+-----------+-----------------------+
//! | header | data | header | data |       | directory | record of the end     |
//! +--------+------+--------+------+- ... -+-----------+-----------------------+
//! ```
//! Sizes and checksums come from the directory: a writer that streams leaves them out of the headers.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::Array;
use crate::error::Mismatch;
use crate::{DataError, files};

/// Signature and length, in bytes, of a member's header.
const MEMBER: ([u8; 4], usize) = (*b"PK\x03\x04", 30);
/// Signature and length, in bytes, of a directory entry.
const ENTRY: ([u8; 4], usize) = (*b"PK\x01\x02", 46);
/// Signature and length, in bytes, of the record at the end of the directory.
const END: ([u8; 4], usize) = (*b"PK\x05\x06", 22);
/// Longest comment after the end record, in bytes.
const MAX_COMMENT_BYTES: usize = 0xffff;
const MAX_MEMBERS: usize = 1024;
/// Longest array, in bytes.
const MAX_ARRAY_BYTES: u32 = 1 << 30;
/// Longest file, in bytes; longer files have the zip64 form, which is refused.
const MAX_FILE_BYTES: u64 = u32::MAX as u64;
/// Marks a number that is in a zip64 record instead.
const IN_ZIP64: u32 = u32::MAX;

/// Arrays of a file in memory. An array is inflated when it is asked for.
#[derive(Debug)]
pub(crate) struct Npz {
    path: PathBuf,
    file: Vec<u8>,
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
    /// Reads a file and its directory.
    ///
    /// # Errors
    /// [`DataError::Read`]; [`DataError::TooLarge`]; [`DataError::Content`] for a file that is no zip, is damaged, encrypted or in zip64 form.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let file = files::read(path, MAX_FILE_BYTES)?;
        let members = directory(&file).map_err(|found| damaged(path, found))?;
        Ok(Self { path: path.into(), file, members })
    }

    /// Reads an array.
    ///
    /// # Errors
    /// [`DataError`]: no array of that name, damaged bytes, or an array that [`Array::parse`] refuses.
    pub(crate) fn array(&self, name: &str) -> Result<Array, DataError> {
        let Some(member) = self.members.get(name) else {
            let found = self.members.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Mismatch::new(format!("an array `{name}`"), found).wrong_file(self.path.display()));
        };
        let bytes = member.inflate(&self.file);
        let bytes = bytes.map_err(|found| damaged(&self.path, format!("array `{name}`: {found}")))?;
        Array::parse(bytes).map_err(|mismatch| self.wrong_array(name, mismatch))
    }

    /// Error for an array of another kind than the reader needs.
    pub(crate) fn wrong_array(&self, name: &str, mismatch: Mismatch) -> DataError {
        mismatch.wrong_file(format!("{}: array `{name}`", self.path.display()))
    }
}

impl Member {
    /// Bytes of a member. An error describes the fault.
    fn inflate(&self, file: &[u8]) -> Result<Vec<u8>, String> {
        if self.bytes > MAX_ARRAY_BYTES {
            return Err(format!("{} bytes, more than {MAX_ARRAY_BYTES}", self.bytes));
        }
        let header = file.get(self.offset as usize..).filter(|header| is_record(header, MEMBER));
        let header = header.ok_or("no member at the offset in the directory")?;
        let start = MEMBER.1 + usize::from(u16_at(header, 26)) + usize::from(u16_at(header, 28));
        let packed = header.get(start..).unwrap_or_default().take(self.packed_bytes.into());
        let source: Box<dyn Read + '_> = match self.compression {
            0 => Box::new(packed),
            8 => Box::new(DeflateDecoder::new(packed)),
            other => return Err(format!("compression {other}, not 0 (none) or 8 (deflate)")),
        };
        // The buffer grows with the bytes that arrive, so a wrong directory costs no memory.
        let mut bytes = Vec::new();
        let read = source.take(u64::from(self.bytes) + 1).read_to_end(&mut bytes);
        let read = read.map_err(|error| error.to_string())?;
        if read != self.bytes as usize {
            let more = if read > self.bytes as usize { "more" } else { "fewer" };
            return Err(format!("{more} than the {} bytes of the directory", self.bytes));
        }
        let mut checksum = Crc::new();
        checksum.update(&bytes);
        if checksum.sum() != self.checksum {
            return Err("another checksum than in the directory".into());
        }
        Ok(bytes)
    }
}

fn damaged(path: &Path, found: String) -> DataError {
    let expected = "a .npz (a zip of .npy arrays, as numpy.savez writes it)";
    Mismatch::new(expected, found).damaged(path.display())
}

/// Directory entries by the name of their array. An error describes the fault.
fn directory(file: &[u8]) -> Result<BTreeMap<String, Member>, String> {
    let ends = (0..file.len()).rev().take(END.1 + MAX_COMMENT_BYTES).map(|at| &file[at..]);
    let mut ends = ends.filter(|end| is_record(end, END));
    let end = ends.find(|end| end.len() == END.1 + usize::from(u16_at(end, 20)));
    let end = end.ok_or_else(|| format!("{} bytes without a directory at their end", file.len()))?;
    let (count, bytes, offset) = (usize::from(u16_at(end, 10)), u32_at(end, 12), u32_at(end, 16));
    if count == usize::from(u16::MAX) || bytes == IN_ZIP64 || offset == IN_ZIP64 {
        return Err("the zip64 form, for files of 4 GB and more".into());
    }
    let directory = file.get(offset as usize..).and_then(|rest| rest.get(..bytes as usize));
    let mut directory = directory
        .ok_or_else(|| format!("a directory of {bytes} bytes at {offset} in {} bytes", file.len()))?;
    if count > MAX_MEMBERS {
        return Err(format!("{count} members, more than {MAX_MEMBERS}"));
    }
    let mut members = BTreeMap::new();
    for _ in 0..count {
        if !is_record(directory, ENTRY) {
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

/// Returns true if `bytes` begin with the signature of a record and are as long as the record.
fn is_record(bytes: &[u8], (signature, length): ([u8; 4], usize)) -> bool {
    bytes.starts_with(&signature) && bytes.len() >= length
}

/// Little-endian number at a position within `bytes`.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Little-endian number at a position within `bytes`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
