//! `headwater doctor`: each provoked failure is named with its level, its name and what to do, and a whole site is well.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_group::start::{Program, find_program, free_port};
use headwater_inference::testing::TinyNetwork;
use headwater_tests::group::{WAIT_LIMIT, embedded_broker};
use headwater_tests::other_programs::{find_faketime, loopback, mosquitto, mosquitto_with, silent_server};
use headwater_tests::shipped;
use serde_json::Value;
use tempfile::TempDir;

/// Settings files of a group, and the ports that they name.
struct Files {
    folder: TempDir,
    /// `mqtt://host:port`.
    broker: String,
    cloud_port: u16,
    /// Admin ports of the cloud, the aggregator, and of devices 0 to 2.
    admin: [u16; 6],
}

impl Files {
    fn new(broker: String) -> Self {
        let port = || free_port().expect("a free port");
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            broker,
            cloud_port: port(),
            admin: [port(), port(), port(), port(), port(), port()],
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }

    /// Settings of a device. `broker` are further settings of the section `[broker]`, and further sections.
    fn device(&self, slot: usize, bundle: &Path, broker: &str) -> PathBuf {
        let text = format!(
            "site = \"hall\"\ngroup = \"gate\"\nid = \"cam-{slot}\"\nslot = {slot}\nbundle = \"{}\"\nstate_dir = \"{}\"\n\
             [source]\npath = \"{}\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n[broker]\naddress = \"{}\"\n{broker}\n",
            bundle.display(),
            self.path(&format!("state-{slot}")).display(),
            shipped::frames_path().display(),
            self.admin[2 + slot],
            self.broker,
        );
        self.write(&format!("device-{slot}.toml"), &text)
    }

    /// Settings of a device with further settings of no section.
    fn device_with(&self, slot: usize, further: &str) -> PathBuf {
        let file = self.device(slot, &shipped::bundle_path(), "");
        let text = std::fs::read_to_string(&file).expect("written before");
        let text = format!("{further}\n{text}");
        self.write(&format!("device-{slot}.toml"), &text)
    }

    /// Settings of the aggregator. `group` are further settings of the group.
    fn aggregator(&self, bundle: &Path, group: &str) -> PathBuf {
        let text = format!(
            "site = \"hall\"\ngroup = \"gate\"\nbundle = \"{}\"\n{group}\n[cloud]\nurl = \"http://127.0.0.1:{}\"\n\
             [admin]\nlisten = \"127.0.0.1:{}\"\n[broker]\naddress = \"{}\"\n",
            bundle.display(),
            self.cloud_port,
            self.admin[1],
            self.broker,
        );
        self.write("aggregator.toml", &text)
    }

    fn cloud(&self, bundle: &Path) -> PathBuf {
        let text = format!(
            "bundle = \"{}\"\nengine = \"tract\"\nstop_delay_ms = 0\n[http]\nlisten = \"127.0.0.1:{}\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n",
            bundle.display(),
            self.cloud_port,
            self.admin[0],
        );
        self.write("cloud.toml", &text)
    }

    /// The bundle of another network than the shipped one.
    fn other_bundle(&self) -> PathBuf {
        let path = self.path("other.hwb");
        std::fs::write(&path, TinyNetwork::default().bundle()).expect("the folder can be written");
        path
    }
}

/// Starts a program with a settings file.
fn start(program: &str, settings: &Path) -> Program {
    start_with(program, settings, &[])
}

/// Starts a program with a settings file and these variables of the environment.
fn start_with(program: &str, settings: &Path, environment: &[(&str, &str)]) -> Program {
    let mut command = Command::new(find_program(program).expect("the programs are built"));
    command.arg("--config").arg(settings).stdout(Stdio::null()).stderr(Stdio::null());
    command.envs(environment.iter().copied());
    Program::start(&mut command).expect("the program starts")
}

/// A run of the doctor: its exit code and findings.
struct Doctor {
    code: Option<i32>,
    report: Value,
    text: String,
}

impl Doctor {
    /// Runs the doctor with these arguments, flag and file in turn.
    fn run(arguments: &[(&str, &Path)]) -> Self {
        Self::with(arguments, &[])
    }

