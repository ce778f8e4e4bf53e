//! A cloud that runs another network than the aggregator: the log of the aggregator names both networks before any sample needs the cloud.

use std::path::{Path, PathBuf};

use headwater_inference::testing::TinyNetwork;
use headwater_protocol::NetworkId;
use headwater_tests::group::{bundle, embedded_broker};
use headwater_tests::programs::{Log, command, service};
use serde_json::Value;

/// Writes a bundle of a small network with weights from `seed`. Returns the file and the network's id.
fn bundle_file(folder: &Path, seed: u64) -> (PathBuf, NetworkId) {
    let bytes = TinyNetwork { seed, ..TinyNetwork::default() }.bundle();
    let file = folder.join(format!("{seed}.hwb"));
    std::fs::write(&file, &bytes).expect("the folder can be written");
    (file, bundle(&bytes).network_id())
}

#[tokio::test]
async fn an_aggregator_names_a_cloud_with_another_network_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [(of_cloud, served), (of_group, run)] = [1, 2].map(|seed| bundle_file(folder.path(), seed));
    let [cloud_log, log] = ["cloud", "aggregator"].map(|name| Log::new(folder.path(), name));
    let mut cloud = command("headwater-cloud");
    cloud.args(["--engine", "tract", "--http-listen", "127.0.0.1:0", "--log-format", "json", "--bundle"]);
    let _cloud = cloud_log.start(cloud.arg(of_cloud));
    let serving = json(&cloud_log.until(&["\"message\":\"serving"]).await);
    let url = format!("http://{}", serving["addr"].as_str().expect("an address"));
    let mut aggregator = service("headwater-aggregator", &embedded_broker(), &of_group);
    let _aggregator = log.start(aggregator.args(["--cloud-url", &url, "--log-format", "json"]));
    let line = json(&log.until(&["the cloud serves network"]).await);
    let message = line["message"].as_str().expect("text");
    assert!(message.contains(&served.short()) && message.contains(&run.short()), "{message}");
    assert!(message.contains("the same bundle"), "the line says what to do: {message}");
    assert_eq!(line["level"], "WARN");
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).expect("a line is an object")
}
