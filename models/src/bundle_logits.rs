//! Logits of a bundle in an engine for a part of the data: the figures of training, from the shipped sections.

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::SectionError;
use headwater_inference::whole::Whole;
use headwater_protocol::Slot;

use crate::data::Samples;
use crate::evaluation::PartLogits;

/// Samples that run at once.
const CHUNK: usize = 64;

/// Logits of every exit of a bundle for every sample of a part.
///
/// # Errors
/// [`SectionError`] when the bundle lacks a section, or the engine refuses one.
pub fn bundle_logits(
    bundle: &Bundle,
    engine: &dyn Engine,
    samples: &Samples,
) -> Result<PartLogits, SectionError> {
    let manifest = bundle.manifest();
    let (slots, classes) = (usize::from(manifest.slots), manifest.classes());
    let mut whole = Whole::load(bundle, engine)?;
    let mut logits = PartLogits::zeros(manifest.configuration, slots, classes, samples.len());
    for start in (0..samples.len()).step_by(CHUNK) {
        let chunk = start..(start + CHUNK).min(samples.len());
        let views = |index| Slot::first(slots).map(|slot| samples.view(index, slot)).collect::<Vec<_>>();
        let answers = whole.run(&chunk.clone().map(views).collect::<Vec<_>>())?;
        for (index, answer) in chunk.zip(&answers) {
            let at = index * classes..(index + 1) * classes;
            for (all, device) in logits.devices.iter_mut().zip(&answer.devices) {
                if let Some(device) = device {
                    all[at.clone()].copy_from_slice(&device.scores);
                }
            }
            // A sample without a view has no logits; its row stays zero.
            for &exit in manifest.configuration.exits() {
                let (found, all) = (answer.logits.of(exit), logits.exits.slot(exit));
                if let (Some(all), false) = (all, found.is_empty()) {
                    all[at.clone()].copy_from_slice(found);
                }
            }
        }
    }
    Ok(logits)
}
