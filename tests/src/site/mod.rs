//! A whole site as processes, with mutual TLS or without TLS: Mosquitto, a cloud service, an aggregator with two groups, twelve devices.
//!
//! ```text
//! gate:  cam-0 ... cam-5 ─┐                      ┌─ gate: journal
//!                         ├─ Mosquitto (mqtts) ──┤  aggregator ──(https)── cloud
//! belt:  cam-0 ... cam-5 ─┘                      └─ belt: journal
//! ```
//!
//! Certificates, access rules and configuration of Mosquitto come from `headwater enroll`. Each device captures by its clock, so a sample
//! needs no trigger, and the frames repeat by sample id. A site may have another number of groups; the load simulates their devices.

pub mod account;
pub mod faults;
pub mod liars;
pub mod load;
pub mod relay;
pub mod rogue;
pub mod simulated;
pub mod soak;
pub mod states;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headwater_group::start::Program;
use headwater_group::{ClientSettings, GroupClient};
use headwater_link::Endpoint;
use headwater_protocol::{GroupId, SiteId, Slot, SlotSet};
use headwater_transport::held_port;
use headwater_transport::tls::{ClientIdentity, IdentityFiles, KeyPair};
use headwater_transport::{BrokerAccess, Scheme};
use tokio::time::sleep;

use crate::other_programs::{find_faketime, find_mosquitto, until_listens};
use crate::programs::{command, http};
use crate::shipped;
use crate::waits::Waits;

/// Name of the site.
pub const SITE: &str = "hall";

/// Names of the first two groups of a site. Most checks have only these two.
pub const GROUPS: [&str; 2] = ["gate", "belt"];

/// Number of devices of a group.
pub const DEVICES: usize = 6;

/// Names of the devices of every group, by slot.
const DEVICE_NAMES: [&str; DEVICES] = ["cam-0", "cam-1", "cam-2", "cam-3", "cam-4", "cam-5"];

/// Milliseconds between two samples of a group.
pub const PERIOD_MS: u64 = 50;

/// Longest wait for an event of the site.
pub const LIMIT: Duration = Duration::from_secs(120);

/// A process of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Mosquitto.
    Broker,
    /// The cloud service.
    Cloud,
    /// The aggregator, which leads all groups.
    Aggregator,
    /// A device of a group.
    Device {
        /// Index of the group.
        group: usize,
        /// Slot of the device, which is also the number in the device's name.
        slot: usize,
    },
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker => f.write_str("broker"),
            Self::Cloud => f.write_str("cloud"),
            Self::Aggregator => f.write_str("aggregator"),
            Self::Device { group, slot } => {
                write!(f, "device {}/{}", group_name(*group), DEVICE_NAMES[*slot])
            }
        }
    }
}

/// Name of a group by its index: `gate`, `belt`, then `group-2` and so on.
pub fn group_name(index: usize) -> String {
    GROUPS.get(index).map_or_else(|| format!("group-{index}"), |name| (*name).to_owned())
}

/// The processes of a site; killed when dropped.
pub struct Site {
    /// Folder of all files of the site.
    pub folder: PathBuf,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Port at which the members find the broker.
    pub broker_port: u16,
    /// Port at which Mosquitto listens. It differs from `broker_port` if a relay stands between members and broker.
    pub mosquitto_port: u16,
    /// Configuration file with which Mosquitto starts next; `None` for the site's own. The port in the file is replaced by `mosquitto_port`.
    pub mosquitto_conf: Option<PathBuf>,
    /// Bytes at which the aggregator compacts a journal. A change needs [`Site::write_aggregator`] and a start of the aggregator.
    pub journal_bytes: u64,
    /// Port of the cloud service.
    pub cloud_port: u16,
    /// Admin port of the aggregator, with its metrics and status.
    pub admin_port: u16,
    /// Environment variables that a part gets when it is started next.
    pub environment: BTreeMap<Part, Vec<(String, String)>>,
    /// Bundle that a device gets when it is started next. Devices that are not named, and every other part, get the shipped bundle.
    pub bundles: BTreeMap<Part, PathBuf>,
    /// Folder of the aggregator's journals.
    pub journals: PathBuf,
    /// True when members have certificates and every link has TLS.
    has_identity: bool,
    running: BTreeMap<Part, Program>,
}

impl Site {
    /// Makes a site on disk: enrolls every member and writes the settings of the aggregator. Starts nothing.
    ///
    /// # Panics
    /// When `headwater enroll` fails, or the folder cannot be written.
    pub fn enroll(folder: &Path) -> Self {
        Self::enroll_groups(folder, GROUPS.len())
    }

