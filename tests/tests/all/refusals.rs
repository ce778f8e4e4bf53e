//! Brokers that refuse a client: a device logs each reason and tries again; a command says that its password is wrong.

use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::other_programs::{free_address, mosquitto_of};
use headwater_tests::programs::{Log, command, device};
use headwater_tests::shipped;
use tokio::time::timeout;

#[tokio::test]
async fn a_device_that_is_refused_after_a_lost_connection_says_each_new_reason_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = free_address();
    let log = Log::new(folder.path(), "device");
    let open = mosquitto_of("allow_anonymous true", folder.path(), &address);
    let _device = log.start(&mut device(0, &address, &shipped::bundle_path()));
    log.until(&["INFO", "link", " connected"]).await;
    drop(open);
    log.until(&["WARN", "connection lost"]).await;
    log.until(&["WARN", "cannot connect", "refused", "failed_attempts=1"]).await;
    let closed = mosquitto_of("allow_anonymous false", folder.path(), &address);
    log.until(&["WARN", "cannot connect", "not authorized", "failed_attempts="]).await;
    drop(closed);
    let _open = mosquitto_of("allow_anonymous true", folder.path(), &address);
    log.until(&["INFO", "link", " connected", "failed_attempts="]).await;
}

#[tokio::test]
async fn a_device_that_starts_before_its_access_rules_is_seen_once_they_are_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = free_address();
    let rules = folder.path().join("rules.acl");
    std::fs::write(&rules, "topic read #\n").expect("the folder can be written");
    let lines = format!("allow_anonymous true\nacl_file {}", rules.display());
    let broker = mosquitto_of(&lines, folder.path(), &address);
    let log = Log::new(folder.path(), "device");
    let topic = "headwater/v1/tests/group/dev/cam-0/birth";
    let reader = LinkConfig::new(address.clone(), "reader").subscribe(topic, QoS::AtLeastOnce);
    let (_reader, mut incoming) = Link::start(reader).expect("a filter");
    let _device = log.start(&mut device(0, &address, &shipped::bundle_path()));
    log.until(&["WARN", "the broker refuses", topic, "access rules"]).await;
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
    log.until(&["INFO", "the broker takes", topic]).await;
    let text = log.text();
    assert!(!text.contains("PubAck"), "{text}");
}

#[test]
fn a_command_with_a_wrong_password_says_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = free_address();
    let _broker = mosquitto_of("allow_anonymous false", folder.path(), &address);
    let password = folder.path().join("password");
    std::fs::write(&password, "wrong\n").expect("the folder can be written");
    let output = command("headwater")
        .args(["trigger", "--site", "tests", "--group", "group", "--broker", &address.to_string()])
        .args(["--broker-user", "operator", "--broker-password-file"])
        .arg(&password)
        .output()
        .expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("user or password is wrong"), "{stderr}");
    assert!(!stderr.contains("set `broker.user`"), "{stderr}");
}
