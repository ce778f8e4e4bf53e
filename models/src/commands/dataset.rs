//! The arguments that name a data set.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headwater_models::data::{Parts, load};
use headwater_models::spec::Spec;
use headwater_samples::catalogue::{self, CATALOGUE};
use headwater_samples::data_set::{Leaks, OpenOptions};
use headwater_samples::split::{Shares, Split};
use headwater_samples::{Part, Shape};

use super::Failure;

/// Which data, and where it is.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set, one of the following.
    #[arg(long, value_name = "NAME", default_value = CATALOGUE[0].name, help = help())]
    pub(crate) data: String,
    /// Folder with the files of the data set, as listed under --data and in docs/data.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Accept data of which two parts share an image or a group, with a warning: results on test are then better than they would be on new
    /// data. Without this flag such data is refused.
    #[arg(long)]
    allow_leaks: bool,
    /// Shares of train, validation and test where `folders` or `table` has no parts (80,10,10 without it): groups, and copies of one
    /// image, stay in one part. Give the same to every command on the same run.
    #[arg(long, value_name = "A,B,C")]
    split: Option<Shares>,
    /// Draws other samples for the parts, where `folders` or `table` has none (0 without it).
    #[arg(long, value_name = "N")]
    split_seed: Option<u64>,
}

impl Dataset {
    /// Opens the data set, and prints its notes on stderr.
    pub(crate) fn open(&self, options: OpenOptions) -> Result<Parts, Failure> {
        let leaks = if self.allow_leaks { Leaks::Allowed } else { Leaks::Refused };
        let options = OpenOptions { leaks, split: self.split(), ..options };
        let parts = load(&self.data, &self.data_dir, options).map_err(Failure::usage)?;
        for note in parts.data().notes() {
            eprintln!("warning: {}: {note}", self.data);
        }
        Ok(parts)
    }

    /// The split that was asked for.
    fn split(&self) -> Option<Split> {
        (self.split.is_some() || self.split_seed.is_some()).then(|| Split {
            shares: self.split.unwrap_or_default(),
            seed: self.split_seed.unwrap_or_default(),
        })
    }

    /// Which samples are in which part, as far as the arguments say: a run goes on only with the same.
    pub(crate) fn identity(&self) -> String {
        match self.split() {
            None => self.data.clone(),
            Some(Split { shares, seed }) => format!("{}, split {shares} by seed {seed}", self.data),
        }
    }

    /// Opens it in the shape that a network takes, for as many slots as it has devices.
    pub(crate) fn open_for(&self, spec: &Spec) -> Result<Parts, Failure> {
        let [channels, height, width] = *spec.network.device.input.get_ref();
        self.open(OpenOptions {
            shape: Some(Shape { channels, height, width }),
            slots: Some(spec.slots()),
            ..OpenOptions::default()
        })
    }
}

/// Help of `--data`: one line per data set.
fn help() -> String {
    format!("Data set:\n{}", catalogue::help())
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
