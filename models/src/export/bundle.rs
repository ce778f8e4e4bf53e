//! Writes the bundle, unless the engine disagrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError, BundleWriter};
use headwater_inference::engine::TractEngine;
use headwater_inference::policy::Policy;
use thiserror::Error;

use super::manifest::manifest;
use super::parity::{Parity, ParityError, compare};
use super::sections::onnx_sections;
use crate::data::Samples;
use crate::layers::State;
use crate::network::Network;
use crate::spec::Spec;

/// A bundle that cannot be written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// Its parts do not hold.
    #[error("writing the bundle: {0}")]
    Bundle(#[from] BundleError),
    /// An engine does not agree with the trained network.
    #[error("export refused: {0}")]
    Parity(#[from] ParityError),
}

/// What goes into a bundle besides the network itself.
pub struct Shipped<'a> {
    /// Thresholds and timing.
    pub policy: &'a Policy,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
    /// Training report, stored with the bundle; the parity is added to it.
    pub report: serde_json::Value,
}

/// A finished bundle.
pub struct Exported {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How the engine compares.
    pub parity: Parity,
    /// The report as stored.
    pub report: serde_json::Value,
}

/// The bundle of a trained network, compared with it on the first validation samples.
///
/// # Errors
/// [`ExportError`] when the engine disagrees or the bundle does not hold.
pub fn export(
    spec: &Spec,
    network: &Network,
    state: &State,
    shipped: Shipped<'_>,
    validation: &Samples,
) -> Result<Exported, ExportError> {
    let writer = onnx_sections(spec, network, state).into_iter().fold(
        BundleWriter::new(manifest(spec, shipped.class_prior), shipped.policy.clone()),
        |writer, (name, onnx)| writer.section(name, onnx),
    );
    let unreported = Bundle::from_bytes(&writer.clone().finish()?)?;
    let parity = compare(&unreported, &TractEngine, network, state, validation)?;
    let mut report = shipped.report;
    if let Some(report) = report.as_object_mut() {
        report.insert("parity".into(), serde_json::json!(parity));
    }
    let bytes = writer.report(report.clone()).finish()?;
    Bundle::from_bytes(&bytes)?;
    Ok(Exported { bytes, parity, report })
}
