//! Writes the bundle, unless an engine disagrees with the trained network.

use headwater_inference::bundle::{Bundle, BundleError, BundleWriter};
use headwater_inference::engine::{Engine, PackedEngine, TractEngine};
use headwater_inference::manifest::{NetworkManifest, SectionManifest, Tier};
use headwater_inference::policy::{Policy, PolicyError};
use headwater_protocol::Slot;
use thiserror::Error;

use super::NoPackedForm;
use super::TrainedNetwork;
use super::packed::packed_section;
use super::parity::{COMPARED_SAMPLES, Parity, ParityError, Reference};
use super::sections::onnx_sections;
use headwater_calibration::data::Samples;

/// Least width assumed for a measured range of scores: if all measured scores are equal, other scores must stay allowed.
const MIN_SCORE_WIDTH: f32 = 1.0;

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
    /// Comparison of the packed device sections with the trained network; the error is the reason for which there is no packed form.
    pub packed: Result<Parity, NoPackedForm>,
    /// The report as stored in the bundle.
    pub report: serde_json::Value,
}

/// The bundle of a trained network with its training report, compared with the network on the first [`COMPARED_SAMPLES`] validation
/// samples.
///
/// # Errors
/// [`ExportError`] when an engine disagrees or the parts of the bundle contradict each other.
pub fn export(
    network: &TrainedNetwork<'_>,
    mut manifest: NetworkManifest,
    policy: &Policy,
    mut report: serde_json::Value,
    validation: &Samples,
) -> Result<Exported, ExportError> {
    let packed = packed_sections(network);
    let (count, chunk) = (validation.len().min(COMPARED_SAMPLES), validation.chunk(COMPARED_SAMPLES));
    let ranges = (0..count.max(1)).step_by(chunk).map(|start| start..count.min(start + chunk));
    let references: Vec<Reference<'_>> =
        ranges.map(|range| Reference::new(network, validation, range)).collect();
    record_score_limits(&mut manifest, &references, packed.is_ok());
    let writer = bundle_writer(network, manifest, policy.clone());
    let writer = Slot::first(network.layers.devices.len())
        .zip(packed.as_deref().unwrap_or_default())
        .fold(writer, |writer, (slot, bytes)| {
            writer.packed(SectionManifest::device_name(slot), bytes.as_slice())
        });
    let without_report = Bundle::from_bytes(&writer.clone().finish()?)?;
    let compare = |engine: &dyn Engine| -> Result<Parity, ParityError> {
        let mut found = references.iter().map(|reference| reference.compare(&without_report, engine));
        found.try_fold(Parity::default(), |all, found| Ok(found?.and(&all)))
    };
    let parity = compare(&TractEngine)?;
    let packed = match packed {
        Ok(_) => Ok(compare(&PackedEngine)?),
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

/// Records the score limits of the device and edge sections in the manifest. Packed device sections get none here: the limits of a packed
/// section follow from its weights.
fn record_score_limits(
    manifest: &mut NetworkManifest,
    references: &[Reference<'_>],
    devices_are_packed: bool,
) {
    let range = |section: &str| {
        let ranges = references.iter().filter_map(|reference| reference.score_range(section));
        ranges.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])])
    };
    let of_sections: Vec<(String, [f32; 2])> = manifest
        .sections
        .iter()
        .filter(|section| section.tier != Tier::Device || !devices_are_packed)
        .filter_map(|section| Some((section.name.clone(), range(&section.name)?)))
        .collect();
    for (name, measured) in of_sections {
        manifest.score_limits.insert(name.clone(), widened(measured));
    }
}

/// A measured range of scores, widened on both sides by three times its width: other views may reach further, while a score that
/// outweighs every other device stays outside.
fn widened([least, largest]: [f32; 2]) -> [f32; 2] {
    let margin = 3.0 * (largest - least).max(MIN_SCORE_WIDTH);
    [least - margin, largest + margin]
}

/// A bundle with the ONNX file of every section, and with the coding of messages.
pub fn bundle_writer(
    network: &TrainedNetwork<'_>,
    mut manifest: NetworkManifest,
    policy: Policy,
) -> BundleWriter {
    let names: Vec<String> = manifest.sections.iter().map(|section| section.name.clone()).collect();
    let coding = network.state.coding.as_ref();
    manifest.score_levels = coding.map(|coding| coding.score_levels.clone()).unwrap_or_default();
    let sections = names.into_iter().zip(onnx_sections(network, &manifest));
    let writer = BundleWriter::new(manifest, policy);
    let writer = sections.fold(writer, |writer, (name, onnx)| writer.section(name, onnx));
    let coders = coding.map_or(&[][..], |coding| &coding.map_coders);
    Slot::first(network.layers.devices.len()).zip(coders).fold(writer, |writer, (slot, coder)| {
        writer.contexts(SectionManifest::device_name(slot), coder.table())
    })
}

/// The packed form of every device section; the first obstacle if a section has none.
fn packed_sections(network: &TrainedNetwork<'_>) -> Result<Vec<Vec<u8>>, NoPackedForm> {
    if network.layers.devices.is_empty() {
        return Err(NoPackedForm::NoSection);
    }
    let devices = network.layers.devices.iter();
    devices
        .map(|section| packed_section(section, &network.trained(), network.layers.spec.network.view()))
        .collect()
}

#[cfg(test)]
mod tests {
    use headwater_inference::sections::ScoreLimits;
    use headwater_samples::Part;

    use super::*;
    use crate::testing::network;
    use headwater_calibration::data::Parts;
    use headwater_spec::manifest;

    #[test]
    fn scores_of_sections_without_a_packed_form_have_recorded_limits() {
        let layers = network(include_str!("../../../networks/ddnn-f.toml"));
        let state = layers.layout.initial(1);
        let network = TrainedNetwork { layers: &layers, state: &state };
        let samples = Parts::drawn(8, 4, 4).part(Part::Train, None, 1);
        let manifest = manifest(&layers.spec, vec![0.1; 10]);
        let report = serde_json::json!({});
        let exported = export(&network, manifest, &Policy::default(), report, &samples).unwrap();
        let bundle = Bundle::from_bytes(&exported.bytes).unwrap();
        let reference = Reference::new(&network, &samples, 0..8);
        for section in &bundle.manifest().sections {
            let limits = ScoreLimits::of_section(&bundle, &section.name);
            let is_packed = bundle.packed_section(&section.name).is_some();
            let measured = reference.score_range(&section.name);
            assert_eq!(limits.is_some(), measured.is_some(), "{}", section.name);
            assert_eq!(
                bundle.manifest().score_limits.get(&section.name).copied(),
                measured.filter(|_| !is_packed).map(widened),
                "{}",
                section.name
            );
            for score in measured.into_iter().flatten() {
                limits.as_ref().unwrap().check(&[score]).unwrap_or_else(|outside| {
                    assert!(is_packed, "{}: {outside}", section.name);
                });
            }
        }
        let with_limits = |tier| {
            let mut sections = bundle.manifest().sections.iter();
            sections.any(|section| {
                section.tier == tier && bundle.manifest().score_limits.contains_key(&section.name)
            })
        };
        assert!(with_limits(Tier::Edge) && !with_limits(Tier::Cloud));
    }

    #[test]
    fn limits_are_three_widths_wider_than_the_measured_scores() {
        assert_eq!(widened([-1.0, 3.0]), [-13.0, 15.0]);
        assert_eq!(widened([2.0, 2.0]), [-1.0, 5.0]);
    }
}
