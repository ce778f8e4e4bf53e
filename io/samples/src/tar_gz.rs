//! Reads a `.tar.gz` once, from front to end.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use crate::DataError;
use crate::error::Mismatch;
use crate::file_names::{is_image_name, text};
use crate::image_codec::MAX_FILE_BYTES;
use crate::image_structure::{START_BYTES, is_image};

/// First bytes of a gzip file.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Most bytes of memory that are reserved for a file before its content arrives.
const RESERVED_BYTES: u64 = 256 << 10;

/// Other files that users may give as a `.tar.gz`: offset, bytes at the offset, and name.
const OTHER_ARCHIVES: [(usize, &[u8], &str); 5] = [
    (0, b"PK", "a zip"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (257, b"ustar", "a tar without gzip"),
];

/// Member of an archive, or file of a folder.
pub(crate) struct Member<'a> {
    /// Path from the root, with `/` as separator.
    pub(crate) name: &'a str,
    /// Path of a file of a folder; `None` in an archive.
    pub(crate) path: Option<&'a Path>,
    pub(crate) kind: EntryType,
    pub(crate) size: u64,
    pub(crate) content: &'a mut dyn Read,
}

impl Member<'_> {
    /// Reads the content.
    pub(crate) fn read(self) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        // The caller of the visitor replaces this error by one about the archive or the file.
        append(self.content, self.size, &mut bytes).map_err(DataError::read(self.name))?;
        Ok(bytes)
    }

    /// Returns true if the file is an image by its first bytes or by its name. Only the first bytes are read.
    pub(crate) fn holds_image(self) -> bool {
        let mut start = Vec::new();
        let is_read = append(self.content, START_BYTES.min(self.size), &mut start).is_ok();
        is_read && is_image(&start) || is_image_name(self.name)
    }

    /// Reads a file that is an image by its first bytes or by its name. `None` for another file, of which only the first bytes are read.
    ///
    /// # Errors
    /// [`DataError::Read`] from the content, [`DataError::TooLarge`] for an image that is too long.
    pub(crate) fn read_image(self) -> Result<Option<Vec<u8>>, DataError> {
        let Self { name, size, content, .. } = self;
        let (mut bytes, start) = (Vec::new(), START_BYTES.min(size));
        append(&mut *content, start, &mut bytes).map_err(DataError::read(name))?;
        if !is_image(&bytes) && !is_image_name(name) {
            return Ok(None);
        }
        if size > MAX_FILE_BYTES {
            return Err(DataError::too_large(name, MAX_FILE_BYTES, "bytes in an image"));
        }
        append(content, size - start, &mut bytes).map_err(DataError::read(name))?;
        Ok(Some(bytes))
    }
}

/// Visits every member of an archive that inflates to at most `max_bytes` bytes; `at` names the archive in errors.
///
/// Then reads the end of the gzip stream, where the decoder compares the checksum.
pub(crate) fn visit(
    file: impl Read,
    at: &str,
    max_bytes: u64,
    visitor: &mut dyn FnMut(Member<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let damaged = |found: String| Mismatch::new("a whole .tar.gz archive", found).damaged(at);
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(DataError::read(at))?;
    let is_known =
        |(at, bytes, _): &&(usize, &[u8], &str)| start.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    if let Some((.., kind)) = OTHER_ARCHIVES.iter().find(is_known) {
        let found = format!("{kind}; unpack it, and give the folder");
        return Err(Mismatch::new("a .tar.gz archive", found).invalid(at));
    }
    if !start.starts_with(&GZIP_MAGIC) {
        let start = &start[..start.len().min(4)];
        return Err(damaged(format!("a file that begins with {start:02x?} instead of 1f 8b (gzip)")));
    }
    let mut stream = Stream { source: MultiGzDecoder::new(file), inflated: 0, max_bytes, is_over: false };
    visit_members(&mut stream, visitor).map_err(|error| match error {
        DataError::Read { .. } if stream.inflated > max_bytes => {
            DataError::too_large(at, max_bytes, "bytes in all (inflated)")
        }
        DataError::Read { .. } if stream.is_over => {
            damaged(format!("one that ends after {} bytes (inflated)", stream.inflated))
        }
        DataError::Read { source, .. } => damaged(source.to_string()),
        error => error,
    })
}

/// Visits every member. A fault of the stream is a [`DataError::Read`].
fn visit_members(
    stream: &mut impl Read,
    visitor: &mut dyn FnMut(Member<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let fault = DataError::read("");
    let mut tar = Archive::new(&mut *stream);
    for entry in tar.entries().map_err(&fault)? {
        let mut entry = entry.map_err(&fault)?;
        let name = text(&entry.path_bytes());
        let (kind, size) = (entry.header().entry_type(), entry.size());
        visitor(Member { name: &name, path: None, kind, size, content: &mut entry })?;
    }
    io::copy(stream, &mut io::sink()).map_err(fault)?;
    Ok(())
}

/// Appends `size` bytes of a file. Above [`RESERVED_BYTES`] the buffer grows with the bytes that arrive.
fn append(file: impl Read, size: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.reserve(size.min(RESERVED_BYTES) as usize);
    let read = file.take(size).read_to_end(bytes)?;
    if (read as u64) < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Inflated stream that counts its bytes and remembers whether its end was reached. The error of the tar reader does not tell a stream
/// that is too long from a stream that is cut off.
struct Stream<R> {
    source: R,
    inflated: u64,
    max_bytes: u64,
    is_over: bool,
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.source.read(buffer);
        match &result {
            Ok(0) if !buffer.is_empty() => self.is_over = true,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.is_over = true,
            Ok(read) => self.inflated += *read as u64,
            Err(_) => {}
        }
        if self.inflated > self.max_bytes { Err(io::ErrorKind::FileTooLarge.into()) } else { result }
    }
}
