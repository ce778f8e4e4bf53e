//! An archive of frames: the sample id picks the frame of the slot.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::{FrameName, SampleId, Slot};
use headwater_samples::archive::{Archive, ArchiveOptions, Frame};
use headwater_samples::roi::Framing;
use tracing::warn;

use super::preprocess::Preprocessor;
use crate::error::DeviceError;

/// Largest number of broken frames that the log names.
const MAX_NAMED: usize = 5;

/// Frames of one slot. The sample id modulo the number of samples picks the frame, so a recording repeats with new ids.
#[derive(Clone)]
pub struct Frames {
    pub(super) archive: Arc<Archive>,
    pub(super) slot: Slot,
}

impl Frames {
    /// Reads the frames of one slot from a `.tar.gz` archive or a folder of the same layout, and converts each
    /// to a view. Broken frames are logged.
    ///
    /// # Errors
    /// [`DeviceError::Frames`] when the frames cannot be read, [`DeviceError::Unusable`] when there is no sample.
    pub fn open(
        path: &Path,
        slot: Slot,
        view: &Preprocessing,
        framing: Framing,
    ) -> Result<Self, DeviceError> {
        let shape = Some(Preprocessor::new(view, framing).shape);
        let options = ArchiveOptions { slot: Some(slot.index()), shape, framing };
        let archive = Archive::open_with(path, &options)?;
        if archive.is_empty() {
            let reason = "expected at least one sample, found none";
            return Err(DeviceError::unusable("loading the frames:", path.display(), reason));
        }
        Self::warn_of_broken(&archive);
        Ok(Self { archive: Arc::new(archive), slot })
    }

    /// Logs the broken frames of an archive.
    pub fn warn_of_broken(archive: &Archive) {
        let broken = archive.broken().count();
        for frame in archive.broken().take(MAX_NAMED) {
            let (frame, reason) = (&frame.name, &frame.reason);
            warn!(frame, reason, broken, "broken frame: its samples are not answered");
        }
    }

    /// The frames of one slot in an archive in memory; `None` when there is no sample or no such slot.
    pub fn of_archive(archive: Arc<Archive>, slot: Slot) -> Option<Self> {
        (!archive.is_empty() && slot.index() < archive.slots()).then_some(Self { archive, slot })
    }

    /// The slot's frame of a sample.
    pub fn frame(&self, sample: SampleId) -> Frame<'_> {
        // Constructors refuse an archive without samples, so the divisor is not 0.
        let index = sample.0 % self.archive.len() as u64;
        self.archive.frame(index as usize, self.slot.index())
    }

    pub(super) fn name(&self, sample: SampleId) -> FrameName {
        let index = sample.0 % self.archive.len() as u64;
        let file = self.archive.file_name(index as usize, self.slot.index());
        FrameName::new(index, file.unwrap_or_default())
    }
}
