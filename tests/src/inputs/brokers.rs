//! Brokers that refuse or have limits, ports that are no broker, and triggers in every form: messages of device, leader and doctor about them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use headwater_link::{Incoming, Link, LinkConfig};
use headwater_transport::held_port;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::running::{Running, metric, ran};
use super::{Case, CaseFolder, case, until, wait};
use crate::other_programs::{free_address, mosquitto_of};
use crate::programs::{command, http};
use crate::shipped;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = other_brokers();
    cases.extend(limits());
    cases.extend(triggers());
    cases
}

/// Kind 1: a program that answers in place of a sound broker is named for what it is.
fn other_brokers() -> Vec<Case> {
    const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    const SSH: &[u8] = b"SSH-2.0-OpenSSH_9.2\r\n";
    vec![
        other_broker("broker-of-mqtt-3", b"", &[0x20, 2, 0, 1], "it does not speak MQTT 5"),
        other_broker("broker-is-a-web-server", b"", HTTP, "answers as a web server does"),
        other_broker("broker-is-an-ssh-server", SSH, b"", "answers as an SSH server does"),
        // The bytes are an alert of TLS 1.2: fatal, handshake failure.
        other_broker("broker-expects-tls", b"", &[0x15, 3, 3, 0, 2, 2, 40], "expects TLS"),
        other_broker("broker-refuses-by-an-unknown-code", b"", &[0x20, 3, 0, 0xc0, 0], "0xc0"),
        other_broker("broker-is-busy", b"", &[0x20, 3, 0, 0x89, 0], "it is busy"),
        other_broker("broker-has-moved", b"", &[0x20, 3, 0, 0x9d, 0], "another broker"),
        case(
            1,
            "broker-refuses-large-claims",
            &["/ready names it", "log names it", "503", "!connection lost"],
            |case| {
                let part = "/leader: the message is above its limit, such as message_size_limit of Mosquitto";
                leader_at(case, "message_size_limit 100", part)
            },
        ),
        case(
            1,
            "broker-refuses-large-results",
            &["first trigger: exit 0", "second trigger: exit 0", "named: 2", "!connection lost"],
            |case| results_refused(case, "message_size_limit 500"),
        ),
    ]
}

/// Kind 9: every tier names a limit of the broker, and a leader that cannot lead under this limit is not ready.
fn limits() -> Vec<Case> {
    const NAMED: &[&str] =
        &["/ready names it", "log names it", "doctor names it", "doctor of a device names it", "503"];
    const OF_LEADER: &[&str] = &["/ready names it", "log names it", "doctor names it", "503"];
    let limits = [
        ("broker-of-qos-0", NAMED, "max_qos 0", "the broker allows QoS 0 alone"),
        (
            "broker-without-retained-messages",
            NAMED,
            "retain_available false",
            "the broker keeps no retained messages",
        ),
        ("broker-of-small-packets", OF_LEADER, "max_packet_size 150", "max_packet_size is 150 bytes"),
    ];
    limits
        .map(|(name, named, line, part)| case(9, name, named, move |case| leader_at(case, line, part)))
        .into()
}

/// Kind 10: a retained trigger or request is refused, and white space before JSON is allowed.
fn triggers() -> Vec<Case> {
    const TAKEN: &[&str] = &["exit 0", "captured 1\n", "refused {}"];
    const REFUSED: &[&str] = &["exit 0", "captured 0\n", "refused {\"malformed\":1}", "found a retained one"];
    vec![
        case(10, "trigger", TAKEN, |case| triggered(case, "{\"sample\": 20}")),
        case(10, "trigger-after-a-blank", TAKEN, |case| triggered(case, " {\"sample\": 20}")),
        case(10, "trigger-after-a-line-break", TAKEN, |case| triggered(case, "\r\n{\"sample\": 20}\r\n")),
        case(10, "trigger-after-a-byte-order-mark", TAKEN, |case| {
            triggered(case, "\u{feff}{\"sample\": 20}")
        }),
        case(10, "retained-trigger", REFUSED, |case| kept(case, "trigger", "{\"sample\": 60}")),
        case(10, "retained-request", REFUSED, |case| kept(case, "request", "{}")),
        case(10, "retained-trigger-at-a-leader", &["a trigger was refused", "it is retained"], |case| {
            publish(case, "trigger", "{\"sample\": 60}", true);
            let (file, _) = settings(case, "aggregator", &case.shared.broker.to_string(), "");
            let leader = start_aggregator(case, &file);
            until("it is retained", || leader.log())
        }),
    ]
}

