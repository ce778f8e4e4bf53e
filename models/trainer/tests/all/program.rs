//! Set-up of the tests: the program with its arguments, and a network that is trained for a moment in this process.

use std::process::{Command, Output};

use headwater_calibration::data::Samples;
use headwater_spec::Spec;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::coding_fit::fitted_coding;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::joint::{Diverged, Trainer};
use headwater_training::recipe::Recipe;
use headwater_training::run::{EvaluatedPart, EvaluationParts, Finished, finish};
use headwater_training::scale_out::Alone;
use serde_json::Value;

pub(crate) const NETWORKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../networks");
pub(crate) const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shipped/fashion-6cam.hwb");

pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-train")).args(arguments).output().unwrap()
}

/// Checks that the program ended with this code and said all of these words on standard error.
#[track_caller]
pub(crate) fn ended(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "expected {word:?} in {said}");
    }
}

#[track_caller]
pub(crate) fn json(output: &Output, code: i32) -> Value {
    ended(output, code, &[]);
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) struct Trained {
    pub(crate) experiment: Experiment,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) test: Samples,
    pub(crate) finished: Finished,
}

/// Trains for some epochs by the default recipe, with this batch and these steps of warm-up, and exports.
pub(crate) fn trained(
    spec: Spec,
    samples: [Samples; 4],
    (epochs, batch, warm_up_steps): (u32, usize, f32),
) -> Trained {
    let mut recipe = Recipe { epochs, batch, ..Recipe::read(None).unwrap() };
    recipe.optimiser.warm_up = warm_up_steps / recipe.steps(samples[0].len()) as f32;
    recipe.optimiser.statistics_momentum = 0.2;
    trained_by(recipe, spec, samples)
}

/// Trains by a recipe, and exports.
pub(crate) fn trained_by(
    recipe: Recipe,
    spec: Spec,
    [train, validation, test, calibration]: [Samples; 4],
) -> Trained {
    let experiment = Experiment::new(spec, recipe, RunInfo::default()).unwrap();
    let mut trainer = Trainer::new(&experiment, &Alone, [&train, &validation], None);
    trainer.run(|_| Ok::<(), Diverged>(())).unwrap();
    let mut checkpoint = trainer.checkpoint;
    checkpoint.state.coding = fitted_coding(&experiment, &checkpoint.state, &train, &validation);
    let evaluated = |samples| EvaluatedPart::of(&experiment, &checkpoint.state, samples);
    let parts = EvaluationParts {
        class_prior: train.prior(),
        train_samples: train.len(),
        train_units: train.group_count().unwrap_or(train.len()),
        compared: validation.clone(),
        validation: evaluated(validation),
        calibration: evaluated(calibration),
        test: evaluated(test.clone()),
        data: "drawn".into(),
        promise_obstacle: None,
        out_of_fold: None,
    };
    let finished = finish(&experiment, &checkpoint, &parts).unwrap();
    Trained { experiment, checkpoint, test, finished }
}
