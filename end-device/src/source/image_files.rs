//! Image files under a folder: their names, and their bytes within bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirEntry, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use headwater_samples::{is_hidden, is_image_name};

use super::MAX_FRAME_BYTES;
use super::faults::{FrameFault, Missing};
use super::frame_channel::FrameSender;
use super::preprocess::SourceFrame;

/// Largest number of image files in a list.
pub(super) const MAX_FILES: usize = 65_536;
/// Largest number of folders that are read for a list.
pub(super) const MAX_FOLDERS: usize = 4096;
/// Largest depth of a folder that is read; the folder of the settings has depth 1.
const MAX_DEPTH: usize = 8;

/// Image files in a folder and in the folders below it, in the order of their paths.
#[derive(Default)]
pub(crate) struct ImageFiles {
    pub(crate) paths: Vec<PathBuf>,
    /// Files and folders left out beyond [`MAX_FILES`] or [`MAX_FOLDERS`]: those with the lowest names, most often the oldest dates.
    pub(crate) left_out: LeftOut,
    /// For each reason the number of entries that are passed over, and the path of one entry. Hidden entries and folders of the system are
    /// not counted.
    pub(crate) passed_over: BTreeMap<&'static str, (u64, PathBuf)>,
}

/// The last file and the last folder, in the order of paths, that a list leaves out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) file: Option<PathBuf>,
    pub(crate) folder: Option<PathBuf>,
}

impl LeftOut {
    /// The file or else the folder; `None` if nothing is left out.
    pub(crate) fn any(&self) -> Option<&Path> {
        self.file.as_deref().or(self.folder.as_deref())
    }

    /// True if the list may have left the file out.
    pub(crate) fn may_hold(&self, path: &Path) -> bool {
        let is_file = self.file.as_deref().is_some_and(|last| path <= last);
        // A folder above the last left-out folder was read itself, so the files in it are not left out with that folder.
        let was_listed = |last: &Path| {
            path.parent().is_some_and(|parent| last.starts_with(parent)) && !path.starts_with(last)
        };
        is_file
            || self
                .folder
                .as_deref()
                .is_some_and(|last| (path <= last || path.starts_with(last)) && !was_listed(last))
    }
}

/// Lists the image files in a folder and below it.
///
/// # Errors
/// [`FrameFault::UNREADABLE`] with the error of the file system. A folder below `folder` that may not be read is passed over, and one that
/// was removed meanwhile is left out.
pub(crate) fn list(folder: &Path) -> Result<ImageFiles, Missing> {
    let unreadable = |error: std::io::Error| (FrameFault::UNREADABLE, error.to_string());
    let mut files = ImageFiles::default();
    let mut paths = BTreeSet::new();
    // The last folder of the stack is read first.
    let mut folders = vec![(folder.to_path_buf(), 1)];
    let mut listed = 0;
    while let Some((path, depth)) = folders.pop() {
        if listed == MAX_FOLDERS || paths.len() == MAX_FILES {
            files.left_out.folder = files.left_out.folder.max(Some(path));
            break;
        }
        listed += 1;
        let entries = match fs::read_dir(&path) {
            Err(error) if depth > 1 && error.kind() == ErrorKind::NotFound => continue,
            Err(error) if depth > 1 && error.kind() == ErrorKind::PermissionDenied => {
                files.pass_over("not_readable", path);
                continue;
            }
            entries => entries.map_err(unreadable)?,
        };
        let mut below = BTreeSet::new();
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_hidden(&name) {
                continue;
            }
            let (among, most, left_out) = match kind_of(&entry, &name, depth) {
                Ok(EntryKind::Image) => (&mut paths, MAX_FILES, &mut files.left_out.file),
                Ok(EntryKind::Folder) => (&mut below, MAX_FOLDERS, &mut files.left_out.folder),
                Err(reason) => {
                    files.pass_over(reason, entry.path());
                    continue;
                }
            };
            among.insert(entry.path());
            if among.len() > most {
                *left_out = among.pop_first().max(left_out.take());
            }
        }
        folders.extend(below.into_iter().map(|path| (path, depth + 1)));
    }
    files.paths = paths.into_iter().collect();
    Ok(files)
}

enum EntryKind {
    Image,
    Folder,
}

/// The kind of an entry, or the reason for which the entry is passed over; the entry is not opened. A link to a file counts as a file; a link
/// to a folder is passed over, since it could lead in a circle.
fn kind_of(entry: &DirEntry, name: &str, depth: usize) -> Result<EntryKind, &'static str> {
    let kind = entry.file_type().and_then(|kind| match kind.is_symlink() {
        true => Ok((true, fs::metadata(entry.path())?.file_type())),
        false => Ok((false, kind)),
    });
    match kind {
        Ok((false, kind)) if kind.is_dir() && depth < MAX_DEPTH => Ok(EntryKind::Folder),
        Ok((false, kind)) if kind.is_dir() => Err("too_deep"),
        Ok((true, kind)) if kind.is_dir() => Err("link_to_folder"),
        Ok((_, kind)) if kind.is_file() && is_image_name(name) => Ok(EntryKind::Image),
        Ok((_, kind)) if kind.is_file() => Err("other_name"),
        Ok(_) => Err("no_file"),
        Err(_) => Err("dangling_link"),
    }
}

