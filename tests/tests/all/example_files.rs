//! The example files of the three services fit each other: the three services run as one site with these files.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use headwater_group::start::Program;
use headwater_group::{ClientSettings, GroupClient};
use headwater_protocol::{GroupId, SampleId, SiteId, SlotSet};
use headwater_tests::group::{WAIT_LIMIT, embedded_broker, slot};
use headwater_tests::waits::Waits;
use headwater_tests::{programs, shipped};
use headwater_transport::held_port;
use tokio::time::{Instant, timeout_at};

const DEVICE: &str = include_str!("../../../end-device/headwater-device.toml");
const AGGREGATOR: &str = include_str!("../../../edge-aggregator/headwater-aggregator.toml");
const CLOUD: &str = include_str!("../../../cloud-service/headwater-cloud.toml");

/// Values of a key in a settings file, also of a key in a comment.
fn values<'a>(file: &'a str, key: &str) -> Vec<&'a str> {
    let lines = file.lines().map(|line| line.trim_start_matches("# "));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = ")).collect()
}

#[test]
fn addresses_and_names_of_the_example_files_fit_each_other() {
    for key in ["site", "group", "bundle", "address"] {
        assert_eq!(values(DEVICE, key), values(AGGREGATOR, key), "{key}");
    }
    assert_eq!(values(DEVICE, "bundle"), values(CLOUD, "bundle"));
    let url = values(CLOUD, "listen")[0].replacen('"', "\"http://", 1);
    assert_eq!(values(AGGREGATOR, "url"), [url.as_str()]);
    assert_eq!(values(AGGREGATOR, "model")[0], values(CLOUD, "name")[0]);
    let mut ports: Vec<_> =
        [DEVICE, AGGREGATOR, CLOUD].iter().flat_map(|file| values(file, "listen")).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 5, "three admin listeners and the cloud over HTTP and gRPC: {ports:?}");
}

/// Writes an example file into a folder, and starts a program with the file and further flags.
fn start(program: &str, file: &str, folder: &Path, flags: &[&str]) -> Program {
    let path = folder.join(format!("{program}.toml"));
    std::fs::write(&path, file).expect("the folder can be written");
    let mut command = programs::command(program);
    command.current_dir(folder).arg("--config").arg(path).args(flags).stdout(Stdio::null());
    Program::start(&mut command).expect("the program starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_programs_with_the_example_files_decide_a_sample() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::copy(shipped::bundle_path(), folder.path().join("network.hwb")).expect("a copy of the bundle");
    std::fs::copy(shipped::frames_path(), folder.path().join("frames.tar.gz")).expect("a copy of the frames");
    let broker = embedded_broker();
    let cloud = format!("127.0.0.1:{}", held_port().expect("a free port"));
    let (address, url) = (broker.to_string(), format!("http://{cloud}"));
    let _cloud =
        start("headwater-cloud", CLOUD, folder.path(), &["--http-listen", &cloud, "--engine", "tract"]);
    let flags = ["--broker-address", &address, "--cloud-url", &url];
    let _aggregator = start("headwater-aggregator", AGGREGATOR, folder.path(), &flags);
    let flags = ["--broker-address", &address, "--source-path", "frames.tar.gz"];
    let _device = start("headwater-device", DEVICE, folder.path(), &flags);

    let mut client = GroupClient::connect(ClientSettings {
        broker: broker.into(),
        site: SiteId::new("home").expect("a valid name"),
        group: GroupId::new("demo").expect("a valid name"),
        network: shipped::bundle().network_id(),
        client_id: "example-files".into(),
        wait_limit: WAIT_LIMIT,
    })
    .await
    .expect("the broker is there");
    client.wait_for_members(SlotSet::single(slot(0))).await.expect("the device comes up");
    // The programs need some time to find each other, so samples are triggered until one of them is decided.
    let until = Instant::now() + WAIT_LIMIT;
    for sample in (1..).map(SampleId) {
        assert!(Instant::now() < until, "no decision: {:?}", client.account().settled);
        client.trigger(sample).await.expect("connected");
        let next_attempt = Instant::now() + Duration::from_millis(250);
        while let Ok(event) = timeout_at(next_attempt, client.next()).await {
            event.expect("readable messages");
            if client.account().decisions().next().is_some() {
                return;
            }
        }
    }
}
