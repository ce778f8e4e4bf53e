//! The files in `docs/schemas/` are the schemas of the Rust types, and the messages of running groups fit these schemas.
//!
//! With `HEADWATER_WRITE_EXAMPLES=1` the test writes the files before it compares them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_group::start::Service;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::{ExitThreshold, Threshold};
use headwater_link::{Incoming, Link, LinkConfig, QoS};
use headwater_protocol::{Exit, SampleId, schema};
use headwater_tests::group::{
    WAIT_LIMIT, bundle, client_of, decide_all, embedded_broker, group_at, ids, network, shipped_group, site,
    slot, start, with_local_threshold,
};
use headwater_tests::schema_check::mistakes;
use headwater_tests::shipped;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

const PAGE: &str = include_str!("../../../docs/protocol.md");

fn file(name: &str) -> PathBuf {
    shipped::root().join(format!("docs/schemas/{name}.json"))
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(file(name)).expect("a schema of each message");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_files_are_the_schemas_of_the_types() {
    for (name, schema) in schema::schemas() {
        let text = serde_json::to_string_pretty(&schema).expect("JSON") + "\n";
        if std::env::var_os("HEADWATER_WRITE_EXAMPLES").is_some() {
            std::fs::create_dir_all(file(name).parent().expect("a folder")).expect("a folder");
            std::fs::write(file(name), &text).expect("the folder can be written");
        }
        let found = std::fs::read_to_string(file(name)).expect("a schema of each message");
        assert_eq!(found, text, "{name}: HEADWATER_WRITE_EXAMPLES=1 writes the file");
        assert!(PAGE.contains(&format!("](schemas/{name}.json)")), "docs/protocol.md lacks {name}");
    }
}

#[test]
fn the_examples_of_the_page_fit_their_schemas() {
    for (heading, name) in [
        ("trigger", "trigger"),
        ("result", "result"),
        ("settled", "settled"),
        ("leader", "leader"),
        ("dev/{id}/birth", "birth"),
        ("dev/{id}/status", "status"),
        ("edge/{id}/status", "edge-status"),
        ("policy/{name}", "policy"),
        ("policy/{name}/answer", "policy-answer"),
        ("dev/{id}/cmd", "cmd"),
    ] {
        let section = PAGE.split(&format!("\n## `{heading}`\n")).nth(1).expect("a heading");
        let example = section.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
        let example: Value = serde_json::from_str(example.expect("an example")).expect("JSON");
        let schema = read(name);
        assert_eq!(mistakes(&schema, &schema, &example), [""; 0], "{heading}");
    }
}

#[track_caller]
fn check_mistake(change: impl FnOnce(&mut Value), expected: &str) {
    let mut result = json!({
        "schema": 2, "sample": 1, "class": 0, "label": "car", "confidence": 0.5, "exit": "local", "left": "sure",
        "presence": ["present"], "network": "1f".repeat(32), "policy": "83".repeat(8),
        "stages": {"opened_us": 1, "window_us": 1, "features_us": 0, "edge_us": 0, "cloud_us": 0, "decided_us": 1},
        "bytes": {"device_edge": 1, "edge_leader": 0, "edge_cloud": 0},
    });
    let schema = read("result");
    assert_eq!(mistakes(&schema, &schema, &result), [""; 0]);
    change(&mut result);
    let found = mistakes(&schema, &schema, &result);
    assert!(found.iter().any(|mistake| mistake.contains(expected)), "{expected}: {found:?}");
}

#[test]
fn a_result_that_does_not_fit_is_named() {
    check_mistake(|result| result["exit"] = json!("moon"), "moon");
    check_mistake(|result| result["network"] = json!("1f"), "1f");
    check_mistake(|result| result["presence"] = json!(["here"]), "here");
    check_mistake(|result| result["bytes"]["device_edge"] = json!(-1), "at least 0");
    check_mistake(|result| result["sample"] = json!("1"), "integer");
    check_mistake(|result| result["exits"] = json!([{ "exit": "local" }]), "confidence");
    check_mistake(|result| result["mood"] = json!(1), "unnamed field mood");
    check_mistake(|result| _ = result.as_object_mut().map(|fields| fields.remove("policy")), "policy");
}

/// A client that receives the JSON messages of the group `tests/group`, and sorts them by the name of their schema.
struct Listener {
    incoming: tokio::sync::mpsc::Receiver<Incoming>,
    found: BTreeMap<&'static str, Vec<Value>>,
    _link: Link,
}

/// Name of the schema for the JSON messages of a topic; `None` for a topic without a schema in these tests.
fn schema_of(topic: &str) -> Option<&'static str> {
    let levels: Vec<_> = topic.split('/').skip(4).collect();
    match levels[..] {
        ["result" | "revision"] => Some("result"),
        ["settled"] => Some("settled"),
        ["leader"] => Some("leader"),
        ["trigger"] => Some("trigger"),
        ["dev", _, "birth"] => Some("birth"),
        ["dev", _, "status"] => Some("status"),
        ["edge", _, "status"] => Some("edge-status"),
        _ => None,
    }
}