impl ImageFiles {
    fn pass_over(&mut self, reason: &'static str, path: PathBuf) {
        self.passed_over.entry(reason).or_insert((0, path)).0 += 1;
    }

    /// Text of the error for a folder without an image, with the entries that are passed over.
    pub(crate) fn none_found(&self) -> String {
        let of = |(reason, (count, path)): (&&str, &(u64, PathBuf))| {
            format!("; passed over: {count} of {reason}, such as {}", path.display())
        };
        format!(
            "expected at least one image, found none{}",
            self.passed_over.iter().map(of).collect::<String>()
        )
    }
}

/// Sends an image file of the folder `root`, or counts the file's fault; false once no agent takes frames.
pub(crate) fn send_file(path: &Path, root: &Path, frames: &FrameSender) -> bool {
    let file = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    frames.send(path.display(), &file, read(path).map(SourceFrame::File))
}

/// The bytes of an image file of at most [`MAX_FRAME_BYTES`].
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Missing> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FRAME_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err((FrameFault::UNREADABLE, error.to_string())),
        Ok(length) if length as u64 > MAX_FRAME_BYTES => {
            Err((FrameFault::OVERSIZE, format!("expected at most {MAX_FRAME_BYTES} bytes, found more")))
        }
        Ok(_) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_are_listed_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.PNG", "a.jpg", "c.webp", "notes.txt", ".d.png", "e.png.part", "d.JFIF"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        let files = list(dir.path()).unwrap();
        assert_eq!(names(&files, dir.path()), ["a.jpg", "b.PNG", "c.webp", "d.JFIF"]);
        let passed_over: Vec<_> =
            files.passed_over.iter().map(|(reason, (count, _))| (*reason, *count)).collect();
        assert_eq!(passed_over, [("other_name", 2)]);
    }

    fn names<'a>(files: &'a ImageFiles, folder: &Path) -> Vec<&'a str> {
        files.paths.iter().map(|path| path.strip_prefix(folder).unwrap().to_str().unwrap()).collect()
    }

    #[test]
    fn folders_below_are_listed_to_a_depth_and_hidden_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let deepest = (2..=MAX_DEPTH).fold(PathBuf::new(), |path, at| path.join(at.to_string()));
        let deepest_name = deepest.join("x.png").display().to_string();
        for name in [
            "2026-11-25/b.jpg",
            "2026-11-25/a.jpg",
            "2026-11-24/c.jpg",
            ".cache/d.jpg",
            "@eaDir/e.jpg",
            "z.jpg",
        ] {
            write(&dir.path().join(name));
        }
        write(&dir.path().join(&deepest_name));
        write(&dir.path().join(&deepest).join("deeper/y.png"));
        let files = list(dir.path()).unwrap();
        let expected = [&deepest_name, "2026-11-24/c.jpg", "2026-11-25/a.jpg", "2026-11-25/b.jpg", "z.jpg"];
        assert_eq!(names(&files, dir.path()), expected);
        let (count, first) = &files.passed_over["too_deep"];
        assert_eq!((*count, first), (1, &dir.path().join(&deepest).join("deeper")));
    }

    fn write(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"").unwrap();
    }

    #[test]
    fn beyond_the_bound_the_folders_with_the_highest_names_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..=MAX_FOLDERS {
            fs::create_dir(dir.path().join(format!("{at:05}"))).unwrap();
        }
        write(&dir.path().join("00000/old.jpg"));
        write(&dir.path().join(format!("{MAX_FOLDERS:05}/new.jpg")));
        let files = list(dir.path()).unwrap();
        assert_eq!(names(&files, dir.path()), [format!("{MAX_FOLDERS:05}/new.jpg")]);
        // The folder `dir` counts as one of the folders.
        assert_eq!(files.left_out.folder, Some(dir.path().join("00001")));
    }

    #[cfg(unix)]
    #[test]
    fn beyond_the_bound_the_images_with_the_highest_names_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let image = |at: usize| dir.path().join(format!("{at:05}.jpg"));
        write(&image(0));
        // A link takes less time than a file.
        (1..=MAX_FILES).for_each(|at| std::os::unix::fs::symlink("00000.jpg", image(at)).unwrap());
        let files = list(dir.path()).unwrap();
        assert_eq!(
            (files.paths.len(), &files.paths[0], files.left_out.file),
            (MAX_FILES, &image(1), Some(image(0)))
        );
    }

    #[cfg(unix)]
    #[test]
    fn pipes_sockets_and_links_that_are_no_files_are_passed_over_unopened() {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;
        use std::process::Command;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        write(&path("a.jpg"));
        let _socket = UnixListener::bind(path("b.jpg")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe.jpg")).status().unwrap().success());
        symlink(path("a.jpg"), path("c.jpg")).unwrap();
        symlink(path("nowhere"), path("d.jpg")).unwrap();
        symlink(dir.path(), path("e")).unwrap();
        let files = list(dir.path()).unwrap();
        assert_eq!(names(&files, dir.path()), ["a.jpg", "c.jpg"]);
        let passed_over: Vec<_> =
            files.passed_over.iter().map(|(reason, (count, _))| (*reason, *count)).collect();
        assert_eq!(passed_over, [("dangling_link", 1), ("link_to_folder", 1), ("no_file", 2)]);
    }
}
