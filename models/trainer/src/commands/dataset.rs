//! The arguments for a data set.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Args;
use headwater_calibration::data::{Parts, Samples};
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::{NetworkManifest, Preprocessing};
use headwater_samples::catalogue;
use headwater_samples::data_set::{Framings, Leaks, Omissions, OpenOptions};
use headwater_samples::split::{Shares, Split};
use headwater_samples::{Part, Shape};
use headwater_spec::{NetworkSpec, Spec, Unlabelled};

use super::output::{options, print_error};
use super::views::ViewPlace;
use super::{Failure, usage};

/// Arguments for a data set.
#[derive(Args)]
pub(crate) struct Dataset {
    /// Data set, one of the following.
    #[arg(long, value_name = "NAME|DIR", help = help())]
    data: Option<String>,
    /// Folder or .tar.gz with the files of the data set, as listed under --data and in docs/data.md.
    #[arg(long, value_name = "DIR", required_unless_present = "data")]
    data_dir: Option<PathBuf>,
    /// Name of the data set as its files tell it; the error is the reason for which the files tell no name. Unset until the name is asked for.
    #[arg(skip)]
    told: OnceLock<Result<&'static str, String>>,
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
    #[command(flatten)]
    views: ViewPlace,
}

/// Help text of `--data`.
fn help() -> String {
    let first = "Data set by its name, or its folder, which then tells the name by its files, as --data-dir alone does:";
    format!("{first}\n{}", catalogue::help())
}

impl Dataset {
    /// A data set by name and folder, with the usual parts.
    #[cfg(feature = "experiments")]
    pub(crate) fn at(name: String, folder: PathBuf, views: ViewPlace) -> Self {
        Self {
            data: Some(name),
            data_dir: Some(folder),
            told: OnceLock::new(),
            allow_leaks: false,
            strict: false,
            split: None,
            split_seed: None,
            fold: None,
            view_seed: None,
            views,
        }
    }

    /// Folder or archive of the data set.
    pub(crate) fn folder(&self) -> &Path {
        let alone = self.data.as_deref().map(Path::new);
        self.data_dir.as_deref().or(alone).unwrap_or(Path::new("."))
    }

    /// Name of the data set, for messages and the identity of a run; `unknown data` if the files tell no name.
    pub(crate) fn name(&self) -> &str {
        self.named().unwrap_or("unknown data")
    }

    /// Name of the data set: the value of `--data` if `--data-dir` is given too, else the name that the files tell.
    fn named(&self) -> Result<&str, &str> {
        if let (Some(name), Some(_)) = (&self.data, &self.data_dir) {
            return Ok(name);
        }
        let told = self.told.get_or_init(|| {
            let folder = self.folder();
            if !folder.exists() && self.data.as_deref().is_some_and(|name| catalogue::find(name).is_some()) {
                return Err(format!(
                    "--data {}: expected --data-dir with it, the folder of its files, found none",
                    folder.display()
                ));
            }
            let name = catalogue::detect(folder).map_err(|error| error.to_string())?;
            print_error(&format!("{}: read as --data {name}, told by its files", folder.display()));
            Ok(name)
        });
        match told {
            Ok(name) => Ok(name),
            Err(why) => Err(why),
        }
    }

    /// Opens the data set and prints its notes on stderr.
    pub(crate) fn open(&self, options: OpenOptions<'_>) -> Result<Parts, Failure> {
        let leaks = if self.allow_leaks { Leaks::Allowed } else { Leaks::Refused };
        let omissions = if self.strict { Omissions::Refused } else { Omissions::Noted };
        let (fold, view_seed) = (self.fold, self.view_seed);
        let options = OpenOptions { leaks, omissions, split: self.split(), fold, view_seed, ..options };
        let name = self.named().or_else(usage)?;
        self.views.open((name, self.folder()), options)
    }

    /// Opens the data set for that many slots, with the views of a network.
    pub(crate) fn open_for_views(&self, view: &Preprocessing, slots: usize) -> Result<Parts, Failure> {
        self.open(OpenOptions { slots: Some(slots), ..options_of(view) })
    }

