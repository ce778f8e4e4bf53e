//! Settings files of a group, its programs, and runs of the doctor with them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use headwater_group::start::Program;
use headwater_inference::testing::TinyNetwork;
use headwater_tests::group::WAIT_LIMIT;
use headwater_tests::{programs, shipped};
use headwater_transport::held_port;
use serde_json::Value;
use tempfile::TempDir;

/// A folder for the settings files of a group, and the ports that these files name.
pub(crate) struct Files {
    folder: TempDir,
    /// `mqtt://host:port`.
    pub(crate) broker: String,
    pub(crate) cloud_port: u16,
    /// Admin ports of the cloud, the aggregator, and the devices in slots 0 to 3.
    pub(crate) admin: [u16; 6],
}

impl Files {
    pub(crate) fn new(broker: String) -> Self {
        let port = || held_port().expect("a free port");
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            broker,
            cloud_port: port(),
            admin: [port(), port(), port(), port(), port(), port()],
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }

    /// Writes the settings file of a device. `broker` is text for the end of the section `[broker]`, and may have further sections.
    pub(crate) fn device(&self, slot: usize, bundle: &Path, broker: &str) -> PathBuf {
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

    /// Writes the settings file of a device with further settings at the beginning, outside all sections.
    pub(crate) fn device_with(&self, slot: usize, further: &str) -> PathBuf {
        let file = self.device(slot, &shipped::bundle_path(), "");
        let text = std::fs::read_to_string(&file).expect("written before");
        let text = format!("{further}\n{text}");
        self.write(&format!("device-{slot}.toml"), &text)
    }

    /// Writes the settings file of the aggregator. `group` is text with further settings of the group.
    pub(crate) fn aggregator(&self, bundle: &Path, group: &str) -> PathBuf {
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

    pub(crate) fn cloud(&self, bundle: &Path) -> PathBuf {
        let text = format!(
            "bundle = \"{}\"\nengine = \"tract\"\nstop_delay_ms = 0\n[http]\nlisten = \"127.0.0.1:{}\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n",
            bundle.display(),
            self.cloud_port,
            self.admin[0],
        );
        self.write("cloud.toml", &text)
    }

    /// Writes a bundle with another network than the shipped bundle.
    pub(crate) fn other_bundle(&self) -> PathBuf {
        let path = self.path("other.hwb");
        std::fs::write(&path, TinyNetwork::default().bundle()).expect("the folder can be written");
        path
    }
}

pub(crate) fn start(program: &str, settings: &Path) -> Program {
    start_with(program, settings, &[])
}

pub(crate) fn start_with(program: &str, settings: &Path, environment: &[(&str, &str)]) -> Program {
    let mut command = programs::command(program);
    command.arg("--config").arg(settings).stdout(Stdio::null()).stderr(Stdio::null());
    command.envs(environment.iter().copied());
    Program::start(&mut command).expect("the program starts")
}

/// The result of a run of the doctor. `text` is the JSON text of `report`.
pub(crate) struct Doctor {
    pub(crate) code: Option<i32>,
    pub(crate) report: Value,
    pub(crate) text: String,
}

impl Doctor {
    /// Runs the doctor with pairs of a flag and its file.
    pub(crate) fn run(arguments: &[(&str, &Path)]) -> Self {
        Self::with(arguments, &[])
    }

    /// As [`Doctor::run`], with further environment variables.
    pub(crate) fn with(arguments: &[(&str, &Path)], environment: &[(&str, &str)]) -> Self {
        let mut command = programs::command("headwater");
        command.args(["doctor", "--json", "--timeout-s", "5"]).envs(environment.iter().copied());
        arguments.iter().for_each(|(flag, file)| _ = command.arg(flag).arg(file));
        let output = command.output().expect("the doctor starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {errors}"));
        Self { code: output.status.code(), report, text }
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = &Value> {
        self.report["tiers"]
            .as_array()
            .expect("a list")
            .iter()
            .flat_map(|tier| tier["findings"].as_array().expect("a list"))
    }

    pub(crate) fn has(&self, level: &str, check: &str, found: &str, advice: &str) -> bool {
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

    /// Fails unless there is a finding of this level and check whose `found` and `advice` have these texts, and the exit code fits the report.
    #[track_caller]
    pub(crate) fn names(&self, level: &str, check: &str, found: &str, advice: &str) {
        assert!(
            self.has(level, check, found, advice),
            "no {level} {check}: {found}; {advice}: {}",
            self.text
        );
        assert_eq!(self.code, Some(i32::from(self.report["fail"] != 0)), "{}", self.text);
    }

    /// Fails if there is a finding of level `fail` of another check than these.
    #[track_caller]
    pub(crate) fn fails_only(&self, checks: &[&str]) {
        let fails = self.findings().filter(|finding| finding["level"] == "fail");
        let others: Vec<_> =
            fails.filter(|finding| !checks.iter().any(|check| finding["check"] == *check)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

/// Runs the doctor again and again until the condition holds for a run, and returns this run.
#[track_caller]
pub(crate) fn until(run: impl Fn() -> Doctor, is_reached: impl Fn(&Doctor) -> bool) -> Doctor {
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
