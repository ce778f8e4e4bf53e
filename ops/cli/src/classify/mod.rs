//! `headwater classify`: photos through all tiers of a network in this process, without a broker.
//!
//! The answers come from [`Whole`]. `tests/all/distributed.rs` of the crate `inference` and the test `parity` check that separate tiers
//! give the same answers.

mod table;

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::{Context, bail};
use headwater_inference::engine::PackedOrTract;
use headwater_inference::manifest::{NetworkManifest, Preprocessing};
use headwater_inference::policy::Policy;
use headwater_inference::whole::{Whole, WholeAnswer};
use headwater_protocol::{Slot, Undecided};
use headwater_samples::photos::{self, PhotoSample};
use headwater_samples::{Shape, View};
use headwater_telemetry::print_error;

use self::table::{Row, Table};
use crate::progress::Progress;
use crate::{BadUsage, shipped};

/// Arguments of `headwater classify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mkdir frames && tar xzf io/samples/shipped/fashion-6cam-300.tar.gz -C frames
  headwater classify models/shipped/fashion-6cam.hwb frames --csv > answers.csv
                                                  the shipped network of six cameras on its shipped images
  headwater classify runs/parts/bundle.hwb photos extra/17.jpg
                                                  one camera: all images of a folder, and one more
  headwater classify runs/parts/bundle.hwb photos --json | jq -r 'select(.undecided) | .file'
                                                  the photos of which the network claims nothing
With several cameras a sample is a folder with a file for each camera that sees it, SAMPLE/cam0.jpg, or the photos of one name in a folder
for each camera, cam0/SAMPLE.jpg and cam1/SAMPLE.jpg. Where the slots are regions of one camera, each photo is a sample.
Columns: file; label; confidence and exit of the answer; undecided, why no class is claimed; error, which photo cannot be read; and the
calibrated probability of each class at that exit, as p_LABEL, with --json as `scores` in the order of the labels.
Exit codes: 0 done; 1 a photo cannot be read, and its row says why; 2 bad usage.")]
pub struct ClassifyArgs {
    /// The bundle, with every section.
    pub bundle: PathBuf,
    /// Photos (PNG, JPEG, WebP), and folders of which every image is one. Rows come in this order.
    #[arg(required = true)]
    pub photos: Vec<PathBuf>,
    /// Print a table with commas, with the names of the columns in the first line. This is the default.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Print one JSON object on a line for each sample.
    #[arg(long)]
    pub json: bool,
    /// Changes to the thresholds of the bundle's policy, in TOML; see docs/policy.toml.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// Largest number of samples that run through the network at once.
const BATCH: usize = 16;

/// Classifies photos and prints a row for each sample. Returns true when every photo could be read.
///
/// # Errors
/// When the bundle or the policy cannot be used, or there are no photos; [`BadUsage`] for photos that do not fit the network's cameras.
pub fn run(args: &ClassifyArgs) -> anyhow::Result<bool> {
    let bundle = shipped::open_bundle(Some(&args.bundle))?;
    let policy = shipped::policy(&bundle, args.policy.as_deref())?;
    let samples = samples(args, bundle.manifest())?;
    let whole = Whole::load(&bundle, &PackedOrTract).context("loading the network")?;
    let network = bundle.manifest();
    let mut classifier = Classifier { whole: whole.with_policy(policy.clone()), policy, network };
    let last = network.exits().last().copied();
    let is_terminal = std::io::stdout().is_terminal();
    let table = Table { is_json: args.json, is_terminal, labels: &network.labels };
    crate::print(&table.header())?;
    // In a terminal the rows themselves show the progress.
    let mut progress = Progress::new(samples.len() as u64, is_terminal);
    let (mut undecided, mut broken) = (0, 0);
    for samples in samples.chunks(BATCH) {
        let mut text = String::new();
        for row in classifier.rows(samples)? {
            undecided += u64::from(row.undecided.is_some());
            broken += u64::from(row.error.is_some());
            progress.count(row.exit.is_some() && row.exit != last, row.broken_views);
            text += &table.row(&row);
        }
        crate::print(&text)?;
    }
    progress.finish();
    let count = crate::counted(samples.len(), "sample");
    print_error(&format!("{count}, {undecided} undecided, {broken} with a photo that cannot be read"));
    Ok(broken == 0)
}

/// The samples that the arguments name, for the cameras of a network. Prints what is left out of the folders.
fn samples(args: &ClassifyArgs, network: &NetworkManifest) -> anyhow::Result<Vec<PhotoSample>> {
    let slots = usize::from(network.slots);
    let (photos, notes) = photos::list(&args.photos)?;
    notes.iter().for_each(|note| print_error(note));
    if photos.is_empty() {
        bail!("expected photos (PNG, JPEG, WebP), found none in {}", args.photos[0].display());
    }
    if !network.preprocessing.regions.is_empty()
        && let Some(samples) = photos::of_one_camera(&photos, slots)
    {
        return Ok(samples);
    }
    Ok(photos::samples(photos, slots).map_err(|error| BadUsage(error.to_string()))?)
}

/// A network with all its sections, its policy and its manifest.
struct Classifier<'a> {
    whole: Whole,
    policy: Policy,
    network: &'a NetworkManifest,
}

