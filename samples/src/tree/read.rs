//! Files of a directory or a `.tar.gz`, one after the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::TreeError;

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of an archive, inflated.
const TOTAL_BYTES_MAX: u64 = 16 << 30;
/// Folders in folders.
const DEPTH_MAX: usize = 8;

/// Takes a file by its path in the tree, with `/` between the steps.
pub(super) type Take<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<(), TreeError>;

/// Hands over every file; those of a directory in the order of their names.
pub(super) fn each_file(path: &Path, take: Take<'_>) -> Result<(), TreeError> {
    if path.is_dir() { directory(path, "", 0, take) } else { archive(path, take) }
}

fn directory(dir: &Path, name: &str, depth: usize, take: Take<'_>) -> Result<(), TreeError> {
    let io = |source| TreeError::Io { path: dir.into(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        entries.push(entry.map_err(io)?.file_name());
    }
    entries.sort_unstable();
    if entries.is_empty() {
        return Err(TreeError::EmptyFolder { path: dir.into() });
    }
    for entry in entries {
        let path = dir.join(&entry);
        let step = entry.to_string_lossy();
        let name = if name.is_empty() { step.into_owned() } else { format!("{name}/{step}") };
        if path.is_dir() {
            if depth == DEPTH_MAX {
                return Err(TreeError::Layout { root: dir.into(), name });
            }
            directory(&path, &name, depth + 1, take)?;
            continue;
        }
        let io = |source| TreeError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let (what, limit) = ("in a file", FILE_BYTES_MAX);
            return Err(TreeError::TooLarge { path: dir.into(), name, what, limit });
        }
        take(&name, &bytes)?;
    }
    Ok(())
}

fn archive(path: &Path, take: Take<'_>) -> Result<(), TreeError> {
    let io = |source| TreeError::Io { path: path.into(), source };
    let damaged = |source| TreeError::Archive { path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    if !file.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]) {
        return Err(damaged(io::Error::new(io::ErrorKind::InvalidData, "it does not begin as gzip does")));
    }
    let mut stream = MultiGzDecoder::new(file);
    let mut total = 0;
    let mut tar = tar::Archive::new(&mut stream);
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        total += entry.size();
        for (what, found, limit) in
            [("in a file", entry.size(), FILE_BYTES_MAX), ("in all", total, TOTAL_BYTES_MAX)]
        {
            if found > limit {
                return Err(TreeError::TooLarge { path: path.into(), name, what, limit });
            }
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(damaged)?;
        if bytes.len() as u64 != entry.size() {
            return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
        }
        take(&name, &bytes)?;
    }
    // The checksum at the end proves that all of it was sound.
    io::copy(&mut stream.take(TOTAL_BYTES_MAX), &mut io::sink()).map_err(damaged)?;
    Ok(())
}
