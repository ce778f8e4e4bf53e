//! Frames on a pipe: raw pixels, or JPEG and PNG files one after the other.

use std::io::{ErrorKind, Read};

use headwater_samples::roi::{RawFormat, RoiError};

use super::config::{MAX_FRAME_BYTES, StdinFormat};
use super::faults::FrameFault;
use super::images::{Images, Piece};
use super::outlet::{Outlet, Producer};
use super::prepare::Prepare;
use crate::error::DeviceError;

/// How the pipe is called in faults.
const NAME: &str = "standard input";

/// Reads frames from a pipe until it ends.
pub(crate) struct Stdin<R> {
    input: R,
    format: Format,
    prepare: Prepare,
}

#[derive(Clone, Copy)]
enum Format {
    Raw { format: RawFormat, size: [u32; 2] },
    Files,
}

impl<R: Read + Send> Stdin<R> {
    /// The size of raw frames is that of the view where none is named; the region of interest must be in it.
    pub(crate) fn open(
        input: R,
        format: StdinFormat,
        size: Option<[u32; 2]>,
        prepare: Prepare,
    ) -> Result<Self, DeviceError> {
        let format = match format {
            StdinFormat::Mjpeg => Format::Files,
            StdinFormat::Raw(format) => {
                let size = size.unwrap_or([prepare.shape.width as u32, prepare.shape.height as u32]);
                let outside =
                    |error: RoiError| DeviceError::Source { what: NAME.into(), reason: error.to_string() };
                prepare.roi.map_or(Ok([0; 4]), |roi| roi.within(size[0], size[1])).map_err(outside)?;
                Format::Raw { format, size }
            }
        };
        Ok(Self { input, format, prepare })
    }
}

impl<R: Read + Send> Producer for Stdin<R> {
    fn run(self: Box<Self>, outlet: &Outlet) -> Result<(), String> {
        let Self { input, format, prepare } = *self;
        let ended = match format {
            Format::Raw { format, size } => raw(input, format, size, prepare, outlet),
            Format::Files => files(input, prepare, outlet),
        };
        ended.map_err(|error| format!("{NAME}: {error}"))
    }
}

fn raw(
    mut input: impl Read,
    format: RawFormat,
    size: [u32; 2],
    prepare: Prepare,
    outlet: &Outlet,
) -> std::io::Result<()> {
    let expected = format.bytes(size[0], size[1]);
    loop {
        let mut frame = vec![0; expected];
        let found = read_full(&mut input, &mut frame)?;
        if found == 0 {
            return Ok(());
        }
        if found < expected {
            let what = format_args!("{NAME}: the last frame has {found} of {expected} bytes");
            outlet.faults.count(FrameFault::Cut, what);
            return Ok(());
        }
        let view = prepare.raw(frame, format, size, &outlet.faults);
        if view.is_some_and(|view| !outlet.give(view)) {
            return Ok(());
        }
    }
}

fn files(input: impl Read, prepare: Prepare, outlet: &Outlet) -> std::io::Result<()> {
    let mut images = Images::new(input, MAX_FRAME_BYTES);
    while let Some(piece) = images.next_piece()? {
        let (fault, bytes) = match piece {
            Piece::Image(file) => {
                let view = prepare.image(&file, NAME, &outlet.faults);
                if view.is_some_and(|view| !outlet.give(view)) {
                    return Ok(());
                }
                continue;
            }
            Piece::Oversize { bytes } => (FrameFault::Oversize, bytes),
            Piece::Stray { bytes } => (FrameFault::Stray, bytes),
            Piece::Cut { bytes } => (FrameFault::Cut, bytes),
        };
        outlet.faults.count(fault, format_args!("{NAME}: {bytes} bytes"));
    }
    Ok(())
}

/// Fills the buffer as far as the input goes.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
