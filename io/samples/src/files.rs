//! Files of a data set: a named file of a folder, and all files of a directory or a `.tar.gz`.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use tar::EntryType;

use crate::DataError;
use crate::data_set::Omissions;
use crate::error::Mismatch;
use crate::file_names::{ending, is_hidden, is_image_name, one_form, text_of};
use crate::left_out::LeftOut;
use crate::tar_gz::{self, GZIP_MAGIC, Member};

/// Longest `classes.txt`, table, or file that a table names, in bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest inflated archive, in bytes.
const MAX_TOTAL_BYTES: u64 = 16 << 30;
/// Deepest nesting of folders that are visited.
const MAX_DEPTH: usize = 8;

/// Entry of a directory or an archive that is not hidden. The path is relative, with `/` as separator.
pub(crate) enum Entry<'a> {
    Folder(&'a str),
    /// A plain file, of which nothing is read yet.
    File(Member<'a>),
}

/// Function that receives the entries. The function returns false for an entry that it leaves out.
pub(crate) type Visitor<'a> = &'a mut dyn FnMut(Entry<'_>) -> Result<bool, DataError>;

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

/// Visits every folder and file; entries of a directory in the order of their names. Returns a remark about what is left out; `None` if nothing is.
///
/// Hidden entries, pipes, sockets, links to nothing or to a folder above, and folders below the eighth level are left out before they are opened. The
/// entries that the visitor leaves out count too. A pipe, a link to nothing or an unreadable file with the name of an image is an error.
pub(crate) fn visit(
    path: &Path,
    omissions: Omissions,
    visitor: Visitor<'_>,
) -> Result<Option<String>, DataError> {
    let mut walk = Walk { visitor, left_out: LeftOut::default(), above: Vec::new(), broken: None };
    let walked = if path.is_dir() { walk.directory(path, "") } else { walk.archive(path) };
    walked?;
    walk.left_out.note(path, omissions)
}

/// Images of a directory and of the directories below it.
pub(crate) struct FolderImages {
    pub(crate) images: Vec<PathBuf>,
    /// Files that are named as images and cannot be opened, with their faults.
    pub(crate) broken: Vec<(PathBuf, DataError)>,
    /// Remark about what is left out.
    pub(crate) left_out: Option<String>,
}

impl FolderImages {
    /// Lists the images by the rules of [`visit`]; only the first bytes of each file are read.
    pub(crate) fn of(dir: &Path) -> Result<Self, DataError> {
        let mut images = Vec::new();
        let mut visitor = |entry: Entry<'_>| -> Result<bool, DataError> {
            let Entry::File(file) = entry else { return Ok(true) };
            let path = file.path.map(Path::to_owned);
            let is_image = file.holds_image();
            images.extend(path.filter(|_| is_image));
            Ok(is_image)
        };
        let (left_out, above, broken) = (LeftOut::default(), Vec::new(), Some(Vec::new()));
        let mut walk = Walk { visitor: &mut visitor, left_out, above, broken };
        walk.directory(dir, "")?;
        let Walk { left_out, broken, .. } = walk;
        let left_out = left_out.note(dir, Omissions::Noted)?;
        Ok(Self { images, broken: broken.unwrap_or_default(), left_out })
    }
}

/// Visits every member of a `.tar.gz`.
pub(crate) fn visit_archive(
    path: &Path,
    visitor: &mut dyn FnMut(Member<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let at = path.display().to_string();
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(DataError::read(&at))?.is_file() {
        return Err(Mismatch::new("a directory or a .tar.gz", "a pipe, socket or device").invalid(at));
    }
    let file = File::open(path).map_err(DataError::read(&at))?;
    tar_gz::visit(file, &at, MAX_TOTAL_BYTES, visitor)
}

/// Content of a plain file of at most `limit` bytes. The function never waits for a pipe.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::InvalidInput`] for what is no plain file, [`io::ErrorKind::FileTooLarge`] for a longer file.
pub fn read_plain(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        let found = "expected a plain file, found a folder, pipe, socket or device";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, found));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(metadata.len().min(limit) as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let found = format!("expected at most {limit} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, found));
    }
    Ok(bytes)
}

/// Content of a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    read_plain(path, limit).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => DataError::too_large(path.display(), limit, "bytes in a file"),
        _ => DataError::read(path.display())(error),
    })
}

/// Names of the entries of each folder, by their composed form.
pub(crate) type FolderNames = HashMap<PathBuf, HashMap<String, OsString>>;

/// Path of a file below `root`. If no file has exactly this name, a file whose name has the same composed form is taken. Each folder is listed once.
pub(crate) fn path_below(root: &Path, name: &str, folders: &mut FolderNames) -> PathBuf {
    let mut path = root.join(name);
    if name.is_ascii() || path.exists() {
        return path;
    }
    path = root.to_owned();
    for step in name.split('/') {
        let names = folders.entry(path.clone()).or_insert_with(|| {
            let names = sorted_names(&path).unwrap_or_default().into_iter();
            names.map(|name| (one_form(&text_of(&name)).into_owned(), name)).collect()
        });
        let exact = path.join(step);
        path = match names.get(&*one_form(step)) {
            Some(name) if !exact.exists() => path.join(name),
            _ => exact,
        };
    }
    path
}

