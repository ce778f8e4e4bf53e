//! Two aggregator programs for one group over Mosquitto: the second one waits, and leads after the first one was killed with SIGKILL.

use std::path::Path;

use headwater_group::start::{Program, Service};
use headwater_inference::policy::Policy;
use headwater_link::Endpoint;
use headwater_protocol::SampleId;
use headwater_tests::group::{client, ids, patient, programs};
use headwater_tests::other_programs::mosquitto;
use headwater_tests::programs::{Log, service};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;

/// Starts a second aggregator for the group `tests/group`, with a journal of its own.
fn second_leader(broker: &Endpoint, policy: &Policy, folder: &Path) -> Program {
    let file = folder.join("second-policy.toml");
    std::fs::write(&file, toml::to_string(policy).expect("a policy becomes TOML")).expect("a folder");
    let mut command = service("headwater-aggregator", broker, &shipped::bundle_path());
    command.arg("--policy").arg(file).arg("--journal-path").arg(folder.join("second.jsonl"));
    Log::new(folder, "second").start(&mut command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_leader_waits_and_leads_after_sigkill_of_the_first_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_mosquitto, broker) = mosquitto(folder.path());
    let bundle = shipped::bundle();
    let policy = patient(bundle.policy().clone());
    let mut group = programs(&shipped::bundle_path(), Some(&policy), broker.clone(), folder.path());
    group.start_all(bundle.manifest()).await.unwrap();
    let mut client = client(broker.clone(), bundle.network_id()).await;
    let first = client.wait_for_complete_decision(SampleId(1000)).await.unwrap();
    let _second = second_leader(&broker, &policy, folder.path());
    for sample in ids(first.0 + 1, 100) {
        client.decide(sample).await.unwrap();
    }
    assert_eq!(client.account().contradicted_count(), 0);
    assert!(
        !folder.path().join("second.jsonl").metadata().is_ok_and(|file| file.len() > 0),
        "the second one decided"
    );

    group.kill(Service::Leader);
    let last = client.wait_for_complete_decision(SampleId(first.0 + 500)).await.unwrap();
    for sample in ids(last.0 + 1, 20) {
        client.decide(sample).await.unwrap();
    }
    assert_eq!(client.account().contradicted_count(), 0);

    // The first aggregator starts again with its journal, and waits while the second one leads.
    group.start(Service::Leader).unwrap();
    for sample in ids(last.0 + 1000, 100) {
        client.decide(sample).await.unwrap();
    }
    assert_eq!(client.account().contradicted_count(), 0);
}
