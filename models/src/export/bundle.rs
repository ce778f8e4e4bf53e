//! Writes the bundle, unless the engine disagrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError, BundleWriter};
use headwater_inference::engine::{PackedEngine, TractEngine};
use headwater_inference::manifest::SectionManifest;
use headwater_inference::policy::Policy;
use headwater_protocol::Slot;
use thiserror::Error;

use super::manifest::manifest;
use super::packed::{NoPackedForm, packed_section};
use super::parity::{Parity, ParityError, SAMPLES, Trained};
use super::sections::onnx_sections;
use crate::data::Samples;
use crate::layers::{Source, State};
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
    /// How tract compares.
    pub parity: Parity,
    /// How the packed device sections compare; or why they have no packed form.
    pub packed: Result<Parity, NoPackedForm>,
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
    let source = Source { layout: &network.layout, state };
    let packed = network.devices.iter().map(|section| packed_section(section, &source, spec.view()));
    let packed: Result<Vec<_>, _> = packed.collect();
    let packed =
        packed.and_then(|packed| if packed.is_empty() { Err(NoPackedForm::NoSection) } else { Ok(packed) });
    let writer = Slot::first(spec.slots())
        .zip(packed.as_deref().unwrap_or_default())
        .fold(writer, |writer, (slot, bytes)| {
            writer.packed(SectionManifest::device_name(slot), bytes.as_slice())
        });
    let unreported = Bundle::from_bytes(&writer.clone().finish()?)?;
    let trained = Trained::new(network, state, validation, 0..validation.len().min(SAMPLES));
    let behind = trained.compare_behind(&unreported, &TractEngine)?;
    let parity = trained.compare_devices(&unreported, &TractEngine)?.with(&behind);
    let packed = match packed {
        Ok(_) => Ok(trained.compare_devices(&unreported, &PackedEngine::new())?),
        Err(reason) => Err(reason),
    };
    let mut report = shipped.report;
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
