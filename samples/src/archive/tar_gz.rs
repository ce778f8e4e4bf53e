//! Reads a `.tar.gz` once, from front to end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::collect::{Collector, Needed, read_whole};
use super::member::Member;
use crate::DataError;
use crate::error::Mismatch;
use crate::files::GZIP_MAGIC;

/// Reads every member, then the end of the gzip stream, where the decoder compares the checksum.
pub(super) fn read(file: impl Read, max_bytes: u64, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let at = collector.at();
    let damaged = |found: String| Mismatch::new("a whole .tar.gz archive", found).damaged(&at);
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(DataError::read(&at))?;
    if !start.starts_with(&GZIP_MAGIC) {
        let start = &start[..start.len().min(4)];
        return Err(damaged(format!("a file that begins with {start:02x?} instead of 1f 8b (gzip)")));
    }
    let mut stream =
        Stream { source: MultiGzDecoder::new(file), inflated: 0, max_bytes, end: End::NotReached };
    match read_members(&mut stream, collector) {
        Ok(()) => Ok(()),
        Err(DataError::Read { source, .. }) => Err(match stream.end {
            End::Limit => collector.too_large(max_bytes, "bytes in all (inflated)"),
            End::Reached => damaged(format!("one that ends after {} bytes (inflated)", stream.inflated)),
            End::NotReached => damaged(source.to_string()),
        }),
        Err(error) => Err(error),
    }
}

/// Reads every member. A fault of the stream is a [`DataError::Read`].
fn read_members(stream: &mut impl Read, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let fault = DataError::read(collector.at());
    let mut tar = Archive::new(&mut *stream);
    for entry in tar.entries().map_err(&fault)? {
        let entry = entry.map_err(&fault)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let size = entry.size();
        match entry.header().entry_type() {
            EntryType::Regular => {}
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            _ if Member::of(&name) == Member::Other => continue,
            other => return Err(collector.invalid("a plain file", format!("`{name}` of type {other:?}"))),
        }
        let Some(needed) = collector.judge(&name, size)? else { continue };
        let bytes = read_whole(entry, size).map_err(&fault)?;
        match needed {
            Needed::Labels => collector.add_labels(&bytes)?,
            Needed::Frame(id) => collector.add_frame(&name, id, Ok(bytes))?,
        }
    }
    io::copy(stream, &mut io::sink()).map_err(fault)?;
    Ok(())
}

/// Inflated stream that remembers how it ended. The reader of the tar only reports a failure.
struct Stream<R> {
    source: R,
    inflated: u64,
    max_bytes: u64,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    NotReached,
    Reached,
    Limit,
}

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let result = self.source.read(buffer);
        match &result {
            Ok(0) if !buffer.is_empty() => self.end = End::Reached,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.end = End::Reached,
            Ok(read) => self.inflated += *read as u64,
            Err(_) => {}
        }
        if self.inflated > self.max_bytes {
            self.end = End::Limit;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        result
    }
}
