//! A watched folder: each new image file that is complete is a frame.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::config::Existing;
use super::faults::FrameFault;
use super::files::{MOST_FILES, image_files, read_image};
use super::looks::{Looks, Print, Seen};
use super::outlet::{Outlet, Producer};
use super::prepare::Prepare;
use crate::error::DeviceError;

/// Longest sleep in one piece, so that a device that ends is not held up.
const NAP: Duration = Duration::from_millis(200);

/// Watches a folder by looking at it.
pub(crate) struct Watch {
    path: PathBuf,
    poll: Duration,
    looks: Looks,
    prepare: Prepare,
}

impl Watch {
    /// Takes a first look, so that what comes from now on is new.
    pub(crate) fn open(
        path: &Path,
        existing: Existing,
        poll_ms: u64,
        prepare: Prepare,
    ) -> Result<Self, DeviceError> {
        let seen = look_at(path).map_err(|error| DeviceError::Source {
            what: path.display().to_string(),
            reason: error.to_string(),
        })?;
        let looks = match existing {
            Existing::Skip => Looks::passing_over(&seen.files, SystemTime::now()),
            Existing::Take => Looks::default(),
        };
        Ok(Self { path: path.into(), poll: Duration::from_millis(poll_ms.max(1)), looks, prepare })
    }
}

impl Producer for Watch {
    fn run(mut self: Box<Self>, outlet: &Outlet) -> Result<(), String> {
        while outlet.is_open() {
            match look_at(&self.path) {
                Ok(seen) => {
                    if seen.is_more {
                        let what = format_args!("{}: more than {MOST_FILES} images", self.path.display());
                        outlet.faults.count(FrameFault::TooManyFiles, what);
                    }
                    for file in self.looks.look(&seen.files, SystemTime::now()) {
                        let name = file.display().to_string();
                        let view = read_image(&file, &outlet.faults)
                            .and_then(|bytes| self.prepare.image(&bytes, &name, &outlet.faults));
                        if view.is_some_and(|view| !outlet.give(view)) {
                            return Ok(());
                        }
                    }
                }
                // A folder that is away (a share that is not mounted) may come back.
                Err(error) => {
                    outlet
                        .faults
                        .count(FrameFault::Unreadable, format_args!("{}: {error}", self.path.display()));
                }
            }
            let mut left = self.poll;
            while !left.is_zero() && outlet.is_open() {
                let nap = left.min(NAP);
                thread::sleep(nap);
                left -= nap;
            }
        }
        Ok(())
    }
}

struct Folder {
    files: Vec<Seen>,
    is_more: bool,
}

fn look_at(path: &Path) -> std::io::Result<Folder> {
    let (paths, is_more) = image_files(path)?;
    let files = paths
        .into_iter()
        // A file that went away between the two calls is none.
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            let print = Print { bytes: metadata.len(), written: metadata.modified().ok()? };
            Some(Seen { path, print })
        })
        .collect();
    Ok(Folder { files, is_more })
}
