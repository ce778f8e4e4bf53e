//! Logits of a trained network for a part of the data.

use crate::experiment::Experiment;
use crate::layers::{Pass, State, TrainedState, values};
use headwater_calibration::data::{Batch, Samples};
use headwater_calibration::evaluation::coded_bytes;
use headwater_calibration::part_logits::PartLogits;

/// Most samples that one worker runs through the trained network at once.
const CHUNK: usize = 128;

/// Logits of all samples; batch norms use their running statistics.
pub fn evaluate(experiment: &Experiment, state: &State, samples: &Samples) -> PartLogits {
    let of_batch = |batch: &Batch| logits_of_batch(experiment, state, batch);
    let mut all = PartLogits::default();
    let batches = in_batches(experiment, samples, samples.len(), of_batch);
    batches.into_iter().for_each(|batch| all.append(batch));
    all
}

/// Results for the batches of the first `count` samples, in their order. The workers share the batches.
pub(crate) fn in_batches<R: Send>(
    experiment: &Experiment,
    samples: &Samples,
    count: usize,
    of_batch: impl Fn(&Batch) -> R + Sync,
) -> Vec<R> {
    let indices: Vec<usize> = (0..count).collect();
    let shares = experiment.workers.share(&indices, |share| {
        let chunks = share.chunks(samples.chunk(CHUNK));
        chunks.map(|chunk| of_batch(&Batch::plain(samples, chunk.iter().copied()))).collect::<Vec<_>>()
    });
    shares.into_iter().flatten().collect()
}

/// Logits of a batch; zeros for a sample that no slot sees.
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
