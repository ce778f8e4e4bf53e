//! Archive: frames of many samples in one `.tar.gz`, or in a folder of the same layout.
//!
//! ```text
//! labels.json            labels, slots, shape of a view, class of each sample (`Labels`)
//! 00000/cam0.webp        sample 0 as slot 0 sees it; .webp, .png, .jpg or .jpeg
//! 00000/cam2.webp        no cam1: slot 1 does not see the sample
//! 00001/cam0.webp
//! ```
//! Members are read in any order, for all slots or for one. An archive has at most 200,000 files of up to 32 MiB each, and a `.tar.gz` at
//! most 256 MiB in all when inflated. A frame that cannot be used, such as one that is too long, is kept as [`Frame::Broken`]; the others
//! stay usable.

mod collect;
mod labels;
mod read;
mod recorded;
#[cfg(test)]
mod tests;
mod writer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

pub use labels::Labels;
pub use recorded::recorded;
pub use writer::{ArchiveWriter, FrameFormat};

use collect::{Collector, FrameFile, FrameId};

use crate::error::Mismatch;
use crate::roi::{self, Framing, RoiError};
use crate::{DataError, Shape, View};

/// Frames in memory, for random access.
pub struct Archive {
    /// Content of `labels.json`.
    pub labels: Labels,
    /// Shape of every view.
    pub shape: Shape,
    slot: Option<usize>,
    /// A missing entry is a frame that is not in view.
    frames: BTreeMap<FrameId, Result<View, BrokenFrame>>,
    /// Name of each frame's file in the archive.
    names: BTreeMap<FrameId, String>,
}

/// Options for opening an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Loads the frames of this slot only; `None` loads all.
    pub slot: Option<usize>,
    /// Shape of the views; `None` takes the shape in `labels.json`.
    pub shape: Option<Shape>,
    /// Region of each frame and its fit; by default the whole frame is stretched.
    pub framing: Framing,
}

/// View of one slot of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The slot sees the sample. The pixels that [`Archive::frame`] returns are borrowed.
    View(Cow<'a, View>),
    /// The slot does not see the sample.
    NotInView,
    /// The frame cannot be used.
    Broken(BrokenFrame),
}

/// A broken frame, also as an error for callers that refuse an archive with broken frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {name}: {reason}")]
pub struct BrokenFrame {
    /// Name in the archive.
    pub name: String,
    /// Reason why the frame cannot be used.
    pub reason: String,
}

impl Archive {
    /// Opens an archive or folder with all slots, and decodes the frames.
    ///
    /// # Errors
    /// [`DataError`]; a broken frame is no error.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        Self::open_with(path, &ArchiveOptions::default())
    }

    /// Opens an archive or folder.
    ///
    /// # Errors
    /// [`DataError`]; a broken frame is no error.
    pub fn open_with(path: &Path, options: &ArchiveOptions) -> Result<Self, DataError> {
        let mut members = Collector::new(path, options);
        if path.is_dir() {
            read::folder(path, &mut members)?;
        } else {
            let file = File::open(path).map_err(DataError::read(members.at()))?;
            read::tar_gz(file, &mut members)?;
        }
        Self::collected(members, options)
    }

    /// Reads a `.tar.gz` from memory; `name` replaces the path in errors.
    ///
    /// # Errors
    /// [`DataError`]; a broken frame is no error.
    pub fn read(file: &[u8], name: &str, options: &ArchiveOptions) -> Result<Self, DataError> {
        let mut members = Collector::new(Path::new(name), options);
        read::tar_gz(file, &mut members)?;
        Self::collected(members, options)
    }

    fn collected(members: Collector<'_>, options: &ArchiveOptions) -> Result<Self, DataError> {
        let at = members.at();
        let (labels, files) = members.finish()?;
        let shape = options.shape.unwrap_or(labels.shape());
        let (mut frames, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (id, FrameFile { name, content }) in files {
            let decoded = match content.map(|bytes| roi::decode(&bytes, shape, options.framing)) {
                // The region is the caller's mistake, and the frame is not broken.
                Ok(Err(error @ RoiError::Region(_))) => {
                    let mismatch = Mismatch::new("a region within every frame", error.to_string());
                    return Err(mismatch.options(format!("{at}: {name}")));
                }
                Ok(decoded) => decoded.map_err(|error| error.to_string()),
                Err(reason) => Err(reason),
            };
            frames.insert(id, decoded.map_err(|reason| BrokenFrame { name: name.clone(), reason }));
            names.insert(id, name);
        }
        Ok(Self { frames, names, labels, shape, slot: options.slot })
    }

    /// Number of slots, loaded or not.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.labels.slots
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.classes.len()
    }

    /// Returns true if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frame of a slot and sample.
    ///
    /// # Panics
    /// When `sample` is not below `len()`, or `slot` is not below `slots()` or was not loaded.
    #[must_use]
    pub fn frame(&self, sample: usize, slot: usize) -> Frame<'_> {
        let id = FrameId { sample, slot };
        let (samples, slots) = (self.len(), self.slots());
        assert!(sample < samples && slot < slots, "{id} of {samples} samples and {slots} slots");
        assert!(self.slot.is_none_or(|loaded| loaded == slot), "slot {slot} is not loaded");
        match self.frames.get(&id) {
            None => Frame::NotInView,
            Some(Ok(view)) => Frame::View(Cow::Borrowed(view)),
            Some(Err(broken)) => Frame::Broken(broken.clone()),
        }
    }

    /// Name of the file of a frame in the archive, such as `00000/cam0.webp`; `None` for a frame that is not in view or not loaded.
    #[must_use]
    pub fn file_name(&self, sample: usize, slot: usize) -> Option<&str> {
        self.names.get(&FrameId { sample, slot }).map(|name| name.trim_start_matches("./"))
    }

    /// Broken frames.
    pub fn broken(&self) -> impl Iterator<Item = &BrokenFrame> {
        self.frames.values().filter_map(|frame| frame.as_ref().err())
    }
}
