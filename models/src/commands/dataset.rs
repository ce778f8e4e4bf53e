//! The arguments that name a data set.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headwater_models::data::{Parts, load};
use headwater_models::spec::Spec;
use headwater_samples::data_set::{NAMES, Wanted};
use headwater_samples::{Part, Shape};

use super::Failure;

/// Which data, and where it is.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set: fashion-6cam, fashion-mnist, mnist, cifar-10, eth80, or `folders` for images of your own.
    #[arg(long, value_name = "NAME", default_value = NAMES[0])]
    pub(crate) data: String,
    /// Folder with the files of the data set, plain or .gz (cifar-10: binary version, or .bz2). For `folders`, a directory or .tar.gz
    /// of train/CLASS/IMAGE.jpg, or of train/CLASS/SAMPLE/camN.jpg where camera N of several sees the sample; and so val and test.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

impl Dataset {
    /// Opens it as it is wanted.
    pub(crate) fn open(&self, wanted: Wanted) -> Result<Parts, Failure> {
        load(&self.data, &self.data_dir, wanted).map_err(Failure::usage)
    }

    /// Opens it in the shape that a network takes, for as many slots as it has devices.
    pub(crate) fn open_for(&self, spec: &Spec) -> Result<Parts, Failure> {
        let [channels, height, width] = *spec.network.device.input.get_ref();
        self.open(Wanted { shape: Some(Shape { channels, height, width }), slots: Some(spec.slots()) })
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
