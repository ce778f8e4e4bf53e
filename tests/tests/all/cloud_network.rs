//! A cloud that runs another network than the aggregator: the aggregator names both in its log, before any sample needs the cloud.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use headwater_group::start::find_program;
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::NetworkId;
use headwater_tests::group::{WAIT_LIMIT, bundle, embedded_broker};
use serde_json::Value;

/// A running program and its log; killed when dropped.
struct Logged {
    child: Child,
    lines: Receiver<Value>,
}

impl Logged {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(find_program(program).expect("the programs are built"));
        command.args(arguments).args(["--log-format", "json"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // The test may have ended.
                _ = serde_json::from_str(&line).map(|line| sender.send(line));
            }
        });
        Self { child, lines }
    }

    /// The next line of the log whose message contains a text.
    fn line(&self, text: &str) -> Value {
        let until = Instant::now() + WAIT_LIMIT;
        let has_text = |line: &Value| line["message"].as_str().is_some_and(|message| message.contains(text));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line {text:?}"));
            if has_text(&line) {
                return line;
            }
        }
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // The program may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A file with the bundle of a small network, and the network's id.
fn bundle_file(folder: &Path, seed: u64) -> (PathBuf, NetworkId) {
    let bytes = TinyNetwork { seed, ..TinyNetwork::default() }.bundle();
    let file = folder.join(format!("{seed}.hwb"));
    std::fs::write(&file, &bytes).expect("the folder can be written");
    (file, bundle(&bytes).network_id())
}

#[test]
fn an_aggregator_names_a_cloud_with_another_network_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [(of_cloud, served), (of_group, run)] = [1, 2].map(|seed| bundle_file(folder.path(), seed));
    let [of_cloud, of_group] = [&of_cloud, &of_group].map(|path| path.to_str().expect("UTF-8"));
    let cloud = Logged::start(
        "headwater-cloud",
        &["--bundle", of_cloud, "--engine", "tract", "--http-listen", "127.0.0.1:0"],
    );
    let url = format!("http://{}", cloud.line("serving")["addr"].as_str().expect("an address"));
    let broker = embedded_broker().to_string();
    let arguments = ["--bundle", of_group, "--broker-address", &broker, "--cloud-url", &url];
    let aggregator = Logged::start("headwater-aggregator", &arguments);
    let line = aggregator.line("the cloud serves network");
    let message = line["message"].as_str().expect("text");
    assert!(message.contains(&served.short()) && message.contains(&run.short()), "{message}");
    assert!(message.contains("the same bundle"), "the line says what to do: {message}");
    assert_eq!(line["level"], "WARN");
}
