//! Reads the frames of a stream: raw pixels, y4m, PPM and PGM, or JPEG, PNG and WebP files one after the other.
//!
//! | first bytes | the stream |
//! | --- | --- |
//! | `YUV4MPEG2 ` | y4m, which tells its size and rate |
//! | `P5`, `P6` | PGM and PPM images, each with its size |
//! | of a JPEG, PNG or WebP | such files |
//! | others | refused, unless the settings name the format |

use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::time::Duration;

use headwater_samples::roi::{RawFormat, Roi};

use super::faults::{FrameFault, Missing};
use super::frame_channel::{FrameProducer, FrameSender, Pace};
use super::image_splitter::ImageSplitter;
use super::preprocess::{RawFrames, SourceFrame};
use super::raw_frame::{NextFrame, StreamFault, read_block};
use super::y4m::{self, Y4m};
use super::{MAX_FRAME_BYTES, pnm};
use crate::error::DeviceError;
use crate::settings::{CARRY_SIZE, StdinFormat, StdinSettings};

/// Number of first bytes that tell the format of a stream.
const START_BYTES: usize = 10;

/// Largest number of bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Format that the first bytes of a stream tell.
#[derive(Clone, Copy)]
enum Told {
    Y4m,
    Pnm,
    Files,
}

/// Format that these first bytes tell, and the name of the format for messages; `None` for other bytes.
fn told(start: &[u8]) -> Option<(Told, &'static str)> {
    match start {
        start if start.starts_with(y4m::START) => Some((Told::Y4m, "y4m")),
        [b'P', b'5' | b'6', b'#' | b' ' | b'\t' | b'\n' | b'\r', ..] => Some((Told::Pnm, "PPM or PGM")),
        [0xff, 0xd8, 0xff, ..] | [0x89, b'P', b'N', b'G', ..] | [b'R', b'I', b'F', b'F', ..] => {
            Some((Told::Files, "JPEG, PNG or WebP"))
        }
        _ => None,
    }
}

/// Name, format and rate of the streams of one source.
pub(crate) struct FrameStream {
    /// Name of the source in faults.
    name: String,
    format: StdinFormat,
    /// Format of raw frames; `None` if the stream tells its format.
    raw: Option<RawFrames>,
    /// Time between two frames of a recording; `None` if frames are taken as they come.
    period: Option<Duration>,
}

impl FrameStream {
    /// Checks that raw frames have a size, and that the region of interest lies in frames of this size.
    pub(crate) fn new(
        name: impl Into<String>,
        settings: StdinSettings,
        roi: Option<Roi>,
    ) -> Result<Self, DeviceError> {
        let name = name.into();
        if let Some(misfit) = settings.misfit() {
            return Err(DeviceError::source_of_frames(name, misfit));
        }
        let format = if settings.format == StdinFormat::Gray { RawFormat::Gray } else { RawFormat::Rgb24 };
        let raw = settings.size.map(|size| RawFrames { format, size, kind: "raw pixels" });
        if let Some((raw, roi)) = raw.zip(roi) {
            let within = roi.within(raw.size[0], raw.size[1]);
            within.map_err(|error| DeviceError::source_of_frames(&name, error))?;
        }
        Ok(Self { name, format: settings.format, raw, period: None })
    }

    /// The stream of a recording, which is played with this time between two frames.
    pub(crate) fn played(self, period: Duration) -> Self {
        Self { period: Some(period), ..self }
    }

    /// Sends the frames of a stream until its end, or until the channel is closed.
    ///
    /// # Errors
    /// The reason for which the stream cannot be read.
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
        let told = told(&start);
        let mut input = Cursor::new(start.clone()).chain(input);
        if let Some(raw) = self.raw {
            if let Some((_, name)) = told {
                return Err(format!(
                    "expected raw pixels, as source.stdin.size is set, found {name}: leave the size out; for raw pixels that \
                     begin like this set source.stdin.format = \"rgb24\""
                ));
            }
            let bytes = raw.format.bytes(raw.size[0], raw.size[1]);
            let next = || -> NextFrame { Ok(read_block(&mut input, bytes)?.map(|pixels| (pixels, raw))) };
            return player.send_raw(next);
        }
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        match told {
            _ if self.format == StdinFormat::Mjpeg => player.send_files(input),
            Some((Told::Files, _)) => player.send_files(input),
            Some((Told::Pnm, _)) => player.send_raw(|| pnm::next(&mut input)),
            Some((Told::Y4m, _)) => match Y4m::open(&mut input) {
                Ok(video) => player.send_raw(|| video.next(&mut input)),
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
}

/// Sends frames as they come, or the frames of a recording at its rate.
struct Player<'a> {
    name: &'a str,
    frames: &'a FrameSender,
    /// `None` for frames that are sent as they come.
    pace: Option<Pace>,
}

impl<'a> Player<'a> {
    fn new(stream: &'a FrameStream, frames: &'a FrameSender) -> Self {
        Self { name: &stream.name, frames, pace: stream.period.map(Pace::new) }
    }

    fn send_raw(mut self, mut next: impl FnMut() -> NextFrame) -> Result<(), String> {
        loop {
            let frame = match next() {
                Ok(Some((pixels, raw))) => SourceFrame::Raw(pixels, raw),
                Ok(None) => return Ok(()),
                Err(fault) => return self.stop(fault),
            };
            if !self.send(Ok(frame)) {
                return Ok(());
            }
        }
    }

    fn send_files(mut self, mut input: impl Read) -> Result<(), String> {
        let mut images = ImageSplitter::new(MAX_FRAME_BYTES);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let read = match input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| error.to_string())?,
            };
            let mut bytes = &buffer[..read];
            while let Some(part) = images.next_part(&mut bytes) {
                if !self.send(part.map(SourceFrame::File)) {
                    return Ok(());
                }
            }
            if read == 0 {
                if let Some(part) = images.unfinished() {
                    self.send(part.map(SourceFrame::File));
                }
                return Ok(());
            }
        }
    }

    /// Counts the last frame of a cut stream as a fault; returns the reason as an error for an unusable stream.
    fn stop(&mut self, fault: StreamFault) -> Result<(), String> {
        match fault {
            StreamFault::Cut(detail) => {
                self.send(Err((FrameFault::CUT, detail)));
                Ok(())
            }
            StreamFault::Unusable(reason) => Err(reason),
        }
    }

    /// Sends a frame, or counts a missing frame; returns false once no agent takes frames.
    fn send(&mut self, frame: Result<SourceFrame, Missing>) -> bool {
        let frames = self.frames;
        self.pace.as_mut().is_none_or(|pace| pace.wait(frames)) && frames.send(self.name, "", frame)
    }
}

/// A source of one stream; the source ends when the stream ends.
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
