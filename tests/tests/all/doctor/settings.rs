//! Findings of the doctor about settings, bundles and policies that cannot work, and about tiers with different networks or clocks.

use std::path::Path;

use headwater_tests::group::embedded_broker;
use headwater_tests::other_programs::find_faketime;
use headwater_tests::{programs, shipped};

use super::provoked::{Doctor, Files, start, start_with, until};

#[test]
fn a_tier_with_another_network_is_named() {
    let files = Files::new(embedded_broker().to_string());
    let (own, other) = (shipped::bundle_path(), files.other_bundle());
    let (device, aggregator) = (files.device(0, &own, ""), files.aggregator(&other, ""));
    let cloud = files.cloud(&own);
    let doctor = Doctor::run(&[("--device", &device), ("--aggregator", &aggregator), ("--cloud", &cloud)]);
    for tier in ["device", "aggregator"] {
        let found = format!("group gate: this {tier} has network");
        doctor.names("fail", "network", &found, "give all tiers the same bundle");
    }
    let aggregator = files.aggregator(&own, "");
    let doctor = Doctor::run(&[("--device", &device), ("--aggregator", &aggregator), ("--cloud", &cloud)]);
    doctor.fails_only(&["running", "cloud"]);
}

#[test]
fn a_cloud_with_another_network_is_named_and_a_clock_that_differs_from_its_clock() {
    let files = Files::new(embedded_broker().to_string());
    let cloud = files.cloud(&files.other_bundle());
    let running_cloud = start("headwater-cloud", &cloud);
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    let arguments = [("--aggregator", aggregator.as_path())];
    let doctor = until(|| Doctor::run(&arguments), |doctor| !doctor.has("fail", "cloud", "", ""));
    doctor.names("fail", "cloud model", "the cloud serves network", "give all tiers the same bundle");
    doctor.fails_only(&["cloud model", "running"]);
    let library = find_faketime().expect("scripts/install/test-tools");
    let clock = |by| [("LD_PRELOAD", library), ("FAKETIME", by), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let doctor = Doctor::with(&arguments, &clock("+3600s"));
    doctor.names("fail", "clock", "s ahead of the cloud", "set the clock");
    let doctor = Doctor::with(&arguments, &clock("-60s"));
    // The clock is about as far behind the clock of the cloud as behind the time of the settings file, so either of the two may be named.
    doctor.names("warn", "clock", "s behind the", "set the clock");
    let doctor = Doctor::with(&arguments, &clock("1999-12-31 12:00:00"));
    doctor.names("fail", "clock", "has passed long ago", "set the clock");
    // A cloud on the same machine has the same wrong clock, so the clock is compared with the time of the settings file.
    drop(running_cloud);
    let _cloud = start_with("headwater-cloud", &cloud, &clock("-3600s"));
    let asked = || Doctor::with(&arguments, &clock("-3600s"));
    let doctor = until(asked, |doctor| !doctor.has("fail", "cloud", "", ""));
    doctor.names("fail", "clock", "aggregator.toml was written", "set the clock");
}

#[test]
fn a_policy_and_a_journal_that_cannot_work_are_named() {
    let files = Files::new(embedded_broker().to_string());
    let policy = files.write("policy.toml", "windo_ms = 20\n");
    let group = format!("policy = \"{}\"", policy.display());
    let aggregator = files.aggregator(&shipped::bundle_path(), &group);
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "policy", "windo_ms", "docs/policy.toml");
    // Checks that do not need the policy run all the same.
    assert!(doctor.findings().any(|finding| finding["check"] == "broker" && finding["level"] == "ok"));
    let file = files.write("in-the-way", "");
    let group = format!("journal.path = \"{}\"", file.join("journal").display());
    let aggregator = files.aggregator(&shipped::bundle_path(), &group);
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "disk", "journal.path: expected a folder", "move the file away");
}

#[test]
fn a_bundle_that_was_altered_and_keys_that_were_emptied_are_named() {
    let files = Files::new(embedded_broker().to_string());
    let mut bytes = std::fs::read(shipped::bundle_path()).expect("the shipped bundle");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let altered = files.path("altered.hwb");
    std::fs::write(&altered, bytes).expect("the folder can be written");
    let cloud = files.cloud(&altered);
    let keys = files.write("cloud.keys", "# all taken away\n");
    let text = std::fs::read_to_string(&cloud).expect("written before");
    let text = text.replace("[http]\n", &format!("[http]\nkeys_file = \"{}\"\n", keys.display()));
    let doctor = Doctor::run(&[("--cloud", &files.write("cloud.toml", &text))]);
    doctor.names("fail", "bundle", "altered.hwb", "copy the bundle again");
    doctor.names("fail", "configuration", "http.keys_file", "openssl rand -hex 16");
}

#[test]
fn each_device_of_a_file_with_tables_is_looked_at_and_named() {
    let files = Files::new(embedded_broker().to_string());
    let text = format!(
        "site = \"hall\"\ngroup = \"gate\"\nbundle = \"{}\"\n[source]\npath = \"{}\"\n[broker]\naddress = \"{}\"\n\
         [[devices]]\nid = \"left\"\nslot = 0\nadmin.listen = \"127.0.0.1:{}\"\n[[devices]]\nid = \"right\"\nslot = 1\n",
        shipped::bundle_path().display(),
        shipped::frames_path().display(),
        files.broker,
        files.admin[2],
    );
    let doctor = Doctor::run(&[("--device", &files.write("device.toml", &text))]);
    doctor.names("fail", "running of left", "does not answer", "start it");
    doctor.names("warn", "running of right", "no admin port", "127.0.0.1:9602");
    doctor.fails_only(&["running of left"]);
}

#[test]
fn without_a_settings_file_the_doctor_takes_those_of_the_machine_or_says_what_to_give() {
    let mut command = programs::command("headwater");
    let output = command.args(["doctor", "--timeout-s", "1"]).output().expect("the doctor starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let places = ["device", "aggregator", "cloud"].map(|tier| format!("/etc/headwater/{tier}.toml"));
    let own: Vec<_> = places.iter().filter(|place| Path::new(place).exists()).collect();
    if own.is_empty() {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("--aggregator FILE") && places.iter().all(|place| said.contains(place)),
            "{said}"
        );
    } else {
        // On a machine with settings in `/etc/headwater`, the doctor checks these settings.
        assert_ne!(output.status.code(), Some(2), "{said}");
        assert!(own.iter().all(|place| printed.contains(place.as_str())), "{printed}");
    }
}
