//! Writes the bundle, unless an engine disagrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError, BundleWriter};
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::manifest::{NetworkManifest, SectionManifest};
use headwater_inference::policy::{Policy, PolicyError};
use headwater_protocol::Slot;
use thiserror::Error;

use super::TrainedNetwork;
use super::packed::{NoPackedForm, packed_section};
use super::parity::{Parity, ParityError, Reference, SAMPLES};
use super::sections::onnx_sections;
use crate::data::Samples;

/// A trained network that cannot be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    /// A fitted number is out of range.
    #[error("choosing the policy: {0}; the logits are probably not finite, lower the learning rate")]
    Policy(#[from] PolicyError),
    /// The parts of the bundle contradict each other.
    #[error("writing the bundle: {0}")]
    Bundle(#[from] BundleError),
    /// An engine does not agree with the trained network.
    #[error("export refused: {0}")]
    Parity(#[from] ParityError),
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

/// The bundle of a trained network with its training report, compared with the network on the first validation samples.
///
/// # Errors
/// [`ExportError`] when an engine disagrees or the parts of the bundle contradict each other.
pub fn export(
    network: &TrainedNetwork<'_>,
    manifest: NetworkManifest,
    policy: &Policy,
    mut report: serde_json::Value,
    validation: &Samples,
) -> Result<Exported, ExportError> {
    let packed = packed_sections(network);
    let writer = bundle_writer(network, manifest, policy.clone());
    let writer = Slot::first(network.layers.devices.len())
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
    report["parity"] = serde_json::json!(parity);
    report["parity_packed"] = match &packed {
        Ok(parity) => serde_json::json!(parity),
        Err(reason) => serde_json::json!({ "none": reason.to_string() }),
    };
    let bytes = writer.report(report.clone()).finish()?;
    Bundle::from_bytes(&bytes)?;
    Ok(Exported { bytes, parity, packed, report })
}

/// A bundle with the ONNX file of every section.
pub fn bundle_writer(
    network: &TrainedNetwork<'_>,
    manifest: NetworkManifest,
    policy: Policy,
) -> BundleWriter {
    let names: Vec<String> = manifest.sections.iter().map(|section| section.name.clone()).collect();
    let sections = names.into_iter().zip(onnx_sections(network, &manifest));
    sections.fold(BundleWriter::new(manifest, policy), |writer, (name, onnx)| writer.section(name, onnx))
}

/// The packed form of every device section.
fn packed_sections(network: &TrainedNetwork<'_>) -> Result<Vec<Vec<u8>>, NoPackedForm> {
    if network.layers.devices.is_empty() {
        return Err(NoPackedForm::NoSection);
    }
    let devices = network.layers.devices.iter();
    devices
        .map(|section| packed_section(section, &network.trained(), network.layers.spec.network.view()))
        .collect()
}
