//! From the bytes of a frame to the view of the network, or to a counted fault.

use headwater_inference::manifest::Preprocessing;
use headwater_samples::image_codec::CodecError;
use headwater_samples::roi::{self, RawFormat, Roi, RoiError};
use headwater_samples::{Shape, View};

use super::camera_check::{CameraCheck, hash_of};
use super::faults::FrameFault;
use crate::report::SharedReport;

/// The shape of a view, and the region of the frame that becomes the view.
#[derive(Clone, Debug)]
pub(crate) struct Preprocessor {
    pub(crate) shape: Shape,
    pub(crate) roi: Option<Roi>,
    /// Check of a camera; `None` for a recording.
    pub(crate) camera: Option<CameraCheck>,
}

/// Format and size of raw frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFrames {
    pub(crate) format: RawFormat,
    /// Width and height in pixels.
    pub(crate) size: [u32; 2],
}

impl Preprocessor {
    pub(crate) fn new(view: &Preprocessing, roi: Option<Roi>) -> Self {
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        Self { shape: Shape { channels, height, width }, roi, camera: None }
    }

    /// The view in an image file; `name` identifies the file in a fault.
    pub(crate) fn image(&self, bytes: &[u8], name: &str, faults: &SharedReport) -> Option<View> {
        let frame = self.hash_of(bytes);
        self.checked(frame, counted(roi::decode(bytes, self.shape, self.roi), name, faults)?, faults)
    }

    /// The view in raw pixels.
    pub(crate) fn raw(&self, pixels: Vec<u8>, raw: RawFrames, faults: &SharedReport) -> Option<View> {
        let frame = self.hash_of(&pixels);
        let view = roi::from_raw(pixels, raw.format, raw.size, self.shape, self.roi);
        self.checked(frame, counted(view, "standard input", faults)?, faults)
    }

    fn hash_of(&self, frame: &[u8]) -> u64 {
        self.camera.as_ref().map_or(0, |_| hash_of(frame))
    }

    fn checked(&self, frame: u64, view: View, faults: &SharedReport) -> Option<View> {
        match &self.camera {
            Some(camera) => camera.pass(frame, view, faults),
            None => Some(view),
        }
    }
}

fn counted(view: Result<View, RoiError>, name: &str, faults: &SharedReport) -> Option<View> {
    let fault = match &view {
        Err(RoiError::Outside { .. }) => FrameFault::ROI_OUTSIDE,
        Err(RoiError::Codec(CodecError::Cut { .. })) => FrameFault::CUT,
        Err(RoiError::Codec(CodecError::Oversize { .. })) => FrameFault::OVERSIZE,
        _ => FrameFault::BROKEN,
    };
    view.map_err(|error| faults.count_fault(fault, format_args!("{name}: {error}"))).ok()
}
