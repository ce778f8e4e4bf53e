//! The memory of a device that runs as a program over Mosquitto.

use headwater_group::start::Service;
use headwater_protocol::SlotSet;
use headwater_tests::group::{client, ids, programs, slot};
use headwater_tests::other_programs::mosquitto;
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Most memory of a device in KiB, so that a small board can run it.
const MAX_DEVICE_MEMORY_KIB: u64 = 40 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_takes_less_than_40_mb() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let mut group = programs(&shipped::bundle_path(), None, broker.clone(), folder.path());
    let device = Service::Device(slot(0));
    group.start(Service::Leader).unwrap();
    group.start(device).unwrap();
    let mut client = client(broker, shipped::bundle().network_id()).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.unwrap();
    for sample in ids(3000, 300) {
        client.decide(sample).await.unwrap();
    }
    let id = group.program(device).expect("a running device").id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux writes it");
    let peak_kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    println!("peak memory of headwater-device: {peak_kib} KiB");
    assert!(peak_kib < MAX_DEVICE_MEMORY_KIB, "{peak_kib} KiB");
}
