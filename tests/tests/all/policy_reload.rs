//! Settings that services read again at SIGHUP: policies, and the list of a group's devices.

use std::path::Path;

use headwater_group::start::Program;
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::PolicyChanges;
use headwater_link::Endpoint;
use headwater_protocol::{Degraded, Exit, PolicyId, SampleId, SlotSet};
use headwater_tests::group::{client, embedded_broker, network, slot};
use headwater_tests::programs::{Log, device, service};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Policy with waits that do not end early on a busy machine.
const PATIENT: &str = "window_ms = 20000\nfeatures_ms = 20000\ndeadline_ms = 60000\n";

/// Ids of samples, from 1000 on, that the device in slot 0 sees.
fn seen_samples() -> impl Iterator<Item = SampleId> {
    let frames = shipped::frames();
    let seen = move |id: &u64| shipped::views(&frames, (*id % frames.len() as u64) as usize)[0].is_some();
    (1000..).filter(seen).map(SampleId)
}

/// The group `tests/group` with one device. Policy and logs are files in `folder`.
struct Site<'a> {
    folder: &'a Path,
    broker: Endpoint,
    bundle: &'a Path,
}

impl Site<'_> {
    fn start_aggregator(&self, flags: &[&str]) -> Program {
        let mut command = service("headwater-aggregator", &self.broker, self.bundle);
        self.log("headwater-aggregator").start(command.args(flags))
    }

    fn start_device(&self, flags: &[&str]) -> Program {
        self.log("headwater-device").start(device(0, &self.broker, self.bundle).args(flags))
    }

    fn log(&self, program: &str) -> Log {
        Log::new(self.folder, program)
    }

    /// Writes the policy file, and returns the id of its policy.
    fn write_policy(&self, text: &str) -> PolicyId {
        let file = self.folder.join("policy.toml");
        std::fs::write(&file, text).expect("the folder can be written");
        let bundle = Bundle::open(self.bundle).expect("a sound bundle");
        PolicyChanges::policy_of(&file, bundle.policies()).expect("a sound policy").1
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_takes_a_changed_policy_and_refuses_a_wrong_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bundle, broker) = (shipped::bundle_path(), embedded_broker());
    let site = Site { folder: folder.path(), broker: broker.clone(), bundle: &bundle };
    let strict = site.write_policy(&format!("{PATIENT}[local]\nthreshold = 0.0\n"));
    let file = folder.path().join("policy.toml").display().to_string();
    let aggregator = site.start_aggregator(&["--policy", &file]);
    let _device = site.start_device(&[]);
    let mut client = client(broker, shipped::bundle().network_id()).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");

    let mut samples = seen_samples();
    let mut sample = || samples.next().expect("ids do not end");
    let first = client.decide(sample()).await.expect("a decision");
    assert_eq!((first.policy, first.exit), (strict, Exit::LOCAL));
    assert!(first.degraded.contains(&Degraded::CloudUnreachable), "unsure, and there is no cloud: {first:?}");

    let generous = site.write_policy(&format!("{PATIENT}[local]\nthreshold = 1.0\n"));
    aggregator.signal("HUP").expect("a shell starts");
    let ids = [format!("from={strict}"), format!("policy={generous}")];
    let change = ["INFO", "another policy", &ids[0], &ids[1], "local.threshold 0.0 -> 1.0", "group=group"];
    site.log("headwater-aggregator").until(&change).await;
    let second = client.decide(sample()).await.expect("a decision");
    assert_eq!((second.policy, second.exit), (generous, Exit::LOCAL));
    assert!(!second.degraded.contains(&Degraded::CloudUnreachable), "every sample is sure: {second:?}");

    std::fs::write(folder.path().join("policy.toml"), "[local]\nthreshold = 2\n")
        .expect("the folder can be written");
    aggregator.signal("HUP").expect("a shell starts");
    let refusal =
        ["WARN", "the policy file is refused", "policy.toml:2: ", "expected a number in [0, 1], found 2"];
    site.log("headwater-aggregator").until(&refusal).await;
    let third = client.decide(sample()).await.expect("a decision");
    assert_eq!(third.policy, generous, "the earlier policy stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_decides_takes_a_changed_policy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = folder.path().join("alone.hwb");
    std::fs::write(&bundle, network(Configuration::B).bundle()).expect("the folder can be written");
    let broker = embedded_broker();
    let site = Site { folder: folder.path(), broker: broker.clone(), bundle: &bundle };
    // Only the device gets the policy file; the aggregator has none.
    let strict = site.write_policy(&format!("{PATIENT}[device]\nthreshold = 0.0\n"));
    let file = folder.path().join("policy.toml").display().to_string();
    let aggregator = site.start_aggregator(&[]);
    let device = site.start_device(&["--policy", &file]);
    let id = Bundle::open(&bundle).expect("a sound bundle").network_id();
    let mut client = client(broker, id).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");

    let mut samples = seen_samples();
    let mut sample = || samples.next().expect("ids do not end");
    let first = client.decide(sample()).await.expect("a decision");
    assert!(first.policy != strict && first.degraded.contains(&Degraded::CloudUnreachable), "{first:?}");

    let generous = site.write_policy(&format!("{PATIENT}[device]\nthreshold = 1.0\n"));
    device.signal("HUP").expect("a shell starts");
    let change = ["INFO", "another policy", "device.threshold 0.0 -> 1.0"];
    site.log("headwater-device").until(&change).await;
    let second = client.decide(sample()).await.expect("a decision");
    assert_eq!((second.policy, second.exit), (generous, Exit::DEVICE));

    aggregator.signal("HUP").expect("a shell starts");
    site.log("headwater-aggregator").until(&["INFO", "SIGHUP", "no policy file"]).await;
    assert_eq!(client.decide(sample()).await.expect("a decision").policy, generous, "it runs on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_takes_another_list_of_devices() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = shipped::bundle_path();
    let site = Site { folder: folder.path(), broker: embedded_broker(), bundle: &bundle };
    let file = folder.path().join("aggregator.toml");
    let write = |first: &str| {
        let text = format!("devices = \"{first},cam-1,cam-2,cam-3,cam-4,cam-5\"\n");
        std::fs::write(&file, text).expect("the folder can be written");
    };
    write("stolen");
    let aggregator = site.start_aggregator(&["--config", &file.display().to_string()]);
    let _device = site.start_device(&[]);
    site.log("headwater-aggregator").until(&["WARN", "a device was refused", "device=cam-0"]).await;
    write("cam-0");
    aggregator.signal("HUP").expect("a shell starts");
    let change = ["INFO", "SIGHUP", "added=\"cam-0\"", "removed=\"stolen\""];
    site.log("headwater-aggregator").until(&change).await;
    site.log("headwater-aggregator").until(&["INFO", "device up", "device=cam-0", "slot=0"]).await;
    write("cam-0,cam-6");
    aggregator.signal("HUP").expect("a shell starts");
    let refusal = ["WARN", "expected an id for each of 6 slots, found 7"];
    site.log("headwater-aggregator").until(&refusal).await;
}
