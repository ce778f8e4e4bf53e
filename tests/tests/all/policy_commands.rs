//! Commands that change the policy of a running group. The leader accepts or refuses a command, writes an accepted one to the policy file
//! and the audit file, and passes it on to a device that decides by itself.

use std::path::Path;
use std::time::Duration;

use headwater_group::PolicyClient;
use headwater_group::start::Program;
use headwater_inference::bundle::Bundle;
use headwater_inference::manifest::Configuration;
use headwater_inference::policy::PolicyChanges;
use headwater_link::{Endpoint, Incoming, Link, LinkConfig, QoS};
use headwater_protocol::policy_command::{Origin, PolicyAnswer, PolicyCommand, Verdict};
use headwater_protocol::{Exit, MemberName, PolicyId, SampleId, Schema, SlotSet, Topic, Topics};
use headwater_tests::group::{client, embedded_broker, network, slot};
use headwater_tests::programs::{Log, command, device, service};
use headwater_tests::shipped;
use headwater_tests::waits::Waits;
use serde_json::{Value, json};

const PATIENT: &str = "# by hand\nwindow_ms = 20000\nfeatures_ms = 20000\ndeadline_ms = 60000\n";

const LIMIT: Duration = Duration::from_secs(60);

fn changes(replaces: PolicyId, changes: Value) -> PolicyCommand {
    let changes = serde_json::from_value(changes).expect("an object");
    let origin = Origin::Operator;
    PolicyCommand {
        schema: Schema,
        replaces: Some(replaces),
        origin,
        release: false,
        changes,
        why: String::new(),
    }
}

async fn operator(broker: &Endpoint) -> PolicyClient {
    let (site, group) = ("tests".parse().expect("a name"), "group".parse().expect("a name"));
    let member = "operator".parse().expect("a name");
    PolicyClient::connect(broker.clone().into(), (&site, &group), &member, LIMIT).await.expect("a broker")
}

fn start_aggregator(folder: &Path, broker: &Endpoint, bundle: &Path, flags: &[&str]) -> Program {
    let mut command = service("headwater-aggregator", broker, bundle);
    Log::new(folder, "aggregator").start(command.args(flags))
}

/// Waits until a log has a text twice.
async fn twice(log: &Log, part: &str) {
    let found = async {
        while log.text().matches(part).count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, found).await.unwrap_or_else(|_| panic!("{part} twice in {}", log.text()));
}

