//! Lines of a service's log when the broker or a device comes and goes.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_group::start::{Program, find_program};
use headwater_link::broker::{EmbeddedBroker, ReservedPort};
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::shipped;
use tokio::time::{sleep, timeout};

/// Time between two checks of a log.
const POLL: Duration = Duration::from_millis(20);

/// Starts a program for the group `tests/group` with its log in a file.
fn start(program: &str, flags: &[&str], log: &Path) -> Program {
    let mut command = Command::new(find_program(program).expect("the programs are built"));
    command.args(["--site", "tests", "--group", "group", "--bundle"]).arg(shipped::bundle_path()).args(flags);
    command.env_remove("RUST_LOG").stdout(Stdio::null());
    command.stderr(File::create(log).expect("the folder can be written"));
    Program::start(&mut command).expect("the program starts")
}

/// Waits until one line of the log has all these parts.
async fn until_logged(log: &Path, parts: &[&str]) {
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    let is_logged = || text().lines().any(|line| parts.iter().all(|part| line.contains(part)));
    let logged = async {
        while !is_logged() {
            sleep(POLL).await;
        }
    };
    assert!(timeout(WAIT_LIMIT, logged).await.is_ok(), "{parts:?} in\n{}", text());
}

#[tokio::test]
async fn the_broker_and_the_devices_are_logged_when_they_come_and_go() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = ReservedPort::at(0).expect("a free port");
    let address = port.address().to_string();
    let log = folder.path().join("aggregator.log");
    let _aggregator = start("headwater-aggregator", &["--broker-address", &address], &log);
    until_logged(&log, &["WARN", "cannot connect", "refused", "away_s=0"]).await;
    let _broker = EmbeddedBroker::start_at(port).expect("the port is reserved");
    until_logged(&log, &["INFO", "connected", "away_s="]).await;

    let frames = shipped::frames_path().display().to_string();
    let flags = ["--broker-address", &address, "--id", "cam-0", "--slot", "0", "--source-path", &frames];
    let device = start("headwater-device", &flags, &folder.path().join("device.log"));
    until_logged(&log, &["INFO", "device up", "device=cam-0", "slot=0"]).await;
    drop(device);
    until_logged(&log, &["WARN", "device down", "device=cam-0", "slot=0"]).await;
}
