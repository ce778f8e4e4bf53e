//! A device that collects answers at high rates and sends them in one message, with a real broker and a leader that the test controls.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::support::{
    Leader, NOT_IN_VIEW, Received, SAMPLES, broker, bundle, config, expected, frames, refusal, scores_bytes,
    sent_of, set_capture, started, until,
};
use headwater_end_device::{Capture, Device, DeviceHandle, OpenedDevice};
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_link::testing::TcpProxy;
use headwater_protocol::{BatchedAnswer, Body, HEADER_BYTES, Kind, MAX_BATCH_SAMPLES, PolicyId};

/// A wait longer than a busy machine may stall, so that a batch is sent only because it is full or for the reason that the test gives.
const LONG_MS: u64 = 20_000;

/// A device with this `batch_ms`, under a policy that allows so long a wait.
fn batching(group: &str, batch_ms: u64) -> OpenedDevice {
    let mut config = config(group, 0);
    config.settings.batch_ms = batch_ms;
    let policy = Policy { window_ms: 60_000, deadline_ms: 120_000, ..Policy::default() };
    config.policy = Some((policy, PolicyId([7; 8])));
    config
}

/// A leader, and a device with this `batch_ms`, after the leader has allowed a longer wait.
async fn batching_device(group: &str, batch_ms: u64) -> (Leader, DeviceHandle) {
    let leader = Leader::of(group).await;
    let device = started(batching(group, batch_ms)).await;
    allow(&leader, &device).await;
    (leader, device)
}

/// Lets the device collect answers for as long as its setting says.
async fn allow(leader: &Leader, device: &DeviceHandle) {
    leader.settles_and_allows(Some(60_000), &[], &[]);
    until(device, |report| report.counts.batch_wait_ms > 0).await;
}

/// The scores of a sample in view, computed once.
fn summary_of(sample: u64) -> &'static [u8] {
    static SUMMARIES: [OnceLock<Vec<u8>>; SAMPLES as usize] = [const { OnceLock::new() }; SAMPLES as usize];
    SUMMARIES[sample as usize].get_or_init(|| scores_bytes(&expected(sample, 0)))
}

/// The answers in a message: the sample id, and true if the message is marked late. Checks each answer against the section's output.
fn answers(received: &Received) -> Vec<(u64, bool)> {
    let message = received.message();
    let first = message.header.sample;
    let check = |sample: u64, found: Option<&[u8]>| match found {
        None => assert_eq!(sample % SAMPLES, NOT_IN_VIEW),
        Some(scores) => assert_eq!(scores, summary_of(sample % SAMPLES)),
    };
    match message.body {
        Body::Batch(batch) => {
            let mut answers = Vec::new();
            for entry in batch.entries(&message.header) {
                match entry.answer {
                    BatchedAnswer::Summary(scores) => check(entry.sample.0, Some(scores)),
                    BatchedAnswer::NotInView => check(entry.sample.0, None),
                }
                answers.push((entry.sample.0, false));
            }
            assert!(answers.len() > 1, "one answer is a message of its own kind");
            return answers;
        }
        Body::Summary(scores) => check(first.0, Some(scores)),
        Body::NotInView => check(first.0, None),
        body => panic!("{body:?}"),
    }
    vec![(first.0, message.header.late)]
}

#[tokio::test]
async fn a_leader_that_names_no_time_gets_each_answer_by_itself() {
    let mut leader = Leader::of("no-wait").await;
    let device = started(batching("no-wait", LONG_MS)).await;
    assert!(leader.birth().await.sends_batches());
    for sample in 1..=4 {
        leader.triggers(sample);
        assert_eq!(answers(&leader.answer().await), [(sample, false)]);
        leader.settles(&[(1, sample)], &[]);
    }
    let report = device.shutdown().await;
    assert_eq!((report.counts.batched.len(), sent_of(&report, Kind::Batch).messages), (0, 0));
}

