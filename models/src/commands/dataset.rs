//! The arguments that name a data set.

use std::path::PathBuf;

use clap::Args;
use headwater_models::data::{Parts, load};

use super::Failure;

/// Which data, and where it is.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set.
    #[arg(long, value_name = "NAME", default_value = "fashion-6cam")]
    pub(crate) data: String,
    /// Folder with the files of the data set (for fashion-6cam the four Fashion-MNIST files, plain or .gz).
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

impl Dataset {
    /// Opens it.
    pub(crate) fn open(&self) -> Result<Parts, Failure> {
        load(&self.data, &self.data_dir).map_err(Failure::usage)
    }
}
