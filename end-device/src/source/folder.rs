//! A folder of images, played in the order of their names at a fixed rate.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use headwater_samples::roi::{self, RoiError};

use super::config::FolderEnd;
use super::files::{MOST_FILES, image_files, read_image};
use super::outlet::{Outlet, Producer};
use super::prepare::Prepare;
use crate::error::DeviceError;

/// Longest sleep in one piece, so that a device that ends is not held up.
const NAP: Duration = Duration::from_millis(200);

/// Plays the images of a folder.
pub(crate) struct Folder {
    path: PathBuf,
    period: Duration,
    end: FolderEnd,
    prepare: Prepare,
}

impl Folder {
    /// Looks whether there is an image, and whether the region of interest is in the first one.
    pub(crate) fn open(
        path: &Path,
        period_ms: u64,
        end: FolderEnd,
        prepare: Prepare,
    ) -> Result<Self, DeviceError> {
        let fail = |reason: String| DeviceError::Source { what: path.display().to_string(), reason };
        let (files, is_more) = image_files(path).map_err(|error| fail(error.to_string()))?;
        if is_more {
            return Err(fail(format!("expected at most {MOST_FILES} images, found more; split the folder")));
        }
        let first = files.first().ok_or_else(|| fail("expected at least one image, found none".into()))?;
        if let Some(region) = prepare.roi {
            let bytes = std::fs::read(first).map_err(|error| fail(error.to_string()))?;
            // What else is wrong with the first image is counted when it is due.
            if let Err(error @ RoiError::Outside { .. }) = roi::decode(&bytes, prepare.shape, Some(region)) {
                return Err(DeviceError::Source {
                    what: first.display().to_string(),
                    reason: error.to_string(),
                });
            }
        }
        Ok(Self { path: path.into(), period: Duration::from_millis(period_ms.max(1)), end, prepare })
    }

    /// True while the outlet is open.
    fn wait_until(due: Instant, outlet: &Outlet) -> bool {
        while outlet.is_open() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            thread::sleep(left.min(NAP));
        }
        false
    }
}

impl Producer for Folder {
    fn run(self: Box<Self>, outlet: &Outlet) -> Result<(), String> {
        let mut due = Instant::now();
        loop {
            // Listed anew each time round: what was put in or taken out meanwhile counts.
            let files = match image_files(&self.path) {
                Ok((files, _)) => files,
                Err(error) => return Err(format!("{}: {error}", self.path.display())),
            };
            if files.is_empty() {
                return Err(format!("{}: there are no images any more", self.path.display()));
            }
            for file in files {
                if !Self::wait_until(due, outlet) {
                    return Ok(());
                }
                // A section that is behind, or a machine that slept, does not make up for it with a burst.
                due = (due + self.period).max(Instant::now());
                let name = file.display().to_string();
                let view = read_image(&file, &outlet.faults)
                    .and_then(|bytes| self.prepare.image(&bytes, &name, &outlet.faults));
                if view.is_some_and(|view| !outlet.give(view)) {
                    return Ok(());
                }
            }
            if self.end == FolderEnd::End {
                return Ok(());
            }
        }
    }
}
