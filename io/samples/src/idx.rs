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
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::iter;
use std::path::{Path, PathBuf};

use crate::error::Mismatch;
use crate::{DataError, files};

const TYPE_U8: u8 = 0x08;
const MAX_DIMENSIONS: u8 = 5;

/// File of an array in a folder, plain or `.gz`; `contents` lists all files that the folder must hold.
pub(crate) fn find(dir: &Path, name: &str, contents: &str) -> Result<PathBuf, DataError> {
    files::find(dir, &[".gz", ""].map(|ending| format!("{name}{ending}")), contents)
}

/// Reads the bytes of an array. `dims` are its expected sizes, outermost first.
///
/// # Errors
/// [`DataError`] naming the file and its fault.
pub(crate) fn read(path: &Path, dims: &[usize]) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(DataError::read(path.display()))?;
    read_from(BufReader::new(file), path, dims)
}

/// Reads an array from any source; `path` only names the source in errors. Reads at most one byte more than the array has.
fn read_from(source: impl BufRead, path: &Path, dims: &[usize]) -> Result<Vec<u8>, DataError> {
    let first = [0, 0, TYPE_U8, dims.len() as u8];
    let sizes = dims.iter().map(|&size| (size as u32).to_be_bytes());
    let header: Vec<u8> = iter::once(first).chain(sizes).flatten().collect();
    let expected = header.len() + dims.iter().product::<usize>();
    let mut file = Vec::new();
    let source = files::inflate(source).map_err(DataError::read(path.display()))?;
    let result = source.take(expected as u64 + 1).read_to_end(&mut file);
    if !header.starts_with(&file[..file.len().min(header.len())]) {
        return Err(other_header(&file, dims).wrong_file(path.display()));
    }
    let found = match result {
        Ok(bytes) if bytes == expected => return Ok(file.split_off(header.len())),
        Ok(bytes) if bytes > expected => "more".into(),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            return Err(DataError::decode(path.display(), "an IDX file, plain or gzip")(error));
        }
        Err(_) if file.len() == expected => "a gzip file without its end".into(),
        Ok(_) | Err(_) => file.len().to_string(),
    };
    Err(Mismatch::new(format!("{expected} bytes (inflated)"), found).damaged(path.display()))
}

/// Difference between the header of a file and the header of an array of the sizes `dims`.
fn other_header(file: &[u8], dims: &[usize]) -> Mismatch {
    let [0, 0, TYPE_U8, count @ 1..=MAX_DIMENSIONS, sizes @ ..] = file else {
        let expected = "an IDX file of unsigned bytes (first bytes 00 00 08 01 to 00 00 08 05)";
        return Mismatch::new(expected, format!("{:02x?}", &file[..file.len().min(4)]));
    };
    let sizes = sizes.as_chunks().0.iter().take(usize::from(*count));
    let found: Vec<u32> = sizes.map(|size| u32::from_be_bytes(*size)).collect();
    Mismatch::new(format!("dimensions {dims:?}"), format!("{found:?}"))
}

#[cfg(test)]
mod tests;
