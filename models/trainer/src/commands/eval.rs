//! `headwater-train eval`.

use std::num::NonZero;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use headwater_calibration::account::PartReport;
use headwater_calibration::by_class::ClassReport;
use headwater_calibration::evaluation::bundle_logits;
use headwater_inference::cost::DeviceBody;
use headwater_inference::engine::TractEngine;
use headwater_samples::Part;

use super::dataset::{Dataset, PARTS};
use super::kept_apart::learnt_samples_warning;
use super::output::{print, print_error};
use super::saved::bundle_file;
use super::{Failure, cores, open_bundle, part_report, print_json};

/// Arguments of `eval`.
#[derive(Args)]
pub(crate) struct Eval {
    /// Bundle to measure, or run folder with its bundle.
    #[arg(value_name = "RUN|BUNDLE")]
    bundle: PathBuf,
    #[command(flatten)]
    dataset: Dataset,
    /// Part of the data: choices belong to validation, reports to test.
    #[arg(long, value_parser = PARTS, default_value = "test")]
    part: String,
    /// Use the first N samples of the part only.
    #[arg(long, value_name = "N")]
    limit: Option<NonZero<usize>>,
    /// Print the figures as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let file = bundle_file(&self.bundle)?;
        let bundle = open_bundle(&file)?;
        let manifest = bundle.manifest();
        let parts = self.dataset.open_for_bundle(&bundle, &file)?;
        let warning = learnt_samples_warning(&bundle, &file, &self.dataset);
        warning.iter().for_each(|warning| print_error(&format!("warning: {warning}")));
        let samples = self.dataset.samples(&parts, &self.part, self.limit.map(NonZero::get), cores())?;
        let logits = bundle_logits(&bundle, &TractEngine, &samples)
            .with_context(|| format!("running {}", file.display()))?;
        samples.check_read()?;
        let body = DeviceBody::of(manifest);
        let report = PartReport::of(&logits, &samples, &manifest.class_prior, bundle.policy(), body);
        let part = Part::named(&self.part).unwrap_or(Part::Test);
        let by_class =
            ClassReport::of(&logits, &samples, &manifest.class_prior, bundle.policy(), &manifest.labels);
        let by_class = by_class.with_files(&parts, part);
        if self.json {
            let mut value = serde_json::json!(report);
            value["part"] = self.part.as_str().into();
            value["by_class"] = serde_json::json!(by_class);
            value["warning"] = serde_json::json!(warning);
            value["network_id"] = bundle.network_id().to_string().into();
            return print_json(&value);
        }
        print(&(part_report::lines(&self.part, &report) + &part_report::by_class(&self.part, &by_class)))
    }
}
