//! `headwater-train parity`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_inference::bundle::Bundle;
use headwater_inference::engine::{Engine, PackedEngine, TractEngine};
use headwater_models::export::parity::{Parity, SAMPLES, Trained};

use super::dataset::{Dataset, PartName};
use super::saved::Saved;
use super::train::fits;
use super::{Failure, print_json};

/// Arguments of `parity`.
#[derive(Args)]
pub(crate) struct Compare {
    /// Run folder with a bundle.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Part of the data.
    #[arg(long, value_enum, default_value_t = PartName::Test)]
    part: PartName,
    /// Use the first N samples of the part only.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print the figures as one JSON array.
    #[arg(long)]
    json: bool,
}

impl Compare {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let saved = Saved::open(&self.run)?;
        let bundle = Bundle::open(saved.folder.file("bundle.hwb")).map_err(Failure::usage)?;
        let parts = self.dataset.open_for(&saved.spec)?;
        fits(&saved.spec, &parts)?;
        let samples = parts.part(self.part.into(), self.limit, saved.recipe.workers);
        let packed = PackedEngine::new();
        let is_packed = bundle.manifest().sections.iter().any(|section| section.packed_sha256.is_some());
        let mut engines: Vec<(&dyn Engine, Parity)> = vec![(&TractEngine, Parity::default())];
        if is_packed {
            engines.push((&packed, Parity::default()));
        }
        for start in (0..samples.len()).step_by(SAMPLES) {
            let range = start..samples.len().min(start + SAMPLES);
            let trained = Trained::new(&saved.network, &saved.at.state, &samples, range);
            for (engine, parity) in &mut engines {
                let mut found = trained.compare_devices(&bundle, *engine)?;
                if engine.name() == TractEngine.name() {
                    found = found.with(&trained.compare_behind(&bundle, *engine)?);
                }
                *parity = found.and(parity);
            }
        }
        let found: Vec<&Parity> = engines.iter().map(|(_, parity)| parity).collect();
        if self.json {
            return print_json(&serde_json::to_value(found).context("writing JSON")?);
        }
        for parity in found {
            println!(
                "{}: {} samples, scores and logits within {:.1e}; {} of {} feature bits differ, each at its threshold; \
                 {} views have another best class",
                parity.engine,
                parity.samples,
                parity.largest_difference,
                parity.bits_at_threshold,
                parity.bits,
                parity.other_class
            );
        }
        Ok(())
    }
}
