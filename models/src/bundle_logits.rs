//! What a bundle says about a part of the data, in an engine: the same figures as in training, from what is shipped.

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::Engine;
use headwater_inference::sections::{CloudSection, DeviceSection, ScoresExit, SectionError};
use headwater_protocol::Slot;

use crate::data::Samples;
use crate::evaluation::ExitLogits;

/// Samples that run at once.
const CHUNK: usize = 64;

/// Logits of every exit of a bundle for every sample.
///
/// # Errors
/// [`SectionError`] when the bundle lacks a section, or the engine refuses one.
pub fn bundle_logits(
    bundle: &Bundle,
    engine: &dyn Engine,
    samples: &Samples,
) -> Result<ExitLogits, SectionError> {
    let manifest = bundle.manifest();
    let (slots, classes) = (usize::from(manifest.slots), manifest.classes());
    let map_bytes = manifest.features.packed_bytes();
    let mut devices = Slot::first(slots)
        .map(|slot| DeviceSection::load(bundle, slot, engine))
        .collect::<Result<Vec<_>, _>>()?;
    let mut local = ScoresExit::local(bundle, engine)?.ok_or(SectionError::NeedsSection)?;
    let mut cloud = CloudSection::load(bundle, engine)?;

    let count = samples.len();
    let mut logits = ExitLogits {
        classes,
        devices: vec![vec![0.0; count * classes]; slots],
        local: vec![0.0; count * classes],
        cloud: vec![0.0; count * classes],
    };
    for start in (0..count).step_by(CHUNK) {
        let chunk: Vec<usize> =
            (start..(start + CHUNK).min(count)).filter(|index| samples.seen[*index] != 0).collect();
        let mut maps = vec![0u8; chunk.len() * slots * map_bytes];
        let mut scores = vec![0.0f32; chunk.len() * slots * classes];
        for (slot, device) in devices.iter_mut().enumerate() {
            let rows: Vec<usize> =
                (0..chunk.len()).filter(|row| samples.view(chunk[*row], slot).is_some()).collect();
            let views = rows.iter().flat_map(|row| samples.view(chunk[*row], slot).unwrap_or_default());
            let views: Vec<u8> = views.copied().collect();
            for (row, answer) in rows.iter().zip(device.run(&views, rows.len())?) {
                let at = row * slots + slot;
                maps[at * map_bytes..][..map_bytes].copy_from_slice(&answer.features);
                scores[at * classes..][..classes].copy_from_slice(&answer.scores);
                logits.devices[slot][chunk[*row] * classes..][..classes].copy_from_slice(&answer.scores);
            }
        }
        let present =
            |index: &usize| (0..slots).map(|slot| samples.seen[*index] >> slot & 1 == 1).collect::<Vec<_>>();
        let presence: Vec<bool> = chunk.iter().flat_map(present).collect();
        let answers = cloud.run(chunk.len(), &maps, &presence)?;
        for (row, index) in chunk.iter().enumerate() {
            let out = index * classes..(index + 1) * classes;
            let scores = &scores[row * slots * classes..][..slots * classes];
            local.scores(scores, u64::from(samples.seen[*index]), &mut logits.local[out.clone()])?;
            logits.cloud[out].copy_from_slice(&answers[row * classes..][..classes]);
        }
    }
    Ok(logits)
}
