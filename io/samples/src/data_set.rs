//! Interface of every data set, and the declaration by which the catalogue lists it.

use std::fmt::Display;
use std::path::Path;

use crate::error::Mismatch;
use crate::roi::{Fit, Framing, Roi};
use crate::split::Split;
use crate::{DataError, Part, SampleViews, Shape, View};

/// Label of a sample that shows none of the classes. Such a sample teaches the network not to claim a class.
pub const NO_CLASS: u16 = u16::MAX;

/// Name that stands for a class in folders and tables, and says that a sample has [`NO_CLASS`].
pub const NONE_NAME: &str = "_none";

/// Labelled samples in three parts, or in four with a calibration part, seen by one slot or several.
///
/// A view depends on its part, index and slot only, never on earlier calls.
pub trait DataSet: Send + Sync {
    /// Class names. A label is an index into this list.
    fn labels(&self) -> Vec<String>;

    /// Number of device slots.
    fn slots(&self) -> usize;

    /// Shape of every view.
    fn shape(&self) -> Shape;

    /// Number of samples in a part.
    fn len(&self, part: Part) -> usize;

    /// True class of a sample; [`NO_CLASS`] for a sample that shows none of the classes.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn label(&self, part: Part, index: usize) -> u16;

    /// Writes a slot's view of a sample, CHW. Returns false and leaves `pixels` unchanged when the slot does not see the sample.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`, `slot` not below `slots()`, or `pixels` not as long as a view.
    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool;

    /// Returns true if a slot sees a sample, in a data set that keeps its views in memory or in a file; `None` if views are computed at each call.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`, or `slot` not below `slots()`.
    fn kept_in_view(&self, _part: Part, _index: usize, _slot: usize) -> Option<bool> {
        None
    }

    /// Reason why a view could not be read from its file, in words; such a view is black. `None` if every view so far was read.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Number of a sample's group in its part, if samples of one scene or object form groups; `None` if samples are independent.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn group(&self, _part: Part, _index: usize) -> Option<u32> {
        None
    }

    /// File from which a slot's view of a sample came, relative to the folder or archive of the data; `None` for views without a file of their own.
    fn file_name(&self, _part: Part, _index: usize, _slot: usize) -> Option<String> {
        None
    }

    /// Returns true if the groups are the frames of one recording, numbered in the order of time: frames near each other depend on each other.
    fn is_recording(&self) -> bool {
        false
    }

    /// Reason why no promise may be made on the calibration part, in words; `None` if a promise may be made.
    fn promise_obstacle(&self) -> Option<String> {
        None
    }

    /// Views of all slots of a sample.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn sample(&self, part: Part, index: usize) -> SampleViews {
        let shape = self.shape();
        let view = |slot| {
            let mut pixels = vec![0; shape.bytes()];
            self.view_into(part, index, slot, &mut pixels).then(|| View::new(shape, pixels))
        };
        let label = Some(self.label(part, index)).filter(|label| *label != NO_CLASS);
        SampleViews { label, views: (0..self.slots()).map(view).collect() }
    }

    /// Remarks about the reading, one sentence each: samples left out, images changed.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Options for opening a data set.
#[derive(Clone, Copy, Default)]
pub struct OpenOptions<'a> {
    /// Shape of the views; the data's own when `None`. Data sets of a fixed shape ignore this option.
    pub shape: Option<Shape>,
    /// Number of device slots; the data's own when `None`. Data sets of a fixed number ignore this option.
    pub slots: Option<usize>,
    /// Conversion of images to views. Data sets with fixed parts accept only the default: whole images that are stretched.
    pub framings: Framings<'a>,
    /// Rule for an image or a group that two parts share.
    pub leaks: Leaks,
    /// Rule for entries or samples that are left out.
    pub omissions: Omissions,
    /// Rule that splits data into train, validation and test; [`Split::default`] when `None`. Data that is already split refuses a rule.
    pub split: Option<Split>,
    /// Number of the fold, from 0; the usual parts when `None`. A data set has [`DataSetInfo::folds`] folds; data without parts has
    /// as many as `folds` says.
    pub fold: Option<usize>,
    /// Number of folds that are drawn for data without parts, at least 3; data sets with folds of their own ignore it.
    pub folds: Option<usize>,
    /// Seed of simulated views ([`DataSetInfo::has_view_seed`]): the same cameras see the same samples, with other random presence,
    /// occlusion and noise. The seed of the data set itself when `None`.
    pub view_seed: Option<u64>,
    /// Place of the decoded views of image files, and the threads that decode.
    pub preparation: Preparation<'a>,
}

