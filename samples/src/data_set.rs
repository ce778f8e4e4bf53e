//! What training asks of a data set: labelled samples in three parts, seen by one slot or several.

use std::path::Path;

use crate::Shape;
use crate::fashion_6cam::Fashion6Cam;
use crate::mnist::{Mnist, MnistError};

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
pub const NAMES: [&str; 3] = ["fashion-6cam", "fashion-mnist", "mnist"];

/// A data set that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataSetError {
    /// Its files are missing, damaged, or others.
    #[error("data set {name}: {reason}")]
    Mnist {
        /// The data set.
        name: String,
        /// What is wrong.
        reason: MnistError,
    },
    /// No data set of that name.
    #[error("data set: expected one of {names}, found `{0}`", names = NAMES.join(", "))]
    Unknown(String),
}

/// Opens the data set `name`, whose files are in `dir`.
///
/// # Errors
/// [`DataSetError`]: no such data set, or its files are missing or damaged.
pub fn open(name: &str, dir: &Path) -> Result<Box<dyn DataSet>, DataSetError> {
    let named = |reason| DataSetError::Mnist { name: name.into(), reason };
    match name {
        "fashion-6cam" => Ok(Box::new(Fashion6Cam::open(dir).map_err(named)?)),
        "fashion-mnist" => Ok(Box::new(Mnist::fashion(dir).map_err(named)?)),
        "mnist" => Ok(Box::new(Mnist::digits(dir).map_err(named)?)),
        other => Err(DataSetError::Unknown(other.into())),
    }
}