/// Names at the first level of a directory or a `.tar.gz`, with true for a folder. Hidden names are left out. An archive is read to its end.
pub(crate) fn first_level(path: &Path) -> Result<BTreeMap<String, bool>, DataError> {
    let mut level = BTreeMap::new();
    let mut add = |name: &str, is_folder: bool| {
        if !name.is_empty() && !is_hidden(name) {
            level.insert(name.to_owned(), is_folder);
        }
    };
    if path.is_dir() {
        for name in sorted_names(path).map_err(DataError::read(path.display()))? {
            add(&text_of(&name), path.join(&name).is_dir());
        }
    } else {
        visit_archive(path, &mut |member| {
            let name = member.name.trim_start_matches("./").trim_end_matches('/');
            match name.split_once('/') {
                Some((first, _)) => add(first, true),
                None => add(name, member.kind.is_dir()),
            }
            Ok(())
        })?;
    }
    Ok(level)
}

/// The only archive at the first level of a directory; `None` if there is none, or if there are several.
pub(crate) fn only_archive(dir: &Path) -> Result<Option<PathBuf>, DataError> {
    let is_archive = |name: &String| name.ends_with(".tar.gz") || name.ends_with(".tgz");
    let mut archives = first_level(dir)?.into_keys().filter(is_archive);
    let only = archives.next().filter(|_| archives.next().is_none());
    Ok(only.map(|name| dir.join(name)))
}

/// Names of the entries of a directory, in order.
pub(crate) fn sorted_names(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(dir)?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// A walk through a directory or an archive.
struct Walk<'a> {
    visitor: Visitor<'a>,
    left_out: LeftOut,
    /// The folder that is being visited, and the folders above it.
    above: Vec<PathBuf>,
    /// Files that are named as images and cannot be opened, with their faults; `None` if the first such file ends the walk.
    broken: Option<Vec<(PathBuf, DataError)>>,
}

impl Walk<'_> {
    fn directory(&mut self, dir: &Path, name: &str) -> Result<(), DataError> {
        let resolved = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        if self.above.contains(&resolved) {
            self.left_out.add("links to a folder above", name);
            return Ok(());
        }
        self.above.push(resolved);
        if !name.is_empty() {
            (self.visitor)(Entry::Folder(name))?;
        }
        let entries = sorted_names(dir).map_err(DataError::read(dir.display()))?;
        if entries.is_empty() && !name.is_empty() {
            self.left_out.add("empty folders", name);
        }
        for entry in entries {
            let step = text_of(&entry);
            let path = dir.join(&entry);
            let name = if name.is_empty() { step } else { format!("{name}/{step}") };
            if is_hidden(&name) {
                self.left_out.add("hidden", &name);
                continue;
            }
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() && self.above.len() > MAX_DEPTH => {
                    self.left_out.add("folders below the eighth level", &name);
                }
                Ok(metadata) if metadata.is_dir() => self.directory(&path, &name)?,
                Ok(metadata) if metadata.is_file() => self.file(&path, &name, metadata.len())?,
                Ok(_) => self.unusable("pipes, sockets or devices", &path, &name)?,
                Err(_) => self.unusable("links to nothing", &path, &name)?,
            }
        }
        self.above.pop();
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &str, size: u64) -> Result<(), DataError> {
        let mut file = match File::open(path) {
            Err(error) if is_image_name(name) => {
                return self.refuse(path, DataError::read(path.display())(error));
            }
            Err(_) => return self.unusable("unreadable", path, name),
            Ok(file) => file,
        };
        let kind = EntryType::Regular;
        let member = Member { name, path: Some(path), kind, size, content: &mut file };
        let is_taken = (self.visitor)(Entry::File(member)).map_err(|error| match error {
            DataError::Read { source, .. } => DataError::read(path.display())(source),
            error => error,
        })?;
        self.count(is_taken, name);
        Ok(())
    }

    fn archive(&mut self, path: &Path) -> Result<(), DataError> {
        visit_archive(path, &mut |member| {
            let (name, kind) = (member.name.to_owned(), member.kind);
            if kind.is_pax_global_extensions() {
                return Ok(());
            }
            if is_hidden(&name) {
                self.left_out.add("hidden", &name);
            } else if kind.is_dir() {
                (self.visitor)(Entry::Folder(&name))?;
            } else if kind.is_file() || kind.is_gnu_sparse() {
                let is_taken = (self.visitor)(Entry::File(member))?;
                self.count(is_taken, &name);
            } else if kind.is_symlink() || kind.is_hard_link() {
                self.left_out.add("links of an archive", &name);
            } else {
                self.left_out.add("pipes or devices", &name);
            }
            Ok(())
        })
    }

    fn count(&mut self, is_taken: bool, name: &str) {
        if !is_taken {
            self.left_out.add(&ending(name), name);
        }
    }

    /// Leaves out an entry that cannot be read, or refuses an entry with the name of an image.
    fn unusable(&mut self, kind: &str, path: &Path, name: &str) -> Result<(), DataError> {
        if is_image_name(name) {
            let found = format!("one of the {kind}; remove it or put the image there");
            return self.refuse(path, Mismatch::new("an image", found).invalid(path.display()));
        }
        self.left_out.add(kind, name);
        Ok(())
    }

    /// Returns the error, which ends the walk, or keeps the error in `broken`.
    fn refuse(&mut self, path: &Path, error: DataError) -> Result<(), DataError> {
        let Some(broken) = &mut self.broken else { return Err(error) };
        broken.push((path.to_owned(), error));
        Ok(())
    }
}
