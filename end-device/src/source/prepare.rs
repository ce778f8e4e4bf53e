//! From a frame's bytes to the view of the network, or to a counted fault.

use headwater_inference::manifest::Preprocessing;
use headwater_samples::roi::{self, RawFormat, Roi, RoiError};
use headwater_samples::{Shape, View};

use super::faults::{Faults, FrameFault};

/// The shape of a view and the region it is cut from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepare {
    pub(crate) shape: Shape,
    pub(crate) roi: Option<Roi>,
}

impl Prepare {
    pub(crate) fn new(view: &Preprocessing, roi: Option<Roi>) -> Self {
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        Self { shape: Shape { channels, height, width }, roi }
    }

    /// The view in an image file; `name` says which in a fault.
    pub(crate) fn image(&self, bytes: &[u8], name: &str, faults: &Faults) -> Option<View> {
        counted(roi::decode(bytes, self.shape, self.roi), name, faults)
    }

    /// The view in raw pixels of this size.
    pub(crate) fn raw(
        &self,
        pixels: Vec<u8>,
        format: RawFormat,
        size: [u32; 2],
        faults: &Faults,
    ) -> Option<View> {
        counted(roi::from_raw(pixels, format, size, self.shape, self.roi), "standard input", faults)
    }
}

fn counted(view: Result<View, RoiError>, name: &str, faults: &Faults) -> Option<View> {
    let error = match view {
        Ok(view) => return Some(view),
        Err(error) => error,
    };
    let fault = match error {
        RoiError::Outside { .. } => FrameFault::RoiOutside,
        _ => FrameFault::Broken,
    };
    faults.count(fault, format_args!("{name}: {error}"));
    None
}
