//! What training asks of a data set: labelled samples in three parts, seen by one slot or several.

use std::path::Path;

use crate::Shape;
use crate::cifar::{self, CifarError};
use crate::eth80::{self, Eth80Error};
use crate::fashion_6cam::Fashion6Cam;
use crate::mnist::{Mnist, MnistError};
use crate::tree::{self, TreeError};

/// The part of the data a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// For weights.
    Train,
    /// For choices and thresholds.
    Validation,
    /// For reports only.
    Test,
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
}

/// Names that [`open`] knows.
pub const NAMES: [&str; 6] = ["fashion-6cam", "fashion-mnist", "mnist", "cifar-10", "eth80", "folders"];

/// What a network asks of the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Shape of the views; the data's own when `None`.
    pub shape: Option<Shape>,
    /// Device slots; the data's own number when `None`.
    pub slots: Option<usize>,
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
    /// Folders of images.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Opens the data set `name`, whose files are in `dir`. Data sets of a fixed shape are opened whatever is wanted.
///
/// # Errors
/// [`DataSetError`]: no such data set, or its files are missing or damaged.
pub fn open(name: &str, dir: &Path, wanted: Wanted) -> Result<Box<dyn DataSet>, DataSetError> {
    let opened: Opened = match name {
        "fashion-6cam" => boxed(Fashion6Cam::open(dir)),
        "fashion-mnist" => boxed(Mnist::fashion(dir)),
        "mnist" => boxed(Mnist::digits(dir)),
        "cifar-10" => boxed(cifar::open(dir)),
        "eth80" => boxed(eth80::open(dir, wanted.slots.unwrap_or(ETH80_CAMERAS))),
        "folders" => boxed(tree::open(dir, wanted)),
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
