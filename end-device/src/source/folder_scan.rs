//! Repeated scans of a watched folder: which files are new and complete. No file is read here.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Size and time of the last write: a file that is written again is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    pub(crate) bytes: u64,
    pub(crate) written: SystemTime,
}

/// A file of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScannedFile {
    pub(crate) path: PathBuf,
    pub(crate) stamp: FileStamp,
}

/// Results of earlier scans. Memory: a few bytes for each file in the folder.
#[derive(Debug, Default)]
pub(crate) struct FolderScan {
    /// Files by the hash of their names, which may be long and many.
    known: HashMap<u64, KnownFile>,
    last: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug)]
struct KnownFile {
    stamp: FileStamp,
    is_taken: bool,
}

impl FolderScan {
    /// A scan that skips these files.
    pub(crate) fn skipping(files: &[ScannedFile], now: SystemTime) -> Self {
        let known = |file: &ScannedFile| KnownFile { stamp: file.stamp, is_taken: true };
        Self { known: files.iter().map(|file| (key(&file.path), known(file))).collect(), last: Some(now) }
    }

    /// The files that are new and complete, in the order given. A file is complete when its stamp is that of the last scan. It is
    /// complete at once when it is new but was written before the last scan: it was renamed into the folder.
    pub(crate) fn complete_files(&mut self, files: &[ScannedFile], now: SystemTime) -> Vec<PathBuf> {
        let mut complete = Vec::new();
        // Files that have left the folder are not in the new map.
        let mut known = HashMap::with_capacity(files.len());
        for ScannedFile { path, stamp } in files {
            let key = key(path);
            let (is_complete, is_taken) = match self.known.get(&key) {
                None => {
                    let was_renamed_in = self.last.is_some_and(|last| stamp.written < last);
                    (was_renamed_in, was_renamed_in)
                }
                Some(before) => {
                    let is_unchanged = before.stamp == *stamp;
                    (is_unchanged && !before.is_taken, is_unchanged)
                }
            };
            known.insert(key, KnownFile { stamp: *stamp, is_taken });
            if is_complete {
                complete.push(path.clone());
            }
        }
        self.known = known;
        self.last = Some(now);
        complete
    }
}

fn key(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn file(name: &str, bytes: u64, written_ms: u64) -> ScannedFile {
        ScannedFile { path: name.into(), stamp: FileStamp { bytes, written: at(written_ms) } }
    }

    #[track_caller]
    fn check(scan: &mut FolderScan, now_ms: u64, folder: &[ScannedFile], expected: &[&str]) {
        let complete = scan.complete_files(folder, at(now_ms));
        assert_eq!(complete, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "at {now_ms} ms");
    }

    #[test]
    fn a_file_is_taken_once_when_it_no_longer_changes() {
        let mut scan = FolderScan::skipping(&[], at(0));
        check(&mut scan, 100, &[file("a", 10, 90)], &[]);
        check(&mut scan, 200, &[file("a", 20, 190)], &[]);
        check(&mut scan, 300, &[file("a", 20, 190)], &["a"]);
        check(&mut scan, 400, &[file("a", 20, 190)], &[]);
    }

    #[test]
    fn a_file_renamed_in_is_taken_at_once() {
        let mut scan = FolderScan::skipping(&[], at(100));
        check(&mut scan, 200, &[file("a", 10, 90), file("b", 10, 150)], &["a"]);
        check(&mut scan, 300, &[file("a", 10, 90), file("b", 10, 150)], &["b"]);
    }

    #[test]
    fn files_present_at_the_start_are_skipped_or_taken() {
        let present = [file("a", 10, 50), file("b", 10, 60)];
        check(&mut FolderScan::skipping(&present, at(100)), 200, &present, &[]);
        let mut taking = FolderScan::default();
        check(&mut taking, 100, &present, &[]);
        check(&mut taking, 200, &present, &["a", "b"]);
    }

    #[test]
    fn a_file_written_again_is_a_new_one() {
        let mut scan = FolderScan::skipping(&[file("a", 10, 50)], at(100));
        check(&mut scan, 200, &[file("a", 10, 150)], &[]);
        check(&mut scan, 300, &[file("a", 10, 150)], &["a"]);
    }

    #[test]
    fn files_that_left_the_folder_are_forgotten() {
        let mut scan = FolderScan::skipping(&[], at(0));
        for round in 0..100 {
            let names: Vec<_> = (0..10).map(|index| file(&format!("{round}-{index}"), 1, round)).collect();
            scan.complete_files(&names, at(round));
            assert_eq!(scan.known.len(), 10);
        }
        scan.complete_files(&[], at(1000));
        assert!(scan.known.is_empty());
    }
}
