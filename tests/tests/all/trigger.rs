//! `headwater trigger` against a running group.

use std::process::Output;

use headwater_link::Endpoint;
use headwater_protocol::SampleId;
use headwater_tests::group::{client_of, embedded_broker, shipped_group, start};
use headwater_tests::programs::command;
use headwater_tests::waits::Waits;
use serde_json::Value;

/// Runs the command on another thread, so that the group in this process runs on.
async fn trigger(broker: &Endpoint, group: &str, arguments: &'static [&'static str]) -> Output {
    let (broker, group) = (broker.to_string(), group.to_owned());
    let run = move || {
        let mut command = command("headwater");
        command.args(["trigger", "--broker", &broker, "--site", "tests", "--group", &group]);
        command.args(arguments).output().expect("the command starts")
    };
    tokio::task::spawn_blocking(run).await.expect("the command ends")
}

#[track_caller]
fn lines(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_continue_from_the_newest_sample_and_results_are_printed() {
    let settings = shipped_group();
    let broker = settings.site.broker.clone();
    let group = start(settings).await;
    let mut client = client_of(&group).await;
    client.decide(SampleId(500)).await.unwrap();
    client.wait_for_settled(|settled| settled.highest == SampleId(500)).await.unwrap();

    let watch = &["--count", "3", "--rate", "20", "--watch", "--timeout-s", "60"];
    let text = lines(&trigger(&broker, "group", watch).await);
    assert_eq!(text.len(), 4, "{text:?}");
    for (line, sample) in text.iter().zip([501, 502, 503]) {
        assert!(line.starts_with(&format!("sample {sample}  ")) && line.contains("confidence"), "{line}");
    }
    assert_eq!(text[3], "triggered 3 samples, 501 to 503; decided 3, without result 0");

    let json =
        lines(&trigger(&broker, "group", &["--id", "900", "--watch", "--timeout-s", "60", "--json"]).await);
    let json: Vec<Value> = json.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!((&json[0]["sample"], &json[1]["decided"]), (&900.into(), &1.into()), "{json:?}");

    let blind = lines(&trigger(&broker, "group", &[]).await);
    assert_eq!(blind, ["triggered sample 901"]);
    client.wait_for_decisions(&[SampleId(901)]).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    std::fs::write(&list, "# two\n1000,0\n1005,200\n").unwrap();
    let list: &'static str = list.display().to_string().leak();
    let watch = vec!["--list", list, "--watch", "--timeout-s", "60"].leak();
    let listed = lines(&trigger(&broker, "group", watch).await);
    assert!(listed[0].starts_with("sample 1000  ") && listed[1].starts_with("sample 1005  "), "{listed:?}");
    assert_eq!(listed[2], "triggered 2 samples, 1000 to 1005; decided 2, without result 0");

    let refused = trigger(&broker, "group", vec!["--list", list, "--rate", "5"].leak()).await;
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && stderr.contains("the list has times of its own"), "{stderr}");

    // A sample that is older than the newest sample is settled, so the command reports that the sample has no result.
    let old = trigger(&broker, "group", &["--id", "100", "--watch", "--timeout-s", "5"]).await;
    assert_eq!(old.status.code(), Some(1), "{}", String::from_utf8_lossy(&old.stdout));
    let far = trigger(&broker, "group", &["--id", "9000000000", "--watch"]).await;
    let stderr = String::from_utf8_lossy(&far.stderr).into_owned();
    assert!(far.status.code() == Some(2) && stderr.contains("expected an id up to 2005 "), "{stderr}");
    group.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_not_there_is_named_with_what_to_do() {
    let output = trigger(&embedded_broker(), "nobody", &["--watch"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for part in ["no device of the group tests/nobody is up", "check --site and --group"] {
        assert!(stderr.contains(part), "{part} in {stderr}");
    }
}
