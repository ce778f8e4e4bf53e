//! Frames of raw pixels in a stream.

use std::io::{self, Read};

use headwater_samples::image_codec::MAX_PIXELS;

use super::preprocess::RawFrames;

/// Reason for which no further frame of a stream can be read.
#[derive(Debug, PartialEq)]
pub(super) enum StreamFault {
    /// The stream ends within a frame.
    Cut(String),
    /// The stream cannot be read. The text says what was expected and found.
    Unusable(String),
}

/// The next frame of a stream with its format; `None` at the end of the stream.
pub(super) type NextFrame = Result<Option<(Vec<u8>, RawFrames)>, StreamFault>;

impl From<io::Error> for StreamFault {
    fn from(error: io::Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// Reads a frame of `expected` bytes; `None` at the end of the stream.
pub(super) fn read_block(input: &mut impl Read, expected: usize) -> Result<Option<Vec<u8>>, StreamFault> {
    let mut bytes = Vec::with_capacity(expected);
    match input.by_ref().take(expected as u64).read_to_end(&mut bytes)? {
        0 => Ok(None),
        found if found < expected => {
            Err(StreamFault::Cut(format!("the last frame has {found} of {expected} bytes")))
        }
        _ => Ok(Some(bytes)),
    }
}

/// Checks the size of a frame before memory for the frame is allocated.
pub(super) fn check_size([width, height]: [u32; 2]) -> Result<(), StreamFault> {
    if (1..=MAX_PIXELS).contains(&(u64::from(width) * u64::from(height))) {
        return Ok(());
    }
    Err(StreamFault::Unusable(format!(
        "expected frames of 1 to {MAX_PIXELS} pixels, found {width}x{height}: scale them down (-vf scale=640:-2)"
    )))
}
