//! Findings of the doctor about certificates that a peer would refuse.

use std::path::Path;

use headwater_tests::other_programs::{find_faketime, loopback, mosquitto_with};
use headwater_tests::{programs, shipped};
use headwater_transport::held_port;

use super::provoked::{Doctor, Files};

#[test]
fn certificates_that_a_peer_would_refuse_are_named_by_their_settings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = find_faketime().expect("scripts/install/test-tools");
    let enroll = |site: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = programs::command("headwater");
        command.args(["enroll", "--dir"]).arg(folder.path().join(site)).args(arguments);
        let output = command.envs(environment.iter().copied()).output().expect("headwater starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let port = held_port().expect("a free port");
    for site in ["site", "other"] {
        let listen = port.to_string();
        enroll(
            site,
            &["init", "--site", "hall", "--host", "localhost", "--listen", "127.0.0.1", "--port", &listen],
            &[],
        );
        enroll(site, &["add", "device", "--group", "gate", "cam-0", "cam-1"], &[]);
    }
    let broker_folder = folder.path().join("site/broker");
    let config = std::fs::read_to_string(broker_folder.join("mosquitto.conf")).expect("enroll wrote it");
    let config_file = folder.path().join("mosquitto.conf");
    std::fs::write(&config_file, config + "user root\n").expect("the folder can be written");
    let mut broker = Some(mosquitto_with(&config_file, &loopback(port)));
    let files = Files::new(format!("mqtts://localhost:{port}"));
    let tls = |own: &Path, authority: &Path| {
        let file = |folder: &Path, name: &str| folder.join(name).display().to_string();
        format!(
            "[tls]\nauthority_file = \"{}\"\ncertificate_file = \"{}\"\nkey_file = \"{}\"\nrevoked_file = \"{}\"\n",
            file(authority, "authority.pem"),
            file(own, "certificate.pem"),
            file(own, "key.pem"),
            file(authority, "revoked.crl"),
        )
    };
    let member = |site: &str, name: &str| folder.path().join(site).join("gate").join(name);
    let check = |slot: usize, own: &Path, authority: &Path| {
        let device = files.device(slot, &shipped::bundle_path(), &tls(own, authority));
        Doctor::run(&[("--device", &device)])
    };
    let own = member("site", "cam-0");
    let doctor = check(0, &own, &own);
    doctor.fails_only(&["running"]);
    assert!(doctor.text.contains("device gate/cam-0, valid until"), "{}", doctor.text);

    // The device trusts the authority of another site, which issued neither the device's certificate nor the broker's.
    let doctor = check(0, &own, &member("other", "cam-0"));
    doctor.names("fail", "certificate", "tls.certificate_file: ", "from one folder of `headwater enroll`");
    doctor.names("fail", "broker", "invalid peer certificate", "another authority than `tls.authority_file`");

    // The device gets a certificate that expired two years ago, and later one that expires in 10 days.
    let past = [("LD_PRELOAD", library), ("FAKETIME", "-800d"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    enroll("site", &["renew", "--group", "gate", "--days", "30", "cam-0"], &past);
    let doctor = check(0, &own, &own);
    doctor.names("fail", "certificate", "it has expired", "headwater enroll renew --group gate cam-0");
    doctor.names("fail", "broker", "the peer refuses the connection", "has expired: renew it");
    let site = Doctor::run(&[("--site-dir", &folder.path().join("site"))]);
    let renew = "enroll renew --group gate cam-0";
    site.names("fail", "certificate of gate/cam-0", "it has expired", renew);
    enroll("site", &["renew", "--group", "gate", "--days", "10", "cam-0"], &[]);
    let doctor = check(0, &own, &own);
    doctor.names("warn", "certificate", "it expires in 9 days", "headwater enroll renew --group gate cam-0");
    doctor.fails_only(&["running"]);

    enroll("site", &["revoke", "--group", "gate", "cam-1"], &[]);
    let revoked = member("site", "cam-1");
    // A revoked member gets no new list of revoked certificates, so the list of another member is copied.
    std::fs::copy(own.join("revoked.crl"), revoked.join("revoked.crl")).expect("the folder can be written");
    broker.take();
    let _broker = mosquitto_with(&config_file, &loopback(port));
    let doctor = check(1, &revoked, &revoked);
    doctor.names("fail", "certificate", "it is revoked", "another name");
    doctor.names("fail", "broker", "the peer refuses the connection", "revoked");

    std::fs::write(own.join("key.pem"), "nope").expect("the folder can be written");
    let doctor = check(0, &own, &own);
    doctor.names("fail", "certificate", "tls.key_file: ", "from one folder of `headwater enroll`");

    // `headwater enroll add` leaves such a folder if it is killed after it made the folder and before it wrote the record.
    std::fs::create_dir(member("site", "cam-2")).expect("the folder can be written");
    let site = Doctor::run(&[("--site-dir", &folder.path().join("site"))]);
    site.names("fail", "site", "cam-2: no member has this folder", "run `headwater enroll add` again");
}
