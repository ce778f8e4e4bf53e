//! Files of a directory or a `.tar.gz`, one after the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of an archive, inflated.
const TOTAL_BYTES_MAX: u64 = 16 << 30;
/// Folders in folders.
const DEPTH_MAX: usize = 8;

/// Why files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file system refused.
    #[error("{}: cannot be read: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The archive ends early or is damaged.
    #[error("{}: expected a .tar.gz of images, found a damaged or cut off one ({source}); copy or download it again", path.display())]
    Archive {
        /// Archive.
        path: PathBuf,
        /// What the decoder said.
        source: io::Error,
    },
    /// More than is held in memory.
    #[error("{}: `{name}`: expected at most {limit} bytes {what}, found more", path.display())]
    TooLarge {
        /// Archive or folder.
        path: PathBuf,
        /// Member at which it was too much.
        name: String,
        /// Of what.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// Folders in folders without end, such as a link to a folder above.
    #[error("{}: expected at most {DEPTH_MAX} folders in one another, found more", path.display())]
    TooDeep {
        /// The deepest.
        path: PathBuf,
    },
    /// A folder that holds nothing.
    #[error("{}: expected images in this folder, found none; put some in or remove it", path.display())]
    EmptyFolder {
        /// The folder.
        path: PathBuf,
    },
}

/// What is found in a directory or an archive, by its path in it, with `/` between the steps.
pub(crate) enum Found<'a> {
    Folder(&'a str),
    File(&'a str, &'a [u8]),
}

/// Takes what is found.
pub(crate) type Take<'a, E> = &'a mut dyn FnMut(Found<'_>) -> Result<(), E>;

/// Hands over every folder and file; those of a directory in the order of their names.
pub(crate) fn each<E: From<ReadError>>(path: &Path, take: Take<'_, E>) -> Result<(), E> {
    if path.is_dir() { directory(path, "", 0, take) } else { archive(path, take) }
}

/// A file of a directory.
pub(crate) fn one(path: &Path) -> Result<Vec<u8>, ReadError> {
    let io = |source| ReadError::Io { path: path.into(), source };
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let (name, what) = (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), "in a file");
        return Err(ReadError::TooLarge { path: path.into(), name, what, limit: FILE_BYTES_MAX });
    }
    Ok(bytes)
}

fn directory<E: From<ReadError>>(dir: &Path, name: &str, depth: usize, take: Take<'_, E>) -> Result<(), E> {
    let io = |source| ReadError::Io { path: dir.into(), source };
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        entries.push(entry.map_err(io)?.file_name());
    }
    entries.sort_unstable();
    if entries.is_empty() {
        return Err(ReadError::EmptyFolder { path: dir.into() }.into());
    }
    for entry in entries {
        let path = dir.join(&entry);
        let step = entry.to_string_lossy();
        let name = if name.is_empty() { step.into_owned() } else { format!("{name}/{step}") };
        if !path.is_dir() {
            take(Found::File(&name, &one(&path)?))?;
            continue;
        }
        if depth == DEPTH_MAX {
            return Err(ReadError::TooDeep { path }.into());
        }
        take(Found::Folder(&name))?;
        directory(&path, &name, depth + 1, take)?;
    }
    Ok(())
}

fn archive<E: From<ReadError>>(path: &Path, take: Take<'_, E>) -> Result<(), E> {
    let io = |source| ReadError::Io { path: path.into(), source };
    let damaged = |source| ReadError::Archive { path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    if !file.fill_buf().map_err(io)?.starts_with(&[0x1f, 0x8b]) {
        let error = io::Error::new(io::ErrorKind::InvalidData, "it does not begin as gzip does");
        return Err(damaged(error).into());
    }
    let mut stream = MultiGzDecoder::new(file);
    let mut total = 0;
    let mut tar = tar::Archive::new(&mut stream);
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            take(Found::Folder(&name))?;
        }
        if !kind.is_file() {
            continue;
        }
        total += entry.size();
        for (what, found, limit) in
            [("in a file", entry.size(), FILE_BYTES_MAX), ("in all", total, TOTAL_BYTES_MAX)]
        {
            if found > limit {
                return Err(ReadError::TooLarge { path: path.into(), name, what, limit }.into());
            }
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(damaged)?;
        if bytes.len() as u64 != entry.size() {
            return Err(damaged(io::ErrorKind::UnexpectedEof.into()).into());
        }
        take(Found::File(&name, &bytes))?;
    }
    // The checksum at the end proves that all of it was sound.
    io::copy(&mut stream.take(TOTAL_BYTES_MAX), &mut io::sink()).map_err(damaged)?;
    Ok(())
}
