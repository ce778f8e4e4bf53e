//! A group changes its network one device at a time, live over a broker and HTTP. No sample is lost or decided twice. Each decision is
//! the answer of the network that the decision names, from the slots that were present.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_group::start::{InProcessGroup, Service, separate_edges};
use headwater_inference::bundle::Networks;
use headwater_inference::engine::TractEngine;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::Policy;
use headwater_inference::testing::TinyNetwork;
use headwater_inference::whole::Whole;
use headwater_protocol::{Decision, Degraded, NetworkId, Slot};
use headwater_tests::group::{
    WAIT_LIMIT, bundle, client_of, decide_all, embedded_broker, group_at, ids, network, slot, start,
};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Number of samples that are decided between the switches of two devices.
const SAMPLES: u64 = 20;

/// A network with six slots. Networks of different seeds differ in weights and in the shape of their maps.
fn seeded(configuration: Configuration, seed: u64) -> TinyNetwork {
    let mut network = TinyNetwork { seed, filters: 3 + seed as u32, ..network(configuration) };
    // While devices have different networks, every window runs to its end, so the window is only as long as a busy machine needs.
    network.policy.window_ms = 4_000;
    network
}

/// Class and confidence of the network in one piece for the sample and the present slots of a decision, at the exit of the decision.
fn expected(whole: &mut Whole, decision: &Decision) -> (u16, f32) {
    let frames = shipped::frames();
    let views = shipped::views(&frames, (decision.sample.0 % frames.len() as u64) as usize);
    let views: Vec<_> = Slot::first(6)
        .zip(&views)
        .map(|(slot, view)| view.as_deref().filter(|_| decision.presence.present().contains(slot)))
        .collect();
    let answer = whole.run(&[views]).expect("the sample fits").remove(0);
    let policy = Policy::default();
    let assessment = policy.of(decision.exit).assess(answer.input(decision.exit));
    (assessment.class, assessment.confidence)
}

/// Restarts the device of a slot with the next network.
async fn switch_device(group: &mut InProcessGroup, slot: Slot) {
    group.stop(Service::Device(slot)).await.unwrap();
    group.settings.device_network = Arc::clone(group.settings.networks.next().expect("a next network"));
    group.start_service(Service::Device(slot)).await.unwrap();
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
}

/// Restarts edges, leader and cloud with the next network alone.
async fn keep_only_next(group: &mut InProcessGroup) {
    group.settings.networks = Arc::clone(group.settings.networks.next().expect("a next network")).into();
    group.settings.policy = None;
    let edges = separate_edges(group.settings.networks.current().manifest()).map(Service::Edge);
    let services: Vec<Service> = edges.chain([Service::Leader, Service::Cloud]).collect();
    for service in services {
        group.stop(service).await.unwrap();
        group.start_service(service).await.unwrap();
    }
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
}

async fn check(configuration: Configuration) {
    let [current, next] = [1, 2].map(|seed| bundle(&seeded(configuration, seed).bundle()));
    let mut wholes: BTreeMap<NetworkId, Whole> = [&current, &next]
        .into_iter()
        .map(|bundle| {
            (bundle.network_id(), Whole::load(bundle, &TractEngine::new()).expect("the network loads"))
        })
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let networks = Networks::both(Arc::clone(&current), Arc::clone(&next)).expect("two networks");
    let mut settings = group_at(embedded_broker(), networks);
    settings.policy = Some(current.policy().clone());
    settings.site.journal = Some(folder.path().join("journal.jsonl"));
    let mut group = start(settings).await;
    let mut client = client_of(&group).await;
    let first = 13 * shipped::frames().len() as u64;
    let mut id = first;
    let mut deciding = BTreeSet::new();
    for round in 0..=7u8 {
        match round {
            0 => {}
            7 => keep_only_next(&mut group).await,
            _ => switch_device(&mut group, slot(round - 1)).await,
        }
        let samples = ids(id, SAMPLES);
        id += SAMPLES;
        for decision in &decide_all(&mut client, &samples, samples.len()).await {
            let what = format!("{configuration:?} round {round}: {decision:?}");
            deciding.insert(decision.network);
            match round {
                0 => assert_eq!(decision.network, current.network_id(), "{what}"),
                6 | 7 => assert_eq!(decision.network, next.network_id(), "{what}"),
                _ => {}
            }
            // Only the devices that have another network than the decision are missing.
            let others = match (round, decision.network == next.network_id()) {
                (0 | 7, _) => 0,
                (_, true) => 6 - u32::from(round),
                (_, false) => u32::from(round),
            };
            assert_eq!(decision.presence.missing_count(), others, "{what}");
            let mut reasons = Vec::new();
            reasons.extend((others > 0).then_some(Degraded::DeviceMissing));
            reasons.extend((decision.presence.present_count() == 0).then_some(Degraded::NoView));
            assert_eq!(decision.degraded, reasons, "{what}");
            assert_eq!(decision.missing.len(), others as usize, "{what}");
            if decision.presence.present_count() == 0 {
                continue;
            }
            let (class, confidence) =
                expected(wholes.get_mut(&decision.network).expect("one of the two"), decision);
            assert_eq!(decision.class.unwrap(), class, "{what}");
            assert!((decision.confidence - confidence).abs() <= 1e-5, "{what}: {confidence}");
        }
    }
    assert_eq!(deciding.len(), 2, "both networks decided");
    let settled = client.wait_for_settled(|settled| settled.highest.0 + 1 >= id).await.unwrap();
    assert_eq!((settled.decided, settled.dropped.len()), (id - first, 0), "{settled:?}");
    assert_eq!(client.account().contradicted_count(), 0);
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_one_leader_change_their_network_one_by_one() {
    check(Configuration::C).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_of_several_edges_change_their_network_one_by_one() {
    check(Configuration::F).await;
}
