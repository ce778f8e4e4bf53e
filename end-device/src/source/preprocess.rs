//! From the bytes of a frame to the view of the network, or to a counted fault.

use headwater_inference::manifest::Preprocessing;
use headwater_samples::roi::{self, RawFormat, Roi, RoiError};
use headwater_samples::{Shape, View};

use super::faults::FrameFault;
use crate::report::SharedReport;

/// The shape of a view, and the region of the frame that becomes the view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preprocessor {
    pub(crate) shape: Shape,
    pub(crate) roi: Option<Roi>,
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
        Self { shape: Shape { channels, height, width }, roi }
    }

    /// The view in an image file; `name` identifies the file in a fault.
    pub(crate) fn image(&self, bytes: &[u8], name: &str, faults: &SharedReport) -> Option<View> {
        counted(roi::decode(bytes, self.shape, self.roi), name, faults)
    }

    /// The view in raw pixels.
    pub(crate) fn raw(&self, pixels: Vec<u8>, raw: RawFrames, faults: &SharedReport) -> Option<View> {
        let view = roi::from_raw(pixels, raw.format, raw.size, self.shape, self.roi);
        counted(view, "standard input", faults)
    }
}

fn counted(view: Result<View, RoiError>, name: &str, faults: &SharedReport) -> Option<View> {
    let fault = match &view {
        Err(RoiError::Outside { .. }) => FrameFault::ROI_OUTSIDE,
        _ => FrameFault::BROKEN,
    };
    view.map_err(|error| faults.count_fault(fault, format_args!("{name}: {error}"))).ok()
}
