//! Views in one file, read by position: images are decoded once, and memory holds the views of a batch alone.
//!
//! ```text
//! +------------+-----+--------------+-------+---------+-------+------------------+-------+------------+
//! | "HWVIEWS1" | key | bytes a view | views | zeros   | views | CRC-32 of each   | notes | CRC-32 of  |
//! | 8 bytes    | 32  | u64          | u64   | to 4096 |       | view             | JSON  | both       |
//! +------------+-----+--------------+-------+---------+-------+------------------+-------+------------+
//! ```
//! Numbers are little-endian. The file gets its name once it is whole and on the disk. Head, length and end are compared when the file is opened, and
//! the check sum of a view when the view is read.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Kind of the file. The number rises when decoding or resizing gives other pixels.
const MAGIC: [u8; 8] = *b"HWVIEWS1";
/// Bytes before the first view: a page.
const HEAD_BYTES: u64 = 4096;
/// Bytes of a check sum.
const CHECK_BYTES: u64 = 4;
/// Most bytes of the notes, with the last check sum.
const MAX_NOTE_BYTES: u64 = 1 << 20;

/// Content of a file of views, known before the file is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewFileContent {
    /// Hash of everything on which the views depend.
    pub(crate) key: [u8; 32],
    /// Bytes of a view.
    pub(crate) view_bytes: usize,
    /// Number of views.
    pub(crate) views: usize,
}

/// A whole file of views.
#[derive(Debug)]
pub(crate) struct ViewFile {
    path: PathBuf,
    file: File,
    content: ViewFileContent,
    /// Check sum of each view.
    checks: Vec<[u8; CHECK_BYTES as usize]>,
    /// Remarks about the images of the views.
    pub(crate) notes: Vec<String>,
    /// The first view that could not be read, and the reason.
    fault: OnceLock<String>,
}

/// A file of views that is not whole yet.
pub(crate) struct ViewFileWriter {
    out: BufWriter<File>,
    content: ViewFileContent,
    end: Vec<u8>,
}

impl ViewFileContent {
    /// Length of the file, without its notes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.position(self.views) + self.views as u64 * CHECK_BYTES
    }

    fn head(&self) -> Vec<u8> {
        let numbers = [self.view_bytes, self.views].map(|number| (number as u64).to_le_bytes());
        let mut head = [&MAGIC[..], &self.key, &numbers[0], &numbers[1]].concat();
        head.resize(HEAD_BYTES as usize, 0);
        head
    }

    fn position(&self, view: usize) -> u64 {
        HEAD_BYTES + view as u64 * self.view_bytes as u64
    }
}

impl ViewFile {
    /// Opens a file with this content; no view is read yet. `None` if there is no file.
    ///
    /// # Errors
    /// The reason why the file is not whole or cannot be read, in words.
    pub(crate) fn open(path: &Path, content: &ViewFileContent) -> Result<Option<Self>, String> {
        let text = |error: io::Error| error.to_string();
        if !path.exists() {
            return Ok(None);
        }
        // Opening a pipe would wait for its writer.
        if !path.is_file() {
            return Err("no plain file".to_owned());
        }
        let file = File::open(path).map_err(text)?;
        let bytes = file.metadata().map_err(text)?.len();
        let note_bytes = bytes.saturating_sub(content.file_bytes());
        if !(CHECK_BYTES..=MAX_NOTE_BYTES).contains(&note_bytes) {
            return Err(format!("{bytes} bytes instead of a few more than {}", content.file_bytes()));
        }
        let (mut head, end_at) = (vec![0; HEAD_BYTES as usize], content.position(content.views));
        file.read_exact_at(&mut head, 0).map_err(text)?;
        if head != content.head() {
            return Err("its head differs".to_owned());
        }
        let mut end = vec![0; (bytes - end_at) as usize];
        file.read_exact_at(&mut end, end_at).map_err(text)?;
        let (end, check) = end.split_at((bytes - end_at - CHECK_BYTES) as usize);
        if check_sum(end)[..] != *check {
            return Err("its end differs from its check sum".to_owned());
        }
        let (checks, notes) = end.split_at(content.views * CHECK_BYTES as usize);
        let notes = serde_json::from_slice(notes).map_err(|error| error.to_string())?;
        let (path, content, checks) = (path.to_owned(), content.clone(), checks.as_chunks().0.to_vec());
        Ok(Some(Self { path, file, content, checks, notes, fault: OnceLock::new() }))
    }

    /// Returns true if a file is a file of views, of any version.
    pub(crate) fn is_one(path: &Path) -> bool {
        let mut start = [0; MAGIC.len()];
        let is_read =
            path.is_file() && File::open(path).and_then(|file| file.read_exact_at(&mut start, 0)).is_ok();
        is_read && start[..MAGIC.len() - 1] == MAGIC[..MAGIC.len() - 1]
    }

