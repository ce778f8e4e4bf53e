//! Where a device's frames come from: an archive by sample id, a URL that is asked, or what gives frames by itself (a folder at a
//! rate, a watched folder, a pipe).
//!
//! What cannot be used of a frame is counted by kind and named once a kind; the device is then silent for the sample, so that its
//! slot is missing there. Decoding happens off the async thread.

mod archive;
mod config;
mod faults;
mod feed;
mod files;
mod folder;
#[cfg(feature = "http")]
mod http;
mod images;
mod looks;
mod outlet;
mod prepare;
#[cfg(feature = "http")]
mod snapshot_url;
mod stdin;
mod watch;

use std::io::Read;
use std::time::Duration;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::Slot;
use headwater_samples::archive::BrokenFrame;
use headwater_samples::roi::Roi;

pub use archive::Frames;
pub use config::{
    Existing, FolderEnd, HttpAuth, MAX_FRAME_BYTES, Secret, SourceConfig, SourceKind, StdinFormat,
};
pub(crate) use faults::Faults;
pub(crate) use feed::{Event, Feed, Taken};

use crate::error::DeviceError;
use outlet::Producer;
use prepare::Prepare;

/// A source of one slot's frames that was found fit to be started.
pub struct Source {
    slot: Slot,
    view_bytes: usize,
    max_age: Duration,
    opened: Opened,
}

enum Opened {
    Archive(Frames),
    Timed(Box<dyn Producer>),
    #[cfg(feature = "http")]
    Http(http::Snapshots),
}

/// How long a frame answers where nothing else is said.
const MAX_AGE: Duration = Duration::from_secs(1);

impl Source {
    /// Opens the source of a slot, for views of this shape. Nothing is taken from it yet.
    ///
    /// # Errors
    /// [`DeviceError::Frames`], [`DeviceError::NoFrames`] for an archive; [`DeviceError::Source`] for what another source lacks, also
    /// for a region of interest outside its frames where their size is known by now.
    pub fn open(config: &SourceConfig, slot: Slot, view: &Preprocessing) -> Result<Self, DeviceError> {
        let prepare = Prepare::new(view, config.roi);
        let opened = match &config.kind {
            SourceKind::Archive { path } => Opened::Archive(Frames::open_cut(path, slot, view, config.roi)?),
            SourceKind::Folder { path, period_ms, end } => {
                Opened::Timed(Box::new(folder::Folder::open(path, *period_ms, *end, prepare)?))
            }
            SourceKind::Watch { path, existing, poll_ms } => {
                Opened::Timed(Box::new(watch::Watch::open(path, *existing, *poll_ms, prepare)?))
            }
            #[cfg(feature = "http")]
            SourceKind::Http { url, timeout_ms, auth } => {
                Opened::Http(http::Snapshots::open(url, *timeout_ms, auth, prepare)?)
            }
            #[cfg(not(feature = "http"))]
            SourceKind::Http { .. } => {
                return Err(DeviceError::Source {
                    what: "http".into(),
                    reason: "this build was made without the feature `http`".into(),
                });
            }
            SourceKind::Stdin { format, size } => {
                Opened::Timed(Box::new(stdin::Stdin::open(std::io::stdin(), *format, *size, prepare)?))
            }
        };
        let max_age = Duration::from_millis(config.max_age_ms);
        Ok(Self { slot, view_bytes: prepare.shape.bytes(), max_age, opened })
    }

    /// Frames from any reader, as [`SourceKind::Stdin`] has them from standard input.
    ///
    /// # Errors
    /// [`DeviceError::Source`] for a region of interest outside the frames.
    pub fn of_reader(
        input: impl Read + Send + 'static,
        format: StdinFormat,
        size: Option<[u32; 2]>,
        roi: Option<Roi>,
        slot: Slot,
        view: &Preprocessing,
    ) -> Result<Self, DeviceError> {
        let prepare = Prepare::new(view, roi);
        let opened = Opened::Timed(Box::new(stdin::Stdin::open(input, format, size, prepare)?));
        Ok(Self { slot, view_bytes: prepare.shape.bytes(), max_age: MAX_AGE, opened })
    }

    /// The slot it was opened for.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Bytes of its views.
    pub fn view_bytes(&self) -> usize {
        self.view_bytes
    }

    /// True when frames come by themselves and not when they are asked for.
    pub fn has_own_timing(&self) -> bool {
        matches!(self.opened, Opened::Timed(_))
    }

    /// Some of the frames that are known to be broken, with the number of all of them.
    pub(crate) fn broken(&self) -> (Vec<&BrokenFrame>, usize) {
        match &self.opened {
            Opened::Archive(frames) => frames.broken(),
            _ => (Vec::new(), 0),
        }
    }

    /// Starts it: `is_each` makes a sample of each of its frames, else the newest answers.
    pub(crate) fn start(self, is_each: bool, faults: Faults) -> Result<Feed, DeviceError> {
        match self.opened {
            Opened::Archive(frames) => Ok(Feed::of_archive(frames)),
            Opened::Timed(producer) => {
                let (inlet, end) = outlet::start(producer, is_each, faults.clone())?;
                Ok(Feed::of_inlet(inlet, end, self.max_age, faults))
            }
            #[cfg(feature = "http")]
            Opened::Http(snapshots) => Ok(Feed::of_snapshots(snapshots.start(faults))),
        }
    }
}

/// What is wrong with a snapshot URL, for those who read settings; never repeats it.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    #[cfg(feature = "http")]
    return url.parse::<snapshot_url::SnapshotUrl>().map(|_| ());
    #[cfg(not(feature = "http"))]
    {
        let _ = url;
        Err("this build of the agent has no snapshot URLs (it was made without the feature `http`)".into())
    }
}

impl From<Frames> for Source {
    fn from(frames: Frames) -> Self {
        let (slot, view_bytes) = (frames.slot(), frames.view_bytes());
        Self { slot, view_bytes, max_age: MAX_AGE, opened: Opened::Archive(frames) }
    }
}
