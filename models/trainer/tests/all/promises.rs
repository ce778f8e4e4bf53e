//! `headwater-train tune` as a command: promises of the shipped network on drawn figures, and refusals.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headwater_inference::bundle::{Bundle, BundleWriter};
use headwater_inference::policy::{PolicyChanges, PromiseKind};
use headwater_protocol::Exit;
use serde_json::Value;

use crate::program::{self, SHIPPED, ended, run};

fn tune(arguments: &[&str]) -> Output {
    run(&[&["tune", SHIPPED, "--data", "drawn", "--data-dir", ".", "--kept-apart"], arguments].concat())
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
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("calibrated.hwb");
    let out = out.to_str().unwrap();
    let found = json(&["--promise", "losses", "--loss", "2", "--out", out]);
    assert_eq!(found["promises"][0]["kind"], "losses");
    assert_eq!(
        (&found["promises"][0]["loss"], &found["promises"][0]["confidence"]),
        (&0.02.into(), &0.95.into())
    );
    assert_eq!(
        (&found["promises"][0]["part"]["samples"], &found["promises"][0]["part"]["data"]),
        (&1000.into(), &"drawn".into())
    );
    assert!(found["chosen"]["measured"]["lost"].as_f64().unwrap() <= 0.02, "{found}");

    let (before, after) = (Bundle::open(Path::new(SHIPPED)).unwrap(), Bundle::open(Path::new(out)).unwrap());
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
    let said = String::from_utf8_lossy(&output.stdout);
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

/// The folder of Fashion-MNIST; if it does not exist, `None` and a printed line.
fn fashion_mnist() -> Option<PathBuf> {
    let data = std::env::var_os("HEADWATER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let folder = data.join("fashion-mnist");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("left out: no fashion-mnist found; set HEADWATER_DATA to the folder that holds `fashion-mnist`");
    None
}

fn tune_on_fashion(bundle: &str, folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-train"))
        .args([
            "tune",
            bundle,
            "--loss",
            "0.5",
            "--require-promise",
            "--data",
            "fashion-6cam",
            "--json",
            "--data-dir",
        ])
        .arg(folder)
        .output()
        .unwrap()
}

#[test]
fn the_shipped_policy_is_what_tuning_gives() {
    let Some(folder) = fashion_mnist() else { return };
    let output = tune_on_fashion(SHIPPED, &folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let shipped = Bundle::open(SHIPPED).unwrap();
    // Logits of the engine and of the training program differ by rounding, so thresholds may differ in the last digits.
    let threshold = found["policy"]["local"]["threshold"].as_f64().unwrap();
    assert!(
        (threshold - f64::from(shipped.policy().of(Exit::LOCAL).threshold.at(6).get())).abs() < 1e-4,
        "{threshold}"
    );
    assert_eq!(found["promises"], serde_json::json!(shipped.policy().promises));
    let left = found["chosen"]["measured"]["local_share"].as_f64().unwrap();
    assert!(left > 0.82, "{left}");
}

#[test]
fn a_network_that_may_have_learnt_the_calibration_part_is_refused() {
    let Some(folder) = fashion_mnist() else { return };
    let bundle = Bundle::open(SHIPPED).unwrap();
    let writer = BundleWriter::new(bundle.manifest().clone(), bundle.policy().clone());
    let sections = bundle.manifest().sections.iter().map(|section| section.name.clone());
    let writer = sections.fold(writer, |writer, name| {
        let onnx = bundle.section(&name).unwrap().onnx.to_vec();
        writer.section(name, onnx)
    });
    let dir = tempfile::tempdir().unwrap();
    let without_report = dir.path().join("without-report.hwb");
    std::fs::write(&without_report, writer.finish().unwrap()).unwrap();
    let output = tune_on_fashion(without_report.to_str().unwrap(), &folder);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("expected a network that was trained with these 5000 calibration samples kept apart, found one without a training report"),
        "{said}"
    );
}

#[test]
fn a_network_that_was_trained_on_other_data_needs_the_word_of_its_user() {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater-train"))
        .args(["tune", SHIPPED, "--loss", "1", "--require-promise", "--data", "drawn", "--data-dir", "."])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("found one that was trained on fashion-6cam") && said.contains("--kept-apart"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_promised_is_refused_with_what_is_needed() {
    // A part without a loss needs ln 0.05 / ln 0.999 = 2994.2 samples.
    is_refused(
        &["--loss", "0.1"],
        "expected at least 2995 independent samples in the calibration part, found 1000",
    );
    is_refused(&["--loss", "0.1"], "the present thresholds, ");
    is_refused(&["--loss", "0"], "--loss: expected points from 0.001 to below 100, found 0");
    is_refused(&["--loss", "1e-300"], "--loss: expected points from 0.001 to below 100, found 0.000");
    is_refused(&["--loss", "1", "--confidence", "1"], "--confidence: expected 0.5 to below 1, found 1");
    is_refused(&["--loss", "1", "--missing", "1"], "--missing: expected 0 to below 1, found 1");
    is_refused(&["--loss", "1", "--simultaneous", "0"], "--simultaneous: expected 1 or more, found 0");
    is_refused(&["--loss", "1", "--largest-group", "4"], "expected data whose samples form groups");
    is_refused(&["--wrong", "0"], "wrong: expected percent of the answers given from 0.001 to 50, found 0");
    is_refused(
        &["--loss", "3", "--wrong", "2", "--by-missing", "1"],
        "--by-missing: expected no target beside the loss with it, found one",
    );
    is_refused(&[], "--require-promise: expected a target of --loss or --wrong with it, found none");
    // Two promises at 97.5 % each need more samples than one at 95 %.
    is_refused(&["--loss", "0.35", "--simultaneous", "2"], "expected at least 1053 independent samples");
}
