//! `headwater-train tune` as a command: each kind of target on drawn figures, targets that cannot be met, and refusals.

use std::process::Output;

use headwater_inference::bundle::Bundle;
use serde_json::Value;

use crate::program::{DRAWN, SHIPPED, Scratch, ended, json, run, run_on};

fn tune(arguments: &[&str]) -> Output {
    run_on(&DRAWN, &[&["tune", SHIPPED], arguments].concat())
}

#[track_caller]
fn json_with(code: i32, arguments: &[&str]) -> Value {
    json(&tune(&[arguments, &["--json"]].concat()), code)
}

#[track_caller]
fn fails(code: i32, arguments: &[&str], parts: &[&str]) {
    ended(&tune(arguments), code, parts);
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path} in {value}"))
}

#[test]
fn a_loss_is_promised_where_the_calibration_part_allows_it_and_the_bundle_says_so() {
    let folder = Scratch::new();
    let out = folder.path("tuned.hwb");
    let found = json_with(0, &["--loss", "5", "--kept-apart", "--out", &out]);
    assert_eq!((&found["loss_is"], &found["met"]), (&"promised".into(), &true.into()));
    assert_eq!(found["chosen"]["measured"]["part"], "calibration");
    assert_eq!(found["chosen"]["measured"]["costs_are"], "measured, not promised");
    let bundle = Bundle::open(&out).unwrap();
    assert_eq!(bundle.network_id(), Bundle::open(SHIPPED).unwrap().network_id());
    assert_eq!(bundle.policy().promises.first().map(|promise| promise.loss), Some(0.05));

    // The network may have learnt these samples: nothing is promised, and the calibration part measures nothing either.
    let found = json_with(0, &["--loss", "5", "--out", &out]);
    assert_eq!((&found["loss_is"], &found["promises"]), (&"measured".into(), &serde_json::json!([])));
    assert!(found["why_measured"].as_str().unwrap().contains("--kept-apart"), "{found}");
    assert_eq!(found["chosen"]["measured"]["part"], "validation");
    assert!(number(&found, "/chosen/validation/loss_points") <= 5.0);
    assert_eq!(Bundle::open(&out).unwrap().policy().promises, []);
}

#[test]
fn a_target_in_words_is_the_same_as_its_short_form_and_not_both() {
    let found = json_with(0, &["--target", "bytes<=200, macs<=3000000"]);
    assert_eq!(found, json_with(0, &["--bytes", "200", "--macs", "3e6"]));
    fails(2, &["--target", "bytes<=200", "--bytes", "100"], &["--bytes 100: expected one target of bytes"]);
    fails(2, &["--target", "bytes<200"], &["expected a target KEY<=NUMBER", "found `bytes<200`"]);
    fails(2, &["--target", "p95_ms<=20"], &["--target: expected loss, wrong, bytes, macs, found p95_ms"]);
    let without_loss = ["--bytes", "200", "--require-promise"];
    fails(2, &without_loss, &["--require-promise: expected a target of --loss or --wrong"]);
    let beside = ["--loss", "1", "--bytes", "200", "--by-missing", "1"];
    fails(2, &beside, &["--by-missing: expected no target beside the loss"]);
}

#[test]
fn bytes_and_compute_are_kept_on_validation_and_stated_with_intervals() {
    for (flag, key, target) in [("--bytes", "body_bytes", "200"), ("--macs", "macs", "3000000")] {
        let found = json_with(0, &[flag, target]);
        let mean = number(&found, &format!("/chosen/measured/{key}/mean"));
        assert!(mean <= target.parse().unwrap(), "{found}");
        let [low, high] = [0, 1].map(|end| number(&found, &format!("/chosen/measured/{key}/interval/{end}")));
        // If all samples leave at the first exit, each view sends equally many bytes, and the interval may be a single point.
        assert!(low <= mean && mean <= high, "{found}");
        assert_eq!(found["promises"], serde_json::json!([]));
        assert_eq!(found["loss_is"], Value::Null);
        assert_eq!(found, json_with(0, &[flag, target]), "equal arguments give equal results");
    }
}

#[test]
fn the_frontier_is_written_and_no_setting_is_beaten() {
    let folder = Scratch::new();
    fails(0, &["--frontier", &folder.path("frontier.json")], &[]);
    let frontier = folder.json("frontier.json");
    let settings = frontier["settings"].as_array().unwrap();
    let measures =
        |of: &Value| ["/loss_points", "/body_bytes/mean", "/macs/mean"].map(|path| number(of, path));
    assert!(settings.len() > 2, "{frontier}");
    for (at, setting) in settings.iter().enumerate() {
        let is_no_worse = |other: &Value| measures(other).iter().zip(measures(setting)).all(|(a, b)| *a <= b);
        let beaten = settings.iter().enumerate().any(|(other, of)| other != at && is_no_worse(of));
        assert!(!beaten, "{setting}");
        assert!(setting["thresholds"]["local"].is_number(), "{setting}");
    }
}

#[test]
fn targets_that_cannot_be_met_together_name_the_nearest_with_a_command_that_meets_it() {
    let arguments = ["--loss", "0.01", "--bytes", "45"];
    let together =
        ["cannot be met", "--loss 0.01 and --bytes 45", "each can be kept alone", "headwater-train tune"];
    fails(1, &arguments, &together);
    let found = json_with(1, &arguments);
    assert_eq!((&found["met"], &found["never"]), (&false.into(), &Value::Array(Vec::new())));
    let nearest = found["nearest"].as_array().unwrap();
    assert_eq!(nearest.len(), 2, "{found}");
    for of in nearest {
        let command = of["command"].as_str().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        ended(&run(&words[1..]), 0, &[]);
    }
}

#[test]
fn bad_targets_are_refused_by_name_with_what_is_expected() {
    for (flag, values, expected) in [
        ("--loss", &["0", "-1", "NaN", "100"][..], "--loss: expected points from 0.001 to below 100, found"),
        ("--bytes", &["0", "-3", "NaN", "inf", "1"], "--bytes: expected a finite number of at least"),
        ("--macs", &["0", "-3", "NaN", "1000"], "--macs: expected a finite number of at least"),
    ] {
        values.iter().for_each(|value| fails(2, &[flag, value], &[expected]));
    }
    fails(2, &["--bytes", "1"], &["that every view sends"]);
    fails(2, &["--macs", "1000"], &["up to the first exit"]);
    fails(2, &["--loss", "1", "--confidence", "1"], &["--confidence: expected 0.5 to below 1, found 1"]);
    fails(2, &["--loss", "1", "--simultaneous", "0"], &["'0' for '--simultaneous <K>': 0 is not in 1.."]);
    fails(2, &["--loss", "half"], &["half"]);
    fails(2, &[], &["expected a target (--loss, --wrong, --bytes or --macs), or --frontier to see"]);
    fails(2, &["--out", "x.hwb", "--frontier", "x.json"], &["--out: expected a target"]);
    fails(2, &["--loss", "1", "--out", "none/x.hwb"], &["--out none/x.hwb: expected the folder none"]);
    let same = ["--loss", "1", "--frontier", "x", "--out", "./x"];
    fails(2, &same, &["--out ./x: expected another file than that of --frontier"]);
    fails(2, &["--frontier", SHIPPED], &["expected another file than that of BUNDLE"]);
}
