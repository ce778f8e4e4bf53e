//! `headwater demo --processes` over Mosquitto, at `QoS` 0 and 1, and `headwater demo` with a broker that is missing or refuses.

use std::process::Stdio;
use std::time::{Duration, Instant};

use headwater_tests::group::patient;
use headwater_tests::other_programs::{free_address, mosquitto, mosquitto_of};
use headwater_tests::programs::command;
use headwater_tests::shipped;

fn check(qos: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let policy = folder.path().join("patient.toml");
    let text = toml::to_string(&patient(shipped::bundle().policy().clone())).expect("a policy becomes TOML");
    std::fs::write(&policy, text).expect("the folder can be written");
    let output = command("headwater")
        .args(["demo", "--processes", "--json", "--samples", "120", "--rate", "60", "--policy"])
        .arg(&policy)
        .args(["--qos", qos, "--broker", &broker.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .expect("the demo starts");
    assert!(output.status.success(), "{:?}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["samples"], 120);
    assert_eq!(report["decided"], 120, "{report}");
    assert_eq!((&report["lost"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
    for exit in ["local", "cloud"] {
        assert!(report["exits"][exit]["count"].as_u64() > Some(0), "{exit}: {report}");
    }
    // Only the time of cloud decisions is surely above 0: the leader may decide locally as soon as it has read a sample's first message.
    assert!(report["exits"]["cloud"]["stages_ms"]["decided"].as_f64() > Some(0.0), "{report}");
    assert!(report["bytes"]["body"].as_f64() > Some(0.0), "the devices reported their bytes: {report}");
}

#[test]
fn every_sample_is_decided_at_qos_0() {
    check("0");
}

#[test]
fn every_sample_is_decided_at_qos_1() {
    check("1");
}

/// Runs the demo with this broker, which is missing or refuses. Checks that the exit code is 1, and returns standard error.
#[track_caller]
fn refused(broker: &str) -> String {
    let output = command("headwater")
        .args(["demo", "--samples", "5", "--broker", broker])
        .output()
        .expect("the demo starts");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_missing_broker_is_named() {
    let stderr = refused("mqtt://127.0.0.1:1");
    let first = stderr.lines().next();
    assert_eq!(first, Some("waiting for the broker mqtt://127.0.0.1:1, at most 20 s"), "{stderr}");
    for part in
        ["no connection to mqtt://127.0.0.1:1 within 20s", "refused", "is a broker there?", "Start one"]
    {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}

#[test]
fn a_broker_that_refuses_is_said_as_what_it_is_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = free_address();
    let _mosquitto = mosquitto_of("allow_anonymous false", folder.path(), &address);
    let start = Instant::now();
    let stderr = refused(&address.to_string());
    for part in ["not authorized", "broker.password_file", "acl_file"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
    assert!(!stderr.contains("is a broker there?"), "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}
