//! Findings of the doctor about faults of the broker and of the connection to it.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headwater_tests::other_programs::{free_address, mosquitto_of, silent_server};
use headwater_tests::shipped;

use super::provoked::{Doctor, Files};

#[test]
fn a_name_without_an_address_and_another_protocol_are_told_apart_from_a_broker_that_is_away() {
    // A label of a host name has at most 63 bytes (RFC 1035), so this name is refused without a DNS query.
    let host = "x".repeat(64);
    let files = Files::new(format!("mqtt://{host}:1883"));
    let device = files.device_with(0, "insecure = true");
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", &format!("the name {host} has no address"), "correct the host");

    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let answer = format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", "x".repeat(200));
        // The connections stay open, since a closed connection would be another finding.
        let mut open = Vec::new();
        for mut connection in listener.incoming().flatten() {
            // The doctor may have closed the connection already.
            let _ = connection.write_all(answer.as_bytes());
            open.push(connection);
        }
    });
    let files = Files::new(format!("mqtt://127.0.0.1:{port}"));
    let doctor = Doctor::run(&[("--device", &files.device(0, &shipped::bundle_path(), ""))]);
    let found =
        "something answers there, but not as an MQTT broker does: it answers as a web server does (HTTP)";
    doctor.names("fail", "broker", found, "set the broker's port");

    let files = Files::new(free_address().to_string());
    let doctor = Doctor::run(&[("--device", &files.device(0, &shipped::bundle_path(), ""))]);
    doctor.names("fail", "broker", "no broker answers: Connection refused", "start the broker");
}

#[test]
fn a_wrong_password_is_told_apart_from_a_broker_that_is_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let passwords = folder.path().join("passwords");
    let made =
        Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&passwords).args(["cam", "right"]).status();
    assert!(made.expect("mosquitto_passwd is installed with Mosquitto").success());
    let address = free_address();
    let lines = format!("allow_anonymous false\npassword_file {}", passwords.display());
    let _broker = mosquitto_of(&lines, folder.path(), &address);
    let files = Files::new(address.to_string());
    let secret = files.write("secret", "wrong-s3cret\n");
    let broker = format!("user = \"cam\"\npassword_file = \"{}\"", secret.display());
    let device = files.device(0, &shipped::bundle_path(), &broker);
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", "not authorized", "user or password is wrong");
    // Everybody may read the password file.
    doctor.names("warn", "secret", "others than its owner", "chmod 600");
    assert!(!doctor.text.contains("s3cret"), "{}", doctor.text);
    std::fs::write(&secret, "right\n").expect("the folder can be written");
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.fails_only(&["running"]);
    let nobody = files.device(0, &shipped::bundle_path(), "");
    let doctor = Doctor::run(&[("--device", &nobody)]);
    doctor.names("fail", "broker", "not authorized", "set `broker.user`");
}

#[test]
fn a_broker_with_a_small_limit_is_named_before_a_message_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = free_address();
    let lines = "allow_anonymous true\nmax_packet_size 600\nretain_available false";
    let _broker = mosquitto_of(lines, folder.path(), &address);
    let files = Files::new(address.to_string());
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "broker limits", "max_packet_size is 600 bytes", "max_packet_size 262144");
    doctor.names("fail", "broker limits", "no retained messages", "retain_available true");
}

#[test]
fn a_broker_that_hangs_is_a_finding() {
    let silent = silent_server().replace("http://", "mqtt://");
    let files = Files::new(silent);
    let device = files.device(0, &shipped::bundle_path(), "");
    let started = Instant::now();
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", "does not answer MQTT", "another program listens there");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}
