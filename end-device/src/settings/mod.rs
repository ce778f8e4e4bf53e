//! Settings of `headwater-device`: one declaration per key gives flag, environment variable, TOML key, help, default and example file.

mod opened;
mod source;

use std::path::PathBuf;

use headwater_link::QoS;
use headwater_protocol::{DeviceId, GroupId, SiteId, Slot};
use headwater_settings::{
    AdminSettings, Bounded, BrokerSettings, CommandLine, Conf, Loaded, LogSettings, Mistake,
    SecuritySettings, Settings, Sources, Stop, word,
};
use serde::Deserialize;

use crate::config::{Capture, EngineChoice, OnBrokenFrame};
pub use opened::OpenedSettings;
pub use source::{
    Existing, FolderEnd, FolderSettings, HttpSettings, SourceSettings, SourceWord, StdinFormat,
    StdinSettings, WatchSettings,
};

/// One camera of a group: takes a frame when triggered, runs its section of the network, sends class scores, and on request the
/// features. It keeps both until the aggregator reports the sample settled.
///
/// Every setting can stand in a TOML file (--config; headwater-device.toml has all of them with comments), in the environment, or here; a
/// flag wins over the environment, the environment over the file.
///
/// Example: headwater-device --site hall --group gate --id cam-0 --slot 0 --bundle fashion-6cam.hwb --source-path frames.tar.gz
#[derive(Clone, Debug, Conf)]
#[conf(env_prefix = "HEADWATER_DEVICE_", name = "headwater-device", version, test)]
pub struct DeviceSettings {
    /// Options of the command line.
    #[conf(flatten)]
    pub command_line: CommandLine,
    /// Prints the counts of the device, as one JSON object on stdout, when it ends.
    #[conf(long)]
    pub json: bool,
    /// Site of the device; one level of its topics: 1 to 64 of a-z A-Z 0-9 . _ -
    #[conf(long, env)]
    pub site: SiteId,
    /// Group whose samples the device sees; one level of its topics.
    #[conf(long, env)]
    pub group: GroupId,
    /// Name of the device, unique in its group.
    #[conf(long, env)]
    pub id: DeviceId,
    /// Slot of the network that the device fills, from 0; each slot has its own weights.
    #[conf(long, env, allow_negative_numbers)]
    pub slot: Bounded<0, MAX_SLOT, u8>,
    /// Bundle file; one with this slot's section alone is enough.
    #[conf(long, env)]
    pub bundle: PathBuf,
    /// Policy file (TOML) with changes to the bundle's policy, for a device with an exit (configurations b, d):
    /// `[device] threshold = 0.4`: 0 decides only certain samples, 1 decides all. Elsewhere thresholds are the aggregator's, and only a device
    /// with `batch_ms` takes its file, whose waits bound `batch_ms`. SIGHUP reads the file again.
    #[conf(long, env)]
    pub policy: Option<PathBuf>,
    /// Cause of a capture: "trigger" (a message on the group's topic), "clock" (every `period_ms`; clocks of the group within a quarter of
    /// it) or "source" (each frame of a folder, watch or stdin is a sample, named by the milliseconds of the clock; for a group of one).
    #[conf(long, env, value_parser = word, default_value = "trigger")]
    pub capture: CaptureWord,
    /// Milliseconds between captures by the clock; the same at every device of the group. A device that is too slow for it misses
    /// captures, which it counts and logs.
    #[conf(long, env, allow_negative_numbers)]
    pub period_ms: Option<Bounded<1, MAX_MS>>,
    /// Settings with a default.
    #[conf(flatten)]
    pub options: DeviceOptions,
    /// The broker.
    #[conf(flatten, prefix)]
    pub broker: BrokerSettings,
    /// Identity and trust.
    #[conf(flatten)]
    pub security: SecuritySettings,
    /// The source of frames.
    #[conf(flatten, prefix)]
    pub source: SourceSettings,
    /// The log.
    #[conf(flatten, prefix)]
    pub log: LogSettings,
    /// The admin listener.
    #[conf(flatten, prefix)]
    pub admin: AdminSettings,
}

