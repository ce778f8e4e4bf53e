//! A group whose devices send several answers in one message makes the same decisions as a group whose devices send each answer by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_end_device::{Device, DeviceHandle, Frames};
use headwater_group::GroupClient;
use headwater_group::start::InProcessGroup;
use headwater_inference::manifest::Configuration;
use headwater_protocol::{Decision, Exit, Slot};
use headwater_tests::group::{
    bundle, client_of, decide_all, embedded_broker, group_at, ids, network, with_local_threshold,
};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Number of samples whose decisions are compared.
const SAMPLES: u64 = 96;
/// Number of samples in flight at once, whose answers can go in one message.
const IN_FLIGHT: usize = 12;
/// Milliseconds for which an answer waits for further answers.
const BATCH_MS: u64 = 60;

/// A group with six devices. The devices are not part of `services`, so that the test can read the devices' counts.
struct BatchGroup {
    services: InProcessGroup,
    devices: Vec<DeviceHandle>,
    client: GroupClient,
}

impl BatchGroup {
    /// Starts a group in which a sample leaves at the exit `local` if its uncertainty is at most `threshold`.
    async fn start(threshold: f32, batch_ms: u64) -> Self {
        let settings = group_at(embedded_broker(), bundle(&network(Configuration::C).bundle()));
        let mut settings = with_local_threshold(settings, threshold);
        settings.site.batch_ms = batch_ms;
        settings.slots.clear();
        let services = InProcessGroup::start(settings).await.expect("cloud and leader start");
        let mut devices = Vec::new();
        for slot in Slot::first(6) {
            let frames = Arc::clone(&services.settings.frames);
            let frames = Frames::of_archive(frames, slot).expect("the frames have the slot");
            let network = Arc::clone(&services.settings.device_network);
            let device = Device::start(services.device_config(slot), network, frames).await;
            devices.push(device.expect("the device starts"));
        }
        for device in &devices {
            device.connected().await;
        }
        let client = client_of(&services).await;
        let leader = services.leader().expect("it runs");
        while leader.report().filled_slots.len() < devices.len() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Self { services, devices, client }
    }

    /// Decides samples until the leader has allowed every device to send batches.
    async fn until_allowed(&mut self) {
        let mut first = 1;
        while self.devices.iter().any(|device| device.report().counts.batch_wait_ms == 0) {
            decide_all(&mut self.client, &ids(first, 1), 1).await;
            first += 1;
        }
    }

    /// Decides the samples whose decisions are compared.
    async fn decide(&mut self) -> Vec<Decision> {
        let first = 9 * shipped::frames().len() as u64;
        decide_all(&mut self.client, &ids(first, SAMPLES), IN_FLIGHT).await
    }

    fn messages(&self, kind: &str) -> u64 {
        self.devices
            .iter()
            .map(|device| device.report().counts.sent.get(kind).map_or(0, |sent| sent.messages))
            .sum()
    }

    async fn shutdown(self) {
        for device in self.devices {
            device.shutdown().await;
        }
        self.services.shutdown().await.expect("an orderly end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_change_no_decision() {
    let mut all_local = BatchGroup::start(1.0, 0).await;
    let mut unsure: Vec<f32> =
        all_local.decide().await.iter().map(|decision| 1.0 - decision.confidence).collect();
    all_local.shutdown().await;
    unsure.sort_by(f32::total_cmp);
    let middle = unsure[unsure.len() / 2];

    let mut single = BatchGroup::start(middle, 0).await;
    let expected = single.decide().await;
    assert_eq!(single.messages("batch"), 0);
    single.shutdown().await;

    let mut batching = BatchGroup::start(middle, BATCH_MS).await;
    batching.until_allowed().await;
    let found = batching.decide().await;
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(
            (found.sample, found.class, found.exit, &found.presence, &found.degraded),
            (expected.sample, expected.class, expected.exit, &expected.presence, &expected.degraded)
        );
        assert_eq!(found.confidence, expected.confidence, "{found:?}");
    }
    let by_exit = found.iter().fold(BTreeMap::<Exit, u64>::new(), |mut by_exit, decision| {
        *by_exit.entry(decision.exit).or_default() += 1;
        by_exit
    });
    assert_eq!(by_exit.len(), 2, "both exits are compared: {by_exit:?}");
    let batched: u64 =
        batching.devices.iter().flat_map(|device| device.report().counts.batched.into_values()).sum();
    let batches = batching.messages("batch");
    assert!(batched > SAMPLES * 6 / 2 && batches * 3 < batched, "{batched} answers in {batches} messages");
    batching.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_whose_answer_waits_in_a_killed_device_are_decided_by_the_others() {
    let mut group = BatchGroup::start(1.0, 5_000).await;
    group.until_allowed().await;
    let samples = ids(9 * shipped::frames().len() as u64, 8);
    for sample in &samples {
        group.client.trigger(*sample).await.expect("the broker takes the trigger");
    }
    let waiting = |device: &DeviceHandle| {
        let counts = device.report().counts;
        counts.captured >= 8 && counts.kept_samples >= 8
    };
    while !group.devices.iter().all(waiting) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    drop(group.devices.remove(0));
    // The other devices send their waiting answers when the wait for a batch is over.
    let decisions = group.client.wait_for_decisions(&samples).await.expect("all samples are decided");
    assert_eq!(decisions.len(), samples.len());
    for decision in decisions.values() {
        assert_eq!(decision.missing, ["cam-0"], "{decision:?}");
    }
    group.shutdown().await;
}
