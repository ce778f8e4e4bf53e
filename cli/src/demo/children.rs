//! Everyone as a process of their own: the real programs, from the folder of this one.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use headwater_inference::policy::Policy;
use headwater_link::QoS;
use headwater_protocol::Slot;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::cast::{CastReport, Scene, VIEW_KINDS};
use super::plan::{MOST_UNSETTLED, Victim};

/// Longest wait for the cloud to load its section, and for a process to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that was started; killed when dropped.
struct Part {
    name: String,
    child: Child,
}

/// The running programs.
pub(super) struct Children {
    cloud: Option<Part>,
    leader: Part,
    edges: Vec<Option<Part>>,
    devices: Vec<Option<Part>>,
    folder: Folder,
}

/// Files of this run; removed when dropped.
struct Folder(PathBuf);

impl Children {
    pub(super) async fn start(scene: &Scene<'_>, policy: &Policy) -> anyhow::Result<Self> {
        let folder = Folder::new()?;
        let bundle = scene.material.bundle_file(&folder.0)?;
        let frames = scene.material.frames_file(&folder.0)?;
        let policy_file = folder.0.join("policy.toml");
        std::fs::write(&policy_file, toml::to_string(policy)?).context("writing the policy")?;
        let qos = if scene.qos == QoS::AtMostOnce { "0" } else { "1" };
        let settings = folder.0.join("aggregator.toml");
        std::fs::write(&settings, format!("request_qos = {qos}\n")).context("writing the settings")?;

        let port = free_port()?;
        let mut cloud = Command::new(program("headwater-cloud")?);
        cloud.args(["--http-listen", &format!("127.0.0.1:{port}"), "--bundle"]).arg(&bundle);
        let mut cloud = Part::start("headwater-cloud", &mut cloud)?;
        cloud.until_ready(port).await?;

        let group = |command: &mut Command| {
            command.args(["--site", scene.site.as_str(), "--group", scene.group.as_str()]);
            command.args(["--broker", &scene.broker.to_string(), "--bundle"]).arg(&bundle);
        };
        let aggregator = || -> anyhow::Result<Command> {
            let mut command = Command::new(program("headwater-aggregator")?);
            group(&mut command);
            command.arg("--policy").arg(&policy_file).arg("--config").arg(&settings);
            Ok(command)
        };
        let mut edges = Vec::new();
        for edge in 0..scene.edges() {
            let mut command = aggregator()?;
            command.args(["--role", "edge", "--edge", &edge.to_string()]);
            edges.push(Some(Part::start(&format!("edge {edge}"), &mut command)?));
        }
        let mut leader = aggregator()?;
        leader.args(["--cloud-url", &format!("http://127.0.0.1:{port}")]);
        leader.arg("--journal").arg(folder.0.join("journal.jsonl"));
        let leader = Part::start("headwater-aggregator", &mut leader)?;

        let queue = (2 * MOST_UNSETTLED).to_string();
        let mut devices = Vec::new();
        for slot in Slot::first(usize::from(scene.material.bundle.manifest().slots)) {
            let mut command = Command::new(program("headwater-device")?);
            group(&mut command);
            command.args(["--slot", &slot.to_string(), "--id", &format!("cam-{slot}"), "--json"]);
            command.args(["--upward-qos", qos, "--queue-samples", &queue]);
            command.arg("--frames").arg(&frames).stdout(Stdio::piped());
            devices.push(Some(Part::start(&format!("device {slot}"), &mut command)?));
        }
        Ok(Self { cloud: Some(cloud), leader, edges, devices, folder })
    }

    /// A part that ended by itself, in words.
    pub(super) fn ended(&mut self) -> Option<String> {
        let others = self.cloud.iter_mut().chain(self.edges.iter_mut().flatten());
        let all = others.chain(self.devices.iter_mut().flatten()).chain([&mut self.leader]);
        all.filter_map(Part::ended).next()
    }

