//! A watched folder: each new image file in it or below it is a frame once it is complete.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::camera_check::hash_of;
use super::faults::{FrameFault, Missing};
use super::frame_channel::{FrameProducer, FrameSender};
use super::image_files::{self, LeftOut, MAX_FILES, MAX_FOLDERS};
use crate::error::DeviceError;
use crate::report::SharedReport;
use crate::settings::{Existing, WatchSettings};

/// Watcher that scans a folder again and again.
pub(crate) struct FolderWatcher {
    path: PathBuf,
    poll: Duration,
    scan: FolderScan,
}

impl FolderWatcher {
    /// Scans the folder once, and skips the files in it if the settings say so.
    pub(crate) fn open(path: PathBuf, settings: &WatchSettings) -> Result<Self, DeviceError> {
        let files = image_files::list(&path)
            .map_err(|(_, reason)| DeviceError::source_of_frames(path.display(), reason))?;
        let scan = match settings.existing {
            Existing::Skip => FolderScan::skipping(&stamped(files.paths), files.left_out, SystemTime::now()),
            Existing::Take => FolderScan::default(),
        };
        Ok(Self { path, poll: Duration::from_millis(settings.poll_ms), scan })
    }

    /// Scans the folder; returns the files that are new and complete. A scan that fails leaves the known files as they are.
    fn new_files<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a SharedReport> + Clone,
    ) -> Result<Vec<PathBuf>, Missing> {
        let files = image_files::list(&self.path)?;
        reports.clone().for_each(|report| report.note_passed_over(&files.passed_over));
        if let Some(path) = files.left_out.any() {
            let bounds = format!("{MAX_FILES} images or {MAX_FOLDERS} folders");
            let detail = format!(
                "more than {bounds}: those with the lowest names are left out, such as {}",
                path.display()
            );
            reports.for_each(|report| report.count_fault(FrameFault::TOO_MANY_FILES, &detail));
        }
        Ok(self.scan.complete_files(&stamped(files.paths), files.left_out, SystemTime::now()))
    }
}

impl FrameProducer for FolderWatcher {
    fn run(mut self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        while frames.is_open() {
            match self.new_files(frames.reports()) {
                Ok(files) => {
                    if !files.iter().all(|file| image_files::send_file(file, &self.path, frames)) {
                        break;
                    }
                }
                // A missing folder, such as a share that is not mounted, may come back.
                Err((fault, reason)) => {
                    let detail = format!("{}: {reason}", self.path.display());
                    frames.reports().for_each(|report| report.count_fault(fault, &detail));
                }
            }
            frames.sleep_until(Instant::now() + self.poll);
        }
        Ok(())
    }
}

/// Size of a file and time of its last write. A file with another stamp than before is a new file.
type FileStamp = (u64, SystemTime);

/// The files with their stamps. A file whose metadata cannot be read, such as a removed one, is left out.
fn stamped(files: Vec<PathBuf>) -> Vec<(PathBuf, FileStamp)> {
    let stamped = files.into_iter().filter_map(|path| {
        let metadata = fs::metadata(&path).ok()?;
        let stamp = (metadata.len(), metadata.modified().ok()?);
        Some((path, stamp))
    });
    stamped.collect()
}

/// Files of the last scan. Memory: some tens of bytes for each file in the folder.
#[derive(Debug, Default)]
struct FolderScan {
    /// Stamp of each file, and true if the file was taken. The key is the hash of the path, since paths may be long and many.
    known: HashMap<u64, (FileStamp, bool)>,
    /// Files and folders that the last scan left out.
    left_out: LeftOut,
    last: Option<SystemTime>,
}

impl FolderScan {
    /// A scan that skips these files.
    fn skipping(files: &[(PathBuf, FileStamp)], left_out: LeftOut, now: SystemTime) -> Self {
        let known = files.iter().map(|(path, stamp)| (hash_of(path), (*stamp, true)));
        Self { known: known.collect(), left_out, last: Some(now) }
    }

