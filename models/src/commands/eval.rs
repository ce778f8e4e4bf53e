//! `headwater-train eval`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_inference::bundle::Bundle;
use headwater_inference::cost::DeviceBody;
use headwater_inference::engine::TractEngine;
use headwater_models::bundle_logits::bundle_logits;
use headwater_models::report::PartReport;
use headwater_samples::Shape;
use headwater_samples::data_set::OpenOptions;

use super::dataset::{Dataset, PartName};
use super::{Failure, part_report, print_json};

/// Arguments of `eval`.
#[derive(Args)]
pub(crate) struct Eval {
    /// Bundle to measure.
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Part of the data: choices belong to validation, reports to test.
    #[arg(long, value_enum, default_value_t = PartName::Test)]
    part: PartName,
    /// Use the first N samples of the part only.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print the figures as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let bundle = Bundle::open(&self.bundle).map_err(Failure::usage)?;
        let manifest = bundle.manifest();
        let view = &manifest.preprocessing;
        let [channels, height, width] = [view.channels, view.height, view.width].map(|side| side as usize);
        let shape = Some(Shape { channels, height, width });
        let parts = self.dataset.open(OpenOptions {
            shape,
            slots: Some(usize::from(manifest.slots)),
            ..OpenOptions::default()
        })?;
        if manifest.labels != parts.labels() || usize::from(manifest.slots) != parts.slots() {
            return Err(Failure::usage(anyhow::anyhow!(
                "{}: expected a network of {} slots and classes {:?} as in the data, found {} slots and {:?}",
                self.bundle.display(),
                parts.slots(),
                parts.labels(),
                manifest.slots,
                manifest.labels
            )));
        }
        let (name, part) = (self.part.name(), self.part.into());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let samples = parts.part(part, self.limit, threads);
        let logits = bundle_logits(&bundle, &TractEngine, &samples)
            .with_context(|| format!("running {}", self.bundle.display()))?;
        let body = DeviceBody::of(manifest);
        let report = PartReport::of(&logits, &samples, &manifest.class_prior, bundle.policy(), body);
        if self.json {
            let mut value = serde_json::to_value(&report).context("writing JSON")?;
            if let Some(object) = value.as_object_mut() {
                object.insert("part".into(), name.into());
                object.insert("network_id".into(), bundle.network_id().to_string().into());
            }
            return print_json(&value);
        }
        part_report::print(&name, &report);
        Ok(())
    }
}