/// Writes the settings of a device or of an aggregator. Returns the file and the admin port that it names.
fn settings(case: &CaseFolder<'_>, program: &str, broker: &str, own: &str) -> (PathBuf, u16) {
    let port = held_port().expect("a free port");
    let text = format!(
        "site = \"inputs\"\ngroup = \"{}\"\nbundle = \"{}\"\n{own}\n[admin]\nlisten = \"127.0.0.1:{port}\"\n\
         [broker]\naddress = \"{broker}\"\n",
        case.name,
        shipped::bundle_path().display()
    );
    let path = case.path.join(format!("{program}.toml"));
    std::fs::write(&path, text).expect("the folder can be written");
    (path, port)
}

fn device_settings(case: &CaseFolder<'_>, broker: &str) -> (PathBuf, u16) {
    let frames = shipped::frames_path();
    // No leader settles the samples, so the device ends only after the whole grace period.
    let own = format!("id = \"cam-0\"\nslot = 0\ngrace_ms = 100\n[source]\npath = \"{}\"", frames.display());
    settings(case, "device", broker, &own)
}

fn start_device(case: &CaseFolder<'_>, settings: &Path) -> Running {
    Running::start(case, command("headwater-device").args(["--json", "--config"]).arg(settings), &[])
}

fn start_aggregator(case: &CaseFolder<'_>, settings: &Path) -> Running {
    Running::start(case, command("headwater-aggregator").arg("--config").arg(settings), &[])
}

fn doctor(case: &CaseFolder<'_>, flag: &str, settings: &Path) -> String {
    let mut doctor = command("headwater");
    ran(case, doctor.args(["doctor", "--json", "--timeout-s", "5", flag]).arg(settings))
}

/// A line for each text that tells whether the text has this part, then the texts.
fn named(part: &str, texts: &[(&str, String)]) -> String {
    let line = |(of, text): &(&str, String)| match text.contains(part) {
        true => format!("{of} names it\n"),
        false => format!("{of} does not name it\n"),
    };
    let all = texts.iter().map(|(of, text)| format!("{of}: {text}\n"));
    texts.iter().map(line).chain(all).collect()
}

/// Starts an aggregator, and tells whether its log, `/ready` and the doctor say `part` of the broker.
fn leader(case: &CaseFolder<'_>, broker: &str, part: &str) -> String {
    let (file, port) = settings(case, "aggregator", broker, "");
    let running = start_aggregator(case, &file);
    until(part, || running.log());
    let ready = until(part, || http(port, "GET /ready", "", &[]));
    let of_device = doctor(case, "--device", &device_settings(case, broker).0);
    let texts = [
        ("/ready", ready),
        ("log", running.log()),
        ("doctor", doctor(case, "--aggregator", &file)),
        ("doctor of a device", of_device),
    ];
    named(part, &texts)
}

/// As [`leader`], at a Mosquitto with this further line of configuration.
fn leader_at(case: &CaseFolder<'_>, line: &str, part: &str) -> String {
    let address = free_address();
    let _broker = mosquitto_of(&format!("allow_anonymous true\n{line}"), &case.path, &address);
    leader(case, &address.to_string(), part)
}

/// A case with a port that greets each client and answers its first bytes. Log and `/ready` of a device and the doctor must say `part` of it.
fn other_broker(
    name: &'static str,
    greeting: &'static [u8],
    answer: &'static [u8],
    part: &'static str,
) -> Case {
    const NAMED: &[&str] = &["/ready names it", "log names it", "doctor names it", "503", "!connection lost"];
    case(1, name, NAMED, move |case| named_at(case, &port_that_answers(greeting, answer), part))
}