#[tokio::test]
async fn a_device_without_the_setting_sends_each_answer_by_itself_to_a_leader_that_reads_batches() {
    let mut leader = Leader::of("no-setting").await;
    let device = started(config("no-setting", 0)).await;
    assert!(!leader.birth().await.sends_batches());
    leader.settles_and_allows(Some(60_000), &[], &[]);
    for sample in 1..=4 {
        leader.triggers(sample);
        assert_eq!(answers(&leader.answer().await), [(sample, false)]);
    }
    assert_eq!(device.report().counts.batch_wait_ms, 0);
}

#[tokio::test]
async fn a_full_batch_is_one_message_whose_bytes_are_counted() {
    let (mut leader, device) = batching_device("full", LONG_MS).await;
    let samples = MAX_BATCH_SAMPLES as u64;
    let first = (3 << 33) + 1;
    (first..first + samples).for_each(|sample| leader.triggers(sample));
    let received = leader.answer().await;
    let found: Vec<_> = answers(&received).into_iter().map(|(sample, _)| sample).collect();
    assert!(found.into_iter().eq(first..first + samples));
    let ages = {
        let message = received.message();
        let Body::Batch(batch) = message.body else { panic!("{message:?}") };
        batch.entries(&message.header).map(|entry| entry.age_ms).collect::<Vec<_>>()
    };
    assert!(ages.is_sorted_by(|a, b| a >= b), "{ages:?}");

    let report = device.report();
    let (in_view, not_in_view) = (samples - samples / SAMPLES, samples / SAMPLES);
    assert_eq!(report.counts.batched, [("summary", in_view), ("not_in_view", not_in_view)].into());
    let sent = sent_of(&report, Kind::Batch);
    // A summary has the scores of four classes, of four bytes each.
    assert_eq!((sent.messages, sent.body_bytes), (1, 16 * in_view));
    assert_eq!(sent.payload_bytes, received.payload.len() as u64);
    assert!(sent.payload_bytes < sent.body_bytes + HEADER_BYTES as u64 * samples / 3, "{sent:?}");
    assert_eq!(report.counts.kept_samples, samples);
    leader.settles_and_allows(Some(60_000), &[(first, first + samples - 1)], &[]);
    until(&device, |report| report.counts.kept_samples == 0).await;
}

#[tokio::test]
async fn features_of_a_batched_answer_are_sent_on_request() {
    let (mut leader, _device) = batching_device("batched-features", 100).await;
    leader.triggers(1);
    leader.triggers(2);
    let mut answered = Vec::new();
    while answered.len() < 2 {
        answered.extend(answers(&leader.answer().await));
    }
    leader.requests(2, 1);
    assert_eq!(leader.answer().await.message().body, Body::Features(&expected(2, 0).features));
}

#[tokio::test]
async fn a_device_that_stops_sends_the_answers_that_wait() {
    let (mut leader, device) = batching_device("stop", LONG_MS).await;
    (1..=5).for_each(|sample| leader.triggers(sample));
    until(&device, |report| report.counts.kept_samples == 5).await;
    assert_eq!(device.report().counts.sent.len(), 0);
    let report = device.shutdown().await;
    assert_eq!(sent_of(&report, Kind::Batch).messages, 1);
    assert_eq!(answers(&leader.answer().await).len(), 5);
}

#[tokio::test]
async fn a_leader_that_reads_no_batches_any_more_gets_the_answers_that_wait_at_once() {
    let (mut leader, device) = batching_device("replaced", LONG_MS).await;
    (1..=3).for_each(|sample| leader.triggers(sample));
    until(&device, |report| report.counts.kept_samples == 3).await;
    leader.settles_and_allows(None, &[], &[]);
    for sample in 1..=3 {
        assert_eq!(answers(&leader.answer().await), [(sample, false)]);
    }
    assert_eq!(device.report().counts.batch_wait_ms, 0);
}

