//! A folder of images, played in the order of their names at a fixed rate.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater_samples::roi::{self, RoiError};

use super::frame_channel::{FrameProducer, FrameSender};
use super::image_files::{self, MAX_FILES};
use super::preprocess::Preprocessor;
use crate::error::DeviceError;
use crate::settings::{FolderEnd, FolderSettings};

/// Player of the images of a folder.
pub(crate) struct FolderPlayer {
    path: PathBuf,
    period: Duration,
    end: FolderEnd,
    preprocessor: Preprocessor,
}

impl FolderPlayer {
    /// Checks that the folder has an image, and that the region of interest lies in the first one.
    pub(crate) fn open(
        path: PathBuf,
        settings: &FolderSettings,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let fail = |reason: &str| DeviceError::source_of_frames(path.display(), reason);
        let files = image_files::list(&path).map_err(|error| fail(&error.to_string()))?;
        if files.is_more {
            return Err(fail(&format!("expected at most {MAX_FILES} images, found more; split the folder")));
        }
        let first = files.paths.first().ok_or_else(|| fail("expected at least one image, found none"))?;
        if let Some(region) = preprocessor.roi {
            let bytes = std::fs::read(first).map_err(|error| fail(&error.to_string()))?;
            // Other faults of the first image are counted when it is played.
            if let Err(error @ RoiError::Outside { .. }) =
                roi::decode(&bytes, preprocessor.shape, Some(region))
            {
                return Err(DeviceError::source_of_frames(first.display(), error));
            }
        }
        let period = Duration::from_millis(settings.period_ms);
        Ok(Self { path, period, end: settings.end, preprocessor })
    }
}

impl FrameProducer for FolderPlayer {
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        let mut due = Instant::now();
        loop {
            // The folder is listed again before each pass: files may have been added or removed meanwhile.
            let files = image_files::list(&self.path)
                .map_err(|error| format!("{}: {error}", self.path.display()))?
                .paths;
            if files.is_empty() {
                return Err(format!("{}: there are no images any more", self.path.display()));
            }
            for file in files {
                if !frames.sleep_until(due) {
                    return Ok(());
                }
                // A player that is behind moves its schedule to the present instead of sending a burst.
                due = (due + self.period).max(Instant::now());
                if !image_files::send_file(&file, &self.preprocessor, frames) {
                    return Ok(());
                }
            }
            if self.end == FolderEnd::End {
                return Ok(());
            }
        }
    }
}