    /// Runs the doctor with these variables of the environment.
    fn with(arguments: &[(&str, &Path)], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(find_program("headwater").expect("the programs are built"));
        command.args(["doctor", "--json", "--timeout-s", "5"]).envs(environment.iter().copied());
        arguments.iter().for_each(|(flag, file)| _ = command.arg(flag).arg(file));
        let output = command.output().expect("the doctor starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {errors}"));
        Self { code: output.status.code(), report, text }
    }

    fn findings(&self) -> impl Iterator<Item = &Value> {
        self.report["tiers"]
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|tier| tier["findings"].as_array().expect("a list"))
    }

    fn has(&self, level: &str, check: &str, found: &str, advice: &str) -> bool {
        let part = |finding: &Value, key: &str, part: &str| {
            finding[key].as_str().is_some_and(|text| text.contains(part))
        };
        self.findings().any(|finding| {
            finding["level"] == level
                && finding["check"] == check
                && part(finding, "found", found)
                && part(finding, "advice", advice)
        })
    }

    /// Fails unless a finding has this level and this name, and these words in what was found and in what to do.
    #[track_caller]
    fn names(&self, level: &str, check: &str, found: &str, advice: &str) {
        assert!(
            self.has(level, check, found, advice),
            "no {level} {check}: {found}; {advice}: {}",
            self.text
        );
        assert_eq!(self.code, Some(i32::from(self.report["fail"] != 0)), "{}", self.text);
    }

    /// Fails where there is a fail of another name than these.
    #[track_caller]
    fn fails_only(&self, checks: &[&str]) {
        let fails = self.findings().filter(|finding| finding["level"] == "fail");
        let others: Vec<_> =
            fails.filter(|finding| !checks.iter().any(|check| finding["check"] == *check)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

/// Runs the doctor until a condition holds.
#[track_caller]
fn until(run: impl Fn() -> Doctor, is_reached: impl Fn(&Doctor) -> bool) -> Doctor {
    let limit = Instant::now() + WAIT_LIMIT;
    loop {
        let doctor = run();
        if is_reached(&doctor) {
            return doctor;
        }
        assert!(Instant::now() < limit, "{}", doctor.text);
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_whole_site_is_well_and_each_part_that_is_killed_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let bundle = shipped::bundle_path();
    let devices = [0, 1].map(|slot| files.device(slot, &bundle, ""));
    let aggregator =
        files.aggregator(&bundle, &format!("journal.path = \"{}\"", files.path("journal").display()));
    let cloud = files.cloud(&bundle);
    let all = [
        ("--device", devices[0].as_path()),
        ("--device", &devices[1]),
        ("--aggregator", &aggregator),
        ("--cloud", &cloud),
    ];
    let running_cloud = start("headwater-cloud", &cloud);
    let _aggregator = start("headwater-aggregator", &aggregator);
    let [_first, second] = devices.clone().map(|file| start("headwater-device", &file));
    let well = until(|| Doctor::run(&all), |doctor| doctor.code == Some(0));
    well.fails_only(&[]);
    for check in [
        "clock",
        "configuration",
        "certificate",
        "bundle",
        "engine",
        "disk",
        "broker",
        "broker limits",
        "cloud",
        "cloud model",
    ] {
        let is_ok = |finding: &Value| finding["check"] == check && finding["level"] == "ok";
        assert!(well.findings().any(is_ok), "{check} in {}", well.text);
    }
    assert!(!well.has("fail", "device", "", ""), "{}", well.text);

    // A device that is killed is named by a doctor that starts then, within a second.
    let leader = [("--aggregator", aggregator.as_path())];
    drop(second);
    let killed = Instant::now();
    let doctor = until(|| Doctor::run(&leader), |doctor| doctor.has("fail", "device", "cam-1", "start it"));
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(1), "named after {took:?}: {}", doctor.text);
    doctor.names("fail", "device", "cam-1 of group gate is down", "start it");
    doctor.fails_only(&["device"]);
    let doctor = Doctor::run(&[("--device", &devices[1])]);
    doctor.names(
        "fail",
        "running",
        "headwater-device does not answer",
        "start it: headwater-device --config",
    );
    doctor.fails_only(&["running"]);

    drop(running_cloud);
    let doctor = Doctor::run(&leader);
    doctor.names("fail", "cloud", "Connection refused", "start headwater-cloud there");
    drop(broker);
    let doctor = Doctor::run(&leader);
    doctor.names("fail", "broker", "no broker answers: Connection refused", "start the broker");
}

#[test]
fn a_device_that_is_frozen_flapping_or_late_is_named_by_the_doctor_of_a_running_site() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    // A quarter of the period is 250 ms: up to that much a clock may be off.
    let [well, restless, behind] =
        [0, 1, 2].map(|slot| files.device_with(slot, "capture = \"clock\"\nperiod_ms = 1000"));
    let _aggregator = start("headwater-aggregator", &aggregator);
    let _well = start("headwater-device", &well);
    let mut device = start("headwater-device", &restless);
    let run = || Doctor::run(&[("--aggregator", aggregator.as_path())]);
    let is_named = |doctor: &Doctor| {
        let found = |finding: &Value| {
            finding["found"].as_str().is_some_and(|found| found.starts_with("cam-1 of group gate is"))
        };
        doctor.findings().any(found)
    };
    let is_up = |doctor: &Doctor| {
        doctor.has("warn", "device", "no device for slot 2, 3, 4, 5", "start the devices")
            && !is_named(doctor)
    };
    until(run, is_up);

    // Frozen: the broker takes it for connected.
    device.signal("STOP").expect("a shell starts");
    let silent = "cam-1 of group gate is silent";
    let doctor = until(run, |doctor| doctor.has("fail", "device", silent, ""));
    doctor.names("fail", "device", silent, "restart it if it hangs");
    device.signal("CONT").expect("a shell starts");
    until(run, is_up);

    // Another device claims the slot of cam-0: its own doctor says that the leader refuses it.
    let rival = files.device_with(3, "capture = \"clock\"\nperiod_ms = 1000");
    let settings = std::fs::read_to_string(&rival).expect("the settings were written");
    assert!(settings.contains("slot = 3"), "{settings}");
    std::fs::write(&rival, settings.replace("slot = 3", "slot = 0")).expect("the folder can be written");
    let rival_process = start("headwater-device", &rival);
    let refused = "not ready: the leader refuses this device: ";
    let own = || Doctor::run(&[("--device", rival.as_path())]);
    until(own, |doctor| doctor.has("fail", "running", refused, "compare `id`, `slot` and `bundle`"));
    drop(rival_process);

    // Its connection ends three times within a minute.
    for _ in 0..2 {
        drop(device);
        until(run, |doctor| doctor.has("fail", "device", "cam-1 of group gate is down", "start it"));
        device = start("headwater-device", &restless);
        until(run, is_up);
    }
    drop(device);
    let flapping = "cam-1 of group gate is flapping";
    until(run, |doctor| doctor.has("warn", "device", flapping, "a second device with its id"));

    // Its clock is behind by less than a quarter of the period and by more than the window of 50 ms.
    let library = find_faketime().expect("scripts/install-test-tools");
    let clock = [("LD_PRELOAD", library), ("FAKETIME", "-0.15s"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let _behind = start_with("headwater-device", &behind, &clock);
    let late = "cam-2 of group gate is late";
    until(run, |doctor| doctor.has("warn", "device", late, "a `window_ms` that is too short"));
}

#[test]
fn a_name_without_an_address_and_another_protocol_are_told_apart_from_a_broker_that_is_away() {
    // A part of a name has at most 63 bytes (RFC 1035): no server is asked for this one.
    let host = "x".repeat(64);
    let files = Files::new(format!("mqtt://{host}:1883"));
    let device = files.device_with(0, "insecure = true");
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", &format!("the name {host} has no address"), "correct the host");

    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let answer = format!("HTTP/1.1 400 Bad Request\r\n\r\n{}", "x".repeat(200));
        // The connections stay open: a close would be another finding.
        let mut open = Vec::new();
        for mut connection in listener.incoming().flatten() {
            // A doctor that has gone needs no answer.
            let _ = connection.write_all(answer.as_bytes());
            open.push(connection);
        }
    });
    let files = Files::new(format!("mqtt://127.0.0.1:{port}"));
    let doctor = Doctor::run(&[("--device", &files.device(0, &shipped::bundle_path(), ""))]);
    doctor.names("fail", "broker", "answers in another protocol than MQTT", "another program listens there");

    doctor.names("fail", "broker", "something answers there, but not as an MQTT broker does", "");

    let files = Files::new(format!("mqtt://127.0.0.1:{}", free_port().expect("a free port")));
    let doctor = Doctor::run(&[("--device", &files.device(0, &shipped::bundle_path(), ""))]);
    doctor.names("fail", "broker", "no broker answers: Connection refused", "start the broker");
}

#[test]
fn a_frozen_program_and_another_device_at_its_admin_port_are_told_apart_from_one_that_is_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_broker, address) = mosquitto(folder.path());
    let files = Files::new(address.to_string());
    let [first, second] = [0, 1].map(|slot| files.device(slot, &shipped::bundle_path(), ""));
    let device = start("headwater-device", &first);
    let runs = |finding: &Value| finding["check"] == "running" && finding["level"] == "ok";
    until(|| Doctor::run(&[("--device", &first)]), |doctor| doctor.findings().any(runs));

    // The settings of the second device with the admin port of the first.
    let text = std::fs::read_to_string(&second).expect("written before");
    let port = |slot: usize| format!("127.0.0.1:{}", files.admin[2 + slot]);
    let second = files.write("device-1.toml", &text.replace(&port(1), &port(0)));
    let doctor = Doctor::run(&[("--device", &second)]);
    let found = "expected device cam-1 of hall/gate, found device cam-0 of hall/gate";
    doctor.names("fail", "running", found, "an `admin.listen` of its own");

    device.signal("STOP").expect("a shell starts");
    let doctor = Doctor::run(&[("--device", &first)]);
    doctor.names("fail", "running", "does not answer", "look at its log, end it, then start it");
    device.signal("CONT").expect("a shell starts");
}

