//! Interface of every data set, and the declaration by which the catalogue lists it.

use std::fmt::Display;
use std::path::Path;

use crate::error::Mismatch;
use crate::split::Split;
use crate::{DataError, Part, SampleViews, Shape, View};

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

    /// True class of a sample.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn label(&self, part: Part, index: usize) -> u16;

    /// Writes a slot's view of a sample, CHW. Returns false and leaves `pixels` unchanged when the slot does not see the sample.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`, `slot` not below `slots()`, or `pixels` not as long as a view.
    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool;

    /// Number of a sample's group in its part, if samples of one scene or object form groups; `None` if samples are independent.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn group(&self, _part: Part, _index: usize) -> Option<u32> {
        None
    }

    /// Whether the groups are the frames of one recording, numbered in the order of time: frames near each other depend on each other.
    fn is_recording(&self) -> bool {
        false
    }

    /// Why no promise may be made on the calibration part, in words; `None` if one may be made.
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
        SampleViews { label: Some(self.label(part, index)), views: (0..self.slots()).map(view).collect() }
    }

    /// Remarks about the reading, one sentence each: samples left out, images changed.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Options for opening a data set.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Shape of the views; the data's own when `None`. Data sets of a fixed shape ignore it.
    pub shape: Option<Shape>,
    /// Number of device slots; the data's own when `None`. Data sets of a fixed number ignore it.
    pub slots: Option<usize>,
    /// Whether two parts may share an image or a group.
    pub leaks: Leaks,
    /// Whether entries or samples may be left out.
    pub omissions: Omissions,
    /// Rule that splits data into train, validation and test; [`Split::default`] when `None`. Data that is already split refuses a rule.
    pub split: Option<Split>,
    /// Number of the fold, from 0, in a data set with folds ([`DataSetInfo::folds`]); the usual parts when `None`.
    pub fold: Option<usize>,
    /// Seed of simulated views ([`DataSetInfo::has_view_seed`]): the same cameras see the same samples, with other random presence,
    /// occlusion and noise. The seed of the data set itself when `None`.
    pub view_seed: Option<u64>,
}

/// Whether two parts may share an image or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaks {
    /// Data with a leak is refused.
    #[default]
    Refused,
    /// Data with a leak is accepted, and [`DataSet::notes`] names the leak.
    Allowed,
}

/// Whether entries or samples may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Omissions {
    /// [`DataSet::notes`] counts by kind what is left out.
    #[default]
    Noted,
    /// Data of which something is left out is refused.
    Refused,
}

impl Omissions {
    /// A remark about what is left out, or an error that refuses it.
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
    /// Licence of the files.
    pub licence: &'static str,
    /// Origin of the parts.
    pub parts: PartsOrigin,
    /// Number of folds: divisions into parts besides the usual one.
    pub folds: usize,
    /// Whether the views are simulated, so that another seed gives new ones.
    pub has_view_seed: bool,
    /// Opens the files in a folder.
    pub(crate) open: OpenFunction,
}

/// Function that opens the files in a folder.
pub(crate) type OpenFunction = fn(&Path, OpenOptions) -> Result<Box<dyn DataSet>, DataError>;

/// Origin of a data set's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsOrigin {
    /// The data set always has the same parts.
    Fixed,
    /// The files name the parts, or a [`Split`] draws them.
    Files,
}