#[tokio::test]
async fn answers_that_wait_when_the_connection_is_lost_come_late_and_none_is_lost() {
    let mut leader = Leader::of("cut").await;
    let proxy = TcpProxy::to(broker()).await.unwrap();
    let state = tempfile::tempdir().unwrap();
    let mut config = batching("cut", LONG_MS);
    config.broker = proxy.address().into();
    config.settings.state_dir = Some(state.path().into());
    let device = Device::start(config.clone(), bundle(), frames(0)).await.unwrap();
    device.connected().await;
    allow(&leader, &device).await;
    (1..=6).for_each(|sample| leader.triggers(sample));
    until(&device, |report| report.counts.kept_samples == 6).await;
    proxy.close();
    until(&device, |report| report.counts.spooled == 6).await;
    assert_eq!(device.report().counts.batch_wait_ms, 0, "the next notice says how long");
    // On disk the answers outlive the process.
    device.kill();
    drop(device);
    proxy.open();
    let device = Device::start(config, bundle(), frames(0)).await.unwrap();
    let mut late = BTreeMap::new();
    while late.len() < 6 {
        late.extend(answers(&leader.answer().await));
    }
    assert!(late.keys().copied().eq(1..=6) && late.values().all(|is_late| *is_late), "{late:?}");
    leader.settles_and_allows(None, &[], &[1, 2, 3, 4, 5, 6]);
    until(&device, |report| report.counts.spooled == 0).await;
    assert_eq!((device.report().counts.lost, device.report().counts.given_up.len()), (0, 0));
}

#[tokio::test]
async fn at_a_hundred_samples_a_second_all_are_settled_in_fewer_messages() {
    let mut leader = Leader::of("fast").await;
    // On a busy machine captures are missed: the wait is long enough that a batch has many answers all the same.
    let mut config = batching("fast", 1000);
    set_capture(&mut config, Capture::Clock { period_ms: 10 });
    config.settings.grace_ms = 20_000;
    let device = started(config).await;
    allow(&leader, &device).await;
    let mut received = BTreeMap::new();
    let mut messages = 0u64;
    while received.len() < 300 {
        let found = answers(&leader.answer().await);
        let late: Vec<u64> =
            found.iter().filter(|(_, is_late)| *is_late).map(|(sample, _)| *sample).collect();
        let (first, last) = (found[0].0, found[found.len() - 1].0);
        received.extend(found);
        messages += 1;
        leader.settles_and_allows(Some(60_000), &[(first, last)], &late);
    }
    let report = device.shutdown().await;
    while (received.len() as u64) < report.counts.captured {
        received.extend(answers(&leader.answer().await));
        messages += 1;
    }
    assert_eq!(received.len() as u64, report.counts.captured, "{report:?}");
    assert!(messages * 2 < received.len() as u64, "{messages} messages of {}", received.len());
    let batched: u64 = report.counts.batched.values().sum();
    assert!(batched * 2 > report.counts.captured, "{report:?}");
    assert_eq!((report.counts.lost, report.counts.given_up.len(), report.counts.dropped.len()), (0, 0, 0));
}

#[tokio::test]
async fn a_time_that_the_leader_does_not_wait_is_refused() {
    let with = |batch_ms| {
        let mut config = config("too-long", 0);
        config.settings.batch_ms = batch_ms;
        config
    };
    let error = refusal(with(26), bundle(), frames(0)).await.to_string();
    assert!(error.contains("batch_ms: expected at most 25") && error.contains("window_ms (50)"), "{error}");
    started(with(25)).await.shutdown().await;
    // If the device has the leader's policy file, the waits in that file count.
    let mut longer = with(26);
    longer.policy = Some((Policy { window_ms: 52, ..Policy::default() }, PolicyId([7; 8])));
    started(longer).await.shutdown().await;

    for configuration in [Configuration::A, Configuration::B, Configuration::D] {
        let network = TinyNetwork::of(configuration);
        let bundle = std::sync::Arc::new(Bundle::from_bytes(&network.bundle()).unwrap());
        let error = refusal(with(5), bundle, frames(0)).await.to_string();
        let letter = format!("configuration ({})", configuration.letter());
        assert!(error.contains("batch_ms") && error.contains(&letter), "{error}");
    }
    let mut named = with(5);
    named.settings.name_frames = true;
    let error = refusal(named, bundle(), frames(0)).await.to_string();
    assert!(error.contains("name_frames: ") && error.contains("expected batch_ms = 0, found 5"), "{error}");
}
