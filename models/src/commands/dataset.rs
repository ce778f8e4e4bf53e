//! The arguments that name a data set.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headwater_models::data::{Parts, load};
use headwater_samples::Part;
use headwater_samples::data_set::NAMES;

use super::Failure;

/// Which data, and where it is.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set: fashion-6cam, fashion-mnist, mnist.
    #[arg(long, value_name = "NAME", default_value = NAMES[0])]
    pub(crate) data: String,
    /// Folder with the files of the data set: the four files of MNIST or Fashion-MNIST, plain or .gz.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

impl Dataset {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<Parts, Failure> {
        load(&self.data, &self.data_dir).map_err(Failure::usage)
    }
}

/// A part of the data, as a word.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartName {
    Train,
    Validation,
    Test,
}

impl PartName {
    /// The word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::Train => Self::Train,
            PartName::Validation => Self::Validation,
            PartName::Test => Self::Test,
        }
    }
}
