//! Logits of a trained network or of a bundle for a part of the data.

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::{MapCoder, SectionError};
use headwater_inference::whole::Whole;
use headwater_protocol::Slot;

use crate::data::{Batch, Samples};
use crate::experiment::Experiment;
use crate::layers::{Pass, State, TrainedState, values};
use crate::part_logits::PartLogits;
use crate::wire_coding::WireCoding;

/// Samples that run through the trained network at once.
const CHUNK: usize = 128;
/// Samples that run through the sections of a bundle at once.
const BUNDLE_CHUNK: usize = 64;

/// Runs all samples through the network, normalised by the running statistics.
pub fn evaluate(experiment: &Experiment, state: &State, samples: &Samples) -> PartLogits {
    let indices: Vec<usize> = (0..samples.len()).collect();
    let shares = experiment.workers.share(&indices, |share| {
        let batches = share.chunks(CHUNK).map(|chunk| Batch::plain(samples, chunk.iter().copied()));
        batches.map(|batch| logits_of_batch(experiment, state, &batch)).collect::<Vec<_>>()
    });
    let mut all = PartLogits::default();
    shares.into_iter().flatten().for_each(|batch| all.append(batch));
    all
}

/// Logits of a batch.
fn logits_of_batch(experiment: &Experiment, state: &State, batch: &Batch) -> PartLogits {
    let (network, spec) = (&experiment.network, &experiment.network.spec.network);
    let classes = spec.classes();
    let mut logits = PartLogits::zeros(spec.configuration(), batch.views.len(), classes, batch.labels.len());
    let coders = state.coding.as_ref().map_or(&[][..], |coding| &coding.map_coders);
    logits.map_bytes = vec![vec![0.0; batch.labels.len()]; coders.len()];
    if batch.is_blank() {
        return logits;
    }
    let output = network.forward(&Pass::inference(TrainedState { layout: &network.layout, state }), batch);
    for (logits, device) in logits.devices.iter_mut().zip(&output.devices) {
        let Some(device) = device else { continue };
        let Some(scores) = device.flat_scores() else { continue };
        for (row, scores) in device.rows.iter().zip(values(&scores).chunks_exact(classes)) {
            logits[*row as usize * classes..][..classes].copy_from_slice(scores);
        }
    }
    let coded = logits.map_bytes.iter_mut().zip(coders).zip(&output.devices);
    for ((bytes, coder), device) in coded {
        let Some(device) = device else { continue };
        let maps = device.packed_maps(&experiment.network.spec.shapes.features);
        for (row, map) in device.rows.iter().zip(&maps) {
            bytes[*row as usize] = coded_bytes(coder, map);
        }
    }
    logits.exits = output.exits.map(|_, logits| {
        let mut logits = values(logits);
        let rows = logits.chunks_exact_mut(classes).zip(&batch.seen);
        rows.filter(|(_, seen)| seen.is_empty()).for_each(|(row, _)| row.fill(0.0));
        logits
    });
    logits
}

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

/// The same; `watch` is told the number of samples that are done, every few samples.
///
/// # Errors
/// As [`bundle_logits`].
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
    for start in (0..samples.len()).step_by(BUNDLE_CHUNK) {
        let chunk = start..(start + BUNDLE_CHUNK).min(samples.len());
        let views = |index| Slot::first(slots).map(|slot| samples.view(index, slot)).collect::<Vec<_>>();
        let answers = whole.run(&chunk.clone().map(views).collect::<Vec<_>>())?;
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
                let (found, all) = (answer.logits.of(exit), logits.exits.get_or_insert_with(exit, Vec::new));
                if !found.is_empty() {
                    all[at.clone()].copy_from_slice(found);
                }
            }
        }
        watch(end);
    }
    Ok(logits)
}

/// Bytes of the body of a packed map.
fn coded_bytes(coder: &MapCoder, map: &[u8]) -> f32 {
    coder.encode(map).expect("maps of the network's shape").len() as f32
}
