//! The real programs as real processes, over a real Mosquitto: killed for real, measured for real.

use std::time::Duration;

use headwater_protocol::{SampleId, Slot, Topics};
use headwater_tests::observer::Observer;
use headwater_tests::process::mosquitto;
use headwater_tests::programs::Programs;
use headwater_tests::shipped;
use headwater_tests::tiers::names;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_killed_with_sigkill_comes_back_without_a_second_decision() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let programs = Programs::new(shipped::bundle_path(), broker.clone(), folder.path());
    let _cloud = programs.cloud();
    let _devices: Vec<_> = Slot::first(6).map(|slot| programs.device(slot)).collect();
    let leader = programs.leader();
    let (site, group) = names();
    let network = shipped::bundle().network_id();
    let mut observer = Observer::connect(broker, Topics::new(&site, &group), network).await;
    let mut last = observer.until_whole(SampleId(1000)).await;

    let mut leader = Some(leader);
    for life in 0..3 {
        // A burst, and the kill in the middle of it.
        for step in 1..=40 {
            observer.trigger(SampleId(last.0 + step)).await;
            if step == 20
                && let Some(leader) = leader.take()
            {
                leader.kill();
            }
        }
        leader = Some(programs.leader());
        last = observer.until_whole(SampleId(last.0 + 1000)).await;
        observer.assert_no_contradiction();
        assert!(!observer.heard.is_empty(), "life {life}");
    }
    let settled = observer.settled_when(|settled| settled.highest >= last).await;
    let different: std::collections::BTreeSet<_> = observer.heard.iter().map(|d| d.sample).collect();
    // What was journalled was published, before the kill or after it.
    assert_eq!(settled.decided, different.len() as u64, "{settled:?}");
}

/// A board must be able to carry it: the limit is the issue's.
const DEVICE_MEMORY_MOST_KIB: u64 = 40 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_takes_less_than_40_mb() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let programs = Programs::new(shipped::bundle_path(), broker.clone(), folder.path());
    let device = programs.device(Slot::new(0).expect("below 64"));
    let (site, group) = names();
    let topics = Topics::new(&site, &group);
    let observer = Observer::connect(broker, topics, shipped::bundle().network_id()).await;
    for sample in 0..300 {
        observer.trigger(SampleId(3000 + sample)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", device.id())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux writes it");
    let peak_kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    println!("peak memory of headwater-device: {peak_kib} KiB");
    assert!(peak_kib < DEVICE_MEMORY_MOST_KIB, "{peak_kib} KiB");
}
