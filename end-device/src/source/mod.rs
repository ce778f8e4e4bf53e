//! Sources of a device's frames: an archive by sample id, a snapshot URL, or a producer with its own timing (a folder at a rate, a
//! watched folder, a pipe).
//!
//! ```text
//! Source (checked) --start--> RunningSource --capture--> frame of a sample
//!                                          --next-----> frame that is a sample, snapshot, end
//! ```
//!
//! Faults of frames are counted by kind. For a sample with a faulty frame the device sends nothing, so its slot is missing. Frames
//! are decoded off the async thread.

mod archive;
mod camera_check;
mod faults;
mod folder_player;
mod folder_watcher;
mod frame_channel;
#[cfg(feature = "http")]
mod http;
mod image_files;
mod image_splitter;
mod preprocess;
mod running;
mod stdin;

use std::io::Read;
use std::time::Duration;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::Slot;
use headwater_samples::archive::BrokenFrame;
use headwater_samples::image_codec::MAX_FILE_BYTES;
use headwater_samples::roi::Roi;

pub use archive::Frames;
pub(crate) use running::{RunningSource, SourceEvent};

use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;
#[cfg(not(feature = "http"))]
use crate::settings::WITHOUT_HTTP;
use crate::settings::{SourceSettings, SourceWord, StdinSettings};
use camera_check::CameraCheck;
use frame_channel::FrameProducer;
use preprocess::Preprocessor;
use running::RunningKind;

/// A checked source of one slot's frames, not yet started.
pub struct Source {
    /// The slot of the frames.
    pub(crate) slot: Slot,
    /// Bytes of a view.
    pub(crate) view_bytes: usize,
    max_age: Duration,
    kind: CheckedKind,
}

enum CheckedKind {
    Archive(Frames),
    Producer(Box<dyn FrameProducer>),
    #[cfg(feature = "http")]
    Http(Box<http::SnapshotClient>),
}

/// Largest file or body of one frame, in bytes; as of a data set.
pub const MAX_FRAME_BYTES: u64 = MAX_FILE_BYTES;

/// Longest age of a frame that answers, for a source that was opened without settings.
const MAX_AGE: Duration = Duration::from_secs(60);

impl Source {
    /// Checks and opens the source of a slot, for views of this shape. No frame is taken yet.
    ///
    /// # Errors
    /// [`DeviceError::Frames`] for an archive; [`DeviceError::Unusable`] for any source, also for a
    /// region of interest outside its frames if their size is known by now.
    pub fn open(
        settings: &SourceSettings,
        capture: Capture,
        slot: Slot,
        view: &Preprocessing,
    ) -> Result<Self, DeviceError> {
        let is_camera = matches!(settings.kind, SourceWord::Watch | SourceWord::Http | SourceWord::Stdin);
        let camera = is_camera.then(|| CameraCheck::of(settings)).flatten();
        let preprocessor = Preprocessor { camera, ..Preprocessor::new(view, settings.roi) };
        let view_bytes = preprocessor.shape.bytes();
        let producer = |producer: Box<dyn FrameProducer>| CheckedKind::Producer(producer);
        // Checked settings have a path if the kind needs one.
        let path = settings.path.clone().unwrap_or_default();
        let kind = match settings.kind {
            SourceWord::Archive => CheckedKind::Archive(Frames::open(&path, slot, view, settings.roi)?),
            SourceWord::Folder => {
                producer(Box::new(folder_player::FolderPlayer::open(path, &settings.folder, preprocessor)?))
            }
            SourceWord::Watch => {
                producer(Box::new(folder_watcher::FolderWatcher::open(path, &settings.watch, preprocessor)?))
            }
            #[cfg(feature = "http")]
            SourceWord::Http => CheckedKind::Http(Box::new(http::SnapshotClient::open(
                &settings.http,
                capture,
                preprocessor,
            )?)),
            #[cfg(not(feature = "http"))]
            SourceWord::Http => return Err(DeviceError::source_of_frames("http", WITHOUT_HTTP)),
            SourceWord::Stdin => {
                producer(Box::new(stdin::Stdin::open(std::io::stdin(), settings.stdin, preprocessor)?))
            }
        };
        Ok(Self { slot, view_bytes, max_age: settings.max_age(capture), kind })
    }

    /// Frames from any reader, in the formats of standard input.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] for a region of interest outside the frames.
    pub fn of_reader(
        input: impl Read + Send + 'static,
        frames: StdinSettings,
        roi: Option<Roi>,
        slot: Slot,
        view: &Preprocessing,
    ) -> Result<Self, DeviceError> {
        let preprocessor = Preprocessor::new(view, roi);
        let view_bytes = preprocessor.shape.bytes();
        let kind = CheckedKind::Producer(Box::new(stdin::Stdin::open(input, frames, preprocessor)?));
        Ok(Self { slot, view_bytes, max_age: MAX_AGE, kind })
    }

    /// True when frames come by themselves and not on request.
    pub fn has_own_timing(&self) -> bool {
        matches!(self.kind, CheckedKind::Producer(_))
    }

    /// At most five of the frames that are known to be broken, and the number of all of them. Only an archive knows them at the start.
    pub(crate) fn broken(&self) -> (Vec<&BrokenFrame>, usize) {
        match &self.kind {
            CheckedKind::Archive(frames) => frames.broken(),
            _ => (Vec::new(), 0),
        }
    }

    /// Starts the source. With [`Capture::Source`] each frame of a producer is a sample, else its newest frame answers a capture.
    pub(crate) fn start(self, capture: Capture, faults: SharedReport) -> Result<RunningSource, DeviceError> {
        let kind = match self.kind {
            CheckedKind::Archive(frames) => RunningKind::Archive(frames),
            CheckedKind::Producer(producer) => {
                let (frames, thread) = frame_channel::start(producer, capture, faults.clone())?;
                RunningKind::Producer { frames, thread: Some(thread), max_age: self.max_age, faults }
            }
            #[cfg(feature = "http")]
            CheckedKind::Http(client) => RunningKind::Snapshots(Box::new(client.start(faults))),
        };
        Ok(RunningSource { kind, is_over: false })
    }
}

impl From<Frames> for Source {
    fn from(frames: Frames) -> Self {
        let (slot, view_bytes) = (frames.slot, frames.archive.shape.bytes());
        Self { slot, view_bytes, max_age: MAX_AGE, kind: CheckedKind::Archive(frames) }
    }
}