/// Settings with a default.
#[derive(Clone, Debug, PartialEq, Conf)]
pub struct DeviceOptions {
    /// Engine of the section: "packed" (its packed form, many times faster; tract if the bundle has none), "tract" (its ONNX) or "ort"
    /// (its ONNX in ONNX Runtime; tract if there is no library).
    #[conf(long, env, value_parser = word, default_value = "packed")]
    pub engine: EngineChoice,
    /// Library of ONNX Runtime (libonnxruntime.so, 1.24 or later), for the engine ort. Left out: the usual places. A library that is
    /// named must load.
    #[conf(long, env)]
    pub onnxruntime: Option<PathBuf>,
    /// Action for a frame of an archive that cannot be read: "skip" (no answer for its samples) or "fatal" (the device does not start).
    #[conf(long, env, value_parser = word, default_value = "skip")]
    pub on_broken_frame: OnBrokenFrame,
    /// Folder of the files that outlive a restart: the boot number, the last sample id of capture "source", and the spool. Each device
    /// needs a folder of its own. Left out: the clock gives both numbers, and the spool is in memory.
    #[conf(long, env)]
    pub state_dir: Option<PathBuf>,
    /// 0: a summary or features message lost on the way stays lost. 1: the broker acknowledges each, which costs bytes.
    #[conf(long, env, default_value = "0")]
    pub upward_qos: QoS,
    /// Milliseconds for which answers wait for others, to go in one message at high rates: fewer bytes, and decisions later by up to
    /// this time. 0: each answer is sent at once. At most half of the policy's `window_ms` and a quarter of its `deadline_ms`; for networks
    /// of several devices (configurations c, e, f; where edges are separate programs each answer is sent at once). A device that is killed
    /// loses the answers that wait, as it loses views in its queue.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<0, MAX_BATCH_MS, u64>, default_value = "0")]
    pub batch_ms: u64,
    /// Unsettled samples in memory; earlier ones go to the spool. Fewer saves memory.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<1, 65_536, usize>, default_value = "1024")]
    pub keep_samples: usize,
    /// Milliseconds that an unsettled sample stays in memory; then it goes to the spool and is sent again, late. Must outlast the
    /// aggregator's window and its waits.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<1, 600_000, u64>, default_value = "5000")]
    pub keep_ms: u64,
    /// Views that may wait for the section; one more sheds the oldest, which is counted.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<1, 4096, usize>, default_value = "128")]
    pub queue_samples: usize,
    /// Seconds between pings on an idle connection; longer notices a dead broker later.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<1, 3600, u16>, default_value = "10")]
    pub keep_alive_s: u16,
    /// Milliseconds that a shutdown may take to answer captured frames and disconnect.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<1, 60_000, u64>, default_value = "2000")]
    pub grace_ms: u64,
    /// The spool.
    #[conf(flatten, prefix)]
    pub spool: SpoolSettings,
}

/// Section `[spool]`.
#[derive(Clone, Debug, PartialEq, Conf)]
pub struct SpoolSettings {
    /// Bytes of the spool, which holds unsettled samples that could not be sent, or are too many or too old for memory. Over it the oldest
    /// are given up, and the leader learns of it. A sample counts as at least 512 bytes. In memory at most 1 MiB. 0: no spool; such samples
    /// are given up at once.
    #[conf(long, env, allow_negative_numbers, value_parser = number::<0, MAX_SPOOL_BYTES, u64>, default_value = "67108864")]
    pub max_bytes: u64,
}

/// Word of the setting `capture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureWord {
    /// A message of the group.
    Trigger,
    /// The clock.
    Clock,
    /// Each frame of the source.
    Source,
}

/// Longest wait or period, a day.
const MAX_MS: u64 = 86_400_000;

/// Longest time for which an answer waits for others.
const MAX_BATCH_MS: u64 = 10_000;

const MAX_SPOOL_BYTES: u64 = 1 << 40;

const MAX_SLOT: u64 = Slot::MAX as u64 - 1;

impl Settings for DeviceSettings {
    const OLD_VARIABLES: &'static str = "HEADWATER_DEVICE_";

