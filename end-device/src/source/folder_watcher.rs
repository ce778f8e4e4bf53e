//! A watched folder: each new image file in it or below it is a frame once it is complete.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::faults::FrameFault;
use super::frame_channel::{FrameProducer, FrameSender};
use super::image_files::{self, MAX_FILES, MAX_FOLDERS};
use super::preprocess::Preprocessor;
use crate::error::DeviceError;
use crate::settings::{Existing, WatchSettings};

/// Watcher that scans a folder again and again.
pub(crate) struct FolderWatcher {
    path: PathBuf,
    poll: Duration,
    scan: FolderScan,
    preprocessor: Preprocessor,
}

impl FolderWatcher {
    /// Scans the folder once, and skips the files in it if the settings say so.
    pub(crate) fn open(
        path: PathBuf,
        settings: &WatchSettings,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let files =
            image_files::list(&path).map_err(|error| DeviceError::source_of_frames(path.display(), error))?;
        let files = stamped(files.paths);
        let scan = match settings.existing {
            Existing::Skip => FolderScan::skipping(&files, SystemTime::now()),
            Existing::Take => FolderScan::default(),
        };
        Ok(Self { path, poll: Duration::from_millis(settings.poll_ms), scan, preprocessor })
    }

    /// Sends the new files; false when the channel is closed.
    fn send_new_files(&mut self, frames: &FrameSender) -> bool {
        let name = self.path.display();
        let files = match image_files::list(&self.path) {
            Ok(files) => {
                if files.is_more {
                    let detail =
                        format_args!("{name}: more than {MAX_FILES} images or {MAX_FOLDERS} folders");
                    frames.faults.count_fault(FrameFault::TOO_MANY_FILES, detail);
                }
                frames.faults.note_passed_over(&files.passed_over);
                stamped(files.paths)
            }
            // A missing folder, such as a share that is not mounted, may come back.
            Err(error) => {
                frames.faults.count_fault(FrameFault::UNREADABLE, format_args!("{name}: {error}"));
                return true;
            }
        };
        let complete = self.scan.complete_files(&files, SystemTime::now());
        complete.iter().all(|file| image_files::send_file(file, &self.preprocessor, frames))
    }
}

impl FrameProducer for FolderWatcher {
    fn run(mut self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        while frames.is_open() && self.send_new_files(frames) {
            frames.sleep_until(Instant::now() + self.poll);
        }
        Ok(())
    }
}

/// The files with their stamps. A file that was removed meanwhile is left out.
fn stamped(files: Vec<PathBuf>) -> Vec<ScannedFile> {
    let scanned = files.into_iter().filter_map(|path| {
        let metadata = fs::metadata(&path).ok()?;
        let stamp = FileStamp { bytes: metadata.len(), written: metadata.modified().ok()? };
        Some(ScannedFile { path, stamp })
    });
    scanned.collect()
}

/// Size and time of the last write: a file that is written again is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    bytes: u64,
    written: SystemTime,
}

/// A file of a scan.
#[derive(Clone, Debug)]
struct ScannedFile {
    path: PathBuf,
    stamp: FileStamp,
}

/// Files of the last scan. Memory: some tens of bytes for each file in the folder.
#[derive(Debug, Default)]
struct FolderScan {
    /// Files by the hash of their paths, which may be long and many.
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
    fn skipping(files: &[ScannedFile], now: SystemTime) -> Self {
        let known = |file: &ScannedFile| KnownFile { stamp: file.stamp, is_taken: true };
        Self { known: files.iter().map(|file| (key(&file.path), known(file))).collect(), last: Some(now) }
    }

    /// The files that are new and complete, in the order given. A file is complete when its stamp is the same as at the last scan. A new
    /// file that was written before the last scan was renamed into the folder: it is complete at once.
    fn complete_files(&mut self, files: &[ScannedFile], now: SystemTime) -> Vec<PathBuf> {
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
    path.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
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
    fn files_of_one_name_in_two_folders_are_two() {
        let mut scan = FolderScan::skipping(&[file("1/a", 10, 50)], at(100));
        check(&mut scan, 200, &[file("1/a", 10, 50), file("2/a", 10, 60)], &["2/a"]);
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
