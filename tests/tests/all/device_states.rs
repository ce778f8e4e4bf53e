//! Devices that are killed, silent, flapping, or have another network or a wrong clock: the aggregator's status, metrics and log name
//! each of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headwater_group::start::Program;
use headwater_inference::testing::TinyNetwork;
use headwater_link::Endpoint;
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::other_programs::{find_faketime, mosquitto};
use headwater_tests::programs::{Log, device, service};
use headwater_tests::shipped;
use headwater_transport::held_port;
use serde_json::Value;

/// Time between two checks of a state.
const POLL: Duration = Duration::from_millis(20);

/// An aggregator of the group `tests/group` and its devices, all as programs.
struct Site {
    folder: PathBuf,
    broker: Endpoint,
    admin_port: u16,
}

impl Site {
    fn start(&self, name: &str, command: &mut Command) -> Program {
        Log::new(&self.folder, name).start(command)
    }

    fn aggregator(&self) -> Program {
        let mut command = service("headwater-aggregator", &self.broker, &shipped::bundle_path());
        let admin = format!("127.0.0.1:{}", self.admin_port);
        self.start("aggregator", command.args(["--admin-listen", &admin]))
    }

    /// The command of a device that captures every 100 ms.
    fn device_command(&self, slot: usize, bundle: &Path) -> Command {
        let mut command = device(slot, &self.broker, bundle);
        command.args(["--capture", "clock", "--period-ms", "100"]);
        command
    }

    fn device(&self, slot: usize) -> Program {
        self.start(&format!("cam-{slot}"), &mut self.device_command(slot, &shipped::bundle_path()))
    }

    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.admin_port)) {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            // If the connection breaks, what was read before is used.
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    /// The group on the status page; null if the port does not answer.
    fn group(&self) -> Value {
        let status: Value = serde_json::from_str(&self.get("/status")).unwrap_or_default();
        status["groups"][0].clone()
    }

    /// Waits until status, metrics and log name the device in this state, and returns the device's entry on the status page.
    #[track_caller]
    fn until(&self, device: &str, state: &str) -> Value {
        let begin = Instant::now();
        loop {
            let group = self.group();
            let devices = group["devices"].as_array().cloned().unwrap_or_default();
            let found = devices.into_iter().find(|found| found["name"] == device && found["state"] == state);
            let metrics = self.get("/metrics");
            let series = format!("device=\"{device}\",group=\"group\",site=\"tests\",state=\"{state}\"}} 1");
            let log = Log::new(&self.folder, "aggregator").text();
            let words = [format!("device={device}"), format!("state=\"{state}\"")];
            let is_logged =
                state == "up" || log.lines().any(|line| words.iter().all(|word| line.contains(word)));
            if let Some(found) = found.filter(|_| metrics.contains(&series) && is_logged) {
                return found;
            }
            assert!(begin.elapsed() < WAIT_LIMIT, "{device} {state}: {group:#}\n{log}");
            std::thread::sleep(POLL);
        }
    }
}

#[test]
fn each_device_that_is_not_well_is_named_and_well_again_afterwards() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let admin_port = held_port().expect("a free port");
    let site = Site { folder: folder.path().to_owned(), broker, admin_port };
    let _aggregator = site.aggregator();
    let (_well, mut killed) = (site.device(0), Some(site.device(1)));
    let up = site.until("cam-0", "up");
    assert_eq!((&up["slot"], &up["reason"]), (&Value::from(0), &Value::Null));
    assert!(up["version"].as_str().expect("a text").starts_with("headwater-device/"), "{up}");
    site.until("cam-1", "up");
    let group = site.group();
    assert_eq!(
        (&group["state"], &group["broker"]["connected"]),
        (&"leading".into(), &true.into()),
        "{group}"
    );
    assert_eq!(group["empty_slots"], serde_json::json!([2, 3, 4, 5]));

    // The device is killed and started again.
    drop(killed.take());
    let down = site.until("cam-1", "down");
    assert!(down["reason"].as_str().expect("a reason").contains("connection"), "{down}");
    killed = Some(site.device(1));
    site.until("cam-1", "up");

    // Stopped by SIGSTOP: the broker takes it for connected.
    let stopped = killed.as_ref().expect("it runs");
    stopped.signal("STOP").expect("a shell starts");
    let silent = site.until("cam-1", "silent");
    assert!(silent["reason"].as_str().expect("a reason").contains("no answer"), "{silent}");
    stopped.signal("CONT").expect("a shell starts");
    site.until("cam-1", "up");

    // The device ends for the third time within a minute.
    drop(killed.take());
    site.until("cam-1", "down");
    killed = Some(site.device(1));
    site.until("cam-1", "up");
    drop(killed.take());
    site.until("cam-1", "flapping");

    // A device has another network.
    let bundle = folder.path().join("other.hwb");
    let other = TinyNetwork { slots: 6, view: [3, 32, 32], ..TinyNetwork::default() };
    std::fs::write(&bundle, other.bundle()).expect("the folder can be written");
    let _stranger = site.start("cam-2", &mut site.device_command(2, &bundle));
    let begin = Instant::now();
    while !site
        .get("/metrics")
        .contains("device=\"cam-2\",group=\"group\",site=\"tests\",state=\"wrong_network\"} 1")
    {
        assert!(begin.elapsed() < WAIT_LIMIT, "{:#}", site.group());
        std::thread::sleep(POLL);
    }
    let devices = site.group()["devices"].clone();
    let stranger = devices.as_array().expect("devices").iter().find(|device| device["name"] == "cam-2");
    let reason = stranger.expect("cam-2 is named")["reason"].as_str().expect("a reason");
    assert!(reason.contains("expected") && reason.contains("bundle"), "{reason}");

    // The clock of a device is a minute ahead.
    let mut ahead = site.device_command(3, &shipped::bundle_path());
    ahead
        .env("LD_PRELOAD", find_faketime().expect("libfaketime is installed by scripts/install/test-tools"))
        .env("FAKETIME", "+60s")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let _ahead = site.start("cam-3", &mut ahead);
    let off = site.until("cam-3", "clock_off");
    assert!(off["reason"].as_str().expect("a reason").contains("clock"), "{off}");
    site.until("cam-0", "up");
}

#[test]
fn a_group_whose_only_device_is_silent_is_told_by_its_period() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let site =
        Site { folder: folder.path().to_owned(), broker, admin_port: held_port().expect("a free port") };
    let _aggregator = site.aggregator();
    let device = site.device(0);
    site.until("cam-0", "up");
    device.signal("STOP").expect("a shell starts");
    site.until("cam-0", "silent");
    device.signal("CONT").expect("a shell starts");
    site.until("cam-0", "up");
}