#[track_caller]
fn check_refused(answer: &PolicyAnswer, expected: &str) {
    let reason = answer.reason.as_deref().unwrap_or_default();
    assert!(answer.verdict == Verdict::Refused && reason.contains(expected), "{expected}: {answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_commands_at_once_has_its_answer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bundle, broker) = (shipped::bundle_path(), embedded_broker());
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, PATIENT).expect("the folder can be written");
    let _aggregator =
        start_aggregator(folder.path(), &broker, &bundle, &["--policy", &file.display().to_string()]);
    let _device = Log::new(folder.path(), "device").start(&mut device(0, &broker, &bundle));
    let mut client = client(broker.clone(), shipped::bundle().network_id()).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");
    let empty = changes(PolicyId([1; 8]), json!({}));
    let topics = Topics::new(&"tests".parse().expect("a name"), &"group".parse().expect("a name"));
    let member: MemberName = "planner".parse().expect("a name");
    let answers = topics.name(&Topic::PolicyAnswer(member.clone()));
    let config = LinkConfig::new(broker.clone(), "planner").subscribe(answers.as_str(), QoS::AtLeastOnce);
    let (link, mut incoming) = Link::start(config).expect("valid settings");
    assert_eq!(incoming.recv().await, Some(Incoming::Connected));
    let payload = serde_json::to_vec(&empty).expect("JSON");
    for _ in 0..40 {
        let command = topics.name(&Topic::Policy(member.clone()));
        link.publish_when_free(command, payload.clone(), QoS::AtLeastOnce, false).await.expect("connected");
    }
    let all = async {
        for _ in 0..40 {
            while !matches!(incoming.recv().await, Some(Incoming::Message { .. })) {}
        }
    };
    tokio::time::timeout(LIMIT, all).await.expect("40 answers to 40 commands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_command_holds_and_pins_and_every_other_one_says_why_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bundle, broker) = (shipped::bundle_path(), embedded_broker());
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, PATIENT).expect("the folder can be written");
    let policies = shipped::bundle().policies().clone();
    let id_of_file = || PolicyChanges::policy_of(&file, &policies).expect("a sound policy").1;
    let first = id_of_file();
    let _aggregator =
        start_aggregator(folder.path(), &broker, &bundle, &["--policy", &file.display().to_string()]);
    let _device = Log::new(folder.path(), "device").start(&mut device(0, &broker, &bundle));
    let mut client = client(broker.clone(), shipped::bundle().network_id()).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");
    let mut operator = operator(&broker).await;

    let plan = |replaces, changed| PolicyCommand { origin: Origin::Plan, ..changes(replaces, changed) };
    let planned = operator.ask(&plan(first, json!({"local.threshold": 0.0}))).await.expect("an answer");
    assert_eq!((planned.verdict, planned.pinned), (Verdict::Accepted, false), "{planned:?}");
    let second = planned.policy;
    let stale = operator.ask(&changes(first, json!({"late_ms": 9}))).await.expect("an answer");
    check_refused(&stale, &format!("in effect, {second}, found {first}"));
    for (mistake, expected) in [
        (json!({}), "expected `changes` or `release`"),
        (json!({"local.treshold": 0.5}), "did you mean `local.threshold`?"),
        (json!({"local.threshold": 1.5}), "expected a number in [0, 1], found 1.5"),
        (json!({"window_ms": 60000, "deadline_ms": 1}), "deadline_ms"),
        (json!({"use": "frugal"}), "expected the name of a policy of the bundle, found frugal"),
        (json!({"pinned": true}), "an operator's command pins by itself"),
    ] {
        check_refused(&operator.ask(&changes(second, mistake)).await.expect("an answer"), expected);
    }
    let generous = changes(second, json!({"local.threshold": 1.0}));
    let generous = PolicyCommand { why: "night shift".into(), ..generous };
    let accepted = operator.ask(&generous).await.expect("an answer");
    assert_eq!((accepted.verdict, accepted.pinned), (Verdict::Accepted, true), "{accepted:?}");
    let third = accepted.policy;
    assert_eq!(id_of_file(), third, "the file says what holds");
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(text.starts_with("# by hand\n") || text.contains("\n# by hand\n"), "comments stay: {text}");
    let decided = client.decide(SampleId(1000)).await.expect("a decision");
    assert_eq!((decided.policy, decided.exit), (third, Exit::LOCAL));

    check_refused(&operator.ask(&plan(third, json!({"late_ms": 9}))).await.expect("an answer"), "pinned");
    let release = PolicyCommand { release: true, ..changes(third, json!({})) };
    let released = operator.ask(&release).await.expect("an answer");
    assert_eq!((released.verdict, released.pinned, released.policy), (Verdict::Accepted, false, third));
    let last = operator.ask(&plan(third, json!({"local.threshold": null}))).await.expect("an answer");
    assert_eq!((last.verdict, last.policy), (Verdict::Accepted, first), "back to the calibrated threshold");

    std::fs::write(&file, format!("{PATIENT}late_ms = 7\n")).expect("the folder can be written");
    let by_hand = operator.ask(&changes(first, json!({"late_ms": 9}))).await.expect("an answer");
    check_refused(&by_hand, "changed by hand and not read since");

    let audit =
        std::fs::read_to_string(folder.path().join("policy.toml.audit.jsonl")).expect("an audit file");
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found: Vec<_> = lines.iter().map(|line| (&line["old"], &line["new"], &line["origin"])).collect();
    let line = |old: PolicyId, new: PolicyId, origin: &str| (json!(old), json!(new), json!(origin));
    let expected = [
        line(first, second, "plan"),
        line(second, third, "operator"),
        line(third, third, "operator"),
        line(third, first, "plan"),
    ];
    assert_eq!(found, expected.iter().map(|(old, new, origin)| (old, new, origin)).collect::<Vec<_>>());
    assert_eq!((&lines[1]["member"], &lines[1]["why"]), (&json!("operator"), &json!("night shift")));
    assert_eq!(lines[1]["differences"], json!([{"key": "local.threshold", "old": "0.0", "new": "1.0"}]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_decides_gets_its_exit_from_the_leader_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bundle = folder.path().join("alone.hwb");
    std::fs::write(&bundle, network(Configuration::B).bundle()).expect("the folder can be written");
    let broker = embedded_broker();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, format!("{PATIENT}[device]\nthreshold = 0.0\n"))
        .expect("the folder can be written");
    let opened = Bundle::open(&bundle).expect("a sound bundle");
    let strict = PolicyChanges::policy_of(&file, opened.policies()).expect("a sound policy").1;
    let _aggregator =
        start_aggregator(folder.path(), &broker, &bundle, &["--policy", &file.display().to_string()]);
    let start_device = || Log::new(folder.path(), "device").start(&mut device(0, &broker, &bundle));
    let first_device = start_device();
    let mut client = client(broker.clone(), opened.network_id()).await;
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");
    let log = Log::new(folder.path(), "device");
    log.until(&["the leader gave another policy", &strict.to_string()]).await;

    let topic = client.topics.name(&Topic::Policy("operator".parse().expect("a name")));
    client.publish(&topic, b"[]".to_vec()).await.expect("the broker takes it");
    let mut operator = operator(&broker).await;
    let answer = operator.ask(&changes(strict, json!({"device.threshold": 1.0}))).await.expect("an answer");
    let generous = answer.policy;
    assert_eq!((answer.verdict, answer.without), (Verdict::Accepted, vec![]), "the device has it");
    // The device sees the sample, so it decides the sample by itself under this policy.
    let decided = client.decide(SampleId(1001)).await.expect("a decision");
    assert_eq!((decided.policy, decided.exit), (generous, Exit::DEVICE));

    drop(first_device);
    let _device = start_device();
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes");
    let gave = format!("policy={generous}");
    twice(&log, &gave).await;
    assert_eq!(client.decide(SampleId(1002)).await.expect("a decision").policy, generous);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_changes_a_running_group_and_says_why_it_cannot() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bundle, broker) = (shipped::bundle_path(), embedded_broker());
    let send = |arguments: &[&str]| {
        let mut send = command("headwater");
        send.args(["policy", "send", "--site", "tests", "--group", "group", "--broker", &broker.to_string()]);
        let output = send.args(arguments).output().expect("the program runs");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let without_file = start_aggregator(folder.path(), &broker, &bundle, &[]);
    let log = Log::new(folder.path(), "aggregator");
    log.until(&["leading"]).await;
    let (code, said) = send(&["window_ms=40"]);
    assert!(code == Some(1) && said.contains("has no policy file"), "{said}");
    drop(without_file);
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, "").expect("the folder can be written");
    let _aggregator =
        start_aggregator(folder.path(), &broker, &bundle, &["--policy", &file.display().to_string()]);
    twice(&log, "leading").await;
    let (code, said) = send(&["window_ms=40", "local.rule=margin", "--json"]);
    // The JSON comes first in the text, and lines of standard error may follow.
    let answer = serde_json::Deserializer::from_str(&said).into_iter::<Value>().next();
    let answer = answer.expect(&said).expect(&said);
    assert_eq!((code, &answer["verdict"], &answer["pinned"]), (Some(0), &json!("accepted"), &json!(true)));
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(text.contains("window_ms = 40\n") && text.contains("rule = \"margin\"\n"), "{text}");
    let (code, said) = send(&["--release"]);
    assert!(
        code == Some(0) && said.starts_with("accepted: the policy is ") && !said.contains("pinned"),
        "{said}"
    );
    let (code, said) = send(&["windw_ms=40"]);
    assert!(code == Some(2) && said.contains("did you mean `window_ms`?"), "{said}");
}