    /// Reads a view. A view that cannot be read, or differs from its check sum, becomes black: [`Self::fault`] then names it, and the file
    /// is removed, so that the next command makes the file again.
    pub(crate) fn read(&self, view: usize, pixels: &mut [u8]) {
        let reason = match self.file.read_exact_at(pixels, self.content.position(view)) {
            Ok(()) if check_sum(pixels) == self.checks[view] => return,
            Ok(()) => "it differs from its check sum".to_owned(),
            Err(error) => error.to_string(),
        };
        pixels.fill(0);
        self.fault.get_or_init(|| {
            let advice = match fs::remove_file(&self.path) {
                Ok(()) => "the file is removed: give the command again, which makes it again".to_owned(),
                Err(error) => format!("remove the file ({error}), and give the command again"),
            };
            format!("{}: view {view} cannot be read: {reason}; {advice}", self.path.display())
        });
    }

    /// The first view that could not be read, and the reason; `None` if every view so far was read.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }
}

impl ViewFileWriter {
    /// Begins a file, under the name that it has until it is whole.
    pub(crate) fn begin(partial: &Path, content: ViewFileContent) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(partial)?;
        let mut out = BufWriter::new(file);
        out.write_all(&content.head())?;
        Ok(Self { out, content, end: Vec::new() })
    }

    /// Adds the next view.
    pub(crate) fn push(&mut self, view: &[u8]) -> io::Result<()> {
        self.end.extend(check_sum(view));
        self.out.write_all(view)
    }

    /// Ends the file, waits until it is on the disk, and moves it from `partial` to `path`.
    pub(crate) fn finish(mut self, partial: &Path, path: &Path, notes: Vec<String>) -> io::Result<ViewFile> {
        let checks = self.end.as_chunks().0.to_vec();
        self.end.extend(serde_json::to_vec(&notes)?);
        let check = check_sum(&self.end);
        self.out.write_all(&self.end)?;
        self.out.write_all(&check)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(partial, path)?;
        let (path, content) = (path.to_owned(), self.content);
        Ok(ViewFile { path, file, content, checks, notes, fault: OnceLock::new() })
    }
}

fn check_sum(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEWS: [[u8; 3]; 2] = [[1, 2, 3], [4, 5, 6]];

    fn content() -> ViewFileContent {
        ViewFileContent { key: [7; 32], view_bytes: 3, views: 2 }
    }

    fn written(folder: &Path) -> PathBuf {
        let (partial, path) = (folder.join("partial"), folder.join("views"));
        let mut writer = ViewFileWriter::begin(&partial, content()).unwrap();
        VIEWS.iter().for_each(|view| writer.push(view).unwrap());
        assert!(!path.exists(), "a file has its name once it is whole");
        let file = writer.finish(&partial, &path, vec!["a note".to_owned()]).unwrap();
        let mut view = [0; 3];
        file.read(1, &mut view);
        assert_eq!(view, VIEWS[1], "a file that was made is read at once");
        path
    }

    fn opened(path: &Path) -> Result<Option<ViewFile>, String> {
        ViewFile::open(path, &content())
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(opened(&folder.path().join("views")).unwrap().is_none());
        let file = opened(&written(folder.path())).unwrap().unwrap();
        let mut view = [0; 3];
        for (number, expected) in VIEWS.iter().enumerate() {
            file.read(number, &mut view);
            assert_eq!(view, *expected);
        }
        assert_eq!((&file.notes[..], file.fault()), (&["a note".to_owned()][..], None));
    }

    #[test]
    fn every_altered_or_missing_byte_and_another_key_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let bytes = fs::read(&path).unwrap();
        let is_damaged = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let Ok(file) = opened(&path) else { return true };
            let file = file.unwrap();
            (0..VIEWS.len()).for_each(|view| file.read(view, &mut [0; 3]));
            file.fault().is_some()
        };
        for at in (0..60).chain(HEAD_BYTES as usize - 1..bytes.len()) {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert!(is_damaged(&altered) && is_damaged(&bytes[..at]), "byte {at}");
        }
        assert!(is_damaged(&[&bytes[..], b"x"].concat()) && !is_damaged(&bytes));
        let other = ViewFileContent { key: [8; 32], ..content() };
        let found = ViewFile::open(&path, &other);
        assert_eq!(found.err().as_deref(), Some("its head differs"));
    }

    #[test]
    fn a_view_that_is_damaged_or_cut_off_later_is_black_and_named_and_its_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let damage: [fn(&File); 2] = [
            |file| file.set_len(HEAD_BYTES + 4).unwrap(),
            |file| file.write_all_at(b"x", HEAD_BYTES + 4).unwrap(),
        ];
        for damage in damage {
            let path = written(folder.path());
            let file = opened(&path).unwrap().unwrap();
            damage(&File::options().write(true).open(&path).unwrap());
            let mut view = [9; 3];
            file.read(0, &mut view);
            assert_eq!((view, file.fault()), (VIEWS[0], None));
            file.read(1, &mut view);
            let fault = file.fault().unwrap();
            assert!(view == [0; 3] && fault.contains("view 1 cannot be read"), "{fault}");
            assert!(!path.exists() && fault.contains("makes it again"), "{fault}");
        }
    }
}
