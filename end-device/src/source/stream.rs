//! Frames in a stream: raw pixels, y4m, PPM and PGM, or JPEG, PNG and WebP files one after the other.
//!
//! | first bytes | the stream |
//! | --- | --- |
//! | `YUV4MPEG2 ` | y4m, which tells its size and rate |
//! | `P5`, `P6` | PGM and PPM images, each with its size |
//! | of a JPEG, PNG or WebP | such files |
//! | others | refused, unless the settings say what they are |

use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::time::{Duration, Instant};

use headwater_samples::View;
use headwater_samples::roi::RawFormat;

use super::faults::{FrameFault, Missing};
use super::frame_channel::{FrameProducer, FrameSender};
use super::image_splitter::{ImageSplitter, StreamPart};
use super::preprocess::{Preprocessor, RawFrames};
use super::raw_frame::{NextFrame, StreamFault, read_block};
use super::y4m::{self, Y4m};
use super::{MAX_FRAME_BYTES, pnm};
use crate::error::DeviceError;
use crate::settings::{CARRY_SIZE, StdinFormat, StdinSettings};

/// Bytes by which the format of a stream is told.
const START_BYTES: usize = 10;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Format that the first bytes of a stream tell.
#[derive(Clone, Copy)]
enum Told {
    Y4m,
    Pnm,
    Files,
}

impl Told {
    fn by(start: &[u8]) -> Option<Self> {
        match start {
            start if start.starts_with(y4m::START) => Some(Self::Y4m),
            [b'P', b'5' | b'6', b'#' | b' ' | b'\t' | b'\n' | b'\r', ..] => Some(Self::Pnm),
            [0xff, 0xd8, 0xff, ..] | [0x89, b'P', b'N', b'G', ..] | [b'R', b'I', b'F', b'F', ..] => {
                Some(Self::Files)
            }
            _ => None,
        }
    }

    /// Name for people.
    fn name(self) -> &'static str {
        match self {
            Self::Y4m => "y4m",
            Self::Pnm => "PPM or PGM",
            Self::Files => "JPEG, PNG or WebP",
        }
    }
}

/// The frames of streams of one source.
pub(crate) struct FrameStream {
    /// Name of the source in faults.
    name: String,
    format: StdinFormat,
    /// Format of raw frames; `None` where the stream tells it.
    raw: Option<RawFrames>,
    /// Time between two frames of a recording; `None`: frames are taken as they come.
    period: Option<Duration>,
    preprocessor: Preprocessor,
}

impl FrameStream {
    /// Checks that raw frames have a size, and that the region of interest lies in them.
    pub(crate) fn new(
        name: impl Into<String>,
        settings: StdinSettings,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let name = name.into();
        let format = match (settings.format, settings.size) {
            (StdinFormat::Rgb24, _) | (StdinFormat::Auto, Some(_)) => Some(RawFormat::Rgb24),
            (StdinFormat::Gray, _) => Some(RawFormat::Gray),
            (StdinFormat::Auto, None) | (StdinFormat::Mjpeg, _) => None,
        };
        let raw = match (format, settings.size) {
            (None, _) => None,
            (Some(format), Some(size)) => Some(RawFrames { format, size, kind: "raw pixels" }),
            (Some(_), None) => {
                let reason = format!("raw pixels do not tell their size; {CARRY_SIZE}");
                return Err(DeviceError::source_of_frames(name, reason));
            }
        };
        if let Some((raw, roi)) = raw.zip(preprocessor.framing.roi) {
            let within = roi.within(raw.size[0], raw.size[1]);
            within.map_err(|error| DeviceError::source_of_frames(&name, error))?;
        }
        Ok(Self { name, format: settings.format, raw, period: None, preprocessor })
    }

    /// The stream of a recording, which is played with this time between two frames.
    pub(crate) fn played(self, period: Duration) -> Self {
        Self { period: Some(period), ..self }
    }

    /// Sends the frames of a stream until its end, or until the channel is closed.
    ///
    /// # Errors
    /// Why the stream cannot be read.
    pub(crate) fn send_all(&self, input: impl Read, frames: &FrameSender) -> Result<(), String> {
        let named = |reason: String| format!("{}: {reason}", self.name);
        self.send_known(input, Player::new(self, frames)).map_err(named)
    }

