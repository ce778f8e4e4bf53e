//! A watched folder: each new image file is a frame once it is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::faults::FrameFault;
use super::folder_scan::{FileStamp, FolderScan, ScannedFile};
use super::frame_channel::{FrameProducer, FrameSender};
use super::image_files::{self, MAX_FILES};
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
    /// Scans the folder once, so that files that come from now on are new.
    pub(crate) fn open(
        path: PathBuf,
        settings: &WatchSettings,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let (files, _) = scan(&path).map_err(|error| DeviceError::source_of_frames(path.display(), error))?;
        let scan = match settings.existing {
            Existing::Skip => FolderScan::skipping(&files, SystemTime::now()),
            Existing::Take => FolderScan::default(),
        };
        Ok(Self { path, poll: Duration::from_millis(settings.poll_ms.get()), scan, preprocessor })
    }

    /// Sends the new files; false when the channel is closed.
    fn send_new_files(&mut self, frames: &FrameSender) -> bool {
        let name = self.path.display();
        let files = match scan(&self.path) {
            Ok((files, is_more)) => {
                if is_more {
                    let detail = format_args!("{name}: more than {MAX_FILES} images");
                    frames.faults.count_fault(FrameFault::TOO_MANY_FILES, detail);
                }
                files
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

/// The image files of a folder with their stamps, and whether there are more than a scan takes.
fn scan(path: &Path) -> io::Result<(Vec<ScannedFile>, bool)> {
    let files = image_files::list(path)?;
    let scanned = files.paths.into_iter().filter_map(|path| {
        // A file that was removed between the two calls is left out.
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let stamp = FileStamp { bytes: metadata.len(), written: metadata.modified().ok()? };
        Some(ScannedFile { path, stamp })
    });
    Ok((scanned.collect(), files.is_more))
}
