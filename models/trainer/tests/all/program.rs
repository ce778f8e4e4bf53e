//! Set-up of the tests: the program with its arguments, and a network that is trained for a moment in this process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_calibration::data::Samples;
use headwater_samples::{Shape, View, image_codec};
use headwater_spec::Spec;
use headwater_training::checkpoint::Checkpoint;
use headwater_training::coding_fit::fitted_coding;
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::joint::{Diverged, Trainer};
use headwater_training::recipe::Recipe;
use headwater_training::run::{EvaluationParts, Finished, evaluated, finish};
use headwater_training::scale_out::Alone;
use serde_json::Value;

pub(crate) const DDNN_C: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../networks/ddnn-c.toml");
pub(crate) const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shipped/fashion-6cam.hwb");
/// Arguments for the drawn figures.
pub(crate) const DRAWN: [&str; 4] = ["--data", "drawn", "--data-dir", "."];

/// Folder for the files of a test, removed at its end. Paths are texts, as arguments need them.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Writes a file, and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes an image; `value` gives the value at each index, plane after plane.
    pub(crate) fn write_image(&self, name: &str, shape: Shape, value: impl Fn(usize) -> u8) {
        let view = View::new(shape, (0..shape.bytes()).map(value).collect());
        let file = self.path(name);
        std::fs::create_dir_all(Path::new(&file).parent().unwrap()).unwrap();
        std::fs::write(file, image_codec::png(&view).unwrap()).unwrap();
    }

    /// Writes the first samples of each part of the drawn figures as class folders, and returns their path.
    #[track_caller]
    pub(crate) fn write_drawn(&self, name: &str, limit: &str) -> String {
        ended(&run_on(&DRAWN, &["convert", "--limit", limit, "--out", &self.path(name)]), 0, &[]);
        self.path(name)
    }
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-train")).args(arguments).output().unwrap()
}

/// Runs a command with the arguments of a data set.
pub(crate) fn run_on(data: &[&str], arguments: &[&str]) -> Output {
    run(&[arguments, data].concat())
}

/// Trains the shipped configuration for an epoch into the run folder `out`.
pub(crate) fn train_ddnn_c(data: &[&str], out: &str, further: &[&str]) -> Output {
    run_on(data, &[&["train", "--network", DDNN_C, "--epochs", "1", "--out", out], further].concat())
}

/// The text of a spec that leaves its labels out.
pub(crate) fn without_labels() -> String {
    let text = std::fs::read_to_string(DDNN_C).unwrap();
    text.lines().filter(|line| !line.starts_with("labels = ")).collect::<Vec<_>>().join("\n")
}

/// A public data set below the folder of all data; if it is not there, `None` and a printed line.
pub(crate) fn public_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HEADWATER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let found = Some(root.join(name)).filter(|path| path.exists());
    if found.is_none() {
        println!("left out: no {name} found; set HEADWATER_DATA to the folder that holds it");
    }
    found
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that the program ended with this code and said all of these words on standard error.
#[track_caller]
pub(crate) fn ended(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
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
    let evaluated = |samples| evaluated(&experiment, &checkpoint.state, samples);
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