    /// Opens the data set for the network of a bundle, which `file` names in messages, and checks slots, shape and classes.
    pub(crate) fn open_for_bundle(&self, bundle: &Bundle, file: &Path) -> Result<Parts, Failure> {
        let NetworkManifest { preprocessing, slots, labels, .. } = bundle.manifest();
        let slots = usize::from(*slots);
        let parts = self.open_for_views(preprocessing, slots)?;
        check_fits(&file.display().to_string(), (preprocessing, slots, labels), &parts)?;
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
                self.name()
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
        let parts = [Some(self.name().to_owned()), split, fold, views];
        parts.into_iter().flatten().collect()
    }

    /// The arguments that open the same data again, for a command line in a message.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let ViewPlace { cache, view_memory_mib } = &self.views;
        let mut all = options([
            ("--data", self.data.clone()),
            ("--data-dir", path(&self.data_dir)),
            ("--split", self.split.map(|shares| shares.to_string())),
            ("--split-seed", self.split_seed.map(|seed| seed.to_string())),
            ("--fold", self.fold.map(|fold| fold.to_string())),
            ("--view-seed", self.view_seed.map(|seed| seed.to_string())),
            ("--cache", path(cache)),
            ("--view-memory-mib", view_memory_mib.map(|mib| mib.to_string())),
        ]);
        all.extend(self.allow_leaks.then(|| "--allow-leaks".to_owned()));
        all.extend(self.strict.then(|| "--strict".to_owned()));
        all
    }

    /// True when data of this identity has the same samples in the same parts; data with other seeds of views has the same samples.
    pub(crate) fn has_samples_of(&self, identity: &str) -> bool {
        let samples =
            |identity: &str| identity.split(", views of seed").next().unwrap_or_default().to_owned();
        samples(identity) == samples(&self.identity())
    }

    /// Opens the data set for a network, and checks slots, shape and classes.
    pub(crate) fn open_for(&self, spec: &Spec) -> Result<Parts, Failure> {
        let parts = self.open_for_views(&spec.network.preprocessing(), spec.network.slots())?;
        check_spec_fits(&spec.file.display().to_string(), &spec.network, &parts)?;
        Ok(parts)
    }

    /// Reads a spec. A spec without labels gets the labels of the data, and the opened data is returned too; `None` for a spec with labels.
    pub(crate) fn read_spec(&self, file: &Path) -> Result<(Spec, Option<Parts>), Failure> {
        let Some(Unlabelled { view, slots }) = Spec::without_labels(file).map_err(Failure::usage)? else {
            return Ok((Spec::read(file).map_err(Failure::usage)?, None));
        };
        let parts = self.open_for_views(&view, slots)?;
        let spec = Spec::read_with_labels(file, &parts.data.labels()).map_err(Failure::usage)?;
        check_spec_fits(&spec.file.display().to_string(), &spec.network, &parts)?;
        Ok((spec, Some(parts)))
    }
}

/// Options for the views of a network: shape, regions and fit.
pub(crate) fn options_of(view: &Preprocessing) -> OpenOptions<'_> {
    let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
    let framings = Framings { regions: &view.regions, fit: view.fit.unwrap_or_default() };
    OpenOptions { shape: Some(Shape { channels, height, width }), framings, ..OpenOptions::default() }
}

/// Refuses data whose slots, shape or classes differ from those of a spec; `name` names the spec in messages.
pub(crate) fn check_spec_fits(name: &str, network: &NetworkSpec, parts: &Parts) -> Result<(), Failure> {
    check_fits(name, (&network.preprocessing(), network.slots(), network.network.labels.get_ref()), parts)
}

/// Refuses data whose slots, shape or classes differ from those of a network; `name` names the network in messages.
fn check_fits(
    name: &str,
    (view, slots, labels): (&Preprocessing, usize, &[String]),
    parts: &Parts,
) -> Result<(), Failure> {
    let view = [view.channels, view.height, view.width];
    let mistakes = [
        ("device.count", slots.to_string(), parts.slots.to_string()),
        ("device.input", format!("{view:?}"), format!("{:?}", parts.shape())),
        ("network.labels", format!("{labels:?}"), format!("{:?}", parts.data.labels())),
    ];
    let wrong = mistakes.into_iter().filter(|(_, network, data)| network != data);
    let text = |(key, found, data)| format!("{key}: expected {data} as in the data, found {found}");
    let said: Vec<String> = wrong.map(text).collect();
    if said.is_empty() { Ok(()) } else { usage(format!("{name}: {}", said.join("; "))) }
}

/// Names of the parts on the command line.
pub(crate) const PARTS: [&str; 4] = ["train", "validation", "test", "calibration"];
