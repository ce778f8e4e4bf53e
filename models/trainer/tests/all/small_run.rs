//! After seconds of training a network is better than guessing, and its bundle agrees with the trained network.

use std::path::Path;

use headwater_calibration::account::PartReport;
use headwater_calibration::data::{Parts, Samples, load};
use headwater_calibration::evaluation::bundle_logits;
use headwater_inference::bundle::Bundle;
use headwater_inference::cost::DeviceBody;
use headwater_inference::engine::TractEngine;
use headwater_inference::policy::Confidence;
use headwater_protocol::Exit;
use headwater_samples::data_set::OpenOptions;
use headwater_samples::{NO_CLASS, Part};
use headwater_spec::Spec;
use headwater_training::recipe::Recipe;
use headwater_training::run::Finished;

use crate::program::{Trained, public_data, trained, trained_by};

const SHIPPED: &str = include_str!("../../../networks/ddnn-c.toml");
const PUBLISHED: &str = include_str!("../../../networks/ddnn-c-published.toml");
/// Largest size of a bundle for a board.
const MAX_BUNDLE_BYTES: usize = 400_000;
/// Share of samples that the engine may decide otherwise than the trained network: bits at the threshold, equal logits.
const DIFFERING_SHARE: f64 = 0.005;

fn checked(spec: Spec, parts: &Parts, limit: usize, epochs: u32) -> Finished {
    let limits = [Some(limit), Some(400), Some(400), None];
    let samples = std::array::from_fn(|at| parts.part(Part::ALL[at], limits[at], 2));
    let Trained { test, finished, .. } = trained(spec, samples, (epochs, 64, 10.0));

    let bundle = Bundle::from_bytes(&finished.exported.bytes).unwrap();
    let logits = bundle_logits(&bundle, &TractEngine, &test).unwrap();
    let manifest = bundle.manifest();
    let body = DeviceBody::of(manifest);
    let shipped = PartReport::of(&logits, &test, &manifest.class_prior, bundle.policy(), body);
    let trained = &finished.reports.test;
    for (shipped, trained) in [
        (shipped.every[Exit::LOCAL], trained.every[Exit::LOCAL]),
        (shipped.every[Exit::CLOUD], trained.every[Exit::CLOUD]),
        (shipped.overall, trained.overall),
    ] {
        assert!(
            (shipped - trained).abs() <= DIFFERING_SHARE,
            "{shipped} in the bundle, {trained} as trained"
        );
    }
    assert!(finished.exported.bytes.len() < MAX_BUNDLE_BYTES, "{} bytes", finished.exported.bytes.len());
    for parity in [&finished.exported.parity, finished.exported.packed.as_ref().unwrap()] {
        assert!(parity.bits > 0 && parity.samples == 256, "{parity:?}");
    }
    finished
}

fn spec(text: &str) -> Spec {
    Spec::parse(Path::new("spec.toml"), text).unwrap()
}

fn drawn() -> Parts {
    load("drawn", Path::new(""), OpenOptions::default()).unwrap()
}

#[test]
fn a_run_of_seconds_beats_guessing_and_its_bundle_agrees() {
    let finished = checked(spec(SHIPPED), &drawn(), 1000, 2);
    let every = &finished.reports.test.every;
    let [local, cloud] = [every[Exit::LOCAL], every[Exit::CLOUD]];
    assert!(cloud > 0.5 && local > 0.5, "ten classes, guessing has a tenth: {every:?}");
    let validation = &finished.reports.validation;
    assert!(validation.overall >= validation.every[Exit::CLOUD] - 0.0051, "{validation:?}");
}

#[test]
fn samples_of_nothing_train_and_are_in_no_accuracy_and_a_recipe_may_ask_for_few_wrong_answers() {
    let parts = drawn();
    let limits = [Some(1000), Some(400), Some(200), Some(400)];
    let samples: [Samples; 4] = std::array::from_fn(|at| {
        let mut samples = parts.part(Part::ALL[at], limits[at], 2);
        // The last class stands for nothing.
        samples.labels.iter_mut().filter(|label| **label == 9).for_each(|label| *label = NO_CLASS);
        samples
    });
    let (train, validation, count) = (samples[0].prior(), samples[1].of_nothing(), samples[1].len());
    assert!(train[9] == 0.0 && (train.iter().sum::<f32>() - 1.0).abs() < 1e-5 && validation > 10);
    let mut recipe = Recipe { epochs: 2, batch: 64, ..Recipe::read(None).unwrap() };
    recipe.exit.wrong = Some(20.0);
    let Trained { finished, .. } = trained_by(recipe, spec(SHIPPED), samples);
    let Finished { exported, policy, reports, warnings } = &finished;
    let report = &reports.validation;
    assert!(report.every[Exit::CLOUD] > 0.4 && report.samples == count, "{report:?}");
    let claims = report.claims.expect("the recipe asks for it");
    assert_eq!(claims.of_nothing, validation);
    assert!(claims.answered > 0.0 && claims.wrong < 0.6, "{claims:?}");
    let is_kept = policy.claim_above.is_some_and(|least| least < Confidence::ALL);
    assert!(is_kept || warnings.iter().any(|warning| warning.code == "wrong_answers"), "{warnings:?}");
    assert_eq!(Bundle::from_bytes(&exported.bytes).unwrap().policy().claim_above, policy.claim_above);
}

#[test]
fn a_network_that_sends_some_channels_trains_and_its_engines_agree() {
    let head = "head = { kind = \"fc\", binary = true }";
    let text = SHIPPED.replace(head, &format!("{head}\nsent_channels = 3"));
    let finished = checked(spec(&text), &drawn(), 1000, 2);
    let every = &finished.reports.test.every;
    assert!(every[Exit::CLOUD] > 0.5 && every[Exit::LOCAL] > 0.5, "{every:?}");
    let bundle = Bundle::from_bytes(&finished.exported.bytes).unwrap();
    assert_eq!(bundle.manifest().features.shape(), [3, 16, 16]);
}

#[test]
fn the_published_network_trains_and_exports_too() {
    let text = PUBLISHED.replace("aggregation = \"mp\"", "aggregation = \"cc\"");
    let test = checked(spec(&text), &drawn(), 600, 1).reports.test;
    assert!(test.every[Exit::LOCAL] > 0.2, "ten classes, guessing has a tenth: {test:?}");
}

#[test]
fn a_run_of_seconds_on_real_articles_beats_its_floor() {
    let Some(folder) = public_data("fashion-mnist") else { return };
    let parts = load("fashion-6cam", &folder, OpenOptions::default()).unwrap();
    let finished = checked(spec(SHIPPED), &parts, 2000, 3);
    let every = &finished.reports.test.every;
    assert!(every[Exit::CLOUD] > 0.6 && every[Exit::LOCAL] > 0.6, "{every:?}");
}
