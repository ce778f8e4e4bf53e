//! A run of seconds beats a floor, and what it exports says the same as the trained network.

use std::path::{Path, PathBuf};

use headwater_inference::bundle::Bundle;
use headwater_inference::engine::TractEngine;
use headwater_models::bundle_logits::bundle_logits;
use headwater_models::calibration::{DeviceBytes, Outcome};
use headwater_models::data::{Parts, load};
use headwater_models::network::Network;
use headwater_models::recipe::Recipe;
use headwater_models::run::{Finished, Held, RunInfo, finish};
use headwater_models::spec::Spec;
use headwater_models::training::{Trainer, Workers};
use headwater_protocol::Exit;
use headwater_samples::Part;
use headwater_samples::data_set::OpenOptions;

const SHIPPED: &str = include_str!("../networks/ddnn-c.toml");
const PUBLISHED: &str = include_str!("../networks/ddnn-c-published.toml");
/// A bundle is small enough for a board.
const BUNDLE_BYTES: usize = 400_000;
/// Samples of which the engine may decide otherwise than the trained network: bits at the threshold, equal logits.
const DIFFERING_SHARE: f64 = 0.005;

fn trained(spec: &Spec, parts: &Parts, limit: usize, epochs: u32) -> Finished {
    let mut recipe = Recipe::read(None).unwrap();
    (recipe.epochs, recipe.batch, recipe.optimiser.warm_up_steps) = (epochs, 64, 10);
    recipe.optimiser.statistics_momentum = 0.2;
    let network = Network::new(spec);
    let workers = Workers::new(recipe.workers).unwrap();
    let train = parts.part(Part::Train, Some(limit), 2);
    let validation = parts.part(Part::Validation, Some(400), 2);
    let test = parts.part(Part::Test, Some(400), 2);
    let mut trainer = Trainer::new((&network, &recipe, &workers), (&train, &validation), None);
    trainer.run(|_| Ok::<(), std::convert::Infallible>(())).unwrap();
    let info = RunInfo::new(spec, &recipe, "test", Some(limit), None);
    let held = Held { validation: &validation, test: &test, class_prior: train.prior() };
    let at = &trainer.at;
    let finished =
        finish((spec, &recipe, &info), (&network, &workers), (&at.state, &at.progress), held).unwrap();

    let bundle = Bundle::from_bytes(&finished.exported.bytes).unwrap();
    let logits = bundle_logits(&bundle, &TractEngine, &test).unwrap();
    let manifest = bundle.manifest();
    let bytes = DeviceBytes::of(manifest.configuration, manifest.classes(), &manifest.features);
    let shipped = Outcome::of(&logits, &test, &manifest.class_prior, bundle.policy(), bytes);
    for (shipped, trained) in [
        (shipped.every[Exit::Local], finished.test.every[Exit::Local]),
        (shipped.every[Exit::Cloud], finished.test.every[Exit::Cloud]),
        (shipped.overall, finished.test.overall),
    ] {
        assert!(
            (shipped - trained).abs() <= DIFFERING_SHARE,
            "{shipped} in the bundle, {trained} as trained"
        );
    }
    assert!(finished.exported.bytes.len() < BUNDLE_BYTES, "{} bytes", finished.exported.bytes.len());
    for parity in [&finished.exported.parity, finished.exported.packed.as_ref().unwrap()] {
        assert!(parity.bits > 0 && parity.samples == 256, "{parity:?}");
    }
    finished
}

fn spec(text: &str) -> Spec {
    Spec::parse(Path::new("spec.toml"), text).unwrap()
}

#[test]
fn a_run_of_seconds_beats_guessing_and_exports_what_it_trained() {
    let finished =
        trained(&spec(SHIPPED), &load("drawn", Path::new(""), OpenOptions::default()).unwrap(), 1000, 2);
    let every = finished.test.every;
    let [local, cloud] = [every[Exit::Local], every[Exit::Cloud]];
    assert!(cloud > 0.5 && local > 0.5, "ten classes, guessing has a tenth: {every:?}");
    let validation = &finished.validation;
    assert!(validation.overall >= validation.every[Exit::Cloud] - 0.0051, "{validation:?}");
}

#[test]
fn the_published_network_trains_and_exports_too() {
    let text = PUBLISHED.replace("aggregation = \"mp\"", "aggregation = \"cc\"");
    let finished =
        trained(&spec(&text), &load("drawn", Path::new(""), OpenOptions::default()).unwrap(), 600, 1);
    assert!(finished.test.every[Exit::Local] > 0.2, "ten classes, guessing has a tenth: {:?}", finished.test);
}

#[test]
fn a_run_of_seconds_on_real_articles_beats_its_floor() {
    let root = std::env::var_os("HEADWATER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let Ok(parts) = load("fashion-6cam", &root.join("fashion-mnist"), OpenOptions::default()) else {
        eprintln!("left out: no Fashion-MNIST in {}; set HEADWATER_DATA", root.display());
        return;
    };
    let finished = trained(&spec(SHIPPED), &parts, 2000, 3);
    let every = finished.test.every;
    assert!(every[Exit::Cloud] > 0.6 && every[Exit::Local] > 0.6, "{every:?}");
}
