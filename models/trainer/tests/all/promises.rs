//! `headwater-train tune` as a command: promises of the shipped network on drawn figures, and refusals.

use std::path::Path;
use std::process::Output;

use headwater_inference::bundle::{Bundle, BundleWriter};
use headwater_inference::policy::{PolicyChanges, PromiseKind};
use headwater_protocol::Exit;
use serde_json::Value;

use crate::program::{self, DRAWN, SHIPPED, Scratch, ended, public_data, run_on, stdout};

fn tune(arguments: &[&str]) -> Output {
    run_on(&DRAWN, &[&["tune", SHIPPED, "--kept-apart"], arguments].concat())
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    program::json(&tune(&[arguments, &["--json"]].concat()), 0)
}

#[track_caller]
fn is_refused(arguments: &[&str], part: &str) {
    ended(&tune(&[arguments, &["--require-promise"]].concat()), 2, &[part]);
}

#[test]
fn a_promise_is_made_and_written_and_ends_with_other_thresholds() {
    let folder = Scratch::new();
    let out = folder.path("calibrated.hwb");
    let found = json(&["--promise", "losses", "--loss", "2", "--out", &out]);
    let promise = &found["promises"][0];
    assert_eq!((&promise["kind"], &promise["loss"]), (&"losses".into(), &0.02.into()));
    assert_eq!((&promise["confidence"], &promise["part"]["data"]), (&0.95.into(), &"drawn".into()));
    assert_eq!(promise["part"]["samples"], 1000);
    assert!(found["chosen"]["measured"]["lost"].as_f64().unwrap() <= 0.02, "{found}");

    let [before, after] = [SHIPPED, &out].map(|file| Bundle::open(file).unwrap());
    assert_eq!(before.network_id(), after.network_id(), "the network stays");
    let promise = after.policy().promises[0].clone();
    assert_eq!(promise.kind, PromiseKind::Losses);
    assert!(promise.to_string().contains("at most 2 % of answers"), "{promise}");

    // A change of `window_ms` leaves the promise; a change of a threshold ends it.
    let policy =
        |text: &str| PolicyChanges::parse(text).unwrap().apply_to(&after.policies().clone()).unwrap().0;
    assert_eq!(policy("window_ms = 20\n").promises, [promise]);
    assert_eq!(policy("[local]\nthreshold = 0.9\n").promises, []);
}

#[test]
fn equal_arguments_give_equal_promises_and_missing_devices_are_stated() {
    let all = json(&["--loss", "2"]);
    assert_eq!(all, json(&["--loss", "2"]));
    assert_eq!(all["promises"][0]["presence"]["missing"], 0.0);
    let missing = json(&["--loss", "2", "--missing", "0.2"]);
    assert_eq!(missing["promises"][0]["presence"]["missing"], 0.2);
    assert_ne!(missing["chosen"], all["chosen"]);
}

#[test]
fn promises_by_number_of_missing_slots_name_the_numbers_and_send_the_rest_on() {
    let found = json(&["--promise", "losses", "--loss", "3", "--by-missing", "2", "--missing", "0.05"]);
    let counts = found["by_missing"].as_array().unwrap();
    let missing: Vec<u64> = counts.iter().map(|count| count["missing"].as_u64().unwrap()).collect();
    assert_eq!(missing, [0, 1, 2]);
    let promised: Vec<&Value> = counts.iter().filter(|count| count["promised"] == true).collect();
    assert!(!promised.is_empty(), "{found}");
    let named = found["promises"][0]["presence"]["by_missing"].as_array().unwrap();
    assert_eq!(named.len(), promised.len());
    let thresholds = found["policy"]["local"]["threshold"].as_array().unwrap();
    assert_eq!(thresholds.len(), 6, "one for each number of present slots");
    for (at, threshold) in thresholds.iter().enumerate() {
        let missing = 5 - at as u64;
        let is_promised = named.iter().any(|count| count["missing"] == missing);
        assert_eq!(threshold.as_f64().unwrap() >= 0.0, is_promised, "{missing} missing: {found}");
    }
    let output = tune(&["--promise", "losses", "--loss", "3", "--by-missing", "1"]);
    let said = stdout(&output);
    assert!(said.contains("--simultaneous 2 makes them hold together"), "{said}");
    is_refused(
        &["--loss", "3", "--by-missing", "6"],
        "--by-missing: expected less than the 6 slots of the network, found 6",
    );
}

