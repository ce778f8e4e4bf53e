//! Fits the coding of the devices' messages after training; the weights do not change.

use headwater_inference::manifest::{FeatureMap, ScoreLevels};
use headwater_inference::sections::MapCoder;
use headwater_map_coder::MapCounts;
use headwater_protocol::ScoreEncoding;
use headwater_samples::NO_CLASS;

use crate::evaluation::in_batches;
use crate::experiment::Experiment;
use crate::fused::softmax;
use crate::layers::{Pass, State, TrainedState, values};
use crate::network::SourceOutput;
use headwater_calibration::data::{Batch, Samples};
use headwater_calibration::wire_coding::WireCoding;

/// Largest number of samples on which the coding is fitted, from the start of a part.
pub const FITTED_SAMPLES: usize = 8192;

/// Least number of validation views of a slot; with fewer, the levels of the slot are fitted on the train part.
const LEAST_VIEWS: usize = 100;

/// Outputs of the device section of one slot for its views.
#[derive(Clone, Default)]
struct SlotOutputs {
    /// `[views, classes]`, not rounded.
    scores: Vec<f32>,
    /// Class of each view.
    labels: Vec<u16>,
    /// Packed map of each view; empty unless messages carry coded maps.
    maps: Vec<Vec<u8>>,
}

/// Fits the coding that a spec asks for; `None` for floats and plain maps. The levels of a slot are fitted on the validation part, or
/// on the train part if the slot has fewer than 100 validation views. Context tables are counted on the train part. Of each part the
/// first [`FITTED_SAMPLES`] samples are used.
pub fn fitted_coding(
    experiment: &Experiment,
    state: &State,
    train: &Samples,
    validation: &Samples,
) -> Option<WireCoding> {
    let spec = &experiment.network.spec;
    let scores = spec.network.scores();
    let codes_maps = spec.codes_features();
    if scores == ScoreEncoding::F32 && !codes_maps {
        return None;
    }
    let plain = State { coding: None, ..state.clone() };
    let [of_train, of_validation] =
        [train, validation].map(|samples| slot_outputs(experiment, &plain, samples));
    let classes = spec.network.classes();
    let levels = of_train.iter().zip(&of_validation).map(|(train, validation)| {
        let views = if validation.labels.len() < LEAST_VIEWS { train } else { validation };
        views.levels(scores, classes)
    });
    let coders = of_train.iter().map(|views| views.map_coder(&spec.shapes.features));
    Some(WireCoding {
        scores,
        score_levels: if scores == ScoreEncoding::F32 { Vec::new() } else { levels.collect() },
        map_coders: if codes_maps { coders.collect() } else { Vec::new() },
    })
}

impl SlotOutputs {
    /// The levels with the least cross-entropy of the rounded scores against the labels, among ranges between quantiles of the scores.
    fn levels(&self, encoding: ScoreEncoding, classes: usize) -> ScoreLevels {
        let count = encoding.levels().unwrap_or(2);
        let mut sorted = self.scores.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let quantile = |share: f64| sorted.get((share * sorted.len().saturating_sub(1) as f64) as usize);
        let mut best = (f64::INFINITY, ScoreLevels { least: -1.0, step: 2.0 / f32::from(count - 1) });
        for low in [0.0, 0.002, 0.01, 0.03, 0.07, 0.15, 0.25, 0.35] {
            for high in [1.0, 0.998, 0.99, 0.98, 0.96, 0.93, 0.9] {
                let (Some(&least), Some(&largest)) = (quantile(low), quantile(high)) else { continue };
                let step = (largest - least) / f32::from(count - 1);
                if !(step.is_finite() && step > 0.0) {
                    continue;
                }
                let levels = ScoreLevels { least, step };
                let loss = self.cross_entropy(encoding, levels, classes);
                if loss < best.0 {
                    best = (loss, levels);
                }
            }
        }
        best.1
    }

    /// Cross-entropy of the rounded scores against the labels, summed over the views.
    fn cross_entropy(&self, encoding: ScoreEncoding, levels: ScoreLevels, classes: usize) -> f64 {
        let rows = self.scores.chunks_exact(classes).zip(&self.labels);
        let rows = rows.filter(|(_, label)| **label != NO_CLASS);
        let loss = rows.map(|(scores, label)| {
            let mut rounded = scores.to_vec();
            levels.round(encoding, &mut rounded);
            -f64::from(softmax(&rounded, 1.0)[usize::from(*label)].max(f32::MIN_POSITIVE)).ln()
        });
        loss.sum()
    }

    /// The coder with the context table counted from the slot's maps.
    fn map_coder(&self, map: &FeatureMap) -> MapCoder {
        let shape = map.coder_shape().expect("the spec was checked");
        let mut counts = MapCounts::new(shape);
        self.maps.iter().for_each(|map| counts.add(map).expect("maps of the network's shape"));
        MapCoder::new(map, counts.table()).expect("a table of the shape")
    }
}

