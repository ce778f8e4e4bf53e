//! `headwater demo --processes`: the programs over Mosquitto, at both `QoS` settings.

use std::process::{Command, Stdio};

use headwater_group::start::find_program;
use headwater_tests::group::patient;
use headwater_tests::other_programs::mosquitto;
use headwater_tests::shipped;

fn check(qos: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let policy = folder.path().join("patient.toml");
    let text = toml::to_string(&patient(shipped::bundle().policy().clone())).expect("a policy becomes TOML");
    std::fs::write(&policy, text).expect("the folder can be written");
    let output = Command::new(find_program("headwater").expect("the programs are built"))
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
        assert!(report["exits"][exit]["stages_ms"]["decided"].as_f64() > Some(0.0), "{exit}: {report}");
    }
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

#[test]
fn a_missing_broker_is_named() {
    let output = Command::new(find_program("headwater").expect("the programs are built"))
        .args(["demo", "--samples", "5", "--broker", "mqtt://127.0.0.1:1"])
        .output()
        .expect("the demo starts");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("mqtt://127.0.0.1:1") && stderr.contains("is a broker there?"), "{stderr}");
}
