//! From the bytes of a frame to the view of the network, or to a fault.

use headwater_inference::manifest::Preprocessing;
use headwater_samples::image_codec::CodecError;
use headwater_samples::roi::{self, RawFormat, Roi, RoiError};
use headwater_samples::{Shape, View};

use super::camera_check::{CameraCheck, hash_of};
use super::faults::{FrameFault, Missing};
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

    /// The view in an image file.
    pub(crate) fn image(&self, bytes: &[u8], report: &SharedReport) -> Result<View, Missing> {
        self.checked(roi::decode(bytes, self.shape, self.roi), self.hash_of(bytes), report)
    }

    /// The view in raw pixels.
    pub(crate) fn raw(
        &self,
        pixels: Vec<u8>,
        raw: RawFrames,
        report: &SharedReport,
    ) -> Result<View, Missing> {
        let hash = self.hash_of(&pixels);
        self.checked(roi::from_raw(pixels, raw.format, raw.size, self.shape, self.roi), hash, report)
    }

    fn hash_of(&self, frame: &[u8]) -> u64 {
        self.camera.as_ref().map_or(0, |_| hash_of(frame))
    }

    /// Names the fault of a frame without a view, and refuses the view of a camera that is frozen, dark or covered.
    fn checked(
        &self,
        view: Result<View, RoiError>,
        frame: u64,
        report: &SharedReport,
    ) -> Result<View, Missing> {
        let view = view.map_err(|error| {
            let fault = match &error {
                RoiError::Outside { .. } => FrameFault::ROI_OUTSIDE,
                RoiError::Codec(CodecError::Cut { .. }) => FrameFault::CUT,
                RoiError::Codec(CodecError::Oversize { .. }) => FrameFault::OVERSIZE,
                _ => FrameFault::BROKEN,
            };
            (fault, error.to_string())
        })?;
        match &self.camera {
            Some(camera) => camera.pass(frame, view, report),
            None => Ok(view),
        }
    }
}
