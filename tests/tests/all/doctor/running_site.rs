//! Findings of the doctor about running programs: killed, stopped, flapping, late, or not the expected program.

use headwater_tests::other_programs::{find_faketime, mosquitto};
use headwater_tests::shipped;
use serde_json::Value;

use super::provoked::{Doctor, Files, start, start_with, until};

#[test]
fn a_whole_site_is_well_and_each_part_that_is_killed_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let bundle = shipped::bundle_path();
    let devices = [0, 1].map(|slot| files.device(slot, &bundle, ""));
    let aggregator =
        files.aggregator(&bundle, &format!("journal.path = \"{}\"", files.path("journal").display()));
    let cloud = files.cloud(&bundle);
    let all = [
        ("--device", devices[0].as_path()),
        ("--device", &devices[1]),
        ("--aggregator", &aggregator),
        ("--cloud", &cloud),
    ];
    let running_cloud = start("headwater-cloud", &cloud);
    let _aggregator = start("headwater-aggregator", &aggregator);
    let [_first, second] = devices.clone().map(|file| start("headwater-device", &file));
    let well = until(|| Doctor::run(&all), |doctor| doctor.code == Some(0));
    well.fails_only(&[]);
    let checks =
        "clock, configuration, certificate, bundle, engine, disk, broker, broker limits, cloud, cloud model";
    for check in checks.split(", ") {
        let is_ok = |finding: &Value| finding["check"] == check && finding["level"] == "ok";
        assert!(well.findings().any(is_ok), "{check} in {}", well.text);
    }
    assert!(!well.has("fail", "device", "", ""), "{}", well.text);

    // A doctor that runs after a device was killed names the device.
    let leader = [("--aggregator", aggregator.as_path())];
    drop(second);
    let doctor = until(|| Doctor::run(&leader), |doctor| doctor.has("fail", "device", "cam-1", "start it"));
    doctor.names("fail", "device", "cam-1 of group gate is down", "start it");
    doctor.fails_only(&["device"]);
    let doctor = Doctor::run(&[("--device", &devices[1])]);
    doctor.names(
        "fail",
        "running",
        "headwater-device does not answer",
        "start it: headwater-device --config",
    );
    doctor.fails_only(&["running"]);

    drop(running_cloud);
    let doctor = Doctor::run(&leader);
    doctor.names("fail", "cloud", "Connection refused", "start headwater-cloud there");
    drop(broker);
    let doctor = Doctor::run(&leader);
    doctor.names("fail", "broker", "no broker answers: Connection refused", "start the broker");
}

#[test]
fn a_device_that_is_stopped_flapping_or_late_is_named_by_the_doctor_of_a_running_site() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    // The clock of a device may be off by a quarter of the period, here 250 ms.
    let [well, restless, behind] =
        [0, 1, 2].map(|slot| files.device_with(slot, "capture = \"clock\"\nperiod_ms = 1000"));
    let _aggregator = start("headwater-aggregator", &aggregator);
    let _well = start("headwater-device", &well);
    let mut device = start("headwater-device", &restless);
    let run = || Doctor::run(&[("--aggregator", aggregator.as_path())]);
    let is_named = |doctor: &Doctor| {
        let found = |finding: &Value| {
            finding["found"].as_str().is_some_and(|found| found.starts_with("cam-1 of group gate is"))
        };
        doctor.findings().any(found)
    };
    let is_up = |doctor: &Doctor| {
        doctor.has("warn", "device", "no device for slot 2, 3, 4, 5", "start the devices")
            && !is_named(doctor)
    };
    until(run, is_up);

    // SIGSTOP stops the device, and its connection to the broker stays open.
    device.signal("STOP").expect("a shell starts");
    let silent = "cam-1 of group gate is silent";
    let doctor = until(run, |doctor| doctor.has("fail", "device", silent, ""));
    doctor.names("fail", "device", silent, "restart it if it hangs");
    device.signal("CONT").expect("a shell starts");
    until(run, is_up);

    // A further device claims the slot of `cam-0`: a doctor with the settings of the further device says that the leader refuses this device.
    let rival = files.device_with(3, "capture = \"clock\"\nperiod_ms = 1000");
    let settings = std::fs::read_to_string(&rival).expect("the settings were written");
    assert!(settings.contains("slot = 3"), "{settings}");
    std::fs::write(&rival, settings.replace("slot = 3", "slot = 0")).expect("the folder can be written");
    let rival_process = start("headwater-device", &rival);
    let refused = "not ready: the leader refuses this device: ";
    let own = || Doctor::run(&[("--device", rival.as_path())]);
    until(own, |doctor| doctor.has("fail", "running", refused, "compare `id`, `slot` and `bundle`"));
    drop(rival_process);

    // The connection of `cam-1` ends three times within a minute.
    for _ in 0..2 {
        drop(device);
        until(run, |doctor| doctor.has("fail", "device", "cam-1 of group gate is down", "start it"));
        device = start("headwater-device", &restless);
        until(run, is_up);
    }
    drop(device);
    let flapping = "cam-1 of group gate is flapping";
    until(run, |doctor| doctor.has("warn", "device", flapping, "a second device with its id"));

    // The clock of `cam-2` is behind by 150 ms: less than a quarter of the period, more than the window of 50 ms.
    let library = find_faketime().expect("scripts/install/test-tools");
    let clock = [("LD_PRELOAD", library), ("FAKETIME", "-0.15s"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let _behind = start_with("headwater-device", &behind, &clock);
    let late = "cam-2 of group gate is late";
    until(run, |doctor| doctor.has("warn", "device", late, "a `window_ms` that is too short"));
}

#[test]
fn a_stopped_program_and_another_device_at_its_admin_port_are_told_apart_from_one_that_is_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let [first, second] = [0, 1].map(|slot| files.device(slot, &shipped::bundle_path(), ""));
    let device = start("headwater-device", &first);
    let runs = |finding: &Value| finding["check"] == "running" && finding["level"] == "ok";
    until(|| Doctor::run(&[("--device", &first)]), |doctor| doctor.findings().any(runs));

    // The settings of the second device name the admin port of the first one.
    let text = std::fs::read_to_string(&second).expect("written before");
    let port = |slot: usize| format!("127.0.0.1:{}", files.admin[2 + slot]);
    let second = files.write("device-1.toml", &text.replace(&port(1), &port(0)));
    let doctor = Doctor::run(&[("--device", &second)]);
    let found = "expected device cam-1 of hall/gate, found device cam-0 of hall/gate";
    doctor.names("fail", "running", found, "an `admin.listen` of its own");

    device.signal("STOP").expect("a shell starts");
    let doctor = Doctor::run(&[("--device", &first)]);
    doctor.names("fail", "running", "does not answer", "look at its log, end it, then start it");
    device.signal("CONT").expect("a shell starts");
}