#[test]
fn a_wrong_password_is_told_apart_from_a_broker_that_is_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let passwords = folder.path().join("passwords");
    let made =
        Command::new("mosquitto_passwd").args(["-b", "-c"]).arg(&passwords).args(["cam", "right"]).status();
    assert!(made.expect("mosquitto_passwd is installed with Mosquitto").success());
    let port = free_port().expect("a free port");
    let config = folder.path().join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {}\nuser root\n",
        passwords.display()
    );
    std::fs::write(&config, text).expect("the folder can be written");
    let address = loopback(port);
    let _broker = mosquitto_with(&config, &address);
    let files = Files::new(address.to_string());
    let secret = files.write("secret", "wrong-s3cret\n");
    let broker = format!("user = \"cam\"\npassword_file = \"{}\"", secret.display());
    let device = files.device(0, &shipped::bundle_path(), &broker);
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", "not authorized", "user or password is wrong");
    // The file is readable for everybody.
    doctor.names("warn", "secret", "others than its owner", "chmod 600");
    assert!(!doctor.text.contains("s3cret"), "{}", doctor.text);
    std::fs::write(&secret, "right\n").expect("the folder can be written");
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.fails_only(&["running"]);
    let nobody = files.device(0, &shipped::bundle_path(), "");
    let doctor = Doctor::run(&[("--device", &nobody)]);
    doctor.names("fail", "broker", "not authorized", "set `broker.user`");
}

