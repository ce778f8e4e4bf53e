//! A folder of images, with those below it, played in the order of their names at a fixed rate.

use std::path::PathBuf;
use std::time::Duration;

use headwater_samples::roi::{self, Roi};

use super::frame_channel::{FrameProducer, FrameSender, Pace};
use super::image_files::{self, MAX_FILES, MAX_FOLDERS};
use crate::error::DeviceError;
use crate::settings::{FolderEnd, FolderSettings};

pub(crate) struct FolderPlayer {
    path: PathBuf,
    period: Duration,
    end: FolderEnd,
}

impl FolderPlayer {
    /// Checks that the folder has an image, and that the region of interest lies in the first image.
    pub(crate) fn open(
        path: PathBuf,
        settings: &FolderSettings,
        roi: Option<Roi>,
    ) -> Result<Self, DeviceError> {
        let fail = |reason: &str| DeviceError::source_of_frames(path.display(), reason);
        let files = image_files::list(&path).map_err(|(_, reason)| fail(&reason))?;
        if files.left_out.any().is_some() {
            let bounds = format!("{MAX_FILES} images and {MAX_FOLDERS} folders");
            return Err(fail(&format!("expected at most {bounds}, found more; split the folder")));
        }
        let first = files.paths.first().ok_or_else(|| fail(&files.none_found()))?;
        // Other faults of the first image are counted when it is played.
        if let Some(roi) = roi
            && let Ok(bytes) = image_files::read(first)
            && let Ok([width, height]) = roi::size(&bytes)
        {
            let within = roi.within(width, height);
            within.map_err(|error| DeviceError::source_of_frames(first.display(), error))?;
        }
        let period = Duration::from_millis(settings.period_ms);
        Ok(Self { path, period, end: settings.end })
    }
}

impl FrameProducer for FolderPlayer {
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        let mut pace = Pace::new(self.period);
        loop {
            // A new list in each round takes files into account that were added or removed meanwhile.
            let files = image_files::list(&self.path);
            let files = files.map_err(|(_, reason)| format!("{}: {reason}", self.path.display()))?;
            frames.reports().for_each(|report| report.note_passed_over(&files.passed_over));
            if files.paths.is_empty() {
                return Err(format!("{}: there are no images any more", self.path.display()));
            }
            for file in files.paths {
                if !pace.wait(frames) || !image_files::send_file(&file, &self.path, frames) {
                    return Ok(());
                }
            }
            if self.end == FolderEnd::End {
                return Ok(());
            }
        }
    }
}