    pub(super) fn kill(&mut self, victim: Victim) -> String {
        // Killed when dropped.
        match victim {
            Victim::Cloud => {
                self.cloud = None;
                "the cloud".into()
            }
            Victim::Edge(edge) => {
                self.edges[edge] = None;
                format!("edge {edge}")
            }
            Victim::Device(slot) => {
                self.devices[slot.index()] = None;
                format!("device {slot}")
            }
        }
    }

    /// Asks everyone to end, devices first; a device that was killed could not say what it had counted.
    pub(super) async fn shutdown(self) -> anyhow::Result<CastReport> {
        let mut sum = CastReport::default();
        for mut device in self.devices.into_iter().flatten() {
            device.end().await?;
            let mut text = String::new();
            if let Some(mut stdout) = device.child.stdout.take() {
                stdout.read_to_string(&mut text).with_context(|| format!("reading from {}", device.name))?;
            }
            let report: Value = serde_json::from_str(&text)
                .with_context(|| format!("reading the report of {}", device.name))?;
            sum.add(&report);
        }
        for mut part in self.edges.into_iter().flatten().chain([self.leader]).chain(self.cloud) {
            part.end().await?;
        }
        drop(self.folder);
        Ok(sum)
    }
}

impl CastReport {
    /// Adds what `headwater-device --json` printed.
    fn add(&mut self, report: &Value) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let sent = |field: &str| -> u64 {
            let kinds = report["sent"].as_object().into_iter().flatten();
            kinds.map(|(_, sent)| number(&sent[field])).sum()
        };
        self.views +=
            VIEW_KINDS.iter().map(|kind| number(&report["sent"][kind.name()]["messages"])).sum::<u64>();
        self.body_bytes += sent("body_bytes");
        self.payload_bytes += sent("payload_bytes");
        self.wire_sent += number(&report["wire_sent"]);
        self.wire_received += number(&report["wire_received"]);
    }
}

impl Part {
    fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        // Its log goes on to ours; what it says in passing is not for the demo's reader.
        let quiet = std::env::var_os("RUST_LOG").is_none();
        if quiet {
            command.env("RUST_LOG", "error");
        }
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("starting {}", command.get_program().display()))?;
        Ok(Self { name: name.into(), child })
    }

    fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} ended by itself: {status}", self.name))
    }

    /// Waits until the cloud says that it is ready.
    async fn until_ready(&mut self, port: u16) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if is_ready(port).await.unwrap_or(false) {
                return Ok(());
            }
            if let Some(end) = self.ended() {
                bail!(end);
            }
            if Instant::now() >= until {
                bail!("{} was not ready within {PATIENCE:?}", self.name);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// SIGTERM, and SIGKILL when that is not heard.
    async fn end(&mut self) -> anyhow::Result<()> {
        let id = self.child.id().to_string();
        // The shell's own `kill`: there is one wherever there is a shell, and no library is needed.
        let asked = Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status();
        asked.with_context(|| format!("asking {} to end", self.name))?;
        let until = Instant::now() + PATIENCE;
        while self.child.try_wait().with_context(|| format!("waiting for {}", self.name))?.is_none() {
            if Instant::now() >= until {
                bail!("{} did not end within {PATIENCE:?} of being asked", self.name);
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("headwater-demo-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clear.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One of our programs, beside this one.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let folders = [own.parent(), own.parent().and_then(Path::parent)];
    let paths = folders.into_iter().flatten().map(|folder| folder.join(name));
    let found = paths.clone().find(|path| path.is_file());
    found.with_context(|| {
        let looked: Vec<_> = paths.map(|path| path.display().to_string()).collect();
        format!(
            "{name} is not there ({}): build all programs with `cargo build --release --workspace`",
            looked.join(", ")
        )
    })
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("finding a free port")?;
    Ok(listener.local_addr()?.port())
}

async fn is_ready(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /v2/health/ready HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head.ends_with(b" 200"))
}
