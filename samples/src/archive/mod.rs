//! Frames of many samples in one `.tar.gz`, or in a folder of the same layout:
//!
//! ```text
//! labels.json            labels, slots, shape of a view, class of each sample (`Labels`)
//! 00000/cam0.webp        sample 0 as slot 0 sees it; .webp, .png, .jpg or .jpeg
//! 00000/cam2.webp        no cam1: not in view of slot 1
//! 00001/cam0.webp
//! ```
//! Read in any order, whole or one slot alone, within [`ArchiveLimits`]. A broken frame does not spoil the
//! archive: it is kept as [`Frame::Broken`], named, and the caller skips it or stops.

mod collect;
mod error;
mod folder;
mod labels;
mod member;
mod recorded;
mod tar_gz;
mod writer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use collect::{Collector, Stored};
use member::Place;

pub use error::ArchiveError;
pub use labels::Labels;
pub use recorded::recorded;
pub use writer::{ArchiveWriter, FrameFormat};

use crate::roi::{self, Roi, RoiError};
use crate::{SampleViews, Shape, View};

/// Bounds of what is read. What exceeds them is an error, but a frame beyond `member_bytes` is a broken one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Most files.
    pub members: usize,
    /// Largest file, in bytes.
    pub member_bytes: u64,
    /// Largest archive, inflated, in bytes.
    pub total_bytes: u64,
}

impl Default for ArchiveLimits {
    /// 200,000 files of up to 4 MiB, 256 MiB in all.
    fn default() -> Self {
        Self { members: 200_000, member_bytes: 4 << 20, total_bytes: 256 << 20 }
    }
}

/// When frames become views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decode {
    /// All when the archive is opened: they are at hand, and broken ones known. Memory: the bytes of all
    /// views.
    #[default]
    AtOpen,
    /// Each time one is asked for. Memory: the bytes of the files.
    WhenAsked,
}

/// How to open an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveOptions {
    /// Only the frames of this slot; `None`: of all.
    pub slot: Option<usize>,
    /// When frames become views.
    pub decode: Decode,
    /// Shape of the views; `None`: the one in `labels.json`.
    pub shape: Option<Shape>,
    /// The part of each frame that is cut out before it is resized; `None`: all of it.
    pub roi: Option<Roi>,
    /// Bounds.
    pub limits: ArchiveLimits,
}

