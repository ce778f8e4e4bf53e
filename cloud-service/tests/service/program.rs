//! The program: sources of its settings, the check of its files, and exit codes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use headwater_identity::{BrokerOptions, Member, Role, Site};
use headwater_inference::bundle::MAX_BUNDLE_BYTES;
use headwater_inference::testing::TinyNetwork;
use headwater_protocol::NetworkId;
use headwater_protocol::v2::InferRequest;
use headwater_transport::tls::{ClientIdentity, IdentityFiles};
use headwater_transport::{Connector, Endpoint, Scheme};
use tempfile::TempDir;

use crate::calls::{infer, over_http, request};

/// Limit of each wait: longer than any step of a program takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A new folder, and a bundle in it.
fn bundled() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("a.hwb");
    std::fs::write(&bundle, TinyNetwork::default().bundle()).unwrap();
    (folder, bundle.display().to_string())
}

fn cloud(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater-cloud"))
        .args(["--http-listen", "127.0.0.1:0", "--engine", "tract"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn checked_settings_are_a_file_that_the_program_accepts() {
    let (folder, bundle) = bundled();
    let first = cloud(&["--check-config", "--bundle", &bundle, "--http-max-samples", "3"]);
    assert!(first.status.success(), "{first:?}");
    let file = folder.path().join("cloud.toml");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = cloud(&["--check-config", "--config", file.to_str().unwrap()]);
    assert!(second.status.success(), "{second:?}");
    let text = String::from_utf8_lossy(&first.stdout);
    for finding in ["# ok    bundle: network ", "# ok    configuration: headwater-cloud takes every setting"]
    {
        assert!(text.lines().any(|line| line.starts_with(finding)), "{finding} in {text}");
    }
    let settings = |output: &Output| String::from_utf8_lossy(&output.stdout).parse::<toml::Table>().unwrap();
    assert_eq!(settings(&first), settings(&second));
}

#[test]
fn checked_settings_name_every_file_that_cannot_be_opened() {
    let arguments = ["--check-config", "--bundle", "none.hwb", "--next-bundle", "no-next.hwb"];
    let output = cloud(&arguments);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains("none.hwb") && log.contains("no-next.hwb"), "{log}");
}

/// A running program; killed when dropped.
struct Running {
    child: Child,
    log: Receiver<serde_json::Value>,
    address: SocketAddr,
}

impl Running {
    /// Starts the program and waits until it serves.
    fn start(arguments: &[&str]) -> Self {
        Self::spawn(arguments).serving()
    }

    /// Starts the program, and reads its log on a thread.
    fn spawn(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_headwater-cloud"))
            .args(["--http-listen", "127.0.0.1:0", "--engine", "tract", "--log-format", "json"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test may have ended.
                _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, log, address: ([127, 0, 0, 1], 0).into() }
    }

    fn serving(mut self) -> Self {
        let line = self.log_line("serving");
        self.address = line["addr"].as_str().unwrap().parse().unwrap();
        self
    }

    /// The next line of the log whose message contains a text.
    fn log_line(&self, text: &str) -> serde_json::Value {
        let until = Instant::now() + LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.log.recv_timeout(left).unwrap_or_else(|_| panic!("no line {text:?}"));
            if event["message"].as_str().is_some_and(|message| message.contains(text)) {
                return event;
            }
        }
    }

    fn terminate(&self) {
        self.signal("TERM");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program may have ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[tokio::test]
async fn sighup_is_answered_by_a_line_and_ends_nothing() {
    let (_folder, bundle) = bundled();
    let cloud = Running::start(&["--bundle", &bundle]);
    cloud.signal("HUP");
    cloud.log_line("SIGHUP: nothing to do");
    let request = Request::get("/v2/health/ready").body(Bytes::new()).unwrap();
    assert_eq!(over_http(cloud.address, request).await.unwrap().status, StatusCode::OK);
}

#[test]
fn sighup_ends_no_program_that_still_starts() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("zeros.hwb");
    // The file is no bundle, but so large that reading it takes a while.
    std::fs::File::create(&bundle).unwrap().set_len(MAX_BUNDLE_BYTES).unwrap();
    let mut cloud = Running::spawn(&["--bundle", bundle.to_str().unwrap()]);
    let status = format!("/proc/{}/status", cloud.child.id());
    let reads = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let resident = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.expect("the program ended before it was seen to read") > 50_000
    };
    while !reads() {
        thread::sleep(Duration::from_millis(1));
    }
    cloud.signal("HUP");
    assert_eq!(
        cloud.child.wait().unwrap().code(),
        Some(2),
        "refused for its bundle, not ended by the signal"
    );
}

#[tokio::test]
async fn a_stopped_program_is_not_ready_before_it_refuses_connections() {
    let (_folder, bundle) = bundled();
    let mut cloud = Running::start(&["--bundle", &bundle]);
    let ready = async || {
        over_http(cloud.address, Request::get("/v2/health/ready").body(Bytes::new()).unwrap())
            .await
            .map(|answer| answer.status)
    };
    assert_eq!(ready().await.unwrap(), StatusCode::OK);
    cloud.terminate();
    let until = Instant::now() + LIMIT;
    let (mut was_not_ready, mut answered_while_not_ready) = (false, false);
    while let Ok(status) = ready().await {
        assert!(Instant::now() < until, "the program does not end");
        if status == StatusCode::SERVICE_UNAVAILABLE && !was_not_ready {
            was_not_ready = true;
            let answer = over_http(cloud.address, infer(&request(1, 1))).await;
            answered_while_not_ready = answer.is_ok_and(|answer| answer.status == StatusCode::OK);
        }
    }
    assert!(was_not_ready, "health said nothing before the listener closed");
    assert!(answered_while_not_ready, "requests are answered while the program says that it stops");
    assert!(cloud.child.wait().unwrap().success());
}

#[tokio::test]
async fn a_request_for_another_network_is_named_with_its_client() {
    let (_folder, bundle) = bundled();
    let cloud = Running::start(&["--bundle", &bundle]);
    let theirs = InferRequest { network: Some(NetworkId([9; 32])), ..request(1, 1) };
    over_http(cloud.address, infer(&theirs)).await.unwrap().is_refused(409, "wrong_network");
    let line = cloud.log_line("asks for a network that this service does not have");
    assert_eq!(line["asked"], NetworkId([9; 32]).short());
    assert!(line["client"].as_str().unwrap().starts_with("127.0.0.1"), "{line}");
    assert!(line["served"].as_str().is_some_and(|served| !served.is_empty()), "{line}");
}

/// Makes a new site and a certificate for its cloud service; returns the flags that name the files.
fn enrolled(folder: &Path, days: u32) -> Vec<String> {
    let hosts = ["127.0.0.1".to_owned()];
    let options = BrokerOptions::default();
    let mut site = Site::create(&folder.join("hall"), "hall".parse().unwrap(), &hosts, &options, 30).unwrap();
    let own = site.enroll(Member::new(Role::Cloud, None, "cloud").unwrap(), &hosts, days).unwrap();
    let flag = |name: &str, file: &str| [format!("--tls-{name}-file"), own.join(file).display().to_string()];
    [flag("authority", "authority.pem"), flag("certificate", "certificate.pem"), flag("key", "key.pem")]
        .concat()
}

#[test]
fn a_certificate_that_has_expired_is_a_warning_of_the_start_and_fails_the_check() {
    let (folder, bundle) = bundled();
    // A certificate ends at a whole second, so a certificate for 0 days has expired when it is made.
    let flags = enrolled(folder.path(), 0);
    let base = ["--check-config", "--bundle", &bundle];
    let arguments: Vec<&str> = base.into_iter().chain(flags.iter().map(String::as_str)).collect();
    let output = cloud(&arguments);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{log}");
    let expected = ["found one that expired 0 days ago", "it has expired"];
    assert!(expected.iter().all(|expected| log.contains(expected)), "{log}");
}

#[tokio::test]
async fn a_failed_handshake_is_named_with_its_client_and_its_reason() {
    let (folder, bundle) = bundled();
    let flags = enrolled(folder.path(), 30);
    let arguments: Vec<&str> =
        ["--bundle", &bundle].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let cloud = Running::start(&arguments);
    let without = IdentityFiles { authority: flags[1].clone().into(), own: None, revoked: None };
    let connector = Connector::default().with_identity(ClientIdentity::new(without).unwrap());
    let endpoint = Endpoint::new(Scheme::Https, "127.0.0.1", cloud.address.port()).unwrap();
    let _connection = connector.connect(&endpoint, LIMIT).await;
    let line = cloud.log_line("no TLS with a client");
    assert_eq!(line["reason"], "it shows no certificate", "{line}");
    assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    assert_eq!(line["not_logged"], 0, "{line}");
}

#[test]
fn secrets_that_others_may_read_are_named_once_and_are_no_mistake() {
    let (folder, bundle) = bundled();
    let keys = folder.path().join("keys").display().to_string();
    std::fs::write(&keys, "0123456789abcdef\n").unwrap();
    let flags = enrolled(folder.path(), 30);
    let base = ["--check-config", "--bundle", &bundle, "--http-keys-file", &keys];
    let arguments: Vec<&str> = base.into_iter().chain(flags.iter().map(String::as_str)).collect();
    let check = |mode| {
        for file in [&keys, &flags[5]] {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let output = cloud(&arguments);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        log
    };
    let log = check(0o644);
    for file in [&keys, &flags[5]] {
        let warning = format!(
            "{file}: others than its owner may read this secret: expected mode 0600, found 0644; chmod 600 {file}"
        );
        assert_eq!(log.matches(&warning).count(), 1, "{log}");
    }
    let log = check(0o600);
    assert!(!log.contains("may read this secret"), "{log}");
}
