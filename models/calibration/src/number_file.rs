//! Files of numbers: a header in JSON, lists of floats, and a hash. A kill at any moment leaves the old file or the new one.
//!
//! ```text
//! +---------+--------------+--------+--------------------------------+---------+
//! | magic   | header bytes | header | f32 LE, one list after another | SHA-256 |
//! | 8 bytes | u64 LE       | JSON   | `lengths` stand in the header  | 32      |
//! +---------+--------------+--------+--------------------------------+---------+
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// First bytes of a file, which name the kind of the file.
pub type Magic = [u8; 8];

/// Bytes that are not a whole file of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Damaged(String);

#[derive(Serialize, Deserialize)]
struct Header<H> {
    lengths: Vec<usize>,
    #[serde(flatten)]
    header: H,
}

/// Encodes header and lists as one file.
///
/// # Panics
/// If the header cannot be written as JSON, for example a map whose keys are not text.
pub fn encode<H: Serialize>(magic: Magic, header: H, lists: &[&[f32]]) -> Vec<u8> {
    let header = Header { lengths: lists.iter().map(|list| list.len()).collect(), header };
    let header = serde_json::to_vec(&header).expect("a header is plain data");
    let mut bytes = magic.to_vec();
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header);
    lists.iter().copied().flatten().for_each(|value| bytes.extend(value.to_le_bytes()));
    let hash = Sha256::digest(&bytes);
    bytes.extend(hash);
    bytes
}

/// Header and lists of a file.
///
/// # Errors
/// [`Damaged`]: cut off, altered, or of another kind.
pub fn decode<H: DeserializeOwned>(magic: Magic, bytes: &[u8]) -> Result<(H, Vec<Vec<f32>>), Damaged> {
    let damaged = |reason: &str| Damaged(reason.to_owned());
    let (body, hash) = bytes.split_last_chunk::<32>().ok_or_else(|| damaged("shorter than its hash"))?;
    if Sha256::digest(body)[..] != hash[..] {
        return Err(damaged("its SHA-256 does not fit"));
    }
    let rest = body.strip_prefix(&magic).ok_or_else(|| damaged("of another kind, or of another version"))?;
    let (len, rest) = rest.split_first_chunk::<8>().ok_or_else(|| damaged("no header"))?;
    let (header, numbers) = usize::try_from(u64::from_le_bytes(*len))
        .ok()
        .and_then(|len| rest.split_at_checked(len))
        .ok_or_else(|| damaged("its header is cut off"))?;
    let header: Header<H> = serde_json::from_slice(header).map_err(|error| damaged(&error.to_string()))?;
    let (numbers, rest) = numbers.as_chunks::<4>();
    let expected = header.lengths.iter().try_fold(0usize, |sum, len| sum.checked_add(*len));
    if expected != Some(numbers.len()) || !rest.is_empty() {
        return Err(damaged("its numbers are cut off"));
    }
    let mut numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let lists = header.lengths.iter().map(|len| numbers.by_ref().take(*len).collect()).collect();
    Ok((header.header, lists))
}

/// Writes a whole file; after a kill the file is either the old or the new one.
///
/// # Errors
/// Writing failed, or `file` is a folder, device or link, which the new file would replace.
pub fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a plain file or none, found something else",
        ));
    }
    let partial = file.with_added_extension("partial");
    let mut out = File::create(&partial)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(partial, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Name {
        name: String,
    }

    const MAGIC: Magic = *b"HWTEST01";

    #[test]
    fn what_is_written_is_read_and_every_altered_or_missing_byte_is_found() {
        let name = Name { name: "a".into() };
        let bytes = encode(MAGIC, &name, &[&[1.5, f32::MIN_POSITIVE], &[]]);
        let read = decode::<Name>(MAGIC, &bytes).unwrap();
        assert_eq!(read, (name, vec![vec![1.5, f32::MIN_POSITIVE], vec![]]));
        assert!(decode::<Name>(*b"HWTEST02", &bytes).is_err());
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert!(decode::<Name>(MAGIC, &altered).is_err() && decode::<Name>(MAGIC, &bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_link_or_a_device_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        write_whole(&file, b"first").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for target in [&link, folder.path(), Path::new("/dev/null")] {
            assert_eq!(write_whole(target, b"second").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        write_whole(&file, b"third").unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"third");
    }
}
