//! Sources of a device's frames: an archive by sample id, a snapshot URL, or a producer with its own timing (a folder or a video file at a
//! rate, a watched folder, a pipe, a command).
//!
//! ```text
//! Source (checked) --start--> RunningSource --capture--> frame of a sample
//!    |                                     --next-----> frame that is a sample, snapshot, end
//!    +-- of_one_camera: sources of several slots that open one camera once, each with its own region
//! ```
//!
//! Faults of frames are counted by kind. For a sample with a faulty frame the device sends nothing, so its slot is missing. Frames
//! are decoded off the async thread.

mod archive;
mod camera_check;
mod command;
mod faults;
mod first_frame;
mod folder_player;
mod folder_watcher;
mod frame_channel;
#[cfg(feature = "http")]
mod http;
mod image_files;
mod image_splitter;
mod pnm;
mod preprocess;
mod raw_frame;
mod running;
mod running_child;
mod stream;
mod y4m;

use std::fs::File;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::Slot;
use headwater_samples::image_codec::MAX_FILE_BYTES;

pub use archive::Frames;
pub(crate) use frame_channel::NamedView;
pub(crate) use running::{RunningSource, SourceEvent};

use crate::config::Capture;
use crate::error::DeviceError;
use crate::report::SharedReport;
#[cfg(not(feature = "http"))]
use crate::settings::WITHOUT_HTTP;
use crate::settings::{SourceSettings, SourceWord, StdinSettings};
use camera_check::CameraCheck;
use command::CommandSource;
use frame_channel::SharedProducer;
use preprocess::Preprocessor;
use running::RunningKind;
use stream::{FrameStream, OneStream};

/// A checked source of one slot's frames, not yet started.
pub struct Source {
    /// The slot of the frames.
    pub(crate) slot: Slot,
    /// Bytes of a view.
    pub(crate) view_bytes: usize,
    /// Report of the device, in which the source counts frames and their faults.
    pub(crate) report: SharedReport,
    max_age: Duration,
    kind: CheckedKind,
}

enum CheckedKind {
    Archive(Frames),
    Producer(Arc<SharedProducer>, Preprocessor),
    #[cfg(feature = "http")]
    Http(Arc<http::SnapshotClient>, Preprocessor),
}

/// Largest file or HTTP body of one frame, in bytes: the limit for an image of a data set.
pub const MAX_FRAME_BYTES: u64 = MAX_FILE_BYTES;

/// Longest age of a frame that still answers a sample, for a source that was opened without settings.
const MAX_AGE: Duration = Duration::from_secs(60);

impl Source {
    /// Checks and opens the source of a slot, for views of this shape. No frame is taken yet.
    ///
    /// # Errors
    /// [`DeviceError::Frames`] for an archive that cannot be read; [`DeviceError::Unusable`] for any other source that cannot be used, and for
    /// a region of interest outside the frames if their size is known before the first frame.
    pub fn open(
        settings: &SourceSettings,
        capture: Capture,
        slot: Slot,
        view: &Preprocessing,
    ) -> Result<Self, DeviceError> {
        let is_camera = match settings.kind {
            SourceWord::Watch | SourceWord::Http | SourceWord::Stdin | SourceWord::Command => true,
            SourceWord::Archive | SourceWord::Folder | SourceWord::File => false,
        };
        let framing = settings.framing(view, slot);
        let camera = is_camera.then(|| CameraCheck::of(settings, framing.fit)).flatten();
        let preprocessor = Preprocessor { camera, ..Preprocessor::new(view, framing) };
        let (view_bytes, report) = (preprocessor.shape.bytes(), preprocessor.report.clone());
        // Time between two frames of a folder or a file.
        let mut period = Duration::from_millis(settings.folder.period_ms);
        // Checked settings have a path if the kind needs one.
        let path = settings.path.clone().unwrap_or_default();
        let producer = match settings.kind {
            SourceWord::Archive => {
                let kind = CheckedKind::Archive(Frames::open(&path, slot, view, framing)?);
                return Ok(Self { slot, view_bytes, report, max_age: MAX_AGE, kind });
            }
            #[cfg(feature = "http")]
            SourceWord::Http => {
                let client = Arc::new(http::SnapshotClient::open(&settings.http, capture)?);
                let kind = CheckedKind::Http(client, preprocessor);
                return Ok(Self { slot, view_bytes, report, max_age: MAX_AGE, kind });
            }
            #[cfg(not(feature = "http"))]
            SourceWord::Http => return Err(DeviceError::source_of_frames("http", WITHOUT_HTTP)),
            SourceWord::Folder => {
                SharedProducer::new(folder_player::FolderPlayer::open(path, &settings.folder, framing.roi)?)
            }
            SourceWord::Watch => {
                SharedProducer::new(folder_watcher::FolderWatcher::open(path, &settings.watch)?)
            }
            SourceWord::Stdin => {
                let stream = FrameStream::new("standard input", settings.stdin, framing.roi)?;
                SharedProducer::new(OneStream { input: std::io::stdin(), stream })
            }
            SourceWord::Command => {
                // Checked settings of the kind have a command.
                let command = settings.command.run.clone().unwrap_or_default();
                let stream = FrameStream::new("the command's output", settings.stdin, framing.roi)?;
                SharedProducer::new(CommandSource::new(command, settings.command.end, stream))
            }
            SourceWord::File => {
                let name = path.display().to_string();
                let mut start = Vec::new();
                let opened = File::open(&path).and_then(|mut file| {
                    file.by_ref().take(y4m::MAX_LINE_BYTES).read_to_end(&mut start)?;
                    Ok(file)
                });
                let file = opened.map_err(|error| DeviceError::source_of_frames(&name, error))?;
                period = y4m::period_told(&start).unwrap_or(period);
                let stream = FrameStream::new(name, settings.stdin, framing.roi)?.played(period);
                SharedProducer::new(OneStream { input: Cursor::new(start).chain(file), stream })
            }
        };
        let kind = CheckedKind::Producer(producer, preprocessor);
        Ok(Self { slot, view_bytes, report, max_age: settings.max_age(capture, period), kind })
    }

