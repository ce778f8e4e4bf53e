//! An archive of frames: the sample id picks the frame of the slot.

use std::path::Path;
use std::sync::Arc;

use headwater_inference::manifest::Preprocessing;
use headwater_protocol::{SampleId, Slot};
use headwater_samples::archive::{Archive, ArchiveOptions, BrokenFrame, Frame};
use headwater_samples::roi::Roi;

use super::prepare::Prepare;
use crate::error::DeviceError;

/// Frames of one slot. The sample id modulo the number of samples picks one, so a recording repeats with new ids.
#[derive(Clone)]
pub struct Frames {
    archive: Arc<Archive>,
    slot: Slot,
}

impl Frames {
    /// Reads the frames of one slot from a `.tar.gz` archive or a folder of the same layout, in the shape the network takes.
    ///
    /// # Errors
    /// [`DeviceError::Frames`] when they cannot be read, [`DeviceError::NoFrames`] when there is no sample.
    pub fn open(path: &Path, slot: Slot, view: &Preprocessing) -> Result<Self, DeviceError> {
        Self::open_cut(path, slot, view, None)
    }

    /// As [`Frames::open`], with the region of interest cut out of each frame.
    pub(crate) fn open_cut(
        path: &Path,
        slot: Slot,
        view: &Preprocessing,
        roi: Option<Roi>,
    ) -> Result<Self, DeviceError> {
        let shape = Some(Prepare::new(view, roi).shape);
        let options = ArchiveOptions { slot: Some(slot.index()), shape, roi, ..ArchiveOptions::default() };
        let archive = Archive::open_with(path, &options)?;
        if archive.is_empty() {
            return Err(DeviceError::NoFrames(path.to_owned()));
        }
        Ok(Self { archive: Arc::new(archive), slot })
    }

    /// One slot's share of frames that are in memory already; `None` when there is no sample or no such slot.
    pub fn of_archive(archive: Arc<Archive>, slot: Slot) -> Option<Self> {
        (!archive.is_empty() && slot.index() < archive.slots()).then_some(Self { archive, slot })
    }

    /// The slot they belong to.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Bytes of a view.
    pub fn view_bytes(&self) -> usize {
        self.archive.shape().bytes()
    }

    /// What the slot sees of a sample.
    pub fn frame(&self, sample: SampleId) -> Frame<'_> {
        // Constructors refuse an archive without samples, and lengths fit 64 bits.
        let index = sample.0 % self.archive.len() as u64;
        self.archive.frame(index as usize, self.slot.index())
    }

    /// Broken frames among them, with their number.
    pub(crate) fn broken(&self) -> (Vec<&BrokenFrame>, usize) {
        const NAMED: usize = 5;
        // An archive of all slots holds the others' too: the name tells whose a frame is.
        let mine = format!("cam{}.", self.slot);
        let broken = || {
            self.archive
                .broken()
                .filter(|frame| frame.name.rsplit('/').next().is_some_and(|name| name.starts_with(&mine)))
        };
        (broken().take(NAMED).collect(), broken().count())
    }
}
