//! Members of a `.tar.gz`, read once from front to end.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::ArchiveError;
use super::collect::{Collector, Wanted, read_whole};
use super::member::Member;

/// Reads every member, then the end of the gzip stream, whose checksum proves that all of it was sound.
pub(super) fn read(file: impl Read, total_bytes: u64, into: &mut Collector<'_>) -> Result<(), ArchiveError> {
    let mut file = BufReader::new(file);
    let start = file.fill_buf().map_err(|source| into.io(source))?;
    if !start.starts_with(&[0x1f, 0x8b]) {
        let start = &start[..start.len().min(4)];
        return Err(into.damaged(format!("a file that begins with {start:02x?} instead of 1f 8b (gzip)")));
    }
    let mut stream =
        Watched { source: MultiGzDecoder::new(file), inflated: 0, limit: total_bytes, end: End::NotYet };
    match read_members(&mut stream, into) {
        Ok(()) => Ok(()),
        Err(Fault::Archive(error)) => Err(error),
        Err(Fault::Stream(error)) => Err(match stream.end {
            End::Limit => into.too_large("bytes in all (inflated)", total_bytes),
            End::Reached => into.cut_off(stream.inflated),
            End::NotYet => into.damaged(error.to_string()),
        }),
    }
}

enum Fault {
    Archive(ArchiveError),
    Stream(io::Error),
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

fn read_members(stream: &mut impl Read, into: &mut Collector<'_>) -> Result<(), Fault> {
    let mut tar = Archive::new(&mut *stream);
    for entry in tar.entries()? {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let size = entry.size();
        match entry.header().entry_type() {
            EntryType::Regular => {}
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            _ if Member::of(&name) == Member::Other => continue,
            other => {
                return Err(into
                    .bad_member(&name, &format!("expected a plain file, found {other:?}"))
                    .into());
            }
        }
        match into.look(&name, size)? {
            Wanted::Nothing => {}
            Wanted::Labels => into.put_labels(&read_whole(entry, size)?)?,
            Wanted::Frame(place) => into.put_frame(&name, place, Ok(read_whole(entry, size)?))?,
        }
    }
    io::copy(stream, &mut io::sink())?;
    Ok(())
}

/// Knows how the stream ended when the reader of the tar only says that it failed.
struct Watched<R> {
    source: R,
    inflated: u64,
    limit: u64,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    NotYet,
    Reached,
    Limit,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.source.read(buffer) {
            Ok(0) => {
                if !buffer.is_empty() {
                    self.end = End::Reached;
                }
                Ok(0)
            }
            Ok(read) => {
                self.inflated += read as u64;
                if self.inflated > self.limit {
                    self.end = End::Limit;
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                Ok(read)
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    self.end = End::Reached;
                }
                Err(error)
            }
        }
    }
}
