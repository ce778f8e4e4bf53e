//! Difficulty of a data set: accuracy of a plain float network on one camera alone.

use std::io;
use std::path::Path;

use headwater_inference::exit::argmax;
use headwater_protocol::{Exit, Slot};
use serde::{Deserialize, Serialize};

use crate::evaluation::evaluate;
use crate::experiment::{Experiment, RunInfo};
use crate::joint::{Diverged, Trainer};
use crate::recipe::Recipe;
use crate::scale_out::Alone;
use headwater_calibration::data::{Augment, Samples};
use headwater_spec::Spec;
use headwater_spec::file_error::FileError;

/// Accuracy of one camera alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CameraResult {
    /// Device slot of the camera.
    pub slot: usize,
    /// Share of the part that the camera sees.
    pub sees: f64,
    /// Share of correct answers among the samples that the camera sees.
    pub seen_accuracy: f64,
    /// Share of correct answers over the whole part; the majority class answers a sample that the camera does not see.
    pub accuracy: f64,
}

/// A plain network for one camera: three float convolutions and a fully connected layer.
///
/// # Errors
/// When the views are too small for the network.
pub fn plain_network(samples: &Samples) -> Result<Spec, FileError> {
    let labels: Vec<String> = (0..samples.classes).map(|class| class.to_string()).collect();
    let text = format!(
        "network = {{ name = \"single-camera\", configuration = \"a\", labels = {labels:?} }}
        device = {{ count = 1, input = {:?} }}
        [cloud]
        aggregation = \"mp\"
        blocks = [
            {{ kind = \"conv\", filters = 24 }},
            {{ kind = \"conv\", filters = 32, stride = 2 }},
            {{ kind = \"conv\", filters = 64, stride = 2 }},
            {{ kind = \"fc\" }},
        ]",
        samples.shape
    );
    Spec::parse(Path::new("single-camera"), &text)
}

/// Steps of warm-up, at most half of a run. A number and not a share of the run, since cameras see different numbers of samples and
/// their networks are compared.
const WARM_UP_STEPS: f32 = 200.0;

/// Trains a plain network on the views of `slot` in `train`, and measures the network on `test`.
///
/// # Errors
/// The system refuses a thread, or training diverged.
pub fn single_camera(
    spec: Spec,
    recipe: &Recipe,
    train: &Samples,
    test: &Samples,
    slot: Slot,
) -> io::Result<CameraResult> {
    let (camera_train, camera_test) = (train.of_slot(slot), test.of_slot(slot));
    let mut recipe = Recipe { augment: Augment::default(), ..recipe.clone() };
    recipe.optimiser.warm_up = WARM_UP_STEPS / recipe.steps(camera_train.len()) as f32;
    let experiment = Experiment::new(spec, recipe, RunInfo::default())?;
    let no_validation = camera_train.subset(&[]);
    let mut trainer = Trainer::new(&experiment, &Alone, [&camera_train, &no_validation], None);
    trainer.run(|_| Ok::<(), Diverged>(())).map_err(io::Error::other)?;
    let logits = evaluate(&experiment, &trainer.checkpoint.state, &camera_test);
    let seen = camera_test.len();
    let right =
        (0..seen).filter(|sample| argmax(logits.of(Exit::CLOUD, *sample)) == camera_test.labels[*sample]);
    let right = right.count();
    let majority = argmax(&train.prior());
    let unseen = (0..test.len()).filter(|sample| !test.seen[*sample].contains(slot));
    let guessed = unseen.filter(|sample| test.labels[*sample] == majority).count();
    let count = test.len().max(1) as f64;
    Ok(CameraResult {
        slot: slot.index(),
        sees: seen as f64 / count,
        seen_accuracy: right as f64 / seen.max(1) as f64,
        accuracy: (right + guessed) as f64 / count,
    })
}
