//! Writes the bundle, unless an engine disagrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError, BundleWriter};
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::policy::Policy;
use headwater_protocol::Slot;
use thiserror::Error;

use super::TrainedNetwork;
use super::manifest::manifest;
use super::packed::{NoPackedForm, packed_section};
use super::parity::{Parity, ParityError, Reference, SAMPLES};
use super::sections::onnx_sections;
use crate::data::Samples;

/// A bundle that cannot be written.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The parts of the bundle contradict each other.
    #[error("writing the bundle: {0}")]
    Bundle(#[from] BundleError),
    /// An engine does not agree with the trained network.
    #[error("export refused: {0}")]
    Parity(#[from] ParityError),
}

/// Contents of a bundle besides the network.
pub struct BundleContents<'a> {
    /// Thresholds and timing.
    pub policy: &'a Policy,
    /// Share of each class in the train part.
    pub class_prior: Vec<f32>,
    /// Training report, stored in the bundle together with the parity.
    pub report: serde_json::Value,
}

/// A finished bundle.
pub struct Exported {
    /// Bytes of the bundle.
    pub bytes: Vec<u8>,
    /// Comparison of tract with the trained network.
    pub parity: Parity,
    /// Comparison of the packed device sections with the trained network, or why there is no packed form.
    pub packed: Result<Parity, NoPackedForm>,
    /// The report as stored.
    pub report: serde_json::Value,
}

/// The bundle of a trained network, compared with the network on the first validation samples.
///
/// # Errors
/// [`ExportError`] when an engine disagrees or the parts of the bundle contradict each other.
pub fn export(
    network: &TrainedNetwork<'_>,
    contents: BundleContents<'_>,
    validation: &Samples,
) -> Result<Exported, ExportError> {
    let writer = onnx_sections(network).into_iter().fold(
        BundleWriter::new(manifest(network.spec, contents.class_prior), contents.policy.clone()),
        |writer, (name, onnx)| writer.section(name, onnx),
    );
    let packed = packed_sections(network);
    let writer = Slot::first(network.spec.slots())
        .zip(packed.as_deref().unwrap_or_default())
        .fold(writer, |writer, (slot, bytes)| {
            writer.packed(SectionManifest::device_name(slot), bytes.as_slice())
        });
    let without_report = Bundle::from_bytes(&writer.clone().finish()?)?;
    let reference = Reference::new(network, validation, 0..validation.len().min(SAMPLES));
    let deeper = reference.compare_deeper(&without_report, &TractEngine)?;
    let parity = reference.compare_devices(&without_report, &TractEngine)?.with(&deeper);
    let packed = match packed {
        Ok(_) => Ok(reference.compare_devices(&without_report, &PackedEngine)?),
        Err(reason) => Err(reason),
    };
    let mut report = contents.report;
    if let Some(report) = report.as_object_mut() {
        report.insert("parity".into(), serde_json::json!(parity));
        let packed = match &packed {
            Ok(parity) => serde_json::json!(parity),
            Err(reason) => serde_json::json!({ "none": reason.to_string() }),
        };
        report.insert("parity_packed".into(), packed);
    }
    let bytes = writer.report(report.clone()).finish()?;
    Bundle::from_bytes(&bytes)?;
    Ok(Exported { bytes, parity, packed, report })
}

/// The packed form of every device section.
fn packed_sections(network: &TrainedNetwork<'_>) -> Result<Vec<Vec<u8>>, NoPackedForm> {
    if network.layers.devices.is_empty() {
        return Err(NoPackedForm::NoSection);
    }
    let devices = network.layers.devices.iter();
    devices.map(|section| packed_section(&section.numbers(&network.trained()), network.spec.view())).collect()
}
