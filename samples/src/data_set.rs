//! What training asks of a data set: labelled samples in three parts, seen by one slot or several.

use std::path::Path;

use crate::Shape;
use crate::cifar::{self, CifarError};
use crate::eth80::{self, Eth80Error};
use crate::fashion_6cam::Fashion6Cam;
use crate::mnist::{Mnist, MnistError};
use crate::mvmc::{self, MvmcError};
use crate::split::Split;
use crate::table::{self, TableError};
use crate::tree::{self, TreeError};

/// The part of the data a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// For weights.
    Train,
    /// For choices and thresholds.
    Validation,
    /// For reports only.
    Test,
}

impl Part {
    /// The parts in their order.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// What a part is called in paths and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "val",
            Self::Test => "test",
        }
    }

    /// The part of that name; `validation` is one for `val`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "validation" { Self::Validation.name() } else { name };
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}

/// Labelled samples. Views are made when asked for, the same ones whatever was asked before.
pub trait DataSet: Send + Sync {
    /// Class names; labels are indices into them.
    fn labels(&self) -> Vec<String>;

    /// Device slots.
    fn slots(&self) -> usize;

    /// Shape of every view.
    fn shape(&self) -> Shape;

    /// Samples in a part.
    fn len(&self, part: Part) -> usize;

    /// True class of a sample.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`.
    fn label(&self, part: Part, index: usize) -> u16;

    /// Writes what a slot sees of a sample, CHW, and says whether it sees it; if not, `pixels` stays as it is.
    ///
    /// # Panics
    /// When `index` is not below `len(part)`, `slot` not below `slots()`, or `pixels` not as long as a view.
    fn view_into(&self, part: Part, index: usize, slot: usize, pixels: &mut [u8]) -> bool;

    /// What its user should know of how it was read: samples left out, images changed, a sentence each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Names that [`open`] knows.
pub const NAMES: [&str; 8] =
    ["fashion-6cam", "fashion-mnist", "mnist", "cifar-10", "eth80", "mvmc", "folders", "table"];

/// What a network asks of the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Shape of the views; the data's own when `None`.
    pub shape: Option<Shape>,
    /// Device slots; the data's own number when `None`.
    pub slots: Option<usize>,
}

/// Whether parts may share a picture or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leaks {
    /// Data that leaks is refused.
    #[default]
    Refused,
    /// It is taken, and [`DataSet::notes`] says so.
    Allowed,
}

/// How data of one's own is parted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Whether parts may share a picture or a group.
    pub leaks: Leaks,
    /// How data without parts is cut into them; as [`Split::default`] does when `None`. Data that has parts is refused with one.
    pub split: Option<Split>,
}

/// A data set that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataSetError {
    /// Its files are missing, damaged, or others.
    #[error("data set {name}: {reason}")]
    Files {
        /// The data set.
        name: String,
        /// What is wrong.
        reason: Box<FilesError>,
    },
    /// No data set of that name.
    #[error("data set: expected one of {names}, found `{0}`", names = NAMES.join(", "))]
    Unknown(String),
    /// A split for data that has parts.
    #[error("data set {0}: expected no split, found one; it has parts of its own")]
    OwnParts(String),
}

/// What is wrong with the files of a data set.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// MNIST or its kin.
    #[error(transparent)]
    Mnist(#[from] MnistError),
    /// CIFAR-10.
    #[error(transparent)]
    Cifar(#[from] CifarError),
    /// ETH-80.
    #[error(transparent)]
    Eth80(#[from] Eth80Error),
    /// MVMC.
    #[error(transparent)]
    Mvmc(#[from] MvmcError),
    /// Folders of images.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A table of files.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Opens the data set `name`, whose files are in `dir`. Data sets of a fixed shape are opened whatever is wanted.
///
/// # Errors
/// [`DataSetError`]: no such data set, or its files are missing or damaged.
pub fn open(name: &str, dir: &Path, wanted: Wanted) -> Result<Box<dyn DataSet>, DataSetError> {
    open_with(name, dir, wanted, Rules::default())
}

/// As [`open`], by other rules.
///
/// # Errors
/// As [`open`]; [`DataSetError::OwnParts`] for a split of a data set that has parts.
pub fn open_with(
    name: &str,
    dir: &Path,
    wanted: Wanted,
    rules: Rules,
) -> Result<Box<dyn DataSet>, DataSetError> {
    if rules.split.is_some() && NAMES.contains(&name) && !["folders", "table"].contains(&name) {
        return Err(DataSetError::OwnParts(name.into()));
    }
    let opened: Opened = match name {
        "fashion-6cam" => boxed(Fashion6Cam::open(dir)),
        "fashion-mnist" => boxed(Mnist::fashion(dir)),
        "mnist" => boxed(Mnist::digits(dir)),
        "cifar-10" => boxed(cifar::open(dir)),
        "eth80" => boxed(eth80::open(dir, wanted.slots.unwrap_or(ETH80_CAMERAS))),
        "mvmc" => boxed(mvmc::open(dir, wanted.slots.unwrap_or(mvmc::CAMERAS))),
        "folders" => boxed(tree::open(dir, wanted, rules)),
        "table" => boxed(table::open(dir, wanted, rules)),
        other => return Err(DataSetError::Unknown(other.into())),
    };
    opened.map_err(|reason| DataSetError::Files { name: name.into(), reason })
}

/// Cameras around an object of ETH-80 when nobody says how many.
const ETH80_CAMERAS: usize = 4;

/// Errors are rare and large.
type Opened = Result<Box<dyn DataSet>, Box<FilesError>>;

fn boxed<D: DataSet + 'static, E: Into<FilesError>>(opened: Result<D, E>) -> Opened {
    match opened {
        Ok(data) => Ok(Box::new(data)),
        Err(error) => Err(Box::new(error.into())),
    }
}