impl Listener {
    /// Starts a listener, and waits until it is connected.
    async fn start(broker: headwater_link::Endpoint) -> Self {
        let names = site(broker.clone());
        let filter = format!("headwater/v1/{}/{}/#", names.site, names.group);
        let config = LinkConfig::new(broker, "listener").subscribe(filter, QoS::AtLeastOnce);
        let (link, mut incoming) = Link::start(config).expect("valid settings");
        let connected = timeout_at(Instant::now() + WAIT_LIMIT, incoming.recv()).await;
        assert_eq!(connected.expect("connected in time"), Some(Incoming::Connected));
        Self { incoming, found: BTreeMap::new(), _link: link }
    }

    /// Collects messages until `count` messages of a schema have come.
    async fn wait_for(&mut self, name: &'static str, count: usize) {
        let until = Instant::now() + WAIT_LIMIT;
        while self.found.get(name).map_or(0, Vec::len) < count {
            let next = timeout_at(until, self.incoming.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("{count} of {name}: {:?}", self.found.keys()));
            let Some(Incoming::Message { topic, payload, .. }) = next else { continue };
            let is_json = payload.first() == Some(&b'{');
            if let Some(name) = schema_of(&topic).filter(|_| is_json) {
                self.found.entry(name).or_default().push(serde_json::from_slice(&payload).expect("JSON"));
            }
        }
    }

    fn check(&self) {
        for (name, messages) in &self.found {
            let schema = read(name);
            for message in messages {
                assert_eq!(mistakes(&schema, &schema, message), [""; 0], "{name}: {message}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_running_group_fit_their_schemas_and_name_a_device_that_died() {
    let mut group = start(with_local_threshold(shipped_group(), 0.0)).await;
    let mut client = client_of(&group).await;
    let mut listener = Listener::start(group.settings.site.broker.clone()).await;
    decide_all(&mut client, &ids(1, 4), 2).await;
    group.kill(Service::Device(slot(2))).await;
    group.wait_until_ready(WAIT_LIMIT).await.unwrap();
    // A user's program may send a trigger in JSON, such as this one.
    let topic = client.topics.name(&headwater_protocol::Topic::Trigger);
    client.publish(&topic, &br#"{"sample": 5}"#[..]).await.unwrap();
    let decision = client
        .wait_for("the decision of sample 5", |client| client.account().decision(SampleId(5)).cloned())
        .await
        .unwrap();
    assert_eq!(decision.missing, ["cam-2"]);
    assert_eq!(decision.degraded, [headwater_protocol::Degraded::DeviceMissing]);
    listener.wait_for("result", 5).await;
    for name in ["trigger", "settled", "leader", "birth", "status"] {
        listener.wait_for(name, 1).await;
    }
    listener.check();
    let last = &listener.found["result"][4];
    assert_eq!(
        (&last["missing"], &last["left"], &last["schema"]),
        (&json!(["cam-2"]), &json!("last_exit"), &json!(2))
    );
    let captured =
        last["captured_at"].as_str().and_then(|text| text.parse::<headwater_protocol::UtcTime>().ok());
    let now = headwater_protocol::UtcTime::from(std::time::SystemTime::now());
    let age_ms = now.ms() - captured.expect("a time of capture").ms();
    assert!(age_ms < WAIT_LIMIT.as_millis() as u64, "{last}");
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_an_edge_and_the_decision_of_a_device_fit_their_schemas() {
    for (configuration, name) in [(Configuration::F, "edge-status"), (Configuration::B, "result")] {
        let mut network = network(configuration);
        network.policy.of_mut(Exit::DEVICE).threshold = Threshold::One(ExitThreshold::ALWAYS);
        let group = start(group_at(embedded_broker(), bundle(&network.bundle()))).await;
        let mut client = client_of(&group).await;
        let mut listener = Listener::start(group.settings.site.broker.clone()).await;
        decide_all(&mut client, &ids(1, 6), 2).await;
        listener.wait_for("result", 6).await;
        listener.wait_for(name, 1).await;
        listener.check();
        if configuration == Configuration::B {
            let result = &listener.found["result"][5];
            assert_eq!((&result["exit"], &result["left"]), (&json!("device"), &json!("sure")), "{result}");
            // Device and leader have the same policy, so the leader knows the threshold and reports it.
            assert_eq!(result["exits"][0]["threshold_confidence"], 0.0, "{result}");
        }
        group.shutdown().await.unwrap();
    }
}
