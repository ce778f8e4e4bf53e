//! Configuration f as programs over Mosquitto: each edge, then the leader, is killed with SIGKILL and started again.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_group::start::Service;
use headwater_group::{GroupClient, GroupError};
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Threshold};
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::{Dropped, EdgeIndex, Exit, SampleId, Settled, Slot, SlotPresence};
use headwater_tests::group::{WAIT_LIMIT, bundle, client, ids, network, programs};
use headwater_tests::journal_contents::JournalContents;
use headwater_tests::other_programs::mosquitto;
use headwater_tests::waits::Waits;
use tokio::time::{Instant, interval, sleep};

/// Time between triggers.
const PERIOD: Duration = Duration::from_millis(20);

/// A network with two edges. Only a certain sample leaves before the cloud, so nearly every sample passes all tiers.
fn never_sure() -> TinyNetwork {
    let mut network = network(Configuration::F);
    (network.policy.window_ms, network.policy.features_ms) = (8_000, 8_000);
    for exit in [Exit::LOCAL, Exit::EDGE] {
        network.policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::ONLY_CERTAIN);
    }
    network
}

async fn trigger_all(client: &mut GroupClient, samples: &[SampleId]) -> Result<(), GroupError> {
    let mut ticks = interval(PERIOD);
    for &sample in samples {
        ticks.tick().await;
        client.trigger(sample).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edges_and_then_the_leader_are_killed_with_sigkill_and_restarted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().join("journal.jsonl");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let (file, bytes) = (folder.path().join("f.hwb"), never_sure().bundle());
    std::fs::write(&file, &bytes).expect("the folder can be written");
    let bundle = bundle(&bytes);
    let edge_slots = &bundle.manifest().edge.as_ref().expect("edges").groups;
    let mut group = programs(&file, None, broker.clone(), folder.path());
    group.start_all(bundle.manifest()).await.unwrap();
    let mut client = client(broker, bundle.network_id()).await;
    let mut last = client.wait_for_complete_decision(SampleId(1000)).await.unwrap();

    // Samples that the leader has opened; each of them must be decided or dropped.
    let mut triggered = Vec::new();
    for (edge, slots) in EdgeIndex::first(edge_slots.len()).zip(edge_slots) {
        let samples = ids(last.0 + 1, 60);
        trigger_all(&mut client, &samples[..20]).await.unwrap();
        group.kill(Service::Edge(edge));
        trigger_all(&mut client, &samples[20..40]).await.unwrap();
        // The last of these samples is decided before the edge starts again, so the edge's slots are not present.
        let without_edge = client.wait_for_decisions(&samples[20..40]).await.unwrap();
        let is_absent = |slot: &Slot| without_edge[&samples[39]].presence.get(*slot) != SlotPresence::Present;
        assert!(slots.iter().all(is_absent), "edge {edge}: {:?}", without_edge[&samples[39]]);
        assert!(without_edge.values().any(|decision| decision.presence.present_count() > 0), "edge {edge}");
        group.start(Service::Edge(edge)).unwrap();
        trigger_all(&mut client, &samples[40..]).await.unwrap();
        let decided = client.wait_for_decisions(&samples).await.unwrap();
        assert_eq!(decided.len(), samples.len(), "edge {edge}");
        triggered.extend(samples);
        last = client.wait_for_complete_decision(SampleId(last.0 + 1000)).await.unwrap();
    }

    // The leader is killed in the middle of a burst. Earlier decisions stay; open samples are decided later, or dropped.
    let burst = ids(last.0 + 1, 40);
    trigger_all(&mut client, &burst[..20]).await.unwrap();
    for &sample in &burst[20..] {
        client.trigger(sample).await.unwrap();
    }
    client.wait_for_decisions(&burst[..22]).await.unwrap();
    group.kill(Service::Leader);
    group.start(Service::Leader).unwrap();
    triggered.extend(&burst[..22]);
    last = client.wait_for_complete_decision(SampleId(last.0 + 1000)).await.unwrap();

    // The leader is killed while samples wait for the cloud.
    let decided = ids(last.0 + 1, 10);
    trigger_all(&mut client, &decided).await.unwrap();
    let decisions = client.wait_for_decisions(&decided).await.unwrap();
    assert!(decisions.values().any(|decision| decision.exit == Exit::CLOUD), "{decisions:?}");
    group.program(Service::Cloud).expect("a cloud").signal("STOP").unwrap();
    let open = ids(decided[9].0 + 1, 10);
    trigger_all(&mut client, &open).await.unwrap();
    let until = Instant::now() + WAIT_LIMIT;
    while !open.iter().all(|sample| JournalContents::read(&journal).opened.contains(sample)) {
        assert!(Instant::now() < until, "samples not opened in {WAIT_LIMIT:?}");
        sleep(Duration::from_millis(10)).await;
    }
    group.kill(Service::Leader);
    group.program(Service::Cloud).expect("a cloud").signal("CONT").unwrap();
    group.start(Service::Leader).unwrap();
    triggered.extend(decided.iter().chain(&open));
    last = client.wait_for_complete_decision(SampleId(last.0 + 1000)).await.unwrap();

    // Devices send unsettled samples again, and after some seconds the leader drops samples that no device has sent. The leader's account may
    // come before a result that it counts, and a sample may be opened late. So the loop runs until the journal has nothing new.
    let until = Instant::now() + WAIT_LIMIT;
    let closed = |settled: &Settled| settled.decided + settled.dropped.values().sum::<u64>();
    let settled = loop {
        let contents = JournalContents::read(&journal);
        let ended = (contents.decided.len() + contents.dropped.len()) as u64;
        if contents.open().is_empty() {
            let all_closed = |settled: &Settled| settled.highest >= last && closed(settled) >= ended;
            let settled = client.wait_for_settled(all_closed).await.unwrap();
            let decided: Vec<_> = contents.decided.into_keys().collect();
            client.wait_for_decisions(&decided).await.unwrap();
            if closed(&settled) == ended && JournalContents::read(&journal).opened == contents.opened {
                break settled;
            }
        }
        assert!(Instant::now() < until, "samples without an end after {WAIT_LIMIT:?}");
        sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(client.account().contradicted_count(), 0);
    let published: BTreeSet<_> = client.account().decisions().map(|decision| decision.sample).collect();
    let JournalContents { opened, decided, dropped, .. } = JournalContents::read(&journal);
    let decided: BTreeSet<_> = decided.into_keys().collect();
    assert_eq!(published, decided, "each decision in the journal was published");
    let is_named = |reason: &Dropped| matches!(reason, Dropped::Restart | Dropped::Unanswered);
    assert!(dropped.values().all(is_named), "{dropped:?}");
    let dropped: BTreeSet<_> = dropped.into_keys().collect();
    assert!(decided.is_disjoint(&dropped), "{dropped:?}");
    let ended = &decided | &dropped;
    assert_eq!(&opened - &ended, BTreeSet::new(), "opened, and not ended");
    assert_eq!(&ended - &opened, BTreeSet::new(), "ended, and not opened");
    assert!(triggered.iter().all(|sample| opened.contains(sample)), "triggered, and not opened");
    assert_eq!(settled.decided, decided.len() as u64, "{settled:?}");
    assert_eq!(settled.dropped.values().sum::<u64>(), dropped.len() as u64, "{settled:?}");
}