#[test]
fn splits_report_how_often_such_a_promise_is_broken() {
    let found = json(&["--promise", "losses", "--loss", "3", "--splits", "6"]);
    let splits = &found["splits"];
    assert_eq!(splits["splits"], 6);
    assert!(splits["violations"].as_u64().unwrap() <= splits["promised"].as_u64().unwrap());
    assert!(splits["predicted"].as_f64().unwrap() <= 0.05, "{splits}");
    is_refused(&["--loss", "3", "--splits", "0"], "--splits");
}

fn tune_on_fashion(bundle: &str, folder: &Path) -> Output {
    let data = ["--data", "fashion-6cam", "--data-dir", folder.to_str().unwrap()];
    run_on(&data, &["tune", bundle, "--loss", "0.5", "--require-promise", "--json"])
}

#[test]
fn the_shipped_policy_is_what_tuning_gives() {
    let Some(folder) = public_data("fashion-mnist") else { return };
    let found = program::json(&tune_on_fashion(SHIPPED, &folder), 0);
    let shipped = Bundle::open(SHIPPED).unwrap();
    // Logits of the engine and of the training program differ by rounding, so thresholds may differ in the last digits.
    let threshold = found["policy"]["local"]["threshold"].as_f64().unwrap();
    let of_shipped = f64::from(shipped.policy().of(Exit::LOCAL).threshold.at(6).get());
    assert!((threshold - of_shipped).abs() < 1e-4, "{threshold}");
    assert_eq!(found["promises"], serde_json::json!(shipped.policy().promises));
    let left = found["chosen"]["measured"]["local_share"].as_f64().unwrap();
    assert!(left > 0.82, "{left}");
}

#[test]
fn a_network_that_may_have_learnt_the_calibration_part_is_refused() {
    let Some(folder) = public_data("fashion-mnist") else { return };
    let bundle = Bundle::open(SHIPPED).unwrap();
    let writer = BundleWriter::new(bundle.manifest().clone(), bundle.policy().clone());
    let sections = bundle.manifest().sections.iter().map(|section| section.name.clone());
    let writer = sections.fold(writer, |writer, name| {
        let onnx = bundle.section(&name).unwrap().onnx.to_vec();
        writer.section(name, onnx)
    });
    let dir = Scratch::new();
    let without_report = dir.path("without-report.hwb");
    std::fs::write(&without_report, writer.finish().unwrap()).unwrap();
    let words = "expected a network that was trained with these 5000 calibration samples kept apart, found one without a training report";
    ended(&tune_on_fashion(&without_report, &folder), 2, &[words]);
}

#[test]
fn a_network_that_was_trained_on_other_data_needs_the_word_of_its_user() {
    let output = run_on(&DRAWN, &["tune", SHIPPED, "--loss", "1", "--require-promise"]);
    ended(&output, 2, &["found one that was trained on fashion-6cam", "--kept-apart"]);
}

#[test]
fn what_cannot_be_promised_is_refused_with_what_is_needed() {
    // A part without a loss needs ln 0.05 / ln 0.999 = 2994.2 samples.
    is_refused(
        &["--loss", "0.1"],
        "expected at least 2995 independent samples in the calibration part, found 1000",
    );
    is_refused(&["--loss", "0.1"], "the present thresholds, ");
    is_refused(&["--loss", "1e-300"], "--loss: expected points from 0.001 to below 100, found 0.000");
    is_refused(&["--loss", "1", "--missing", "1"], "--missing: expected 0 to below 1, found 1");
    is_refused(&["--loss", "1", "--largest-group", "4"], "expected data whose samples form groups");
    is_refused(&["--wrong", "0"], "wrong: expected percent of the answers given from 0.001 to 50, found 0");
    // Two promises at 97.5 % each need more samples than one at 95 %.
    is_refused(&["--loss", "0.35", "--simultaneous", "2"], "expected at least 1053 independent samples");
}
