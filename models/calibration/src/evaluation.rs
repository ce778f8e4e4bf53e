//! Logits of a bundle for a part of the data.

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::{MapCoder, SectionError};
use headwater_inference::whole::Whole;
use headwater_protocol::Slot;

use crate::data::Samples;
use crate::part_logits::PartLogits;
use crate::wire_coding::WireCoding;

/// Largest number of samples that run through the sections of a bundle at once.
const BUNDLE_CHUNK: usize = 64;

/// Logits of every exit of a bundle for every sample of a part.
///
/// # Errors
/// [`SectionError`] when the bundle lacks a section or a context table, or the engine refuses one.
pub fn bundle_logits(
    bundle: &Bundle,
    engine: &dyn Engine,
    samples: &Samples,
) -> Result<PartLogits, SectionError> {
    bundle_logits_watched(bundle, engine, samples, &mut |_| {})
}

/// Computes [`bundle_logits`] and calls `watch` with the number of finished samples after every 64 samples, or fewer with large views.
///
/// # Errors
/// See [`bundle_logits`].
pub fn bundle_logits_watched(
    bundle: &Bundle,
    engine: &dyn Engine,
    samples: &Samples,
    watch: &mut dyn FnMut(usize),
) -> Result<PartLogits, SectionError> {
    let manifest = bundle.manifest();
    let (slots, classes) = (usize::from(manifest.slots), manifest.classes());
    let coding = WireCoding::of_bundle(bundle)?;
    let coders = coding.as_ref().map_or(&[][..], |coding| &coding.map_coders);
    let mut whole = Whole::load(bundle, engine)?;
    let mut logits = PartLogits::zeros(manifest.configuration, slots, classes, samples.len());
    logits.map_bytes = vec![vec![0.0; samples.len()]; coders.len()];
    let most = samples.chunk(BUNDLE_CHUNK);
    for start in (0..samples.len()).step_by(most) {
        let chunk = start..(start + most).min(samples.len());
        let views = |index| Slot::first(slots).map(|slot| samples.view(index, slot)).collect();
        let views: Vec<Vec<Option<Vec<u8>>>> = chunk.clone().map(views).collect();
        let views: Vec<Vec<Option<&[u8]>>> =
            views.iter().map(|views| views.iter().map(Option::as_deref).collect()).collect();
        let answers = whole.run(&views)?;
        let end = chunk.end;
        for (index, answer) in chunk.zip(&answers) {
            let at = index * classes..(index + 1) * classes;
            for (all, device) in logits.devices.iter_mut().zip(&answer.devices) {
                if let Some(device) = device {
                    all[at.clone()].copy_from_slice(&device.scores);
                }
            }
            for ((bytes, coder), device) in logits.map_bytes.iter_mut().zip(coders).zip(&answer.devices) {
                bytes[index] = device.as_ref().map_or(0.0, |device| coded_bytes(coder, &device.features));
            }
            // A sample without a view has no logits; its row stays zero.
            for &exit in manifest.exits() {
                let all = logits.exits.get_or_insert_with(exit, Vec::new);
                if let Some(found) = answer.logits.get(exit) {
                    all[at.clone()].copy_from_slice(found);
                }
            }
        }
        watch(end);
    }
    Ok(logits)
}

/// Number of bytes in the coded body of a packed map.
///
/// # Panics
/// When the map does not have the shape of the coder.
pub fn coded_bytes(coder: &MapCoder, map: &[u8]) -> f32 {
    coder.encode(map).expect("maps of the network's shape").len() as f32
}
