//! Refusals of a broker: a device logs each reason and tries again; a command names a port that does not speak MQTT.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_group::start::{Program, find_program};
use headwater_link::{Endpoint, Incoming, Link, LinkConfig, QoS};
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::other_programs::{loopback, mosquitto_with};
use headwater_tests::shipped;
use headwater_transport::held_port;
use tokio::time::{sleep, timeout};

/// Time between two checks of a log.
const POLL: Duration = Duration::from_millis(20);

/// Starts Mosquitto at an address with these lines of configuration.
fn broker(folder: &Path, address: &Endpoint, lines: &str) -> Program {
    let config = folder.join("mosquitto.conf");
    let text = format!("listener {} 127.0.0.1\nuser root\n{lines}\n", address.port());
    std::fs::write(&config, text).expect("the folder can be written");
    mosquitto_with(&config, address)
}

/// Starts the device `cam-0` of the group `tests/group` with its log in a file.
fn device(address: &Endpoint, log: &Path) -> Program {
    let mut command = Command::new(find_program("headwater-device").expect("the programs are built"));
    command.args(["--site", "tests", "--group", "group", "--id", "cam-0", "--slot", "0", "--bundle"]);
    command.arg(shipped::bundle_path()).arg("--source-path").arg(shipped::frames_path());
    command.args(["--broker-address", &address.to_string()]).env_remove("RUST_LOG").stdout(Stdio::null());
    command.stderr(File::create(log).expect("the folder can be written"));
    Program::start(&mut command).expect("the program starts")
}

/// Waits until so many lines of the log have all these parts.
async fn until_logged(log: &Path, times: usize, parts: &[&str]) {
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    let found = || text().lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
    let logged = async {
        while found() < times {
            sleep(POLL).await;
        }
    };
    assert!(timeout(WAIT_LIMIT, logged).await.is_ok(), "{times} times {parts:?} in\n{}", text());
}

#[tokio::test]
async fn a_device_that_is_refused_after_a_lost_connection_says_each_new_reason_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = loopback(held_port().expect("a free port"));
    let log = folder.path().join("device.log");
    let open = broker(folder.path(), &address, "allow_anonymous true");
    let _device = device(&address, &log);
    until_logged(&log, 1, &["INFO", "link", " connected"]).await;
    drop(open);
    until_logged(&log, 1, &["WARN", "connection lost"]).await;
    until_logged(&log, 1, &["WARN", "cannot connect", "refused", "failed_attempts=1"]).await;
    let closed = broker(folder.path(), &address, "allow_anonymous false");
    until_logged(&log, 1, &["WARN", "cannot connect", "not authorized", "failed_attempts="]).await;
    drop(closed);
    let _open = broker(folder.path(), &address, "allow_anonymous true");
    until_logged(&log, 1, &["INFO", "link", " connected", "failed_attempts="]).await;
}

#[tokio::test]
async fn a_device_that_starts_before_its_access_rules_is_seen_once_they_are_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = loopback(held_port().expect("a free port"));
    let rules = folder.path().join("rules.acl");
    std::fs::write(&rules, "topic read #\n").expect("the folder can be written");
    let lines = format!("allow_anonymous true\nacl_file {}", rules.display());
    let broker = broker(folder.path(), &address, &lines);
    let log = folder.path().join("device.log");
    let topic = "headwater/v1/tests/group/dev/cam-0/birth";
    let reader = LinkConfig::new(address.clone(), "reader").subscribe(topic, QoS::AtLeastOnce);
    let (_reader, mut incoming) = Link::start(reader).expect("a filter");
    let _device = device(&address, &log);
    until_logged(&log, 1, &["WARN", "the broker refuses", topic, "access rules"]).await;
    std::fs::write(&rules, "topic readwrite #\n").expect("the folder can be written");
    broker.signal("HUP").expect("a shell starts");
    let seen = async {
        loop {
            if let Incoming::Message { payload, .. } = incoming.recv().await.expect("the link lives") {
                return payload;
            }
        }
    };
    let birth = timeout(WAIT_LIMIT, seen).await.expect("the birth is published again");
    assert!(birth.windows(5).any(|part| part == b"cam-0"), "{birth:?}");
    until_logged(&log, 1, &["INFO", "the broker takes", topic]).await;
    let text = std::fs::read_to_string(&log).expect("the log is there");
    assert!(!text.contains("PubAck"), "{text}");
}

#[tokio::test]
async fn a_wrong_password_is_said_as_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = loopback(held_port().expect("a free port"));
    let _broker = broker(folder.path(), &address, "allow_anonymous false");
    let password = folder.path().join("password");
    std::fs::write(&password, "wrong\n").expect("the folder can be written");
    let output = Command::new(find_program("headwater").expect("the programs are built"))
        .args(["trigger", "--site", "tests", "--group", "group", "--broker", &address.to_string()])
        .args(["--broker-user", "operator", "--broker-password-file"])
        .arg(&password)
        .output()
        .expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("user or password is wrong"), "{stderr}");
    assert!(!stderr.contains("set `broker.user`"), "{stderr}");
}