/// One place of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// There is a frame: the archive's own where it is kept as pixels.
    View(Cow<'a, View>),
    /// There is none: the slot did not see the sample.
    NotInView,
    /// There is one that cannot be used.
    Broken {
        /// Its name in the archive.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A frame that cannot be used, as an error, for those who stop at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {name}: {reason}")]
pub struct BrokenFrame {
    /// Its name in the archive.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Frames in memory, for random access.
pub struct Archive {
    labels: Labels,
    shape: Shape,
    slot: Option<usize>,
    roi: Option<Roi>,
    frames: BTreeMap<Place, Cell>,
}

/// A frame in memory; what is not there is not in view.
enum Cell {
    View(View),
    File { name: String, bytes: Vec<u8> },
    Broken(BrokenFrame),
}

impl Archive {
    /// Opens an archive or folder, all slots, decoded.
    ///
    /// # Errors
    /// [`ArchiveError`], never for a broken frame.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        Self::open_with(path, &ArchiveOptions::default())
    }

    /// Opens the frames of one slot, decoded; the others are never in memory.
    ///
    /// # Errors
    /// [`ArchiveError`], never for a broken frame.
    pub fn open_slot(path: &Path, slot: usize) -> Result<Self, ArchiveError> {
        Self::open_with(path, &ArchiveOptions { slot: Some(slot), ..ArchiveOptions::default() })
    }

    /// Opens an archive or folder.
    ///
    /// # Errors
    /// [`ArchiveError`], never for a broken frame.
    pub fn open_with(path: &Path, options: &ArchiveOptions) -> Result<Self, ArchiveError> {
        let mut members = Collector::new(path, options);
        if path.is_dir() {
            folder::read(path, &mut members)?;
        } else {
            let file = File::open(path).map_err(|source| ArchiveError::Io { path: path.into(), source })?;
            tar_gz::read(file, options.limits.total_bytes, &mut members)?;
        }
        Self::collected(members, options)
    }

    /// Reads a `.tar.gz` from memory, such as one that a program carries; `name` stands for the path in errors.
    ///
    /// # Errors
    /// [`ArchiveError`], never for a broken frame.
    pub fn read(file: &[u8], name: &str, options: &ArchiveOptions) -> Result<Self, ArchiveError> {
        let mut members = Collector::new(Path::new(name), options);
        tar_gz::read(file, options.limits.total_bytes, &mut members)?;
        Self::collected(members, options)
    }

    fn collected(members: Collector<'_>, options: &ArchiveOptions) -> Result<Self, ArchiveError> {
        let path = members.path();
        let (labels, stored) = members.finish()?;
        let shape = options.shape.unwrap_or(labels.shape());
        let mut frames = BTreeMap::new();
        for (place, stored) in stored {
            let name = stored.name.clone();
            // A region outside the frame is a mistake of the caller's, not a broken frame.
            let cell = Cell::new(stored, shape, options).map_err(|error| ArchiveError::Member {
                path: path.into(),
                name,
                reason: error.to_string(),
            })?;
            frames.insert(place, cell);
        }
        Ok(Self { frames, labels, shape, slot: options.slot, roi: options.roi })
    }

    /// Content of `labels.json`.
    #[must_use]
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Shape of every view.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Number of slots, also of those that were not loaded.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.labels.slots
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.classes.len()
    }

    /// True without samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Class of a sample, where known.
    ///
    /// # Panics
    /// When `sample` is not below `len()`.
    #[must_use]
    pub fn class(&self, sample: usize) -> Option<u16> {
        self.labels.classes[sample]
    }

    /// What a slot sees of a sample.
    ///
    /// # Panics
    /// When `sample` is not below `len()`, or `slot` is not below `slots()` or was not loaded.
    #[must_use]
    pub fn frame(&self, sample: usize, slot: usize) -> Frame<'_> {
        assert!(
            sample < self.len() && slot < self.slots(),
            "{} of {}x{}",
            Place { sample, slot },
            self.len(),
            self.slots()
        );
        assert!(
            self.slot.is_none_or(|loaded| loaded == slot),
            "slot {slot} of an archive opened for another"
        );
        match self.frames.get(&Place { sample, slot }) {
            None => Frame::NotInView,
            Some(cell) => cell.frame(self.shape, self.roi),
        }
    }

    /// A sample as all slots see it.
    ///
    /// # Errors
    /// [`BrokenFrame`], the first of the sample.
    ///
    /// # Panics
    /// When `sample` is not below `len()`, or the archive was opened for one slot.
    pub fn sample(&self, sample: usize) -> Result<SampleViews, BrokenFrame> {
        let views = (0..self.slots()).map(|slot| match self.frame(sample, slot) {
            Frame::View(view) => Ok(Some(view.into_owned())),
            Frame::NotInView => Ok(None),
            Frame::Broken { name, reason } => Err(BrokenFrame { name, reason }),
        });
        Ok(SampleViews { views: views.collect::<Result<_, _>>()?, label: self.class(sample) })
    }

    /// Frames known to be broken: all of them with [`Decode::AtOpen`], else only those that could not be
    /// read.
    pub fn broken(&self) -> impl Iterator<Item = &BrokenFrame> {
        self.frames.values().filter_map(|cell| match cell {
            Cell::Broken(broken) => Some(broken),
            Cell::View(_) | Cell::File { .. } => None,
        })
    }
}

impl Cell {
    fn new(stored: Stored, shape: Shape, options: &ArchiveOptions) -> Result<Self, RoiError> {
        let Stored { name, file } = stored;
        Ok(match (file, options.decode) {
            (Err(reason), _) => Self::Broken(BrokenFrame { name, reason }),
            (Ok(bytes), Decode::WhenAsked) => Self::File { name, bytes },
            (Ok(bytes), Decode::AtOpen) => match roi::decode(&bytes, shape, options.roi) {
                Ok(view) => Self::View(view),
                Err(error @ RoiError::Outside { .. }) => return Err(error),
                Err(error) => Self::Broken(BrokenFrame { name, reason: error.to_string() }),
            },
        })
    }

    fn frame(&self, shape: Shape, roi: Option<Roi>) -> Frame<'_> {
        match self {
            Self::View(view) => Frame::View(Cow::Borrowed(view)),
            Self::Broken(BrokenFrame { name, reason }) => {
                Frame::Broken { name: name.clone(), reason: reason.clone() }
            }
            Self::File { name, bytes } => match roi::decode(bytes, shape, roi) {
                Ok(view) => Frame::View(Cow::Owned(view)),
                Err(error) => Frame::Broken { name: name.clone(), reason: error.to_string() },
            },
        }
    }
}

#[cfg(test)]
mod tests;
