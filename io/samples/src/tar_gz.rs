//! Reads a `.tar.gz` once, from front to end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use crate::DataError;
use crate::error::Mismatch;

/// First bytes of a gzip file.
pub(crate) const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Member of an archive.
pub(crate) struct Member<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: EntryType,
    pub(crate) size: u64,
    content: &'a mut dyn Read,
}

impl Member<'_> {
    /// Reads the content.
    pub(crate) fn read(self) -> Result<Vec<u8>, DataError> {
        // The caller of the visitor replaces this error by one about the archive.
        read_whole(self.content, self.size).map_err(DataError::read(self.name))
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
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let (kind, size) = (entry.header().entry_type(), entry.size());
        visitor(Member { name: &name, kind, size, content: &mut entry })?;
    }
    io::copy(stream, &mut io::sink()).map_err(fault)?;
    Ok(())
}

/// Reads a file of a known size. The buffer grows with the bytes that arrive.
pub(crate) fn read_whole(file: impl Read, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// Inflated stream that counts its bytes and remembers whether its end was reached. The error of the tar reader does not tell a stream
/// that is too long from one that is cut off.
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