/// Conversion of images to the views of all slots; by default whole images are stretched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Framings<'a> {
    /// For each slot, the region of its images; empty for whole images. Where a sample is one image, each slot sees its region of that image.
    pub regions: &'a [Roi],
    /// Region and fit of an image in the view.
    pub fit: Fit,
}

impl Framings<'_> {
    /// Conversion of an image to the view of a slot.
    pub(crate) fn of(self, slot: usize) -> Framing {
        Framing { roi: self.regions.get(slot).copied(), fit: self.fit }
    }

    /// Refuses all but whole images that are stretched, for a data set that has views of its own.
    ///
    /// # Errors
    /// [`DataError::Options`] with what was found.
    pub fn check_default(self, name: &str) -> Result<(), DataError> {
        if self == Self::default() {
            return Ok(());
        }
        let expected =
            "a network without `device.regions` and `device.fit`, since the data set has views of its own";
        let found = format!("{} regions and fit \"{}\"", self.regions.len(), self.fit);
        Err(Mismatch::new(expected, found).options(format!("data set {name}")))
    }
}

/// Place of the decoded views of image files, and the threads that decode; by default memory, and one thread.
#[derive(Clone, Copy, Default)]
pub struct Preparation<'a> {
    /// Folder for files of views; `None` keeps all views in memory.
    pub folder: Option<&'a Path>,
    /// Most bytes of views in memory. Views with more bytes are kept in a file if `folder` is set.
    pub memory_bytes: u64,
    /// Number of threads; 0 counts as 1.
    pub threads: usize,
    /// Receives the events of the preparation.
    pub notify: Option<&'a dyn Fn(PreparationEvent<'_>)>,
}

/// An event while views are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparationEvent<'a> {
    /// Views are computed.
    Progress {
        /// Number of images that are done.
        done: usize,
        /// Number of all images.
        of: usize,
    },
    /// A file of views was made, is damaged, or is made by another command; a sentence that names the file.
    Line(&'a str),
}

impl Preparation<'_> {
    pub(crate) fn tell(&self, event: PreparationEvent<'_>) {
        if let Some(notify) = self.notify {
            notify(event);
        }
    }
}

/// Rule for an image or a group that two parts share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaks {
    /// Data with a leak is refused.
    #[default]
    Refused,
    /// Data with a leak is accepted, and [`DataSet::notes`] names the leak.
    Allowed,
}

/// Rule for entries or samples that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omissions {
    /// [`DataSet::notes`] counts by kind what is left out.
    #[default]
    Noted,
    /// Data of which something is left out is refused.
    Refused,
}

impl Omissions {
    /// Returns the remark about what is left out, or an error if nothing may be left out.
    pub(crate) fn note(self, at: impl Display, note: String) -> Result<String, DataError> {
        match self {
            Self::Noted => Ok(note),
            Self::Refused => Err(Mismatch::new("nothing to be left out (--strict)", note).invalid(at)),
        }
    }
}

/// Declaration of a data set that opens by name.
#[derive(Clone, Copy, Debug)]
pub struct DataSetInfo {
    /// Name in commands.
    pub name: &'static str,
    /// Samples and views, in a few words.
    pub content: &'static str,
    /// Files that the folder must hold.
    pub files: &'static str,
    /// Files by which the data set is recognised in a folder, each plain, `.gz` or `.bz2`; none for folders of images.
    pub marks: &'static [&'static str],
    /// Licence of the files.
    pub licence: &'static str,
    /// Origin of the parts.
    pub parts: PartsOrigin,
    /// Number of folds: divisions into parts besides the usual one.
    pub folds: usize,
    /// True when the views are simulated, so that another seed gives other views.
    pub has_view_seed: bool,
    /// Opens the files in a folder.
    pub(crate) open: OpenFunction,
}

/// Function that opens the files in a folder.
pub(crate) type OpenFunction = fn(&Path, OpenOptions<'_>) -> Result<Box<dyn DataSet>, DataError>;

/// Origin of a data set's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsOrigin {
    /// The data set always has the same parts.
    Fixed,
    /// The files name the parts, or a [`Split`] draws them.
    Files,
}