/// Outputs of the device sections for the first samples of a part, by slot.
fn slot_outputs(experiment: &Experiment, state: &State, samples: &Samples) -> Vec<SlotOutputs> {
    let (network, layout) = (&experiment.network, &experiment.network.layout);
    let of_batch = |batch: &Batch| -> Vec<SlotOutputs> {
        let outputs = network.devices(&Pass::inference(TrainedState { layout, state }), batch);
        let of_slot = |output: &Option<SourceOutput>| {
            let Some(output) = output else { return SlotOutputs::default() };
            let scores = output.flat_scores().iter().flat_map(values).collect();
            let labels = output.rows.iter().map(|row| batch.labels[*row as usize]).collect();
            let maps =
                network.spec.codes_features().then(|| output.packed_maps(&network.spec.shapes.features));
            SlotOutputs { scores, labels, maps: maps.unwrap_or_default() }
        };
        outputs.iter().map(of_slot).collect()
    };
    let mut all = vec![SlotOutputs::default(); samples.slots];
    for batch in in_batches(experiment, samples, samples.len().min(FITTED_SAMPLES), of_batch) {
        for (all, more) in all.iter_mut().zip(batch) {
            all.scores.extend(more.scores);
            all.labels.extend(more.labels);
            all.maps.extend(more.maps);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use headwater_inference::bundle::Bundle;
    use headwater_inference::engine::{PackedEngine, TractEngine};
    use headwater_inference::policy::Policy;
    use headwater_protocol::Exit;
    use headwater_samples::Part;

    use super::*;
    use crate::evaluation::evaluate;
    use crate::export::{TrainedNetwork, export};
    use crate::testing::{DDNN_C, experiment};
    use headwater_calibration::data::Parts;
    use headwater_calibration::evaluation::bundle_logits;
    use headwater_spec::manifest;

    /// Views of one slot with scores that alternate between two classes.
    fn views(scores: [f32; 2]) -> SlotOutputs {
        let rows = (0..40).flat_map(|row| if row % 2 == 0 { scores } else { [scores[1], scores[0]] });
        let label = |row: u16| (row % 2) ^ u16::from(scores[1] > scores[0]);
        SlotOutputs { scores: rows.collect(), labels: (0..40).map(label).collect(), maps: Vec::new() }
    }

    #[test]
    fn levels_separate_the_scores_and_scores_without_a_range_have_levels_too() {
        for encoding in ScoreEncoding::ALL {
            if encoding == ScoreEncoding::F32 {
                continue;
            }
            let levels = views([5.0, -3.0]).levels(encoding, 2);
            let mut scores = [5.0, -3.0];
            levels.round(encoding, &mut scores);
            assert!((scores[0] - 5.0).abs() < 1e-3 && (scores[1] + 3.0).abs() < 1e-3, "{levels:?}");
            for same in [views([1.0, 1.0]), SlotOutputs::default()] {
                assert!(same.levels(encoding, 2).step > 0.0);
            }
        }
    }

    #[test]
    fn the_bundle_gives_the_logits_and_bytes_of_the_trained_network() {
        let experiment = experiment(DDNN_C);
        let mut state = experiment.network.layout.initial(3);
        let parts = Parts::drawn(150, 130, 20);
        let [train, validation, test] =
            [Part::Train, Part::Validation, Part::Test].map(|part| parts.part(part, None, 1));
        state.coding = fitted_coding(&experiment, &state, &train, &validation);
        let expected = evaluate(&experiment, &state, &test);
        let network = TrainedNetwork { layers: &experiment.network, state: &state };
        let manifest = manifest(&experiment.network.spec, vec![0.1; 10]);
        let exported =
            export(&network, manifest, &Policy::default(), serde_json::json!({}), &validation).unwrap();
        let bundle = Bundle::from_bytes(&exported.bytes).unwrap();
        assert_eq!(bundle.manifest().scores, ScoreEncoding::Bits4);
        for engine in [&TractEngine as &dyn headwater_inference::engine::Engine, &PackedEngine] {
            // The packed engine gives no logits, since the cloud section has no packed form.
            let Ok(found) = bundle_logits(&bundle, engine, &test) else { continue };
            assert_eq!(found.devices, expected.devices, "levels are exact");
            assert_eq!(found.map_bytes, expected.map_bytes);
            for (found, expected) in found.exits[Exit::LOCAL].iter().zip(&expected.exits[Exit::LOCAL]) {
                assert!((found - expected).abs() < 1e-5);
            }
        }
        let seen =
            |sample: usize, slot: usize| test.seen[sample].positions().any(|seen| usize::from(seen) == slot);
        for (slot, bytes) in expected.map_bytes.iter().enumerate() {
            for (sample, bytes) in bytes.iter().enumerate() {
                assert_eq!(*bytes > 0.0, seen(sample, slot));
                assert!(*bytes <= 256.0);
            }
        }
        // Sixteen levels a slot.
        for scores in &expected.devices {
            let mut levels: Vec<u32> = scores.iter().map(|score| score.to_bits()).collect();
            levels.sort_unstable();
            levels.dedup();
            // Zero is the 17th value: it stands for samples that the slot does not see.
            assert!(levels.len() <= 17, "{}", levels.len());
        }
    }

    #[test]
    fn scores_of_few_bits_may_go_with_float_maps() {
        let text = DDNN_C
            .replace(r#"{ kind = "convp", filters = 8 }"#, r#"{ kind = "conv", filters = 2, stride = 2 }"#)
            .replace(r#"head = { kind = "fc", binary = true }"#, r#"head = { kind = "fc" }"#)
            .replace(r#"features = "coded""#, r#"features = "f32""#);
        let experiment = experiment(&text);
        let samples = Parts::drawn(8, 4, 4).part(Part::Train, None, 1);
        let state = experiment.network.layout.initial(1);
        let coding = fitted_coding(&experiment, &state, &samples, &samples).unwrap();
        assert_eq!((coding.score_levels.len(), coding.map_coders.len()), (6, 0));
    }

    #[test]
    fn a_network_of_floats_and_plain_maps_has_no_coding() {
        let experiment = experiment(include_str!("../../networks/ddnn-c-published.toml"));
        let samples = Parts::drawn(8, 4, 4).part(Part::Train, None, 1);
        let state = experiment.network.layout.initial(1);
        assert!(fitted_coding(&experiment, &state, &samples, &samples).is_none());
    }
}