    const RENAMED: &'static [(&'static str, &'static str)] = &[
        ("broker", "broker.address"),
        ("source", "source.kind"),
        ("frames", "source.path"),
        ("roi", "source.roi"),
        ("max_age_ms", "source.max_age_ms"),
        ("folder_period_ms", "source.folder.period_ms"),
        ("folder_end", "source.folder.end"),
        ("watch_existing", "source.watch.existing"),
        ("watch_poll_ms", "source.watch.poll_ms"),
        ("http_url", "source.http.url"),
        ("http_timeout_ms", "source.http.timeout_ms"),
        ("http_auth_file", "source.http.auth_file"),
        ("stdin_format", "source.stdin.format"),
        ("stdin_size", "source.stdin.size"),
        ("spool_bytes", "spool.max_bytes"),
    ];

    const ALIASES: &'static [(&'static str, &'static str)] = &[
        ("RUST_LOG", "log.filter"),
        ("ORT_DYLIB_PATH", "onnxruntime"),
        ("HEADWATER_DEVICE_HTTP_AUTH", "source.http.auth"),
    ];

    fn check(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        match (self.capture == CaptureWord::Clock, self.period_ms.is_some()) {
            (true, false) => mistakes.push("period_ms: missing, and capture is \"clock\"".into()),
            (false, true) => mistakes.push("period_ms: only with capture = \"clock\"".into()),
            (true, true) | (false, false) => {}
        }
        self.source.check(self.capture(), &mut mistakes);
        mistakes.extend(self.security.check_broker(&self.broker));
        mistakes.extend(self.admin.check());
        mistakes
    }
}

impl Settings for DeviceOptions {}

/// Reads a number of these bounds.
fn number<const MIN: u64, const MAX: u64, T: TryFrom<u64> + Copy>(text: &str) -> Result<T, Mistake> {
    text.parse::<Bounded<MIN, MAX, T>>().map(Bounded::get)
}

impl DeviceSettings {
    /// Reads the settings. Keys of another kind of source than the chosen one are mistakes.
    ///
    /// # Errors
    /// [`Stop`]: help that was asked for, or every mistake.
    pub fn load(sources: Sources) -> Result<Loaded<Self>, Stop> {
        let mut loaded = headwater_settings::load(sources)?;
        source::refuse_other_kinds(&mut loaded)?;
        source::hide_query(&mut loaded);
        Ok(loaded)
    }

