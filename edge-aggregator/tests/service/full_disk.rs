//! A journal that cannot grow for a while: a limit of the process on the size of files stands for the full disk.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use headwater_inference::leader::journal::Entry;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::SampleId;
use tempfile::TempDir;
use tokio::time::{Duration, sleep, timeout};

use crate::group::{Group, LIMIT};

/// A leader in a process of its own; killed when dropped.
struct Program {
    child: Child,
    admin: SocketAddr,
}

impl Program {
    fn start(group: &Group, folder: &Path) -> Self {
        let names: Vec<_> = group.bundle.manifest().sections.iter().map(|s| s.name.as_str()).collect();
        let bundle = folder.join("network.hwb");
        std::fs::write(&bundle, group.bundle.only(&names).unwrap()).unwrap();
        let admin = SocketAddr::from(([127, 0, 0, 1], headwater_transport::held_port().unwrap()));
        // A write beyond the limit on file sizes sends the process a signal; if the process ignores the signal, the write fails.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_headwater-aggregator")]);
        command.args(["--site", "plant", "--group", "gate", "--settled-every-ms", "1"]);
        command.args(["--broker-address", &group.broker.to_string(), "--admin-listen", &admin.to_string()]);
        command.arg("--bundle").arg(bundle).arg("--journal-path").arg(folder.join("journal"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, admin }
    }

    /// Sets the largest size of the files that the process writes; false if `prlimit` is not installed or fails.
    fn limit_files(&self, limit: &str) -> bool {
        let mut command = Command::new("prlimit");
        let set = command.args(["--pid", &self.child.id().to_string(), &format!("--fsize={limit}")]).status();
        set.is_ok_and(|status| status.success())
    }

    /// Waits until a metric of the group has this value.
    async fn shows(&self, metric: &str, value: u64) {
        self.shows_such(&format!("{metric}{{"), |found| found == value).await;
    }

    /// Waits until the metric whose line begins with `metric` has a value for which `is_expected` holds.
    async fn shows_such(&self, metric: &str, is_expected: impl Fn(u64) -> bool) {
        let name = format!("headwater_aggregator_{metric}");
        let is_shown = |text: &str| {
            let line = text.lines().find(|line| line.starts_with(&name));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).is_some_and(&is_expected)
        };
        let wait = async {
            while !is_shown(&self.metrics()) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LIMIT, wait).await.unwrap_or_else(|_| panic!("{metric} in\n{}", self.metrics()));
    }

    /// Text of the metrics; empty while the admin port does not answer.
    fn metrics(&self) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(self.admin) {
            _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
            _ = stream.read_to_string(&mut answer);
        }
        answer
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A process that has ended already needs no signal.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_journal_cannot_grow_decides_nothing_and_goes_on_when_it_can() {
    let (broker, folder) = (EmbeddedBroker::start().unwrap(), TempDir::new().unwrap());
    let group = Group::named("gate", broker.address(), 1.0);
    let mut program = Program::start(&group, folder.path());
    let mut observer = group.observer().await;
    let cameras = [group.camera(0).await, group.camera(1).await];
    program.shows("filled_slots", 2).await;
    let journal = folder.path().join("journal");
    cameras.iter().for_each(|camera| camera.sees(1, 2));
    assert_eq!(observer.result().await.sample, SampleId(1));
    program.shows("open_samples", 0).await;
    let length = std::fs::metadata(&journal).unwrap().len();
    if !program.limit_files(&format!("{length}:")) {
        return eprintln!("skipped: prlimit is not installed (util-linux)");
    }

    cameras.iter().for_each(|camera| camera.sees(2, 2));
    program.shows("journal_full", 1).await;
    // The group takes no new samples. The count of refused messages shows that the leader has read the messages.
    for camera in &cameras {
        camera.sees(3, 2);
        camera.sends_garbage();
    }
    program.shows_such("refused_messages_total{code=\"oversize\"", |found| found == 2).await;
    program.shows_such("journal_failed_writes_total{", |found| found >= 2).await;
    assert_eq!(std::fs::metadata(&journal).unwrap().len(), length, "a part of a line");

    assert!(program.limit_files("unlimited"));
    program.shows("journal_full", 0).await;
    cameras.iter().for_each(|camera| camera.sees(4, 2));
    let mut decided = vec![observer.result().await.sample];
    while decided.last() != Some(&SampleId(4)) {
        decided.push(observer.result().await.sample);
    }
    assert!(!decided.contains(&SampleId(3)), "{decided:?}");
    assert_eq!(program.child.try_wait().unwrap(), None, "the process goes on");
    let text = std::fs::read(&journal).unwrap();
    let entries = text.split_inclusive(|byte| *byte == b'\n').map(|line| Entry::read_line(line).unwrap());
    let in_journal = entries.filter_map(|entry| match entry {
        Entry::Decided(decision) => Some(decision.sample),
        _ => None,
    });
    let in_journal: Vec<_> = in_journal.collect();
    assert!(decided.iter().all(|sample| in_journal.contains(sample)), "{decided:?} {in_journal:?}");
}
