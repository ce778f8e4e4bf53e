//! Files of a data set: a named file of a folder, and all files of a directory or a `.tar.gz`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::DataError;
use crate::error::Mismatch;
use crate::tar_gz::{self, GZIP_MAGIC};

/// Longest file of a data set that consists of many files, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest inflated archive, in bytes.
const MAX_TOTAL_BYTES: u64 = 16 << 30;
/// Deepest nesting of folders.
const MAX_DEPTH: usize = 8;

/// Entry of a directory or an archive. The path is relative, with `/` as separator.
pub(crate) enum Entry<'a> {
    Folder(&'a str),
    File(&'a str, &'a [u8]),
}

/// Function that receives the entries.
pub(crate) type Visitor<'a> = &'a mut dyn FnMut(Entry<'_>) -> Result<(), DataError>;

/// The first of `names` that is a file in `dir`; `contents` lists all files that the folder must hold.
pub(crate) fn find(dir: &Path, names: &[String], contents: &str) -> Result<PathBuf, DataError> {
    let path = names.iter().map(|name| dir.join(name)).find(|path| path.is_file());
    path.ok_or_else(|| {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        Mismatch::new(names, format!("none; the folder must hold {contents}")).invalid(dir.display())
    })
}

/// Content of a plain, gzip or bzip2 file. The first bytes decide, not the name.
pub(crate) fn inflate<'a>(mut file: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let start = file.fill_buf()?;
    if start.starts_with(&GZIP_MAGIC) {
        return Ok(Box::new(MultiGzDecoder::new(file)));
    }
    if !start.starts_with(b"BZh") {
        return Ok(Box::new(file));
    }
    #[cfg(feature = "bzip2")]
    return Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(file)));
    #[cfg(not(feature = "bzip2"))]
    Err(io::Error::new(io::ErrorKind::Unsupported, "this program was built without bzip2; unpack the file"))
}

/// Visits every folder and file; those of a directory in the order of their names.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<(), DataError> {
    if path.is_dir() { visit_directory(path, "", 0, visitor) } else { visit_archive(path, visitor) }
}

/// Content of a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit + 1).read_to_end(&mut bytes))
        .map_err(DataError::read(path.display()))?;
    if bytes.len() as u64 > limit {
        return Err(DataError::too_large(path.display(), limit, "bytes in a file"));
    }
    Ok(bytes)
}

/// Names of the entries of a directory, in order.
pub(crate) fn sorted_names(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(dir)?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

fn visit_directory(dir: &Path, name: &str, depth: usize, visitor: Visitor<'_>) -> Result<(), DataError> {
    let names = sorted_names(dir).map_err(DataError::read(dir.display()))?;
    if names.is_empty() {
        let mismatch = Mismatch::new("images in this folder", "none; add some or remove the folder");
        return Err(mismatch.invalid(dir.display()));
    }
    for entry in names {
        let path = dir.join(&entry);
        let step = entry.to_string_lossy();
        let name = if name.is_empty() { step.into_owned() } else { format!("{name}/{step}") };
        if !path.is_dir() {
            visitor(Entry::File(&name, &read(&path, MAX_FILE_BYTES)?))?;
            continue;
        }
        if depth == MAX_DEPTH {
            return Err(DataError::too_large(path.display(), MAX_DEPTH as u64, "nested folders"));
        }
        visitor(Entry::Folder(&name))?;
        visit_directory(&path, &name, depth + 1, visitor)?;
    }
    Ok(())
}

fn visit_archive(path: &Path, visitor: Visitor<'_>) -> Result<(), DataError> {
    let at = path.display().to_string();
    let file = File::open(path).map_err(DataError::read(&at))?;
    tar_gz::visit(file, &at, MAX_TOTAL_BYTES, &mut |member| {
        if member.kind.is_dir() {
            return visitor(Entry::Folder(member.name));
        }
        if !member.kind.is_file() {
            return Ok(());
        }
        if member.size > MAX_FILE_BYTES {
            let at = format!("{at}: `{}`", member.name);
            return Err(DataError::too_large(at, MAX_FILE_BYTES, "bytes in a file"));
        }
        let name = member.name;
        visitor(Entry::File(name, &member.read()?))
    })
}
