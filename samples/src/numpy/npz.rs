//! `.npz`: a zip of `.npy` members, stored or deflated.
//!
//! Members are found by the central directory at the end of the file; sizes and checksums are taken from there, since what stands
//! before a member may be left blank by a writer that does not go back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::{Array, ArrayError, NumpyError};

/// Signature and length, in bytes, of what a member begins with, of an entry of the directory, and of the directory's end.
const MEMBER: (u32, usize) = (0x0403_4b50, 30);
const ENTRY: (u32, usize) = (0x0201_4b50, 46);
const END: (u32, usize) = (0x0605_4b50, 22);
/// Longest comment behind the directory's end, in bytes.
const COMMENT_BYTES_MAX: u64 = 0xffff;
/// Largest directory that is read, in bytes, and most members.
const DIRECTORY_BYTES_MAX: u32 = 1 << 20;
const MEMBERS_MAX: usize = 1024;
/// Largest array, in bytes.
const ARRAY_BYTES_MAX: u32 = 1 << 30;
/// Marks a number that stands in a zip64 record.
const ELSEWHERE: u32 = u32::MAX;

/// The arrays of a file, read when asked for.
#[derive(Debug)]
pub struct Npz {
    path: PathBuf,
    file: File,
    members: BTreeMap<String, Member>,
}

/// Where a member lies.
#[derive(Clone, Copy, Debug)]
struct Member {
    method: u16,
    checksum: u32,
    packed_bytes: u32,
    bytes: u32,
    offset: u32,
}

impl Npz {
    /// Opens a file and reads its directory.
    ///
    /// # Errors
    /// [`NumpyError::Io`]; [`NumpyError::Zip`] for a file that is no zip, is damaged, encrypted or in zip64 form.
    pub fn open(path: &Path) -> Result<Self, NumpyError> {
        let io = |source| NumpyError::Io { path: path.into(), source };
        let zip = |found: String| NumpyError::Zip { path: path.into(), found };
        let mut file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let tail_bytes = length.min(END.1 as u64 + COMMENT_BYTES_MAX);
        let tail = piece(&mut file, length - tail_bytes, tail_bytes).map_err(io)?;
        let end = (0..tail.len().saturating_sub(END.1 - 1))
            .rev()
            .map(|at| &tail[at..])
            .find(|end| u32_at(end, 0) == END.0 && end.len() == END.1 + usize::from(u16_at(end, 20)));
        let end = end.ok_or_else(|| zip(format!("{length} bytes without a directory at their end")))?;
        let (count, bytes, offset) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
        if count == u16::MAX || bytes == ELSEWHERE || offset == ELSEWHERE {
            return Err(zip("the zip64 form, for files of 4 GB and more".into()));
        }
        if bytes > DIRECTORY_BYTES_MAX || u64::from(offset) + u64::from(bytes) > length {
            return Err(zip(format!("a directory of {bytes} bytes at {offset} in {length} bytes")));
        }
        let directory = piece(&mut file, offset.into(), bytes.into()).map_err(io)?;
        let members = members(&directory, count.into()).map_err(zip)?;
        Ok(Self { path: path.into(), file, members })
    }