#[test]
fn a_broker_with_a_small_limit_is_named_before_a_message_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let port = free_port().expect("a free port");
    let config = folder.path().join("mosquitto.conf");
    let text = format!(
        "listener {port} 127.0.0.1\nallow_anonymous true\nmax_packet_size 600\nretain_available false\nuser root\n"
    );
    std::fs::write(&config, text).expect("the folder can be written");
    let address = loopback(port);
    let _broker = mosquitto_with(&config, &address);
    let files = Files::new(address.to_string());
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "broker limits", "max_packet_size is 600 bytes", "max_packet_size 262144");
    doctor.names("fail", "broker limits", "no retained messages", "retain_available true");
}

#[test]
fn a_broker_that_hangs_is_a_finding() {
    let silent = silent_server().replace("http://", "mqtt://");
    let files = Files::new(silent);
    let device = files.device(0, &shipped::bundle_path(), "");
    let started = Instant::now();
    let doctor = Doctor::run(&[("--device", &device)]);
    doctor.names("fail", "broker", "does not answer MQTT", "another program listens there");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn a_tier_with_another_network_is_named() {
    let files = Files::new(embedded_broker().to_string());
    let (own, other) = (shipped::bundle_path(), files.other_bundle());
    let (device, aggregator) = (files.device(0, &own, ""), files.aggregator(&other, ""));
    let cloud = files.cloud(&own);
    let doctor = Doctor::run(&[("--device", &device), ("--aggregator", &aggregator), ("--cloud", &cloud)]);
    doctor.names("fail", "network", "group gate: this device has network", "give all tiers the same bundle");
    doctor.names(
        "fail",
        "network",
        "group gate: this aggregator has network",
        "give all tiers the same bundle",
    );
    let aggregator = files.aggregator(&own, "");
    let doctor = Doctor::run(&[("--device", &device), ("--aggregator", &aggregator), ("--cloud", &cloud)]);
    doctor.fails_only(&["running", "cloud"]);
}

#[test]
fn a_cloud_with_another_network_is_named_and_a_clock_that_differs_from_its_clock() {
    let files = Files::new(embedded_broker().to_string());
    let cloud = files.cloud(&files.other_bundle());
    let _cloud = start("headwater-cloud", &cloud);
    let aggregator = files.aggregator(&shipped::bundle_path(), "");
    let arguments = [("--aggregator", aggregator.as_path())];
    let doctor = until(|| Doctor::run(&arguments), |doctor| !doctor.has("fail", "cloud", "", ""));
    doctor.names("fail", "cloud model", "the cloud serves network", "give all tiers the same bundle");
    doctor.fails_only(&["cloud model", "running"]);
    let library = find_faketime().expect("scripts/install-test-tools");
    let clock = |by| [("LD_PRELOAD", library), ("FAKETIME", by), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let doctor = Doctor::with(&arguments, &clock("+3600s"));
    doctor.names("fail", "clock", "s ahead of the cloud", "set the clock");
    let doctor = Doctor::with(&arguments, &clock("-60s"));
    doctor.names("warn", "clock", "s behind the cloud", "set the clock");
    let doctor = Doctor::with(&arguments, &clock("1999-12-31 12:00:00"));
    doctor.names("fail", "clock", "has passed long ago", "set the clock");
}

#[test]
fn a_policy_and_a_journal_that_cannot_work_are_named() {
    let files = Files::new(embedded_broker().to_string());
    let policy = files.write("policy.toml", "windo_ms = 20\n");
    let group = format!("policy = \"{}\"", policy.display());
    let aggregator = files.aggregator(&shipped::bundle_path(), &group);
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "policy", "windo_ms", "docs/policy.toml");
    // Parts that do not depend on the policy are looked at all the same.
    assert!(doctor.findings().any(|finding| finding["check"] == "broker" && finding["level"] == "ok"));
    let file = files.write("in-the-way", "");
    let group = format!("journal.path = \"{}\"", file.join("journal").display());
    let aggregator = files.aggregator(&shipped::bundle_path(), &group);
    let doctor = Doctor::run(&[("--aggregator", &aggregator)]);
    doctor.names("fail", "disk", "journal.path: expected a folder", "move the file away");
}

#[test]
fn a_bundle_that_was_altered_and_keys_that_were_emptied_are_named() {
    let files = Files::new(embedded_broker().to_string());
    let mut bytes = std::fs::read(shipped::bundle_path()).expect("the shipped bundle");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let altered = files.path("altered.hwb");
    std::fs::write(&altered, bytes).expect("the folder can be written");
    let cloud = files.cloud(&altered);
    let keys = files.write("cloud.keys", "# all taken away\n");
    let text = std::fs::read_to_string(&cloud).expect("written before");
    let text = text.replace("[http]\n", &format!("[http]\nkeys_file = \"{}\"\n", keys.display()));
    let doctor = Doctor::run(&[("--cloud", &files.write("cloud.toml", &text))]);
    doctor.names("fail", "bundle", "altered.hwb", "copy the bundle again");
    doctor.names("fail", "configuration", "http.keys_file", "openssl rand -hex 16");
}

#[test]
fn certificates_that_a_peer_would_refuse_are_named_by_their_settings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = find_faketime().expect("scripts/install-test-tools");
    let enroll = |site: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(find_program("headwater").expect("the programs are built"));
        command.args(["enroll", "--dir"]).arg(folder.path().join(site)).args(arguments);
        let output = command.envs(environment.iter().copied()).output().expect("headwater starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let port = free_port().expect("a free port");
    for site in ["site", "other"] {
        let listen = port.to_string();
        enroll(
            site,
            &["init", "--site", "hall", "--host", "localhost", "--listen", "127.0.0.1", "--port", &listen],
            &[],
        );
        enroll(site, &["add", "device", "--group", "gate", "cam-0", "cam-1"], &[]);
    }
    let broker_folder = folder.path().join("site/broker");
    let config = std::fs::read_to_string(broker_folder.join("mosquitto.conf")).expect("enroll wrote it");
    let config_file = folder.path().join("mosquitto.conf");
    std::fs::write(&config_file, config + "user root\n").expect("the folder can be written");
    let mut broker = Some(mosquitto_with(&config_file, &loopback(port)));
    let files = Files::new(format!("mqtts://localhost:{port}"));
    let tls = |own: &Path, authority: &Path| {
        let file = |folder: &Path, name: &str| folder.join(name).display().to_string();
        format!(
            "[tls]\nauthority_file = \"{}\"\ncertificate_file = \"{}\"\nkey_file = \"{}\"\nrevoked_file = \"{}\"\n",
            file(authority, "authority.pem"),
            file(own, "certificate.pem"),
            file(own, "key.pem"),
            file(authority, "revoked.crl"),
        )
    };
    let member = |site: &str, name: &str| folder.path().join(site).join("gate").join(name);
    let check = |slot: usize, own: &Path, authority: &Path| {
        let device = files.device(slot, &shipped::bundle_path(), &tls(own, authority));
        Doctor::run(&[("--device", &device)])
    };
    let own = member("site", "cam-0");
    let doctor = check(0, &own, &own);
    doctor.fails_only(&["running"]);
    assert!(doctor.text.contains("device gate/cam-0, valid until"), "{}", doctor.text);

    // The authority of another site: neither the own certificate nor the broker's is of it.
    let doctor = check(0, &own, &member("other", "cam-0"));
    doctor.names("fail", "certificate", "tls.certificate_file: ", "from one folder of `headwater enroll`");
    doctor.names("fail", "broker", "invalid peer certificate", "another authority than `tls.authority_file`");

    // A certificate that ended two years ago, and one that ends in some days.
    let past = [("LD_PRELOAD", library), ("FAKETIME", "-800d"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    enroll("site", &["renew", "--group", "gate", "--days", "30", "cam-0"], &past);
    let doctor = check(0, &own, &own);
    doctor.names("fail", "certificate", "it has expired", "headwater enroll renew --group gate cam-0");
    doctor.names("fail", "broker", "the peer refuses the connection", "has expired: renew it");
    let site = Doctor::run(&[("--site-dir", &folder.path().join("site"))]);
    site.names(
        "fail",
        "certificate",
        "the certificate of gate/cam-0 ends",
        "enroll renew --group gate cam-0",
    );
    enroll("site", &["renew", "--group", "gate", "--days", "10", "cam-0"], &[]);
    let doctor = check(0, &own, &own);
    doctor.names("warn", "certificate", "it expires in 9 days", "headwater enroll renew --group gate cam-0");
    doctor.fails_only(&["running"]);

    enroll("site", &["revoke", "--group", "gate", "cam-1"], &[]);
    let revoked = member("site", "cam-1");
    // A member that is revoked gets no list; any member has the same one.
    std::fs::copy(own.join("revoked.crl"), revoked.join("revoked.crl")).expect("the folder can be written");
    broker.take();
    let _broker = mosquitto_with(&config_file, &loopback(port));
    let doctor = check(1, &revoked, &revoked);
    doctor.names("fail", "certificate", "it is revoked", "another name");
    doctor.names("fail", "broker", "the peer refuses the connection", "revoked");

    std::fs::write(own.join("key.pem"), "nope").expect("the folder can be written");
    let doctor = check(0, &own, &own);
    doctor.names("fail", "certificate", "tls.key_file: ", "from one folder of `headwater enroll`");

    // A command that was killed between the folder and the record.
    std::fs::create_dir(member("site", "cam-2")).expect("the folder can be written");
    let site = Doctor::run(&[("--site-dir", &folder.path().join("site"))]);
    site.names("fail", "site", "cam-2: no member has this folder", "run `headwater enroll add` again");
}

#[test]
fn without_a_settings_file_the_doctor_takes_those_of_the_machine_or_says_what_to_give() {
    let mut command = Command::new(find_program("headwater").expect("the programs are built"));
    let output = command.args(["doctor", "--timeout-s", "1"]).output().expect("the doctor starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let places = ["device", "aggregator", "cloud"].map(|tier| format!("/etc/headwater/{tier}.toml"));
    let own: Vec<_> = places.iter().filter(|place| Path::new(place).exists()).collect();
    if own.is_empty() {
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("--aggregator FILE") && places.iter().all(|place| said.contains(place)),
            "{said}"
        );
    } else {
        // This machine has tiers of its own.
        assert_ne!(output.status.code(), Some(2), "{said}");
        assert!(own.iter().all(|place| printed.contains(place.as_str())), "{printed}");
    }
}