    fn send_known(&self, mut input: impl Read, mut player: Player<'_>) -> Result<(), String> {
        let mut start = Vec::new();
        if self.format == StdinFormat::Auto {
            let read = input.by_ref().take(START_BYTES as u64).read_to_end(&mut start);
            read.map_err(|error| error.to_string())?;
        }
        let told = Told::by(&start);
        let mut input = Cursor::new(start.clone()).chain(input);
        if let Some(raw) = self.raw {
            if let Some(told) = told {
                return Err(format!(
                    "expected raw pixels, as source.stdin.size is set, found {}: leave the size out; for raw pixels that \
                     begin like this set source.stdin.format = \"rgb24\"",
                    told.name()
                ));
            }
            let bytes = raw.format.bytes(raw.size[0], raw.size[1]);
            let next = || -> NextFrame { Ok(read_block(&mut input, bytes)?.map(|pixels| (pixels, raw))) };
            return self.send_raw(next, player);
        }
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        match told {
            _ if self.format == StdinFormat::Mjpeg => self.send_files(input, player),
            Some(Told::Files) => self.send_files(input, player),
            Some(Told::Pnm) => self.send_raw(|| pnm::next(&mut input), player),
            Some(Told::Y4m) => match Y4m::open(&mut input) {
                Ok(video) => self.send_raw(|| video.next(&mut input), player),
                Err(fault) => player.stop(fault),
            },
            None if start.is_empty() => Ok(()),
            None => {
                let reason = format!(
                    "expected y4m, PPM, PGM, JPEG, PNG or WebP, found \"{}\": {CARRY_SIZE}; raw pixels need source.stdin.size",
                    start.escape_ascii()
                );
                let is_cut = start.len() < START_BYTES;
                player.stop(if is_cut { StreamFault::Cut(reason) } else { StreamFault::Unusable(reason) })
            }
        }
    }

    fn send_raw(&self, mut next: impl FnMut() -> NextFrame, mut player: Player<'_>) -> Result<(), String> {
        loop {
            let view = match next() {
                Ok(None) => return Ok(()),
                Ok(Some((pixels, raw))) => self.preprocessor.raw(pixels, raw, &player.frames.faults),
                Err(fault) => return player.stop(fault),
            };
            if !player.send(view) {
                return Ok(());
            }
        }
    }

    fn send_files(&self, mut input: impl Read, mut player: Player<'_>) -> Result<(), String> {
        let mut images = ImageSplitter::new(MAX_FRAME_BYTES);
        let mut buffer = vec![0; BUFFER_BYTES];
        let frames = player.frames;
        let view = |part: StreamPart| part.and_then(|file| self.preprocessor.image(&file, &frames.faults));
        loop {
            let read = match input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| error.to_string())?,
            };
            let mut bytes = &buffer[..read];
            while let Some(part) = images.next_part(&mut bytes) {
                if !player.send(view(part)) {
                    return Ok(());
                }
            }
            if read == 0 {
                if let Some(part) = images.unfinished() {
                    player.send(view(part));
                }
                return Ok(());
            }
        }
    }
}

/// Sends frames as they come, or those of a recording at its pace.
struct Player<'a> {
    name: &'a str,
    frames: &'a FrameSender,
    /// When the next frame is due, and the time from one frame to the next; `None` for frames that are sent as they come.
    pace: Option<(Instant, Duration)>,
}

impl<'a> Player<'a> {
    fn new(stream: &'a FrameStream, frames: &'a FrameSender) -> Self {
        let pace = stream.period.map(|period| (Instant::now(), period));
        Self { name: &stream.name, frames, pace }
    }

    /// Counts the frame that a cut stream breaks off; refuses an unusable one.
    fn stop(&mut self, fault: StreamFault) -> Result<(), String> {
        match fault {
            StreamFault::Cut(detail) => {
                self.send(Err((FrameFault::CUT, detail)));
                Ok(())
            }
            StreamFault::Unusable(reason) => Err(reason),
        }
    }

    /// Sends a view, or counts why a frame gives none; false when the channel is closed.
    fn send(&mut self, view: Result<View, Missing>) -> bool {
        if let Some((due, period)) = &mut self.pace {
            if !self.frames.sleep_until(*due) {
                return false;
            }
            *due = (*due + *period).max(Instant::now());
        }
        self.frames.send(self.name, view)
    }
}

/// A source of one stream, which ends with it.
pub(crate) struct OneStream<R> {
    pub(crate) input: R,
    pub(crate) stream: FrameStream,
}

impl<R: Read + Send> FrameProducer for OneStream<R> {
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        let Self { input, stream } = *self;
        stream.send_all(input, frames)
    }
}
