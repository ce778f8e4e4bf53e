//! The arguments that name a data set.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headwater_models::data::{Parts, load};
use headwater_models::spec::Spec;
use headwater_samples::data_set::{Leaks, NAMES, Rules, Wanted, open_with};
use headwater_samples::split::{Shares, Split};
use headwater_samples::{Part, Shape};

use super::Failure;

/// Which data, and where it is.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set: fashion-6cam, fashion-mnist, mnist, cifar-10, eth80, mvmc; `folders` for images of your own, `table` for images or raw
    /// tensors of your own with labels in a CSV file.
    #[arg(long, value_name = "NAME", default_value = NAMES[0])]
    pub(crate) data: String,
    /// Folder with the files of the data set, plain or .gz (cifar-10: binary version, or .bz2; mvmc: MVMC.npz). For `folders`, a directory or
    /// .tar.gz of train/CLASS/IMAGE.jpg, or of train/CLASS/SAMPLE/camN.jpg where camera N of several sees the sample; and so val and test,
    /// or without that level. For `table`, a directory or .tar.gz with labels.csv and the files it names. See docs/data.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Take data of which two parts share a picture or a group, with a warning: results on test are then better than they would be on new
    /// data. Without it such data is refused.
    #[arg(long)]
    allow_leaks: bool,
    /// Shares of train, validation and test where `folders` or `table` has no parts (80,10,10 without it): groups, and copies of one
    /// picture, stay in one part. Give the same to every command on the same run.
    #[arg(long, value_name = "A,B,C")]
    split: Option<Shares>,
    /// Draws other samples for the parts, where `folders` or `table` has none (0 without it).
    #[arg(long, value_name = "N")]
    split_seed: Option<u64>,
}

impl Dataset {
    /// Opens it as it is wanted, and says on stderr what its user should know of it.
    pub(crate) fn open(&self, wanted: Wanted) -> Result<Parts, Failure> {
        if !NAMES.contains(&self.data.as_str()) {
            return load(&self.data, &self.data_dir, wanted).map_err(Failure::usage);
        }
        let leaks = if self.allow_leaks { Leaks::Allowed } else { Leaks::Refused };
        let rules = Rules { leaks, split: self.split() };
        let data = open_with(&self.data, &self.data_dir, wanted, rules).map_err(Failure::usage)?;
        for note in data.notes() {
            eprintln!("warning: {}: {note}", self.data);
        }
        Ok(Parts::of(data))
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
