//! Frames on a pipe: raw pixels, or JPEG, PNG and WebP files one after the other.

use std::io::{ErrorKind, Read};

use headwater_samples::roi::RawFormat;

use super::MAX_FRAME_BYTES;
use super::faults::FrameFault;
use super::frame_channel::{FrameProducer, FrameSender};
use super::image_splitter::{ImageSplitter, StreamPart};
use super::preprocess::{Preprocessor, RawFrames};
use crate::error::DeviceError;
use crate::settings::{StdinFormat, StdinSettings};

/// Name of the pipe in faults.
const NAME: &str = "standard input";

/// Reader of frames from a pipe, until its end.
pub(crate) struct Stdin<R> {
    input: R,
    /// Format of raw frames; `None`: image files.
    raw: Option<RawFrames>,
    preprocessor: Preprocessor,
}

impl<R: Read + Send> Stdin<R> {
    /// Opens the pipe. Raw frames without a size have the size of the view; the region of interest must lie in them.
    pub(crate) fn open(
        input: R,
        frames: StdinSettings,
        preprocessor: Preprocessor,
    ) -> Result<Self, DeviceError> {
        let raw = match frames.format {
            StdinFormat::Rgb24 => Some(RawFormat::Rgb24),
            StdinFormat::Gray => Some(RawFormat::Gray),
            StdinFormat::Mjpeg => None,
        };
        let view = preprocessor.shape;
        let size = frames.size.unwrap_or([view.width as u32, view.height as u32]);
        if let (Some(_), Some(roi)) = (raw, preprocessor.roi) {
            roi.within(size[0], size[1]).map_err(|error| DeviceError::source_of_frames(NAME, error))?;
        }
        let raw = raw.map(|format| RawFrames { format, size });
        Ok(Self { input, raw, preprocessor })
    }
}

impl<R: Read + Send> FrameProducer for Stdin<R> {
    fn run(self: Box<Self>, frames: &FrameSender) -> Result<(), String> {
        let ended = match self.raw {
            Some(raw) => self.send_raw(raw, frames),
            None => self.send_files(frames),
        };
        ended.map_err(|error| format!("{NAME}: {error}"))
    }
}

impl<R: Read> Stdin<R> {
    fn send_raw(mut self, raw: RawFrames, frames: &FrameSender) -> std::io::Result<()> {
        let expected = raw.format.bytes(raw.size[0], raw.size[1]);
        loop {
            let mut pixels = Vec::with_capacity(expected);
            let found = self.input.by_ref().take(expected as u64).read_to_end(&mut pixels)?;
            if found == 0 {
                return Ok(());
            }
            if found < expected {
                let detail = format_args!("{NAME}: the last frame has {found} of {expected} bytes");
                frames.faults.count_fault(FrameFault::CUT, detail);
                return Ok(());
            }
            if !frames.send(NAME, self.preprocessor.raw(pixels, raw, &frames.faults)) {
                return Ok(());
            }
        }
    }

    fn send_files(mut self, frames: &FrameSender) -> std::io::Result<()> {
        let mut images = ImageSplitter::new(MAX_FRAME_BYTES);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match self.input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            let mut bytes = &buffer[..read];
            while let Some(part) = images.next_part(&mut bytes) {
                if !self.send_part(part, frames) {
                    return Ok(());
                }
            }
            if read == 0 {
                if let Some(part) = images.unfinished() {
                    self.send_part(part, frames);
                }
                return Ok(());
            }
        }
    }

    /// Sends the view of a file, or counts its fault; false when the channel is closed.
    fn send_part(&self, part: StreamPart, frames: &FrameSender) -> bool {
        frames.send(NAME, part.and_then(|file| self.preprocessor.image(&file, &frames.faults)))
    }
}
