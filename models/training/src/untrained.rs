//! The check, before training, that a network can be exported: the untrained network is exported and compared on random views.

use headwater_inference::policy::Policy;
use headwater_protocol::SlotSet;
use headwater_spec::{Spec, manifest};

use crate::coding_fit::fitted_coding;
use crate::experiment::{Experiment, RunInfo};
use crate::export::{ExportError, TrainedNetwork, export};
use crate::joint::{combined, exact_statistics};
use crate::layers::State;
use crate::recipe::Recipe;
use crate::reduction::update_statistics;
use headwater_calibration::data::{Augment, Pixels, Samples};
use headwater_calibration::random::Random;

/// Random stream of the views.
const VIEWS: u64 = 4;

/// Most samples that are compared, and most pixel values of all their views together; two samples are compared whatever their size.
const SAMPLES: usize = 8;
const VALUES: usize = 1 << 20;

/// Least variance of a batch norm. A few random views may leave a channel nearly constant, and the batch norm would then enlarge rounding
/// errors more than in any trained network.
const LEAST_VARIANCE: f32 = 1.0;

/// Exports the untrained network of a spec, with the comparison of engines that every export makes ([`export`]).
///
/// # Errors
/// A sentence that says which engine or section fails, and what to do.
pub fn check(spec: &Spec, recipe: &Recipe) -> Result<(), String> {
    let recipe = Recipe { workers: 1, augment: Augment::default(), ..recipe.clone() };
    let experiment =
        Experiment::new(spec.clone(), recipe, RunInfo::default()).map_err(|error| error.to_string())?;
    exported(&experiment, experiment.network.layout.initial(experiment.recipe.seed)).map_err(|error| {
        format!(
            "expected a network that can be exported, found one that cannot, so it is not trained: with first weights, on random views: {error}; \
             a smaller view, or a pool in front of the widest fc layer, shortens the sums that engines round"
        )
    })
}

/// Exports a network with the parameters of `state` and the statistics of random views.
fn exported(experiment: &Experiment, mut state: State) -> Result<(), ExportError> {
    let (layout, spec) = (&experiment.network.layout, &experiment.network.spec);
    let samples = random_samples(spec, experiment.recipe.seed);
    let all: Vec<u32> = (0..samples.len() as u32).collect();
    let found = exact_statistics(experiment, &state, (&samples, &all[..]), all.len(), 1);
    update_statistics(layout, &mut state, &combined(&found, layout), |running, value| *running = value);
    for range in &layout.statistics {
        let variances = &mut state.statistics[range.start + range.len() / 2..range.end];
        variances.iter_mut().for_each(|variance| *variance = variance.max(LEAST_VARIANCE));
    }
    state.coding = fitted_coding(experiment, &state, &samples, &samples);
    let network = TrainedNetwork { layers: &experiment.network, state: &state };
    let classes = spec.network.classes();
    let manifest = manifest(spec, vec![1.0 / classes as f32; classes]);
    export(&network, manifest, &Policy::default(), serde_json::json!({}), &samples).map(drop)
}

/// Samples with random views, each of another brightness and contrast. The first sample is seen by the first slot alone.
fn random_samples(spec: &Spec, seed: u64) -> Samples {
    let (shape, slots, classes) = (spec.network.view(), spec.network.slots(), spec.network.classes());
    let view_len = shape.iter().product::<usize>();
    let count = (VALUES / (view_len * slots)).clamp(2, SAMPLES);
    let mut random = Random::new(seed, &[VIEWS]);
    let mut pixels = Vec::with_capacity(count * slots * view_len);
    for _ in 0..count * slots {
        let (dark, contrast) = (128.0 * random.unit(), 127.0 * random.unit());
        pixels.extend((0..view_len).map(|_| (dark + contrast * random.unit()) as u8));
    }
    let mut seen = vec![SlotSet::first(slots); count];
    seen[0] = SlotSet::first(1);
    Samples {
        shape,
        slots,
        classes,
        labels: (0..count).map(|sample| (sample % classes) as u16).collect(),
        seen,
        pixels: Pixels::in_memory(pixels, count, slots),
        ..Samples::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn small_specs_of_the_project_can_be_exported_before_they_are_trained() {
        for name in ["b-lenet-b", "ddnn-a", "ddnn-b", "ddnn-c", "ddnn-f"] {
            let spec = Spec::read(&Path::new("../networks").join(name).with_extension("toml")).unwrap();
            check(&spec, &Recipe::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn an_engine_that_differs_on_first_weights_is_named_with_its_section() {
        let text = r#"
            network = { name = "one", configuration = "a", labels = ["a", "b"] }
            device = { count = 1, input = [1, 8, 8] }
            [cloud]
            aggregation = "mp"
            blocks = [{ kind = "fc" }]"#;
        let spec = Spec::parse(Path::new("spec.toml"), text).unwrap();
        let experiment = Experiment::new(spec, Recipe::default(), RunInfo::default()).unwrap();
        let state = experiment.network.layout.initial(1);
        assert!(exported(&experiment, state.clone()).is_ok());
        let broken = State { parameters: vec![f32::NAN; state.parameters.len()], ..state };
        let error = exported(&experiment, broken).unwrap_err().to_string();
        assert!(error.starts_with("export refused: parity, logits of cloud, sample 0"), "{error}");
    }
}
