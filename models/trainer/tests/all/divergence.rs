//! A run whose loss is no longer finite stops, names the batch, and keeps its earlier checkpoints.

use std::path::Path;

use headwater_calibration::data::Parts;
use headwater_samples::Part;
use headwater_spec::Spec;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::recipe::Recipe;
use headwater_training::run::{RunError, RunFolder, train};
use headwater_training::scale_out::Alone;

#[test]
fn a_diverging_run_stops_names_the_batch_and_keeps_its_last_checkpoint() {
    let spec = Spec::parse(Path::new("c"), include_str!("../../../networks/ddnn-c.toml")).unwrap();
    let mut recipe = Recipe::read(None).unwrap();
    (recipe.epochs, recipe.batch, recipe.optimiser.warm_up) = (2, 32, 0.0);
    recipe.checkpoint.steps = 1;
    // Weights overflow within some steps; a recipe file with such a rate is refused.
    recipe.optimiser.learning_rate = 1e30;
    let parts = Parts::drawn(512, 32, 32);
    let [samples, validation] = [Part::Train, Part::Validation].map(|part| parts.part(part, None, 2));
    let experiment = Experiment::new(spec, recipe, RunInfo::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(&folder.path().join("run"), &experiment).unwrap();
    let error = train(&experiment, &Alone, &folder, [&samples, &validation], |_| {}).unwrap_err();
    let RunError::Diverged(diverged) = &error else { panic!("{error}") };
    assert!(
        diverged.epoch == 1 && diverged.step_in_epoch > 1 && !diverged.samples.is_empty(),
        "{diverged:?}"
    );
    assert!(error.to_string().contains("training diverged at epoch 1, step"), "{error}");
    let (kept, _) = Checkpoint::newest(&folder.path, &experiment.info.identity).unwrap();
    let kept = kept.expect("a checkpoint from before");
    assert_eq!(kept.progress.step_in_epoch + 1, diverged.step_in_epoch);
}
