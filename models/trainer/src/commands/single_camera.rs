//! `headwater-train single-camera`.

use std::num::NonZero;

use anyhow::Context;
use clap::Args;
use headwater_protocol::Slot;
use headwater_samples::Part;
use headwater_samples::data_set::OpenOptions;
use headwater_training::recipe::Recipe;
use headwater_training::single_camera::{plain_network, single_camera};

use super::dataset::Dataset;
use super::output::{print, print_error};
use super::{Failure, print_json};

/// Arguments of `single-camera`.
#[derive(Args)]
pub(crate) struct SingleCamera {
    #[command(flatten)]
    dataset: Dataset,
    /// Passes over the train part for each camera.
    #[arg(long, value_name = "N", default_value_t = 3)]
    epochs: u32,
    /// Seed of weights and order.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Use the first N samples of the train part only.
    #[arg(long, value_name = "N")]
    limit_train: Option<NonZero<usize>>,
    /// Print the results as one JSON array.
    #[arg(long)]
    json: bool,
}

impl SingleCamera {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut recipe = Recipe::read(None).map_err(Failure::usage)?;
        (recipe.epochs, recipe.seed) = (self.epochs, self.seed);
        let parts = self.dataset.open(OpenOptions::default())?;
        let train = parts.part(Part::Train, self.limit_train.map(NonZero::get), recipe.workers);
        let test = parts.part(Part::Test, None, recipe.workers);
        let spec = plain_network(&train).map_err(Failure::usage)?;
        let mut results = Vec::new();
        for slot in Slot::first(parts.slots) {
            let result = single_camera(spec.clone(), &recipe, &train, &test, slot)
                .with_context(|| format!("camera {slot}"))?;
            print_error(&format!(
                "camera {slot}: test {:.2} %; {:.2} % of the {:.1} % that the camera sees",
                100.0 * result.accuracy,
                100.0 * result.seen_accuracy,
                100.0 * result.sees
            ));
            results.push(result);
        }
        parts.check_read()?;
        if self.json {
            return print_json(&results);
        }
        let best = results.iter().map(|result| result.accuracy).fold(0.0, f64::max);
        print(&format!("best single camera: {:.2} % of the test part\n", 100.0 * best))
    }
}
