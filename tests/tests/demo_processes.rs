//! `headwater demo --processes`: the real programs over a real Mosquitto, at both `QoS` settings.

use std::process::{Command, Stdio};

use headwater_tests::process::{mosquitto, program};

fn check(qos: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let output = Command::new(program("headwater"))
        .args(["demo", "--processes", "--json", "--samples", "120", "--rate", "60"])
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
    assert!(report["bytes"]["body"].as_f64() > Some(0.0), "devices said what they had counted: {report}");
}

#[test]
fn at_qos_0() {
    check("0");
}

#[test]
fn at_qos_1() {
    check("1");
}

#[test]
fn without_a_broker_the_demo_says_so() {
    let output = Command::new(program("headwater"))
        .args(["demo", "--samples", "5", "--broker", "mqtt://127.0.0.1:1"])
        .output()
        .expect("the demo starts");
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("mqtt://127.0.0.1:1") && words.contains("is a broker there?"), "{words}");
}