    /// Names of the arrays, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Reads an array.
    ///
    /// # Errors
    /// [`NumpyError`]: there is none of that name, its bytes are damaged, or it is not one that [`Array::parse`] takes.
    pub fn array(&mut self, name: &str) -> Result<Array, NumpyError> {
        let Some(member) = self.members.get(name).copied() else {
            let found = self.names().map(str::to_owned).collect();
            return Err(NumpyError::NoArray { path: self.path.clone(), name: name.into(), found });
        };
        let bytes = self.member(member).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                NumpyError::Zip { path: self.path.clone(), found: format!("array `{name}`: {error}") }
            }
            _ => NumpyError::Io { path: self.path.clone(), source: error },
        })?;
        Array::parse(bytes).map_err(|reason| self.mismatch(name, reason))
    }

    /// An array that is another one than its reader needs.
    pub(crate) fn mismatch(&self, name: &str, reason: ArrayError) -> NumpyError {
        NumpyError::Array { path: self.path.clone(), name: name.into(), reason }
    }

    fn member(&mut self, member: Member) -> io::Result<Vec<u8>> {
        let invalid = |found: String| io::Error::new(io::ErrorKind::InvalidData, found);
        if member.bytes > ARRAY_BYTES_MAX {
            return Err(invalid(format!("{} bytes, where {ARRAY_BYTES_MAX} are the most", member.bytes)));
        }
        let start = piece(&mut self.file, member.offset.into(), MEMBER.1 as u64)?;
        if start.len() < MEMBER.1 || u32_at(&start, 0) != MEMBER.0 {
            return Err(invalid("no member where the directory says".into()));
        }
        let behind = i64::from(u16_at(&start, 26)) + i64::from(u16_at(&start, 28));
        self.file.seek(SeekFrom::Current(behind))?;
        let packed = (&mut self.file).take(member.packed_bytes.into());
        let mut source: Box<dyn Read + '_> = match member.method {
            0 => Box::new(packed),
            8 => Box::new(DeflateDecoder::new(packed)),
            other => {
                return Err(invalid(format!(
                    "compression {other}, where 0 (none) and 8 (deflate) are known"
                )));
            }
        };
        // Grows with what really arrives, so a directory that lies costs nothing.
        let mut bytes = Vec::new();
        (&mut source).take(u64::from(member.bytes) + 1).read_to_end(&mut bytes)?;
        if bytes.len() != member.bytes as usize {
            let more = if bytes.len() > member.bytes as usize { "more" } else { "fewer" };
            return Err(invalid(format!("{more} than the {} bytes of the directory", member.bytes)));
        }
        let mut checksum = Crc::new();
        checksum.update(&bytes);
        if checksum.sum() != member.checksum {
            return Err(invalid("another checksum than in the directory".into()));
        }
        Ok(bytes)
    }
}

/// Entries of the directory by the name of their array.
fn members(mut directory: &[u8], count: usize) -> Result<BTreeMap<String, Member>, String> {
    if count > MEMBERS_MAX {
        return Err(format!("{count} members, where {MEMBERS_MAX} are the most"));
    }
    let mut members = BTreeMap::new();
    for _ in 0..count {
        if directory.len() < ENTRY.1 || u32_at(directory, 0) != ENTRY.0 {
            return Err("a damaged directory".into());
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(directory, at)));
        let Some(behind) = directory.get(ENTRY.1 + name + extra + comment..) else {
            return Err("a directory that is cut off".into());
        };
        let member = Member {
            method: u16_at(directory, 10),
            checksum: u32_at(directory, 16),
            packed_bytes: u32_at(directory, 20),
            bytes: u32_at(directory, 24),
            offset: u32_at(directory, 42),
        };
        let name = String::from_utf8_lossy(&directory[ENTRY.1..ENTRY.1 + name]).into_owned();
        if u16_at(directory, 8) & 1 == 1 {
            return Err(format!("`{name}` encrypted"));
        }
        if [member.packed_bytes, member.bytes, member.offset].contains(&ELSEWHERE) {
            return Err(format!("`{name}` in the zip64 form, for members of 4 GB and more"));
        }
        directory = behind;
        if let Some(array) = name.strip_suffix(".npy")
            && members.insert(array.to_owned(), member).is_some()
        {
            return Err(format!("two members `{name}`"));
        }
    }
    Ok(members)
}

/// Up to `bytes` bytes from `offset`; fewer at the end of the file.
fn piece(file: &mut File, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = Vec::new();
    file.take(bytes).read_to_end(&mut piece)?;
    Ok(piece)
}

/// A number at a place that the caller knows to be there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
