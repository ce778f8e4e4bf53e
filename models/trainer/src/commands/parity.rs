//! `headwater-train parity`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use headwater_calibration::wire_coding::WireCoding;
use headwater_inference::engine::{Engine, PackedEngine, TractEngine};
use headwater_training::export::TrainedNetwork;
use headwater_training::export::parity::{COMPARED_SAMPLES, Parity, Reference};

use super::dataset::{Dataset, PARTS};
use super::output::{counted, print};
use super::saved::{TrainedRun, bundle_file, trained};
use super::{Failure, open_bundle, print_json};

/// Arguments of `parity`.
#[derive(Args)]
pub(crate) struct Compare {
    /// Run folder with a bundle, or bundle that was exported --with-training-weights.
    #[arg(value_name = "RUN|BUNDLE")]
    run: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Part of the data.
    #[arg(long, value_parser = PARTS, default_value = "test")]
    part: String,
    /// Use the first N samples of the part only.
    #[arg(long, value_name = "N")]
    limit: Option<NonZero<usize>>,
    /// Print the figures as one JSON array.
    #[arg(long)]
    json: bool,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let TrainedRun { experiment, mut checkpoint } = trained(&self.run)?;
        let bundle = open_bundle(&bundle_file(&self.run)?)?;
        checkpoint.state.coding = WireCoding::of_bundle(&bundle)?;
        let parts = self.dataset.open_for(&experiment.network.spec)?;
        let (limit, threads) = (self.limit.map(NonZero::get), experiment.recipe.workers);
        let samples = self.dataset.samples(&parts, &self.part, limit, threads)?;
        let network = TrainedNetwork { layers: &experiment.network, state: &checkpoint.state };
        let is_packed = bundle.manifest().sections.iter().any(|section| section.packed_sha256.is_some());
        let mut engines: Vec<(&dyn Engine, Parity)> = vec![(&TractEngine, Parity::default())];
        if is_packed {
            engines.push((&PackedEngine, Parity::default()));
        }
        let most = samples.chunk(COMPARED_SAMPLES);
        for start in (0..samples.len()).step_by(most) {
            let range = start..samples.len().min(start + most);
            let reference = Reference::new(&network, &samples, range);
            for (engine, parity) in &mut engines {
                *parity = reference.compare(&bundle, *engine)?.and(parity);
            }
        }
        samples.check_read()?;
        let found: Vec<&Parity> = engines.iter().map(|(_, parity)| parity).collect();
        if self.json {
            return print_json(&found);
        }
        let lines = found.into_iter().map(|parity| {
            format!(
                "{}: {}, scores and logits within {:.1e}; {} of {} feature bits differ, each at its threshold; \
                 another best class for {}\n",
                parity.engine,
                counted(parity.samples, "sample"),
                parity.largest_difference,
                parity.bits_at_threshold,
                parity.bits,
                counted(parity.other_class as usize, "view")
            )
        });
        print(&lines.collect::<String>())
    }
}