    /// The files that are new and complete, in the order of `files`. A file is complete when its stamp is the same as at the last scan. A new
    /// file that was written before the last scan was renamed into the folder: it is complete at once. A file that the last scan may have
    /// left out counts as taken.
    fn complete_files(
        &mut self,
        files: &[(PathBuf, FileStamp)],
        left_out: LeftOut,
        now: SystemTime,
    ) -> Vec<PathBuf> {
        let mut complete = Vec::new();
        // Files that have left the folder are not in the new map.
        let mut known = HashMap::with_capacity(files.len());
        for (path, stamp) in files {
            let key = hash_of(path);
            let (is_complete, is_taken) = match self.known.get(&key) {
                None if self.left_out.may_hold(path) => (false, true),
                None => {
                    let (_, written) = stamp;
                    let was_renamed_in = self.last.is_some_and(|last| *written < last);
                    (was_renamed_in, was_renamed_in)
                }
                Some((before, was_taken)) => {
                    let is_unchanged = before == stamp;
                    (is_unchanged && !was_taken, is_unchanged)
                }
            };
            known.insert(key, (*stamp, is_taken));
            if is_complete {
                complete.push(path.clone());
            }
        }
        *self = Self { known, left_out, last: Some(now) };
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn file(name: &str, bytes: u64, written_ms: u64) -> (PathBuf, FileStamp) {
        (name.into(), (bytes, at(written_ms)))
    }

    #[track_caller]
    fn check(scan: &mut FolderScan, now_ms: u64, folder: &[(PathBuf, FileStamp)], expected: &[&str]) {
        let complete = scan.complete_files(folder, LeftOut::default(), at(now_ms));
        assert_eq!(complete, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "at {now_ms} ms");
    }

    #[test]
    fn a_file_is_taken_once_when_it_no_longer_changes() {
        let mut scan = FolderScan::skipping(&[], LeftOut::default(), at(0));
        check(&mut scan, 100, &[file("a", 10, 90)], &[]);
        check(&mut scan, 200, &[file("a", 20, 190)], &[]);
        check(&mut scan, 300, &[file("a", 20, 190)], &["a"]);
        check(&mut scan, 400, &[file("a", 20, 190)], &[]);
    }

    #[test]
    fn a_file_renamed_in_is_taken_at_once() {
        let mut scan = FolderScan::skipping(&[], LeftOut::default(), at(100));
        check(&mut scan, 200, &[file("a", 10, 90), file("b", 10, 150)], &["a"]);
        check(&mut scan, 300, &[file("a", 10, 90), file("b", 10, 150)], &["b"]);
    }

    #[test]
    fn files_present_at_the_start_are_skipped_or_taken() {
        let present = [file("a", 10, 50), file("b", 10, 60)];
        check(&mut FolderScan::skipping(&present, LeftOut::default(), at(100)), 200, &present, &[]);
        let mut taking = FolderScan::default();
        check(&mut taking, 100, &present, &[]);
        check(&mut taking, 200, &present, &["a", "b"]);
    }

    #[test]
    fn a_file_written_again_is_a_new_one() {
        let mut scan = FolderScan::skipping(&[file("a", 10, 50)], LeftOut::default(), at(100));
        check(&mut scan, 200, &[file("a", 10, 150)], &[]);
        check(&mut scan, 300, &[file("a", 10, 150)], &["a"]);
    }

    #[test]
    fn files_of_one_name_in_two_folders_are_two() {
        let mut scan = FolderScan::skipping(&[file("1/a", 10, 50)], LeftOut::default(), at(100));
        check(&mut scan, 200, &[file("1/a", 10, 50), file("2/a", 10, 60)], &["2/a"]);
    }

    #[test]
    fn files_of_a_tree_beyond_the_bound_are_not_new_when_others_are_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |at: usize| dir.path().join(format!("{at:05}"));
        fs::create_dir(folder(0)).unwrap();
        fs::write(folder(0).join("old.jpg"), b"").unwrap();
        let settings = headwater_settings::defaults::<WatchSettings>();
        let mut watcher = FolderWatcher::open(dir.path().into(), &settings).unwrap();
        (1..=MAX_FOLDERS).for_each(|at| fs::create_dir(folder(at)).unwrap());
        let report = SharedReport::default();
        assert_eq!(watcher.new_files(std::iter::once(&report)), Ok(Vec::new()));
        assert_eq!(report.lock().frame_faults["too_many_files"], 1);
        (1..=MAX_FOLDERS).for_each(|at| fs::remove_dir(folder(at)).unwrap());
        assert_eq!(watcher.new_files(std::iter::once(&report)), Ok(Vec::new()));
    }

    #[test]
    fn a_file_that_may_have_been_left_out_is_old_and_another_is_new() {
        let folder = LeftOut { folder: Some("r/2/b".into()), file: None };
        let files =
            ["r/1/x", "r/1.jpg", "r/2/a.jpg", "r/2/b/x", "r/2/c", "r/3/a"].map(|name| file(name, 10, 50));
        check(
            &mut FolderScan::skipping(&[], folder, at(100)),
            200,
            &files,
            &["r/1.jpg", "r/2/a.jpg", "r/2/c", "r/3/a"],
        );
        let last = LeftOut { folder: None, file: Some("r/2/a.jpg".into()) };
        check(&mut FolderScan::skipping(&[], last, at(100)), 200, &files, &["r/2/b/x", "r/2/c", "r/3/a"]);
    }

    #[test]
    fn files_that_left_the_folder_are_forgotten() {
        let mut scan = FolderScan::skipping(&[], LeftOut::default(), at(0));
        for round in 0..100 {
            let names: Vec<_> = (0..10).map(|index| file(&format!("{round}-{index}"), 1, round)).collect();
            scan.complete_files(&names, LeftOut::default(), at(round));
            assert_eq!(scan.known.len(), 10);
        }
        scan.complete_files(&[], LeftOut::default(), at(1000));
        assert!(scan.known.is_empty());
    }
}