    /// As [`Site::enroll`], with this number of groups.
    ///
    /// # Panics
    /// As [`Site::enroll`].
    pub fn enroll_groups(folder: &Path, groups: usize) -> Self {
        let site = Self::new(folder, groups, true);
        let port = site.broker_port.to_string();
        let listen = ["--listen", "127.0.0.1", "--port", &port];
        site.headwater(&[&["enroll", "init", "--site", SITE, "--host", "localhost"], &listen[..]].concat());
        site.headwater(&["enroll", "add", "cloud", "--host", "localhost"]);
        for group in &site.groups {
            site.headwater(&[&["enroll", "add", "device", "--group", group], &DEVICE_NAMES[..]].concat());
            site.headwater(&["enroll", "add", "leader", "--group", group]);
            site.headwater(&["enroll", "add", "operator", "--group", group, "operator"]);
            site.headwater(&["enroll", "add", "consumer", "--group", group, "screen"]);
        }
        site.write_aggregator();
        site
    }

    /// A site without identity: members have no certificates, and links have no TLS.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn without_identity(folder: &Path, groups: usize) -> Self {
        let site = Self::new(folder, groups, false);
        site.write_aggregator();
        site
    }

    fn new(folder: &Path, groups: usize, has_identity: bool) -> Self {
        let journals = folder.join("journals");
        std::fs::create_dir_all(&journals).expect("the folder can be written");
        let broker_port = held_port().expect("a free port");
        Self {
            folder: folder.to_owned(),
            groups: (0..groups).map(group_name).collect(),
            broker_port,
            mosquitto_port: broker_port,
            mosquitto_conf: None,
            journal_bytes: 64 << 20,
            cloud_port: held_port().expect("a free port"),
            admin_port: held_port().expect("a free port"),
            environment: BTreeMap::new(),
            bundles: BTreeMap::new(),
            journals,
            has_identity,
            running: BTreeMap::new(),
        }
    }

    /// Address of the broker at one of its ports.
    fn broker(&self, port: u16) -> Endpoint {
        let scheme = if self.has_identity { Scheme::Mqtts } else { Scheme::Mqtt };
        Endpoint::new(scheme, "localhost", port).expect("a host and a port make an address")
    }

    /// Runs `headwater` on the folder of the site's members, and returns what it printed.
    ///
    /// # Panics
    /// When the command fails.
    pub fn headwater(&self, arguments: &[&str]) -> String {
        let output = command("headwater")
            .args(arguments)
            .env("HEADWATER_SITE_DIR", self.members())
            .output()
            .expect("headwater starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "headwater {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Folder of the authority and of all members.
    pub fn members(&self) -> PathBuf {
        self.folder.join("members")
    }

    /// Folder of a member of a group.
    pub fn member(&self, group: &str, name: &str) -> PathBuf {
        self.members().join(group).join(name)
    }

    /// Writes the aggregator's settings.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn write_aggregator(&self) {
        let (tls, scheme) = match self.has_identity {
            true => (tls(&self.member(&self.groups[0], "leader")), "https"),
            false => (String::new(), "http"),
        };
        let mut text = format!(
            "{tls}[broker]\naddress = \"{}\"\n[cloud]\nurl = \"{scheme}://localhost:{}\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n",
            self.broker(self.broker_port),
            self.cloud_port,
            self.admin_port,
        );
        for group in &self.groups {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[[group]]\nsite = \"{SITE}\"\ngroup = \"{group}\"\nbundle = \"{}\"\njournal.path = \"{}\"\njournal.max_bytes = {}\n",
                shipped::bundle_path().display(),
                self.journal(group).display(),
                self.journal_bytes,
            );
            if self.has_identity {
                let own = self.member(group, "leader").display().to_string();
                let _ = write!(
                    text,
                    "devices = \"{}\"\ncertificate_file = \"{own}/certificate.pem\"\nkey_file = \"{own}/key.pem\"\n",
                    DEVICE_NAMES.join(",")
                );
            }
        }
        std::fs::write(self.folder.join("aggregator.toml"), text).expect("the folder can be written");
    }

    /// Path of a group's journal.
    pub fn journal(&self, group: &str) -> PathBuf {
        self.journals.join(format!("{group}.jsonl"))
    }

    /// Path of a part's log, to which each start of the part appends.
    pub fn log(&self, part: Part) -> PathBuf {
        self.folder.join(format!("{}.log", part.to_string().replace([' ', '/'], "-")))
    }

    /// Every part, in the order in which the parts start.
    fn parts(&self) -> Vec<Part> {
        let devices = (0..self.groups.len())
            .flat_map(|group| (0..DEVICES).map(move |slot| Part::Device { group, slot }));
        [Part::Broker, Part::Cloud, Part::Aggregator].into_iter().chain(devices).collect()
    }

    /// Starts every part that does not run.
    ///
    /// # Panics
    /// When a program does not start.
    pub fn start_all(&mut self) {
        for part in self.parts() {
            if !self.running.contains_key(&part) {
                self.start(part);
            }
        }
    }

    /// Starts a part. If the part runs already, it is killed first.
    ///
    /// # Panics
    /// When the program does not start.
    pub fn start(&mut self, part: Part) {
        let log = File::options().append(true).create(true).open(self.log(part)).expect("a log");
        let mut command = self.command(part);
        command.stdout(Stdio::null()).stderr(log);
        for (name, value) in self.environment.get(&part).into_iter().flatten() {
            command.env(name, value);
        }
        self.running.remove(&part);
        self.running.insert(part, Program::start(&mut command).expect("the program starts"));
        if part == Part::Broker {
            until_listens(self.mosquitto_port);
        }
    }

    fn command(&self, part: Part) -> Command {
        let broker = self.broker(self.broker_port).to_string();
        match part {
            Part::Broker => {
                let mut command = Command::new(find_mosquitto());
                command.arg("-c").arg(self.broker_configuration());
                command
            }
            Part::Cloud => {
                let mut command = command("headwater-cloud");
                command.arg("--bundle").arg(shipped::bundle_path());
                command.args(["--http-listen", &format!("127.0.0.1:{}", self.cloud_port)]);
                command.args(["--stop-delay-ms", "0"]);
                command.args(self.tls_flags(&self.members().join("cloud")));
                command
            }
            Part::Aggregator => {
                let mut command = command("headwater-aggregator");
                command.arg("--config").arg(self.folder.join("aggregator.toml"));
                command
            }
            Part::Device { group, slot } => {
                let (name, group) = (DEVICE_NAMES[slot], &self.groups[group]);
                let state = self.folder.join("state").join(group).join(name);
                std::fs::create_dir_all(&state).expect("the folder can be written");
                let mut command = command("headwater-device");
                command.args(["--site", SITE, "--group", group, "--id", name, "--slot", &slot.to_string()]);
                command.args(["--broker-address", &broker, "--capture", "clock"]);
                command.args(["--period-ms", &PERIOD_MS.to_string()]);
                command.arg("--bundle").arg(self.bundles.get(&part).unwrap_or(&shipped::bundle_path()));
                command.arg("--source-path").arg(shipped::frames_path());
                command.arg("--state-dir").arg(state);
                command.args(self.tls_flags(&self.member(group, name)));
                command
            }
        }
    }

    /// Writes Mosquitto's configuration and returns its path: `mosquitto_conf` if set, otherwise the one of `headwater enroll` if the site has
    /// identity. With `user root`, a Mosquitto that root starts can read the folder.
    fn broker_configuration(&self) -> PathBuf {
        let enrolled = self.has_identity.then(|| self.members().join("broker/mosquitto.conf"));
        let text = match self.mosquitto_conf.clone().or(enrolled) {
            Some(file) => {
                with_port(&std::fs::read_to_string(file).expect("enroll wrote it"), self.mosquitto_port)
            }
            None => format!(
                "listener {} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\npersistence true\n\
                 persistence_location {}/\nautosave_interval 10\n",
                self.mosquitto_port,
                self.folder.display()
            ),
        };
        let file = self.folder.join("mosquitto.conf");
        std::fs::write(&file, text + "user root\n").expect("the folder can be written");
        file
    }

    /// Sends SIGKILL to a part and waits for its end. Does nothing if the part does not run.
    pub fn kill(&mut self, part: Part) {
        self.running.remove(&part);
    }

    /// The running process of a part.
    ///
    /// # Panics
    /// When the part does not run.
    pub fn program(&self, part: Part) -> &Program {
        self.running.get(&part).expect("the part runs")
    }

    /// Sends a signal such as `HUP` to a part.
    ///
    /// # Panics
    /// When the part does not run.
    pub fn signal(&self, part: Part, signal: &str) {
        self.program(part).signal(signal).expect("a shell starts");
    }

    /// Body of the answer to `GET path` at the aggregator's admin port; empty if the port does not answer.
    pub fn admin(&self, path: &str) -> String {
        let answer = http(self.admin_port, &format!("GET {path}"), "", &[]);
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    /// The aggregator's metrics, by name with labels; empty if the admin port does not answer.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let answer = self.admin("/metrics");
        let lines = answer.lines().filter(|line| line.starts_with("headwater_"));
        lines
            .filter_map(|line| {
                line.rsplit_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            })
            .collect()
    }

    /// Gives a part the wall clock of libfaketime from its next start on. `variable` is the variable of libfaketime that sets the clock.
    ///
    /// # Errors
    /// When libfaketime is not installed.
    fn fake_clock(&mut self, part: Part, variable: &str, value: &str) -> Result<(), String> {
        let library = find_faketime().ok_or("libfaketime is not installed (scripts/install/test-tools)")?;
        let variables = [
            ("LD_PRELOAD", library),
            (variable, value),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_CACHE_DURATION", "1"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.environment.entry(part).or_default().extend(variables);
        Ok(())
    }

    /// Process id and resident memory in KiB of each running part.
    pub fn resident_kib(&self) -> BTreeMap<Part, (u32, u64)> {
        let resident = |program: &Program| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", program.id())).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        self.running
            .iter()
            .filter_map(|(part, program)| Some((*part, (program.id(), resident(program)?))))
            .collect()
    }

    /// Address of Mosquitto, without a relay, and the certificate that a member of a group shows there.
    ///
    /// # Panics
    /// When the member's files cannot be used.
    pub fn access(&self, group: &str, name: &str) -> BrokerAccess {
        let own = self.member(group, name);
        self.access_as(&own, &own)
    }

    /// As [`Site::access`], with the authority in the folder `trusted` and the certificate in the folder `own`.
    fn access_as(&self, trusted: &Path, own: &Path) -> BrokerAccess {
        let broker = self.broker(self.mosquitto_port);
        if !self.has_identity {
            return broker.into();
        }
        let files = IdentityFiles {
            authority: trusted.join("authority.pem"),
            own: Some(KeyPair { certificate: own.join("certificate.pem"), key: own.join("key.pem") }),
            revoked: None,
        };
        let identity = Some(ClientIdentity::new(files).expect("files of enroll"));
        BrokerAccess { identity, ..broker.into() }
    }

    /// A client of a group that connects as the operator.
    ///
    /// # Panics
    /// When the broker does not accept the client.
    pub async fn client(&self, group: &str) -> GroupClient {
        let settings = ClientSettings {
            broker: self.access(group, "operator"),
            site: SiteId::new(SITE).expect("a name"),
            group: GroupId::new(group).expect("a name"),
            network: shipped::bundle().network_id(),
            client_id: format!("check-site-{group}-{}", std::process::id()),
            wait_limit: LIMIT,
        };
        GroupClient::connect(settings).await.expect("the broker takes the operator")
    }

    /// Waits until every device of every group is up. Returns a client of each group.
    ///
    /// # Panics
    /// When a device does not come up in time.
    pub async fn clients(&self) -> Vec<GroupClient> {
        let mut clients = Vec::new();
        for group in &self.groups {
            let mut client = self.client(group).await;
            let all: SlotSet = Slot::first(DEVICES).collect();
            client.wait_for_members(all).await.expect("every device comes up");
            clients.push(client);
        }
        clients
    }
}

/// Waits until `missing` returns `None`.
///
/// # Panics
/// With the text of `missing` after [`LIMIT`].
async fn until_nothing_is_missing(missing: impl Fn() -> Option<String>) {
    let until = Instant::now() + LIMIT;
    while let Some(missing) = missing() {
        assert!(Instant::now() < until, "{missing}");
        sleep(Duration::from_millis(500)).await;
    }
}

/// A configuration of Mosquitto with this port in its line `listener`.
fn with_port(text: &str, port: u16) -> String {
    let line = |line: &str| match line.strip_prefix("listener ").and_then(|rest| rest.split_once(' ')) {
        Some((_, address)) => format!("listener {port} {address}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Section `[tls]` of a settings file, for a member whose folder is `own`.
fn tls(own: &Path) -> String {
    let mut text = "[tls]\n".to_owned();
    for (key, file) in FILES {
        let _ = writeln!(text, "{key} = \"{}\"", own.join(file).display());
    }
    text
}

impl Site {
    /// The settings of [`tls`] as flags; empty for a site without identity.
    fn tls_flags(&self, own: &Path) -> Vec<String> {
        let flag = |(key, file): (&str, &str)| {
            [format!("--tls-{}", key.replace('_', "-")), own.join(file).display().to_string()]
        };
        let files = FILES.into_iter().filter(|_| self.has_identity);
        files.flat_map(flag).collect()
    }
}

/// Keys of the section `[tls]`, and the files of a member that `headwater enroll` writes for them.
const FILES: [(&str, &str); 4] = [
    ("authority_file", "authority.pem"),
    ("certificate_file", "certificate.pem"),
    ("key_file", "key.pem"),
    ("revoked_file", "revoked.crl"),
];