    /// Cause of a capture, with its period.
    pub fn capture(&self) -> Capture {
        match (self.capture, self.period_ms) {
            (CaptureWord::Clock, Some(period_ms)) => Capture::Clock { period_ms: period_ms.get() },
            (CaptureWord::Clock, None) | (CaptureWord::Trigger, _) => Capture::Trigger,
            (CaptureWord::Source, _) => Capture::Source,
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_settings::example;

    use super::*;
    use crate::config::DeviceConfig;

    /// Values of the example file for settings without a default.
    const EXAMPLE_VALUES: &str = "\
        site = \"home\"\ngroup = \"demo\"\nid = \"cam-0\"\nslot = 0\nbundle = \"network.hwb\"\npolicy = \"policy.toml\"\n\
        onnxruntime = \"/opt/onnxruntime/lib/libonnxruntime.so\"\nperiod_ms = 100\nstate_dir = \"/var/lib/headwater\"\n\
        insecure = true\ntrusted_keys = \"c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff\"\n\
        [broker]\nuser = \"cam-0\"\npassword_file = \"/etc/headwater/password\"\n[tls]\nauthority_file = \"/etc/headwater/authority.pem\"\ncertificate_file = \"/etc/headwater/certificate.pem\"\n\
        key_file = \"/etc/headwater/key.pem\"\nrevoked_file = \"/etc/headwater/revoked.crl\"\n\
        [source]\npath = \"frames.tar.gz\"\nroi = \"40,0,320,240\"\nmax_age_ms = 1000\n\
        [source.http]\nurl = \"http://camera.local/snapshot.jpg\"\ntimeout_ms = 1000\nauth_file = \"/etc/headwater/camera\"\n\
        [source.stdin]\nsize = \"320x240\"\n[admin]\nlisten = \"127.0.0.1:9602\"\nremote = true\n";

    const HEADING: &str = "\
        # Settings of headwater-device. A flag (--keep-ms 9000) wins over the environment (HEADWATER_DEVICE_KEEP_MS), which wins over\n\
        # this file. A setting that is commented out stands at its default; one without a default is shown with an example value.\n\n";

    const SHIPPED: &str = include_str!("../../headwater-device.toml");

    fn sources(flags: &[&str]) -> Sources {
        let given = ["--source-path", "frames.tar.gz"].iter().chain(flags).copied();
        Sources::default().with_file(SHIPPED).with_arguments(given)
    }

    #[track_caller]
    fn check(flags: &[&str], expected: &[&str]) {
        check_mistakes(sources(flags), expected);
    }

    #[track_caller]
    fn check_mistakes(sources: Sources, expected: &[&str]) {
        let mut mistakes = match DeviceSettings::load(sources) {
            Err(Stop::Mistakes(mistakes)) => mistakes,
            other => panic!("expected mistakes, found {other:?}"),
        };
        mistakes.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(mistakes, expected);
    }

    fn config(flags: &[&str]) -> DeviceConfig {
        DeviceSettings::load(sources(flags)).unwrap().settings.config().unwrap()
    }

    #[test]
    fn the_example_file_is_made_from_the_declarations() {
        let made = HEADING.to_owned() + &example::<DeviceSettings>(None, EXAMPLE_VALUES).unwrap();
        if std::env::var_os("HEADWATER_WRITE_EXAMPLES").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/headwater-device.toml"), &made).unwrap();
        }
        assert_eq!(made, SHIPPED, "HEADWATER_WRITE_EXAMPLES=1 writes the file");
    }

    #[test]
    fn the_example_file_gives_the_defaults() {
        let found = config(&[]);
        let DeviceConfig { site, group, id, slot, broker, .. } = found.clone();
        let expected = DeviceConfig::new(site, group, id, slot, broker);
        assert_eq!((found.capture, &found.options), (expected.capture, &expected.options));
        let options = &found.options;
        assert_eq!((options.keep_samples, options.spool.max_bytes, options.grace_ms), (1024, 64 << 20, 2000));
        assert_eq!(found.broker.address.to_string(), "mqtt://127.0.0.1:1883");
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let config = config(&["--slot", "5", "--id", "7", "--upward-qos", "1"]);
        assert_eq!((config.slot, config.id.to_string().as_str()), (Slot::new(5).unwrap(), "7"));
        assert_eq!(config.options.upward_qos, QoS::AtLeastOnce);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let missing = [
            "bundle: missing",
            "group: missing",
            "id: missing",
            "site: missing",
            "slot: missing",
            "source.path: missing, and source.kind is \"archive\"",
        ];
        check_mistakes(Sources::default().with_file(""), &missing);
        check(
            &["--slot", "64", "--broker-address", "mqtt://host:0", "--keep-samples", "0"],
            &[
                "slot: expected 0 to 63, found 64 (flag --slot)",
                "keep_samples: expected 1 to 65536, found 0 (flag --keep-samples)",
                "broker.address: expected a port from 1 to 65535, found \"0\" (flag --broker-address)",
            ],
        );
    }

    #[test]
    fn a_negative_number_is_refused_by_its_range() {
        check(
            &["--slot", "-1", "--keep-ms", "-5"],
            &[
                "slot: expected 0 to 63, found -1 (flag --slot)",
                "keep_ms: expected 1 to 600000, found -5 (flag --keep-ms)",
            ],
        );
        check(
            &["--period-ms", "-100", "--capture", "clock"],
            &["period_ms: expected 1 to 86400000, found -100 (flag --period-ms)"],
        );
    }

    #[test]
    fn no_secret_of_a_camera_is_in_the_debug_text() {
        let flags = ["--source-kind", "http", "--source-http-url", "http://cam/snap?pwd=hush"];
        let sources = Sources::default().with_file(SHIPPED).with_arguments(flags);
        let sources = sources.with_environment([("HEADWATER_DEVICE_SOURCE_HTTP_AUTH", "user:hush")]);
        let settings = DeviceSettings::load(sources).unwrap().settings;
        assert!(settings.source.http.auth.is_some());
        let text = format!("{settings:?}");
        assert!(!text.contains("hush") && text.contains("http://cam"), "{text}");
    }

    #[test]
    fn capture_and_period_belong_together() {
        check(&["--capture", "clock"], &["period_ms: missing, and capture is \"clock\""]);
        check(&["--period-ms", "100"], &["period_ms: only with capture = \"clock\""]);
        check(
            &["--capture", "sometimes"],
            &["capture: expected \"trigger\", \"clock\" or \"source\", found \"sometimes\" (flag --capture)"],
        );
        let clock = config(&["--capture", "clock", "--period-ms", "100"]);
        assert_eq!(clock.capture, Capture::Clock { period_ms: 100 });
    }

    #[test]
    fn settings_of_another_source_are_mistakes_unless_a_flag_overrules_the_file() {
        check(
            &["--source-stdin-size", "4x4", "--source-watch-poll-ms", "20"],
            &[
                "source.watch.poll_ms: only with source.kind = \"watch\"",
                "source.stdin.size: only with source.kind = \"stdin\"",
            ],
        );
        let file = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n\
                    [source]\nkind = \"folder\"\npath = \"f\"\n[source.folder]\nperiod_ms = 50\n";
        let flags = ["--source-kind", "http", "--source-http-url", "http://cam/snap?pwd=hush"];
        let loaded = DeviceSettings::load(Sources::default().with_file(file).with_arguments(flags)).unwrap();
        let shown = loaded.to_toml(None);
        assert!(shown.contains("http://cam:80/snap?...") && !shown.contains("hush"), "{shown}");
        assert!(!shown.contains("period_ms = 50") && shown.parse::<toml::Table>().is_ok(), "{shown}");
    }

    #[test]
    fn settings_of_one_source_must_fit_each_other() {
        check(&["--source-kind", "http"], &["source.http.url: missing, and source.kind is \"http\""]);
        let http = ["--source-kind", "http", "--source-http-url", "http://cam/"];
        let timed = ["--capture", "clock", "--period-ms", "100", "--source-http-timeout-ms", "100"];
        check(
            &[&http[..], &timed[..]].concat(),
            &["source.http.timeout_ms: expected less than period_ms, 100, found 100"],
        );
        check(
            &["--capture", "source"],
            &[
                "capture: \"source\" goes with source.kind = \"folder\", \"watch\" or \"stdin\", found \"archive\"",
            ],
        );
        check(
            &["--source-kind", "stdin", "--source-stdin-format", "mjpeg", "--source-stdin-size", "4x4"],
            &["source.stdin.size: only with source.stdin.format = \"rgb24\" or \"gray\""],
        );
    }

    #[test]
    fn an_unusable_snapshot_url_is_refused_without_repeating_its_secrets() {
        for url in [
            "/snap",
            "https://cam/s3cret",
            "http://u:s3cret@cam/",
            "http://cam:0/",
            "http://cam:99999/",
            "ftp://cam",
        ] {
            let found = DeviceSettings::load(sources(&["--source-kind", "http", "--source-http-url", url]));
            let Err(Stop::Mistakes(mistakes)) = found else { panic!("{url} was accepted") };
            let mistakes = mistakes.join("\n");
            assert!(mistakes.starts_with("source.http.url: expected "), "{mistakes}");
            assert!(!mistakes.contains("s3cret"), "{mistakes}");
        }
    }

    #[test]
    fn an_old_key_is_refused_naming_the_new_one() {
        for (old, new) in DeviceSettings::RENAMED {
            let found = DeviceSettings::load(Sources::default().with_file(format!("{old} = 1")));
            let Err(Stop::Mistakes(mistakes)) = found else { panic!("{old} was accepted") };
            assert!(mistakes.contains(&format!("{old}: is now `{new}`")), "{mistakes:?}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let file = format!("keep_mss = 3\n{SHIPPED}");
        let sources = Sources::default().with_file(file).with_arguments(["--source-path", "f"]);
        check_mistakes(sources, &["keep_mss: no such setting; did you mean `keep_ms`?"]);
    }

    #[test]
    fn a_name_that_would_break_a_topic_is_refused() {
        for id in ["cam/0", "cam+", "#", ""] {
            let found = DeviceSettings::load(sources(&["--id", id]));
            let Err(Stop::Mistakes(mistakes)) = found else { panic!("{id:?} was accepted") };
            assert!(mistakes[0].starts_with("id: "), "{mistakes:?}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_named() {
        let found = DeviceSettings::load(Sources::default().with_file("site = "));
        let Err(Stop::Mistakes(mistakes)) = found else { panic!("it was accepted") };
        assert!(mistakes[0].contains("line 1"), "{mistakes:?}");
    }
}
