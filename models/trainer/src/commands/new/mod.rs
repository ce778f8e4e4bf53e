//! `headwater-train new`: chooses spec and recipe for a data set.
//!
//! - `look.rs` finds what the data holds;
//! - `choose.rs` has the rules, each with a reason for its value;
//! - `write.rs` writes the two files.

mod choose;
mod look;
mod write;

use std::path::{Path, PathBuf};

use clap::Args;
use headwater_calibration::data::Parts;
use headwater_calibration::promise::binomial;
use headwater_samples::data_set::{OpenOptions, PartsOrigin};
use headwater_samples::{Part, Shape, catalogue, image_sizes};
use headwater_spec::Spec;
use headwater_training::recipe::Recipe;
use headwater_training::warnings::of_imbalance;

use super::dataset::Dataset;
use super::output::{command_line, counted, print, print_error};
use super::progress::StatusLine;
use super::target::{Asked, Key};
use super::{Failure, print_json, usage};
use look::{Alike, Look};

/// Least number of train samples of a class for which there is no warning.
const FEW_OF_CLASS: usize = 10;
/// Accuracy for which the summary has confidence intervals of the parts.
const USUAL_ACCURACY: f64 = 0.9;

const EXAMPLES: &str = "\
Examples:
  Look at photos in folders by class, and write spec and recipe for them into new/photos:
    headwater-train new --data photos
  Keep messages small, and lose at most a point by early answers:
    headwater-train new --data photos --target \"loss<=1,bytes<=20\"
  Choose and train in one command:
    headwater-train train --data photos

Each line of the two files has its reason beside it; edit what you know better. Nothing is trained, and no file is overwritten.";

/// Arguments of `new`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    #[command(flatten)]
    dataset: Dataset,
    /// Targets, such as `loss<=0.5,bytes<=20`: the loss in points becomes that of the recipe, bytes limit the channels that are sent.
    #[arg(long = "target", value_name = "TARGETS")]
    asked: Option<Asked>,
    /// Folder for `spec.toml` and `recipe.toml`; `new/NAME` with the name of the data's folder when left out.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print what was found and chosen as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Spec and recipe for a data set.
pub(crate) struct Chosen {
    pub(crate) spec: Spec,
    pub(crate) recipe: Recipe,
    /// The data, open in the shape of the spec.
    pub(crate) parts: Parts,
    recipe_text: String,
    look: Look,
    seconds: f64,
}

impl New {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let asked = self.asked.clone().unwrap_or_default();
        let chosen = chosen(&self.dataset, &asked)?;
        let name = &chosen.spec.network.network.name;
        let out = self.out.clone().unwrap_or_else(|| Path::new("new").join(name));
        let files = [("spec.toml", chosen.spec.text.as_str()), ("recipe.toml", chosen.recipe_text.as_str())];
        let [spec, recipe] = write::write(&out, files)?.map(|file| file.display().to_string());
        let mut warnings = chosen.look.warnings();
        warnings.extend(without_effect(&asked));
        warnings.iter().for_each(|warning| print_error(&format!("warning: {warning}")));
        let words = ["headwater-train", "train", "--network", &spec, "--recipe", &recipe].map(str::to_owned);
        let command = command_line(words.into_iter().chain(self.dataset.arguments()));
        if !self.json {
            return print(&format!("{}{spec}\n{recipe}\ntrain them by\n    {command}\n", chosen.summary()));
        }
        print_json(&serde_json::json!({
            "data": self.dataset.identity(),
            "found": chosen.look,
            "view": chosen.spec.network.view(),
            "warnings": warnings,
            "seconds": chosen.seconds.round(),
            "spec": spec,
            "recipe": recipe,
            "command": command,
        }))
    }
}

/// Spec and recipe for a training that names neither, with warnings and a summary on stderr.
pub(crate) fn chosen_for_training(dataset: &Dataset) -> Result<Chosen, Failure> {
    let chosen = chosen(dataset, &Asked::default())?;
    chosen.look.warnings().iter().for_each(|warning| print_error(&format!("warning: {warning}")));
    let arguments = command_line(dataset.arguments());
    print_error(&format!(
        "no --network: spec and recipe are chosen from the data; `headwater-train new {arguments}` writes them with their reasons, for editing\n{}",
        chosen.summary().trim_end()
    ));
    Ok(chosen)
}

/// Texts of the chosen spec and recipe, for a table.
#[cfg(feature = "experiments")]
pub(crate) fn chosen_texts(dataset: &Dataset) -> Result<[String; 2], Failure> {
    let Chosen { spec, recipe_text, .. } = chosen(dataset, &Asked::default())?;
    Ok([spec.text, recipe_text])
}

/// Warnings of targets that change neither file, each with the reason.
fn without_effect(asked: &Asked) -> impl Iterator<Item = String> {
    let all = [
        (Key::Macs, "`headwater-train tune` keeps it by thresholds"),
        (Key::P95Ms, "times depend on the machines"),
    ];
    all.into_iter().filter_map(move |(key, why)| {
        asked.of(key).map(|value| format!("target {}<={value} changes neither file: {why}", key.name()))
    })
}

