//! IDX files, the format of MNIST: a magic number, big-endian sizes, then unsigned bytes.
//!
//! ```text
//!  0     2      3       4                    4 + 4 n
//! +-----+------+-------+------- ... --------+------- ... ---+
//! | 0 0 | 0x08 | n 1-5 | n sizes, u32 BE    | bytes         |
//! +-----+------+-------+------- ... --------+------- ... ---+
//! ```
//! The file is plain or compressed with gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::error::Mismatch;
use crate::{DataError, files};

/// Longest array that [`read`] accepts, in bytes: five times the largest file of MNIST.
const MAX_ARRAY_BYTES: u64 = 256 << 20;
const TYPE_U8: u8 = 0x08;
const MAX_DIMENSIONS: u8 = 5;

/// Array of unsigned bytes, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Idx {
    /// One to five sizes, outermost first.
    dims: Vec<usize>,
    /// The bytes; their number is the product of `dims`.
    data: Vec<u8>,
}

/// Reads the bytes of an array of the sizes `dims`.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
pub(crate) fn read(path: &Path, dims: &[usize]) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(DataError::read(path.display()))?;
    read_from(BufReader::new(file), path, MAX_ARRAY_BYTES)?.expect_dims(path, dims)
}

/// Reads an array from any source; `path` only names the source in errors.
fn read_from(source: impl BufRead, path: &Path, max_bytes: u64) -> Result<Idx, DataError> {
    let source = files::inflate(source).map_err(DataError::read(path.display()))?;
    Reader { source, path, position: 0 }.array(max_bytes)
}

impl Idx {
    fn expect_dims(self, path: &Path, expected: &[usize]) -> Result<Vec<u8>, DataError> {
        if self.dims == expected {
            return Ok(self.data);
        }
        let mismatch = Mismatch::new(format!("dimensions {expected:?}"), format!("{:?}", self.dims));
        Err(mismatch.wrong_file(path.display()))
    }
}

struct Reader<'a> {
    source: Box<dyn Read + 'a>,
    path: &'a Path,
    /// Bytes read so far.
    position: u64,
}

impl Reader<'_> {
    fn array(mut self, max_bytes: u64) -> Result<Idx, DataError> {
        let magic = self.bytes(4)?;
        let [0, 0, TYPE_U8, count @ 1..=MAX_DIMENSIONS] = magic[..] else {
            let expected = "an IDX file of unsigned bytes (first bytes 00 00 08 01 to 00 00 08 05)";
            return Err(Mismatch::new(expected, format!("{magic:02x?}")).wrong_file(self.path.display()));
        };
        let sizes = self.bytes(4 * u64::from(count))?;
        let dims: Vec<usize> =
            sizes.as_chunks().0.iter().map(|size| u32::from_be_bytes(*size) as usize).collect();
        let bytes = dims.iter().try_fold(1_u64, |product, &size| product.checked_mul(size as u64));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= max_bytes) else {
            let found = format!("a header that promises {dims:?}");
            return Err(
                Mismatch::new(format!("at most {max_bytes} bytes"), found).wrong_file(self.path.display())
            );
        };
        let data = self.bytes(bytes)?;
        self.end()?;
        Ok(Idx { dims, data })
    }

    /// Reads `count` bytes. The buffer grows with the bytes that arrive, so a wrong header costs no memory.
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let expected = self.position + count;
        let result = self.source.by_ref().take(count).read_to_end(&mut bytes);
        self.position += bytes.len() as u64;
        match result {
            Ok(_) if self.position == expected => {
                bytes.shrink_to_fit();
                Ok(bytes)
            }
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(self.fault(error)),
            _ => Err(self.wrong_length(expected, &self.position.to_string())),
        }
    }

    /// Expects the end of the file; a gzip decoder compares its checksum here.
    fn end(&mut self) -> Result<(), DataError> {
        match self.source.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.wrong_length(self.position, "more")),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.wrong_length(self.position, "a gzip file without its end"))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    fn wrong_length(&self, expected: u64, found: &str) -> DataError {
        Mismatch::new(format!("{expected} bytes (inflated)"), found).damaged(self.path.display())
    }

    fn fault(&self, error: io::Error) -> DataError {
        DataError::decode(self.path.display(), "an IDX file, plain or gzip")(error)
    }
}

#[cfg(test)]
mod tests;