impl<'a> Classifier<'a> {
    fn rows<'s>(&mut self, samples: &'s [PhotoSample]) -> anyhow::Result<Vec<Row<'s>>>
    where
        'a: 's,
    {
        let view = &self.network.preprocessing;
        let read: Vec<_> = samples.iter().map(|sample| ReadSample::new(sample, view)).collect();
        let views: Vec<Vec<Option<&[u8]>>> = read.iter().map(ReadSample::pixels).collect();
        let answers = self.whole.run(&views).context("running the network")?;
        let of_samples = samples.iter().zip(&read).zip(&answers);
        Ok(of_samples.map(|((sample, read), answer)| self.row(sample, read, answer)).collect())
    }

    fn row<'s>(&self, sample: &'s PhotoSample, read: &ReadSample, answer: &WholeAnswer) -> Row<'s>
    where
        'a: 's,
    {
        let error = (!read.faults.is_empty()).then(|| read.faults.join("; "));
        let row = Row { file: &sample.name, error, broken_views: read.faults.len() as u32, ..Row::default() };
        if answer.presence.present_count() == 0 {
            return row;
        }
        let WholeAnswer { exit, class, confidence, .. } = *answer;
        let is_last = self.network.exits().last() == Some(&exit);
        let is_claimed = !is_last || self.policy.claims(exit, confidence);
        Row {
            label: self.network.labels.get(usize::from(class)).filter(|_| is_claimed).map(String::as_str),
            confidence: Some(confidence),
            exit: Some(exit),
            undecided: (!is_claimed).then_some(Undecided::Unsure),
            scores: self.policy.of(exit).probabilities(&answer.logits[exit]),
            ..row
        }
    }
}

/// Views of a sample, and the reasons why photos could not be read.
struct ReadSample {
    views: Vec<Option<View>>,
    faults: Vec<String>,
}

impl ReadSample {
    fn new(sample: &PhotoSample, view: &Preprocessing) -> Self {
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        let shape = Shape { channels, height, width };
        let mut faults = Vec::new();
        let views = sample.photos.iter().zip(Slot::first(sample.photos.len())).map(|(photo, slot)| {
            let photo = photo.as_ref()?;
            let fault = |reason| faults.push(format!("{}: {reason}", photo.path.display()));
            photo.view(shape, view.framing(slot)).map_err(fault).ok()
        });
        let views = views.collect();
        Self { views, faults }
    }

    fn pixels(&self) -> Vec<Option<&[u8]>> {
        self.views.iter().map(|view| view.as_ref().map(|view| &view.pixels[..])).collect()
    }
}