/// Looks at a data set, and chooses spec and recipe.
fn chosen(dataset: &Dataset, asked: &Asked) -> Result<Chosen, Failure> {
    let mut status = StatusLine::of_slow_work();
    print_error(&format!("looking at {}: every image is read", dataset.folder().display()));
    let sizes = if catalogue::find(dataset.name()).is_some_and(|info| info.parts == PartsOrigin::Files) {
        let found =
            image_sizes(dataset.folder(), &mut |images| status.show(|| format!("sizes of {images} images")));
        found.map_err(Failure::usage)?
    } else {
        None
    };
    let open = |channels: usize| {
        let [height, width] = sizes.map(choose::view_size).unwrap_or_default();
        let shape = sizes.map(|_| Shape { channels, height, width });
        dataset.open(OpenOptions { shape, ..OpenOptions::default() })
    };
    let mut parts = open(3)?;
    let mut look = Look::at(&parts, sizes, &mut status);
    if look.is_grey && look.sizes.is_some() {
        status.line("all images are grey; they are read once more, as grey ones");
        parts = open(1)?;
        look.shape = parts.data.shape();
    }
    status.clear();
    if let Some(fault) = parts.data.fault() {
        return usage(fault);
    }
    if look.labels.len() < 2 {
        return usage(format!(
            "{}: expected two classes or more, found {:?}; give each class a folder of its own, and photos of nothing a folder `_none`",
            dataset.folder().display(),
            look.labels
        ));
    }
    let text = write::spec_text(&look, &name_of(dataset.folder()), asked);
    let text = text.map_err(|why| Failure::usage(anyhow::anyhow!("--target {why}")))?;
    let spec = Spec::parse(Path::new("chosen spec"), &text).map_err(Failure::usage)?;
    let length = choose::length(&look, spec.section_costs().map(|section| section.macs).sum());
    let recipe_text = write::recipe_text(&look, length, asked);
    let recipe = Recipe::parse(Path::new("chosen recipe"), &recipe_text).map_err(Failure::usage)?;
    Ok(Chosen { spec, recipe, parts, recipe_text, look, seconds: length.seconds })
}

/// Name of a network for the data in a folder or archive.
fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".tar.gz").or_else(|| name.strip_suffix(".tgz")).unwrap_or(&name);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    let name = name.replace(|letter: char| !is_plain(letter) && !"._-".contains(letter), "-");
    let name: String = name.chars().skip_while(|letter| !is_plain(*letter)).take(64).collect();
    if name.is_empty() { "network".to_owned() } else { name }
}

impl Chosen {
    /// Summary in a few lines: the folder, the choices and their cost.
    fn summary(&self) -> String {
        let Look { labels, slots, samples: [train, validation, test, calibration], shape, of_class, .. } =
            &self.look;
        let classes: Vec<String> =
            labels.iter().zip(of_class).take(12).map(|(label, count)| format!("{label} {count}")).collect();
        let more = if labels.len() > 12 { ", ..." } else { "" };
        let mut text = format!(
            "found    {}, {} classes ({}{more} in train), {train} train, {validation} validation, {test} test, {calibration} calibration samples\n",
            counted(*slots, "camera"),
            labels.len(),
            classes.join(", ")
        );
        if let Some(sizes) = self.look.sizes {
            let [[low, narrow], [high, wide]] = [sizes.smallest, sizes.largest];
            text +=
                &format!("images   {} of {low}x{narrow} to {high}x{wide} (rows, columns)\n", sizes.images);
        }
        let cost = self.spec.cost();
        let Recipe { epochs, batch, .. } = self.recipe;
        text += &format!(
            "chosen   views {shape}, {} multiply-accumulates a device and {} in the cloud; {} in batches of {batch}, roughly {} on two cores\n",
            cost.device.macs,
            cost.cloud.macs,
            counted(epochs as usize, "epoch"),
            counted((self.seconds / 60.0).max(1.0).round() as usize, "minute")
        );
        let known = [Part::Validation, Part::Test].map(|part| {
            let units = self.look.units[part as usize];
            let right = (USUAL_ACCURACY * units as f64).round() as u64;
            let [low, high] = binomial::interval(right, units as u64, 0.95).map(|share| 100.0 * share);
            let of = if self.look.is_grouped { "group" } else { "sample" };
            let by = counted(units, &format!("{} {of}", part.name()));
            format!("by {by} one near {:.0} % is known as {low:.0} to {high:.0} %", 100.0 * USUAL_ACCURACY)
        });
        text + &format!("expect   no promise of an accuracy; {}\n", known.join("; "))
    }
}

impl Look {
    /// Warnings of traits of the data that harm a network or its figures, each with advice.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let rarest = self.labels.iter().zip(&self.of_class).min_by_key(|(_, count)| **count);
        if let Some((label, count)) = rarest.filter(|(_, count)| **count < FEW_OF_CLASS) {
            warnings.push(format!(
                "class `{label}` has {}: take more photos, {FEW_OF_CLASS} at the very least",
                counted(*count, "train sample")
            ));
        }
        let Alike { compared, samples, groups, largest, pairs, example } = &self.alike;
        let [pairs, in_parts, in_classes] = pairs;
        if let Some([one, other]) = example {
            warnings.push(format!(
                "{samples} of {compared} samples are nearly the same as another, in {} of up to {largest}, such as `{one}` and `{other}`; of {} {in_parts} are in two parts, \
                 which makes accuracies look too good, and {in_classes} in two classes, which cannot be learnt: remove one of each; where one scene \
                 gave several photos, name it in the column `group` of a table (docs/data.md), or test is easier than new photos",
                counted(*groups, "group"),
                counted(*pairs, "pair")
            ));
        }
        warnings.extend(of_imbalance(&self.labels, &self.of_class).map(|warning| warning.text));
        warnings
    }
}
