//! The arguments for a data set.

use std::path::{Path, PathBuf};

use clap::Args;
use headwater_calibration::data::{Parts, Samples, load};
use headwater_inference::bundle::Bundle;
use headwater_samples::catalogue::{self, CATALOGUE};
use headwater_samples::data_set::{Leaks, Omissions, OpenOptions};
use headwater_samples::split::{Shares, Split};
use headwater_samples::{Part, Shape};
use headwater_spec::Spec;

use super::output::print_error;
use super::{Failure, usage};

/// Arguments for a data set.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set, one of the following.
    #[arg(long, value_name = "NAME", default_value = CATALOGUE[0].name, help = format!("Data set:\n{}", catalogue::help()))]
    pub(crate) data: String,
    /// Folder with the files of the data set, as listed under --data and in docs/data.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// Accept data whose parts share an image or a group, with a warning: results on test are then better than on new data. Such data is
    /// refused otherwise.
    #[arg(long)]
    allow_leaks: bool,
    /// Refuse data of which something is left out: hidden files, files that are no images, links to nothing, samples that no camera sees. It is
    /// counted in a warning otherwise.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Shares of train, validation and test for `folders` or `table` without parts; 80,10,10 when left out. Groups, and copies of one
    /// image, stay in one part. Every command on the same run needs the same shares.
    #[arg(long, value_name = "A,B,C")]
    split: Option<Shares>,
    /// Seed of the split for `folders` or `table` without parts; 0 when left out.
    #[arg(long, value_name = "N")]
    split_seed: Option<u64>,
    /// Number of the fold, from 0, for a data set that can be divided into parts in several ways (`eth80`: 0 to 8); the data set's usual
    /// parts when left out.
    #[arg(long, value_name = "N")]
    fold: Option<usize>,
    /// New views of the same samples by the same cameras, for data whose views are simulated (`fashion-6cam`); results on them are not results on the
    /// data set, and carry the seed in its name.
    #[arg(long, value_name = "N")]
    view_seed: Option<u64>,
}

impl Dataset {
    /// Opens the data set and prints its notes on stderr.
    pub(crate) fn open(&self, options: OpenOptions) -> Result<Parts, Failure> {
        let leaks = if self.allow_leaks { Leaks::Allowed } else { Leaks::Refused };
        let omissions = if self.strict { Omissions::Refused } else { Omissions::Noted };
        let (fold, view_seed) = (self.fold, self.view_seed);
        let options = OpenOptions { leaks, omissions, split: self.split(), fold, view_seed, ..options };
        let parts = load(&self.data, &self.data_dir, options).map_err(Failure::usage)?;
        for note in parts.data.notes() {
            print_error(&format!("warning: {}: {note}", self.data));
        }
        Ok(parts)
    }

    /// Opens the data set in the shape `[channels, height, width]`, for that many slots.
    pub(crate) fn open_shaped(&self, shape: [usize; 3], slots: usize) -> Result<Parts, Failure> {
        let [channels, height, width] = shape;
        let shape = Some(Shape { channels, height, width });
        self.open(OpenOptions { shape, slots: Some(slots), ..OpenOptions::default() })
    }

    /// Opens the data set for the network of a bundle, which `file` names in messages, and checks slots and classes.
    pub(crate) fn open_for_bundle(&self, bundle: &Bundle, file: &Path) -> Result<Parts, Failure> {
        let manifest = bundle.manifest();
        let view = &manifest.preprocessing;
        let shape = [view.channels, view.height, view.width].map(|side| side as usize);
        let parts = self.open_shaped(shape, usize::from(manifest.slots))?;
        if manifest.labels != parts.data.labels() || usize::from(manifest.slots) != parts.slots {
            return usage(format!(
                "{}: expected a network of {} slots and classes {:?} as in the data, found {} slots and {:?}",
                file.display(),
                parts.slots,
                parts.data.labels(),
                manifest.slots,
                manifest.labels
            ));
        }
        Ok(parts)
    }

    /// The first `limit` samples of the part with a name from [`PARTS`]; a part without samples is refused.
    pub(crate) fn samples(
        &self,
        parts: &Parts,
        part: &str,
        limit: Option<usize>,
        threads: usize,
    ) -> Result<Samples, Failure> {
        let named = Part::named(part).expect("every name in PARTS is that of a part");
        let samples = parts.part(named, limit, threads);
        if samples.is_empty() {
            return usage(format!(
                "--part {part}: expected samples, found none: {} has no such part",
                self.data
            ));
        }
        Ok(samples)
    }

    /// The split of the arguments.
    fn split(&self) -> Option<Split> {
        (self.split.is_some() || self.split_seed.is_some()).then(|| Split {
            shares: self.split.unwrap_or_default(),
            seed: self.split_seed.unwrap_or_default(),
        })
    }

    /// Name of the data set with its split, fold and seed of views; a run resumes only with the same identity.
    pub(crate) fn identity(&self) -> String {
        let split = self.split().map(|Split { shares, seed }| format!(", split {shares} by seed {seed}"));
        let fold = self.fold.map(|fold| format!(", fold {fold}"));
        let views = self.view_seed.map(|seed| format!(", views of seed {seed}"));
        let parts = [Some(self.data.clone()), split, fold, views];
        parts.into_iter().flatten().collect()
    }

    /// The arguments that open the same data again, for a command line in a message.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let number = |flag: &str, value: Option<u64>| {
            value.map_or_else(Vec::new, |value| vec![flag.to_owned(), value.to_string()])
        };
        let folder = self.data_dir.display().to_string();
        let mut all = vec!["--data".to_owned(), self.data.clone(), "--data-dir".to_owned(), folder];
        all.extend(self.allow_leaks.then(|| "--allow-leaks".to_owned()));
        all.extend(self.strict.then(|| "--strict".to_owned()));
        all.extend(self.split.iter().flat_map(|shares| ["--split".to_owned(), shares.to_string()]));
        all.extend(number("--split-seed", self.split_seed));
        all.extend(number("--fold", self.fold.map(|fold| fold as u64)));
        all.extend(number("--view-seed", self.view_seed));
        all
    }

    /// Whether data of this identity has the same samples in the same parts; data with other seeds of views has the same samples.
    pub(crate) fn has_samples_of(&self, identity: &str) -> bool {
        let samples =
            |identity: &str| identity.split(", views of seed").next().unwrap_or_default().to_owned();
        samples(identity) == samples(&self.identity())
    }

    /// Opens the data set for a network, and checks slots, shape and classes.
    pub(crate) fn open_for(&self, spec: &Spec) -> Result<Parts, Failure> {
        let parts = self.open_shaped(spec.network.view(), spec.network.slots())?;
        let mistakes = [
            ("device.count", spec.network.slots().to_string(), parts.slots.to_string()),
            ("device.input", format!("{:?}", spec.network.view()), format!("{:?}", parts.shape())),
            (
                "network.labels",
                format!("{:?}", spec.network.network.labels.get_ref()),
                format!("{:?}", parts.data.labels()),
            ),
        ];
        let wrong = mistakes.iter().filter(|(_, spec, data)| spec != data);
        let wrong: Vec<String> = wrong
            .map(|(key, spec, data)| format!("{key}: expected {data} as in the data, found {spec}"))
            .collect();
        if wrong.is_empty() {
            return Ok(parts);
        }
        usage(format!("{}: {}", spec.file.display(), wrong.join("; ")))
    }
}

/// Names of the parts on the command line.
pub(crate) const PARTS: [&str; 4] = ["train", "validation", "test", "calibration"];
