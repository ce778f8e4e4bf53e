//! IDX files, the format of MNIST and its kin: a magic number, big-endian dimensions, then unsigned bytes.
//!
//! ```text
//!  0     2      3       4                    4 + 4 n
//! +-----+------+-------+------- ... --------+------- ... ---+
//! | 0 0 | 0x08 | n 1-5 | n sizes, u32 BE    | bytes         |
//! +-----+------+-------+------- ... --------+------- ... ---+
//! ```
//! Plain or gzip, told apart by the first two bytes and never by the name.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

/// Largest array [`read`] accepts, in bytes: five times the largest file of the MNIST kin.
pub const DEFAULT_LIMIT_BYTES: u64 = 256 * 1024 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const TYPE_U8: u8 = 0x08;
const MAX_DIMENSIONS: u8 = 5;

/// An array of unsigned bytes, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Sizes, outermost first; one to five of them.
    pub dims: Vec<usize>,
    /// As many bytes as the product of `dims`.
    pub data: Vec<u8>,
}

impl Idx {
    /// Passes the array on if its sizes are the expected ones.
    ///
    /// # Errors
    /// [`IdxError::WrongShape`] with both, naming `path`.
    pub fn expect_dims(self, path: &Path, expected: &[usize]) -> Result<Self, IdxError> {
        if self.dims == expected {
            return Ok(self);
        }
        Err(IdxError::WrongShape { path: path.into(), expected: expected.to_vec(), found: self.dims })
    }
}

/// Why a file could not be read as IDX.
#[derive(Debug, thiserror::Error)]
pub enum IdxError {
    /// The file system refused.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Begins like gzip but does not inflate.
    #[error("{}: begins as gzip but does not inflate ({source}); copy or download it again", path.display())]
    Gzip {
        /// File.
        path: PathBuf,
        /// What the decoder said.
        source: io::Error,
    },
    /// The first four bytes are not those of an IDX file of unsigned bytes.
    #[error(
        "{}: expected an IDX file of unsigned bytes (first bytes 00 00 08 01 to 00 00 08 05), \
         found {found:02x?}; is it the right file?",
        path.display()
    )]
    WrongMagic {
        /// File.
        path: PathBuf,
        /// The bytes found.
        found: [u8; 4],
    },
    /// The header promises more than the reader may hold.
    #[error(
        "{}: expected at most {limit_bytes} bytes, found a header that promises {dims:?}; \
         the header is damaged or this is not the right file", path.display()
    )]
    TooLarge {
        /// File.
        path: PathBuf,
        /// Sizes in the header.
        dims: Vec<usize>,
        /// What the reader accepts.
        limit_bytes: u64,
    },
    /// Ends before its header or its data do.
    #[error(
        "{}: expected {expected} bytes (inflated), found {found}; it is cut off, copy or download it again",
        path.display()
    )]
    Truncated {
        /// File.
        path: PathBuf,
        /// Bytes that should be there, header included.
        expected: u64,
        /// Bytes that are.
        found: u64,
    },
    /// Goes on after its data.
    #[error(
        "{}: expected {expected} bytes (inflated), found more; header and data do not belong together",
        path.display()
    )]
    TooLong {
        /// File.
        path: PathBuf,
        /// Bytes that should be there, header included.
        expected: u64,
    },
    /// A sound file of another shape than the caller needs.
    #[error("{}: expected dimensions {expected:?}, found {found:?}; is it the right file?", path.display())]
    WrongShape {
        /// File.
        path: PathBuf,
        /// Sizes the caller needs.
        expected: Vec<usize>,
        /// Sizes found.
        found: Vec<usize>,
    },
}

/// Reads a whole file of up to [`DEFAULT_LIMIT_BYTES`], plain or gzip.
///
/// # Errors
/// Any [`IdxError`] but `WrongShape`.
pub fn read(path: &Path) -> Result<Idx, IdxError> {
    let file = File::open(path).map_err(|source| IdxError::Io { path: path.into(), source })?;
    read_from(BufReader::new(file), path, DEFAULT_LIMIT_BYTES)
}

/// Reads from any source; `path` only names it in errors.
///
/// # Errors
/// Any [`IdxError`] but `WrongShape`.
pub fn read_from(mut source: impl BufRead, path: &Path, limit_bytes: u64) -> Result<Idx, IdxError> {
    let mut start = [0; 2];
    let found =
        read_up_to(&mut source, &mut start).map_err(|source| IdxError::Io { path: path.into(), source })?;
    let whole = io::Cursor::new(&start[..found]).chain(source);
    if start == GZIP_MAGIC {
        Reader { source: MultiGzDecoder::new(whole), path, gzip: true }.array(limit_bytes)
    } else {
        Reader { source: whole, path, gzip: false }.array(limit_bytes)
    }
}

struct Reader<'a, R> {
    source: R,
    path: &'a Path,
    gzip: bool,
}

impl<R: Read> Reader<'_, R> {
    fn array(mut self, limit_bytes: u64) -> Result<Idx, IdxError> {
        let mut magic = [0; 4];
        self.fill(&mut magic, 0)?;
        let [0, 0, TYPE_U8, count @ 1..=MAX_DIMENSIONS] = magic else {
            return Err(IdxError::WrongMagic { path: self.path.into(), found: magic });
        };
        let mut sizes = [0; 4 * MAX_DIMENSIONS as usize];
        let sizes = &mut sizes[..4 * usize::from(count)];
        self.fill(sizes, 4)?;
        let dims: Vec<usize> =
            sizes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize).collect();
        let bytes = dims.iter().try_fold(1_u64, |product, &size| product.checked_mul(size as u64));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= limit_bytes) else {
            return Err(IdxError::TooLarge { path: self.path.into(), dims, limit_bytes });
        };
        let data = self.body(4 + 4 * u64::from(count), bytes)?;
        Ok(Idx { dims, data })
    }

    /// The buffer grows with what really arrives, so a header that lies costs nothing.
    fn body(&mut self, header: u64, bytes: u64) -> Result<Vec<u8>, IdxError> {
        let mut data = Vec::new();
        let end = self.source.by_ref().take(bytes + 1).read_to_end(&mut data);
        let found = data.len() as u64;
        match end {
            Ok(_) if found == bytes => {
                data.shrink_to_fit();
                Ok(data)
            }
            Ok(_) if found > bytes => {
                Err(IdxError::TooLong { path: self.path.into(), expected: header + bytes })
            }
            Ok(_) => Err(self.truncated(header + bytes, header + found)),
            Err(error) => Err(self.failed(error, header + bytes, header + found)),
        }
    }

    /// Reads a piece of the header that begins at `offset`.
    fn fill(&mut self, piece: &mut [u8], offset: u64) -> Result<(), IdxError> {
        let expected = offset + piece.len() as u64;
        match read_up_to(&mut self.source, piece) {
            Ok(found) if found == piece.len() => Ok(()),
            Ok(found) => Err(self.truncated(expected, offset + found as u64)),
            Err(error) => Err(self.failed(error, expected, offset)),
        }
    }

    fn truncated(&self, expected: u64, found: u64) -> IdxError {
        IdxError::Truncated { path: self.path.into(), expected, found }
    }

    fn failed(&self, source: io::Error, expected: u64, found: u64) -> IdxError {
        match (source.kind(), self.gzip) {
            (io::ErrorKind::UnexpectedEof, _) => self.truncated(expected, found),
            (_, true) => IdxError::Gzip { path: self.path.into(), source },
            (_, false) => IdxError::Io { path: self.path.into(), source },
        }
    }
}

/// Like `read_exact`, but says how much was there when it was not enough.
fn read_up_to(source: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match source.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
