//! The exported epoch is the latest within one standard error of the best on validation. The choice does not change the training, and a resumed
//! run makes the same choice.

use std::path::Path;

use headwater_calibration::data::{Parts, Samples};
use headwater_samples::{NO_CLASS, Part};
use headwater_spec::Spec;
use headwater_training::checkpoint::{Checkpoint, EpochRecord};
use headwater_training::experiment::{Experiment, RunInfo};
use headwater_training::joint::{Diverged, Event, Trainer};
use headwater_training::layers::State;
use headwater_training::recipe::{ExportedEpoch, Recipe};
use headwater_training::run::RunFolder;
use headwater_training::scale_out::Alone;

const EPOCHS: usize = 3;

fn experiment(export: ExportedEpoch) -> Experiment {
    let spec = Spec::parse(Path::new("c"), include_str!("../../../networks/ddnn-c.toml")).unwrap();
    let mut recipe = Recipe { epochs: EPOCHS as u32, batch: 32, ..Recipe::read(None).unwrap() };
    (recipe.checkpoint.export, recipe.checkpoint.steps) = (export, 7);
    let info = RunInfo::new(&spec, &recipe, "drawn".to_owned(), None);
    Experiment::new(spec, recipe, info).unwrap()
}

fn samples() -> [Samples; 2] {
    let parts = Parts::drawn(160, 60, 8);
    [Part::Train, Part::Validation].map(|part| parts.part(part, None, 2))
}

/// Every checkpoint of a run, as read back from its bytes.
fn checkpoints(experiment: &Experiment, from: Option<Checkpoint>) -> Vec<Checkpoint> {
    let [train, validation] = samples();
    let from = from.map(|from| (from, Vec::new()));
    let mut trainer = Trainer::new(experiment, &Alone, [&train, &validation], from);
    let mut all = Vec::new();
    let run = trainer.run(|event| {
        if let Event::Checkpoint(checkpoint, _) = event {
            let read = Checkpoint::decode(Path::new("file"), &checkpoint.encode("run"), "run").unwrap();
            assert_eq!(read, *checkpoint);
            all.push(read);
        }
        Ok::<(), Diverged>(())
    });
    run.unwrap();
    all
}

#[test]
fn the_latest_epoch_as_good_as_the_best_is_exported_and_the_training_stays_as_it_is() {
    let best = experiment(ExportedEpoch::Best);
    let found = checkpoints(&best, None);
    let ends: Vec<&State> =
        found.iter().filter(|found| found.progress.step_in_epoch == 0).map(|found| &found.state).collect();
    assert_eq!(ends.len(), EPOCHS);
    let end = found.last().unwrap();
    let scores: Vec<f64> = end.progress.epochs.iter().map(EpochRecord::score).collect();
    let highest = scores.iter().copied().fold(0.0, f64::max);
    // 60 samples, with one right and one wrong sample added.
    let right = (60.0 * highest + 1.0) / 62.0;
    let error = (right * (1.0 - right) / 62.0).sqrt();
    let expected = (0..EPOCHS).rev().find(|epoch| scores[*epoch] >= highest - error).unwrap();
    assert_eq!(end.progress.best, Some(expected as u32 + 1), "{scores:?}");
    assert!(end.clone().exported().state == *ends[expected]);

    let last = checkpoints(&experiment(ExportedEpoch::Last), None).pop().unwrap();
    assert!(last.state == end.state && last.moments == end.moments, "the choice changed the training");
    assert!(last.progress.best.is_none() && last.clone().exported().state == last.state);

    // From every checkpoint, in and between epochs, a resumed run ends with the same choice.
    for from in &found[..found.len() - 1] {
        let resumed = checkpoints(&best, Some(from.clone())).pop().unwrap();
        assert!(resumed.best == end.best && resumed.state == end.state);
        assert_eq!(resumed.progress.epochs, end.progress.epochs);
    }
}

#[test]
fn a_validation_part_of_nothing_alone_chooses_no_epoch() {
    let mut best = experiment(ExportedEpoch::Best);
    best.recipe.epochs = 1;
    let [train, mut validation] = samples();
    validation.labels.fill(NO_CLASS);
    let mut trainer = Trainer::new(&best, &Alone, [&train, &validation], None);
    trainer.run(|_| Ok::<(), Diverged>(())).unwrap();
    let Checkpoint { progress, best, .. } = &trainer.checkpoint;
    assert!(progress.best.is_none() && best.is_none());
}

#[test]
fn a_run_folder_of_before_the_choice_exports_its_last_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let folder = RunFolder::create(&folder.path().join("run"), &experiment(ExportedEpoch::Last)).unwrap();
    let recipe = std::fs::read_to_string(folder.file("recipe.toml")).unwrap();
    assert!(recipe.contains("\nexport = \"last\""), "{recipe}");
    folder.write("recipe.toml", recipe.replace("\nexport = \"last\"", "").as_bytes()).unwrap();
    assert_eq!(folder.experiment().unwrap().recipe.checkpoint.export, ExportedEpoch::Last);
}