/// Opens a port that greets each client and answers its first bytes, and returns the address.
fn port_that_answers(greeting: &'static [u8], answer: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let broker = format!("mqtt://{}", listener.local_addr().expect("a bound listener has an address"));
    thread::spawn(move || {
        // The connections stay open: a closed connection would be another fault.
        let mut open = Vec::new();
        for mut client in listener.incoming().map_while(Result::ok) {
            let _ = client.write_all(greeting);
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(answer);
            open.push(client);
        }
    });
    broker
}

/// Starts a device, and tells whether its log, `/ready` and the doctor say `part` of the broker.
fn named_at(case: &CaseFolder<'_>, broker: &str, part: &str) -> String {
    let (file, port) = device_settings(case, broker);
    let running = start_device(case, &file);
    until(part, || running.log());
    let ready = until(part, || http(port, "GET /ready", "", &[]));
    named(part, &[("/ready", ready), ("log", running.log()), ("doctor", doctor(case, "--device", &file))])
}

/// Triggers two samples of a group whose broker refuses the results, and returns the outcome of each trigger, the number of refusals that
/// the aggregator has counted, at most 2, and the aggregator's log.
fn results_refused(case: &CaseFolder<'_>, line: &str) -> String {
    let address = free_address();
    let _broker = mosquitto_of(&format!("allow_anonymous true\n{line}"), &case.path, &address);
    let broker = address.to_string();
    let (aggregator_file, port) = settings(case, "aggregator", &broker, "");
    let aggregator = start_aggregator(case, &aggregator_file);
    let _device = start_device(case, &device_settings(case, &broker).0);
    let refused = || metric(port, "headwater_aggregator_broker_refused_messages_total{");
    let mut seen = String::new();
    for (count, which) in [(1, "first"), (2, "second")] {
        // The command ends with exit code 1 until leader and device know each other.
        let triggered = until("exit 0", || {
            let mut trigger = command("headwater");
            trigger.args(["trigger", "--broker", &broker, "--site", "inputs", "--group", case.name]);
            ran(case, &mut trigger)
        });
        wait(|| refused() >= count);
        seen += &format!("{which} trigger: {triggered}");
    }
    format!("{seen}named: {}\nlog: {}", refused().min(2), aggregator.log())
}

/// Publishes a message on a topic of the case's group, and waits until the shared broker has taken it.
fn publish(case: &CaseFolder<'_>, leaf: &str, payload: &str, is_retained: bool) {
    let topic = format!("headwater/v1/inputs/{}/{leaf}", case.name);
    let config = LinkConfig::new(case.shared.broker.clone(), format!("{}-publisher", case.name));
    Runtime::new().expect("threads").block_on(async {
        let (link, mut incoming) = Link::start(config).expect("valid settings");
        while !matches!(incoming.recv().await, Some(Incoming::Connected) | None) {}
        let mut taken = link
            .publish_acknowledged(topic, payload.to_owned(), is_retained)
            .expect("the embedded broker is there");
        taken.wait().await;
        link.shutdown(Duration::from_secs(1)).await;
    });
}

/// Ends a device, and returns its exit code, its numbers of captures and refused messages, and its log.
fn captures_of(device: Running) -> String {
    let ended = device.terminate();
    let report: Value = serde_json::from_str(&ended.output).unwrap_or_default();
    format!("{}\ncaptured {}\nrefused {}\n{}", ended.exit, report["captured"], report["faults"], ended.log)
}

/// Sends a trigger again and again until the device has captured a sample. A device does nothing on a repeated trigger.
fn triggered(case: &CaseFolder<'_>, payload: &str) -> String {
    let (file, port) = device_settings(case, &case.shared.broker.to_string());
    let device = start_device(case, &file);
    wait(|| {
        publish(case, "trigger", payload, false);
        metric(port, "headwater_device_captures_total") > 0
    });
    captures_of(device)
}

/// Starts a device after the broker has retained a message on a topic of the device's group.
fn kept(case: &CaseFolder<'_>, leaf: &str, payload: &str) -> String {
    publish(case, leaf, payload, true);
    let (file, port) = device_settings(case, &case.shared.broker.to_string());
    let device = start_device(case, &file);
    wait(|| metric(port, "headwater_device_messages_refused_total") > 0);
    captures_of(device)
}