    /// Lets the sources of several slots share one camera: it is opened once, when the last slot starts, and each frame gives a view of every
    /// slot. The settings of the sources may differ only in region and fit. Archives are not shared, since each slot has its own frames there.
    #[must_use]
    pub fn of_one_camera(mut sources: Vec<Self>) -> Vec<Self> {
        let count = sources.len();
        let Some((first, others)) = sources.split_first_mut() else { return sources };
        for other in others {
            match (&first.kind, &mut other.kind) {
                (CheckedKind::Producer(shared, _), CheckedKind::Producer(own, _)) => {
                    shared.share(count);
                    *own = Arc::clone(shared);
                }
                #[cfg(feature = "http")]
                (CheckedKind::Http(shared, _), CheckedKind::Http(own, _)) => *own = Arc::clone(shared),
                _ => {}
            }
        }
        sources
    }

    /// A source of frames from any reader, in the formats of standard input, with the region and the fit of training.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] for raw frames without a size, and for a region of interest outside the frames.
    pub fn of_reader(
        input: impl Read + Send + 'static,
        frames: StdinSettings,
        slot: Slot,
        view: &Preprocessing,
    ) -> Result<Self, DeviceError> {
        let preprocessor = Preprocessor::new(view, view.framing(slot));
        let (view_bytes, report) = (preprocessor.shape.bytes(), preprocessor.report.clone());
        let stream = FrameStream::new("the stream", frames, preprocessor.framing.roi)?;
        let kind = CheckedKind::Producer(SharedProducer::new(OneStream { input, stream }), preprocessor);
        Ok(Self { slot, view_bytes, report, max_age: MAX_AGE, kind })
    }

    /// True when frames come without a request for each: folders, files, pipes and commands.
    pub fn has_own_timing(&self) -> bool {
        matches!(self.kind, CheckedKind::Producer(..))
    }

    /// True for every source but an archive, whose frames are all read when it is opened.
    fn is_live(&self) -> bool {
        !matches!(self.kind, CheckedKind::Archive(_))
    }

    /// Starts the source; its frames have names if `names` is true. With [`Capture::Source`] each frame of a producer is a sample, else the
    /// newest frame answers a capture.
    pub(crate) fn start(self, capture: Capture, names: bool) -> Result<RunningSource, DeviceError> {
        let kind = match self.kind {
            CheckedKind::Archive(frames) => RunningKind::Archive(frames),
            CheckedKind::Producer(producer, slot) => {
                let frames = producer.start(slot, capture, names)?;
                RunningKind::Producer { frames, producer, max_age: self.max_age, report: self.report }
            }
            #[cfg(feature = "http")]
            CheckedKind::Http(client, slot) => RunningKind::Snapshots(Box::new(client.start(slot))),
        };
        Ok(RunningSource { kind, is_over: false, names })
    }
}

impl From<Frames> for Source {
    fn from(frames: Frames) -> Self {
        let (slot, view_bytes) = (frames.slot, frames.archive.shape.bytes());
        let (report, kind) = (SharedReport::default(), CheckedKind::Archive(frames));
        Self { slot, view_bytes, report, max_age: MAX_AGE, kind }
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::manifest::PixelScale;

    use super::*;

    #[test]
    fn a_frame_of_a_video_answers_for_two_periods_of_its_own_rate() {
        let dir = tempfile::tempdir().unwrap();
        let (scale, fit, regions) = (PixelScale::Unit, None, Vec::new());
        let view = Preprocessing { channels: 3, height: 6, width: 6, scale, fit, regions };
        let max_age = |video: &[u8]| {
            let path = dir.path().join("video");
            std::fs::write(&path, video).unwrap();
            let (kind, path) = (SourceWord::File, Some(path));
            let settings = SourceSettings { kind, path, ..headwater_settings::defaults() };
            Source::open(&settings, Capture::Trigger, Slot::new(0).unwrap(), &view).unwrap().max_age
        };
        assert_eq!(max_age(b"YUV4MPEG2 W8 H8 F1:2\n"), Duration::from_secs(4));
        assert_eq!(max_age(b"P6\n8 8\n255\n"), Duration::from_millis(400), "the period of the settings");
    }
}
