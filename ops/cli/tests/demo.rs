//! Runs of the program `headwater` as a user or a script starts it.

use std::io::Write;
use std::process::{Command, Output};

use headwater_inference::bundle::Bundle;
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_protocol::Exit;
use serde_json::Value;
use tempfile::NamedTempFile;

/// A file with the shipped policy, with waits that even a busy machine does not reach. With a threshold of 0 the exit `local` sends nearly
/// every sample on, with 1 none.
fn patient_policy(threshold: Option<f32>) -> NamedTempFile {
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shipped/fashion-6cam.hwb");
    let policy = Bundle::open(bundle).expect("the shipped bundle opens").policy().clone();
    let mut policy = Policy {
        window_ms: 20_000,
        features_ms: 20_000,
        deadline_ms: 60_000,
        promises: Vec::new(),
        ..policy
    };
    if let Some(threshold) = threshold {
        let threshold = ExitThreshold::new(threshold).expect("a number in [0, 1]");
        policy.of_mut(Exit::LOCAL).threshold = Threshold::One(threshold);
    }
    let mut file = NamedTempFile::new().expect("a temporary file");
    let text = toml::to_string(&policy).expect("a policy becomes TOML");
    file.write_all(text.as_bytes()).expect("the file can be written");
    file
}

fn headwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater")).args(arguments).output().expect("the program starts")
}

#[track_caller]
fn report(arguments: &[&str]) -> Value {
    let output = headwater(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

#[track_caller]
fn check_refused(arguments: &[&str], code: i32, expected: &str) {
    let output = headwater(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.contains(expected), "{arguments:?}: expected {expected:?} in {stderr:?}");
    assert!(output.stdout.is_empty());
}

#[test]
fn every_sample_is_decided_and_the_bytes_add_up() {
    let policy = patient_policy(None);
    let policy = policy.path().to_str().expect("a path in UTF-8");
    let report = report(&["demo", "--json", "--samples", "320", "--rate", "max", "--policy", policy]);
    assert_eq!(report["samples"], 320);
    for (name, expected) in [("decided", 320), ("lost", 0), ("duplicated", 0)] {
        assert_eq!(report[name], expected, "{report:#}");
    }
    let exits = report["exits"].as_object().expect("exits");
    let count = |exit: &str| exits.get(exit).map_or(0.0, |row| row["count"].as_f64().expect("a count"));
    assert_eq!(count("local") + count("cloud"), 320.0);
    let bytes = |name: &str| report["bytes"][name].as_f64().expect("a number");
    assert_eq!(bytes("raw"), 3072.0);
    // Each view has scores of 4 bits for each of 10 classes, and some views have a coded map too.
    assert!(bytes("body") >= 5.0 && bytes("body") <= 24.0, "{report:#}");
    // Each message has a header of 7 or 8 bytes: a summary or `not_in_view`, and features if they were asked for.
    assert!(bytes("payload") >= bytes("body") + 7.0 && bytes("payload") <= bytes("body") + 2.3 * 8.0);
    assert!(bytes("wire_sent") > bytes("payload"), "topics and MQTT headers are on the wire too");
}

#[test]
fn body_bytes_are_scores_and_the_coded_maps_that_are_asked_for() {
    // The size of a coded map differs from view to view. The mean must be well below 256 bytes, the size of an uncoded map.
    for (threshold, expected) in [(1.0, 5.0..=5.0), (0.0, 5.0 + 40.0..=5.0 + 110.0)] {
        let policy = patient_policy(Some(threshold));
        let policy = policy.path().to_str().expect("a path in UTF-8");
        let report = report(&["demo", "--json", "--samples", "60", "--rate", "60", "--policy", policy]);
        let body = report["bytes"]["body"].as_f64().expect("a number");
        assert!(expected.contains(&body), "threshold {threshold}: {body} {report:#}");
    }
}

#[test]
fn wrong_arguments_are_named_and_end_with_2() {
    check_refused(&["demo", "--samples", "0"], 2, "--samples");
    check_refused(&["demo", "--rate", "fast"], 2, "samples per second");
    check_refused(&["demo", "--kill", "device:9@1s"], 2, "slots 0 to 5");
    check_refused(&["demo", "--kill", "cloud"], 2, "cloud@2s");
    check_refused(&["demo", "--window-ms", "0"], 2, "window_ms");
    check_refused(&["demo", "--cloud-program", "."], 2, "--processes");
    check_refused(&["demos"], 2, "demo");
}

#[test]
fn files_that_cannot_be_used_are_named_and_end_with_1() {
    check_refused(&["inspect", "/no/such/bundle.hwb"], 1, "/no/such/bundle.hwb");
    check_refused(&["demo", "--frames", "/no/such/frames"], 1, "/no/such/frames");
    check_refused(&["demo", "--policy", "/no/such/policy"], 1, "/no/such/policy");
    let programs = ["--device-program", "device", "--aggregator-program", "aggregator", "--cloud-program"];
    let arguments = [&["demo", "--processes"], &programs[..], &["/no/such/cloud"]].concat();
    check_refused(&arguments, 1, "starting /no/such/cloud");
    check_refused(&["inspect", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 1, "Cargo.toml");
}

#[test]
fn a_broken_frame_of_a_folder_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../../io/samples/shipped/fashion-6cam-300.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status();
    assert!(unpacked.expect("tar starts").success());
    std::fs::write(folder.path().join("00000/cam0.webp"), "cut").expect("the folder can be written");
    let frames = folder.path().to_str().expect("a path in UTF-8");
    let output = headwater(&["--log", "warn", "demo", "--samples", "1", "--frames", frames]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("broken frame") && stderr.contains("00000/cam0.webp"), "{stderr}");
}

#[test]
fn a_port_in_use_is_named() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port().to_string();
    check_refused(&["demo", "--port", &port], 1, &port);
}

#[test]
fn inspect_shows_sections_exits_links_and_provenance() {
    let output = headwater(&["inspect"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["device-0", "device-5", "cloud", "[3, 32, 32]", "local", "raw view has 3072"] {
        assert!(text.contains(word), "expected {word:?} in\n{text}");
    }
    assert!(!text.contains('{') && text.lines().count() < 50, "raw JSON is for --json:\n{text}");
    let json = report(&["inspect", "--json"]);
    assert_eq!(json["manifest"]["slots"], 6);
    assert_eq!((&json["links"]["summary_body"], &json["links"]["features_coded"]), (&5.into(), &true.into()));
    assert!(json["report"]["test"].is_object(), "the whole report is in the JSON");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_headwater")).arg("inspect").stdout(writer).output();
    let output = output.expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
