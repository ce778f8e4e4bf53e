//! Settings of `headwater-device`: one declaration per key gives flag, environment variable, TOML key, help, default and example file.

mod source;

use std::path::PathBuf;

use headwater_link::QoS;
use headwater_protocol::{DeviceId, GroupId, SiteId, Slot};
use headwater_settings::{
    AdminSettings, BrokerSettings, CommandLine, Loaded, LogSettings, Misfit, Mistake, Outside, Program,
    SecuritySettings, Sources, Stop, Value, default, flat, optional, required, section, settings, switch,
    within,
};
use serde::Deserialize;

use crate::config::{Capture, EngineChoice};
pub(crate) use source::CARRY_SIZE;
#[cfg(not(feature = "http"))]
pub(crate) use source::WITHOUT_HTTP;
pub use source::{
    CommandEnd, CommandSettings, Existing, FolderEnd, FolderSettings, HttpSettings, SourceSettings,
    SourceWord, StdinFormat, StdinSettings, WatchSettings,
};

settings! {
    /// One camera of a group: takes a frame when triggered, runs its section of the network, sends class scores, and on request the
    /// features. It keeps both until the aggregator reports the sample settled.
    ///
    /// Every setting can stand in a TOML file (--config; headwater-device.toml has all of them with comments), in the environment, or here; a
    /// flag wins over the environment, the environment over the file.
    ///
    /// Example: headwater-device --site hall --group gate --id cam-0 --slot 0 --bundle fashion-6cam.hwb --source-path frames.tar.gz
    #[derive(Clone, Debug)]
    pub struct DeviceSettings {
        /// Options of the command line.
        pub command_line: CommandLine = flat(),
        /// Prints the counts of the device, as one JSON object on stdout, when it ends.
        pub json: bool = switch().flag_only(),
        /// Site of the device; one level of its topics: 1 to 64 of a-z A-Z 0-9 . _ -
        pub site: SiteId = required("home"),
        /// Group whose samples the device sees; one level of its topics.
        pub group: GroupId = required("demo"),
        /// Name of the device, unique in its group. For several devices that see parts of one camera, which one process opens once, a table
        /// `[[devices]]` of the file for each: id, slot, state_dir, source.roi, source.fit, tls, broker.user, admin.listen (docs/sources.md).
        pub id: DeviceId = required("cam-0"),
        /// Slot of the network that the device fills, from 0; each slot has its own weights.
        pub slot: Slot = required("0").by(slot),
        /// Bundle file; one with this slot's section alone is enough.
        pub bundle: PathBuf = required("network.hwb"),
        /// Policy file (TOML) with changes to the bundle's policy, for a device with an exit (configurations b, d):
        /// `[device] threshold = 0.4`: 0 decides only certain samples, 1 decides all. Elsewhere thresholds are the aggregator's, and only a device
        /// with `batch_ms` takes its file, whose waits bound `batch_ms`. SIGHUP reads the file again.
        pub policy: Option<PathBuf> = optional("policy.toml"),
        /// Cause of a capture: "trigger" (a message on the group's topic), "clock" (every `period_ms`; clocks of the group within a quarter of
        /// it) or "source" (each frame of a source is a sample, named by the milliseconds of the clock; for a group of one, not for archive and http).
        pub capture: CaptureWord = default("trigger").word(),
        /// Milliseconds between captures by the clock; the same at every device of the group. A device that is too slow for it misses
        /// captures, which it counts and logs.
        pub period_ms: Option<u64> = optional("100").within(1..=MAX_MS),
        /// Engine of the section: "packed" (its packed form, many times faster; tract if the bundle has none), "tract" (its ONNX) or "ort"
        /// (its ONNX in ONNX Runtime; tract if there is no library).
        pub engine: EngineChoice = default("packed").word(),
        /// Library of ONNX Runtime (libonnxruntime.so, 1.24 or later), for the engine ort. Left out: the usual places. A library that is
        /// named must load.
        pub onnxruntime: Option<PathBuf> = optional("/opt/onnxruntime/lib/libonnxruntime.so").or_variable("ORT_DYLIB_PATH"),
        /// Folder of the files that outlive a restart: the boot number, the last sample id of capture "source", and the spool. Each device
        /// needs a folder of its own. Left out: the clock gives both numbers, and the spool is in memory.
        pub state_dir: Option<PathBuf> = optional("/var/lib/headwater"),
        /// 0: a summary or features message lost on the way stays lost. 1: the broker acknowledges each, which costs bytes.
        pub upward_qos: QoS = default("0"),
        /// Milliseconds for which answers wait for others, to go in one message at high rates: fewer bytes, and decisions later by up to
        /// this time. 0: each answer is sent at once. At most half of the policy's `window_ms` and a quarter of its `deadline_ms`; for networks
        /// of several devices (configurations c, e, f; where edges are separate programs each answer is sent at once). A device that is killed
        /// loses the answers that wait, as it loses views in its queue.
        pub batch_ms: u64 = default("0").within(0..=MAX_BATCH_MS),
        /// Names the frame behind each answer, so that results say which picture they are about: its number in the source, and its file
        /// where the source has files. Costs the bytes of the name, mostly more than the scores, and with an exit on the device those of the
        /// scores. Snapshots (source "http") have no name. Needs a leader of this release or later and `batch_ms = 0`.
        pub name_frames: bool = switch(),
        /// Unsettled samples in memory; earlier ones go to the spool. Fewer saves memory.
        pub keep_samples: usize = default("1024").within(1..=65_536),
        /// Milliseconds that an unsettled sample stays in memory; then it goes to the spool and is sent again, late. Must outlast the
        /// aggregator's window and its waits.
        pub keep_ms: u64 = default("5000").within(1..=600_000),
        /// Views that may wait for the section; one more sheds the oldest, which is counted.
        pub queue_samples: usize = default("128").within(1..=4096),
        /// Seconds between pings on an idle connection; longer notices a dead broker later.
        pub keep_alive_s: u16 = default("10").within(1..=3600),
        /// Milliseconds that a shutdown may take to answer captured frames and disconnect.
        pub grace_ms: u64 = default("2000").within(1..=60_000),
        /// The spool.
        pub spool: SpoolSettings = section(),
        /// The broker.
        pub broker: BrokerSettings = section(),
        /// Identity and trust.
        pub security: SecuritySettings = flat(),
        /// The source of frames.
        pub source: SourceSettings = section(),
        /// The log.
        pub log: LogSettings = section(),
        /// The admin listener.
        pub admin: AdminSettings = section().example("listen", "127.0.0.1:9602"),
    }
}

settings! {
    /// Section `[spool]`.
    #[derive(Clone, Debug)]
    pub struct SpoolSettings {
        /// Bytes of the spool, which holds unsettled samples that could not be sent, or are too many or too old for memory. Over it the oldest
        /// are given up, and the leader learns of it. A sample counts as at least 512 bytes. In memory at most 1 MiB. 0: no spool; such samples
        /// are given up at once.
        pub max_bytes: u64 = default("67108864").within(0..=MAX_SPOOL_BYTES),
    }
}

/// Word of the setting `capture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureWord {
    /// A message on the group's topic `trigger`.
    Trigger,
    /// The device's clock, every `period_ms`.
    Clock,
    /// Each frame of the source.
    Source,
}

/// Longest wait or period that a setting may name, in ms: a day.
const MAX_MS: u64 = 86_400_000;

/// Longest time for which an answer waits for others, in ms.
const MAX_BATCH_MS: u64 = 10_000;

const MAX_SPOOL_BYTES: u64 = 1 << 40;

fn slot(text: &str) -> Result<Slot, Mistake> {
    const LAST: u64 = Slot::MAX as u64 - 1;
    Slot::new(within::<u8>(0..=LAST, text)?).map_err(|error| Mistake(error.to_string()))
}

impl Program for DeviceSettings {
    const NAME: &'static str = "headwater-device";
    const PREFIX: &'static str = "HEADWATER_DEVICE_";

    fn check(&self, values: &[Value]) -> Vec<Misfit> {
        let mut mistakes = self.source.keys_of_other_kinds(values);
        match (self.capture == CaptureWord::Clock, self.period_ms.is_some()) {
            (true, false) => {
                mistakes.push(Misfit::new("period_ms", "missing, and capture is \"clock\"").with("capture"));
            }
            (false, true) => {
                mistakes.push(Misfit::new("period_ms", "only with capture = \"clock\"").with("capture"));
            }
            (true, true) | (false, false) => {}
        }
        self.source.check(self.capture(), &mut mistakes);
        if self.state_dir.as_deref().is_some_and(|folder| folder.as_os_str().is_empty()) {
            mistakes.push(Misfit::new(
                "state_dir",
                "expected a folder, found nothing; leave the key out for none",
            ));
        }
        mistakes.extend(self.security.check_broker(&self.broker));
        mistakes.extend(self.admin.check());
        mistakes
    }
}

/// Keys of a table `[[devices]]`, each with the meaning of a value that stands outside the tables.
const OWN_KEYS: [(&str, Outside); 10] = [
    ("id", Outside::Distinct),
    ("slot", Outside::Distinct),
    ("state_dir", Outside::Folder),
    ("source.roi", Outside::Distinct),
    ("source.fit", Outside::Shared),
    ("tls.certificate_file", Outside::Distinct),
    ("tls.key_file", Outside::Distinct),
    ("broker.user", Outside::Shared),
    ("broker.password_file", Outside::Shared),
    ("admin.listen", Outside::Address),
];

impl DeviceSettings {
    /// Reads the settings of each device of a process, as [`DeviceSettings::load`] does: of the devices in the tables `[[devices]]`, which see
    /// parts of one camera, or of one device if there are no tables.
    ///
    /// # Errors
    /// [`Stop`]: help that was asked for, or every mistake.
    pub fn load_each(sources: Sources) -> Result<Vec<Loaded<Self>>, Stop> {
        let mut devices = headwater_settings::load_each(sources, "devices", &OWN_KEYS)?;
        devices.iter_mut().for_each(source::hide);
        Ok(devices)
    }

    /// Reads the settings. Keys of another kind of source than the chosen one are mistakes.
    ///
    /// # Errors
    /// [`Stop`]: help that was asked for, or every mistake.
    pub fn load(sources: Sources) -> Result<Loaded<Self>, Stop> {
        let mut loaded = headwater_settings::load(sources)?;
        source::hide(&mut loaded);
        Ok(loaded)
    }

    /// Cause of a capture, with its period. The clock without a period, which is a mistake, counts as the trigger.
    pub fn capture(&self) -> Capture {
        match (self.capture, self.period_ms) {
            (CaptureWord::Clock, Some(period_ms)) => Capture::Clock { period_ms },
            (CaptureWord::Clock, None) | (CaptureWord::Trigger, _) => Capture::Trigger,
            (CaptureWord::Source, _) => Capture::Source,
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_settings::{defaults, example};

    use super::*;

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

    fn settings(flags: &[&str]) -> DeviceSettings {
        DeviceSettings::load(sources(flags)).unwrap().settings
    }

    #[test]
    fn the_example_file_is_made_from_the_declarations() {
        let made = HEADING.to_owned() + &example::<DeviceSettings>();
        if std::env::var_os("HEADWATER_WRITE_EXAMPLES").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/headwater-device.toml"), &made).unwrap();
        }
        assert_eq!(made, SHIPPED, "HEADWATER_WRITE_EXAMPLES=1 writes the file");
    }

    #[test]
    fn the_example_file_gives_the_defaults() {
        let found = settings(&[]);
        let (site, group, id) = (found.site.clone(), found.group.clone(), found.id.clone());
        let (bundle, source) = (found.bundle.clone(), found.source.clone());
        let default = DeviceSettings { site, group, id, bundle, source, ..defaults() };
        assert_eq!(format!("{found:?}"), format!("{default:?}"));
        assert_eq!((found.keep_samples, found.spool.max_bytes, found.grace_ms), (1024, 64 << 20, 2000));
        assert_eq!(found.broker.address.to_string(), "mqtt://127.0.0.1:1883");
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let found = settings(&["--slot", "5", "--id", "7", "--upward-qos", "1"]);
        assert_eq!((found.slot, found.id.to_string().as_str()), (Slot::new(5).unwrap(), "7"));
        assert_eq!(found.upward_qos, QoS::AtLeastOnce);
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
        let kind = "source.kind: expected \"archive\", \"folder\", \"watch\", \"http\", \"stdin\", \"command\" or \"file\", found \"rtsp\"; for a \
                    stream or a camera use \"command\" with ffmpeg, or \"stdin\" behind it (docs/sources.md) (flag --source-kind)";
        check(&["--source-kind", "rtsp"], &[kind]);
        check(
            &["--slot", "64", "--broker-address", "mqtt://host:0", "--keep-samples", "0"],
            &[
                "slot: expected 0 to 63, found 64 (flag --slot)",
                "keep_samples: expected 1 to 65536, found 0 (flag --keep-samples)",
                "broker.address: expected a port from 1 to 65535, found \"0\" (flag --broker-address)",
            ],
        );
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
        check(&["--period-ms", "100"], &["period_ms: only with capture = \"clock\" (flag --period-ms)"]);
        check(
            &["--capture", "sometimes"],
            &["capture: expected \"trigger\", \"clock\" or \"source\", found \"sometimes\" (flag --capture)"],
        );
        let clock = settings(&["--capture", "clock", "--period-ms", "100"]);
        assert_eq!(clock.capture(), Capture::Clock { period_ms: 100 });
    }

    #[test]
    fn settings_of_another_source_are_mistakes_unless_a_flag_overrules_the_file() {
        check(
            &["--source-stdin-size", "4x4", "--source-watch-poll-ms", "20"],
            &[
                "source.watch.poll_ms: only with source.kind = \"watch\" (flag --source-watch-poll-ms)",
                "source.stdin.size: only with source.kind = \"stdin\" or \"command\" or \"file\" (flag --source-stdin-size)",
            ],
        );
        let file = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n\
                    [source]\nkind = \"folder\"\npath = \"f\"\n[source.folder]\nperiod_ms = 50\n";
        let flags = ["--source-kind", "http", "--source-http-url", "http://cam/snap?pwd=hush"];
        let loaded = DeviceSettings::load(Sources::default().with_file(file).with_arguments(flags)).unwrap();
        let shown = loaded.to_toml();
        assert!(shown.contains("http://cam:80/snap?...") && !shown.contains("hush"), "{shown}");
        assert!(!shown.contains("period_ms = 50") && shown.parse::<toml::Table>().is_ok(), "{shown}");
    }

    #[test]
    fn settings_of_one_source_must_fit_each_other() {
        let path = "source.path: only with source.kind = \"archive\" or \"folder\" or \"watch\" or \"file\" (flag --source-path)";
        check(&["--source-kind", "http"], &["source.http.url: missing, and source.kind is \"http\"", path]);
        let http = ["--source-kind", "http", "--source-http-url", "http://cam/"];
        let timed = ["--capture", "clock", "--period-ms", "100", "--source-http-timeout-ms", "100"];
        check(
            &[&http[..], &timed[..]].concat(),
            &[
                "source.http.timeout_ms: expected less than period_ms, 100, found 100 (flag --source-http-timeout-ms)",
                path,
            ],
        );
        check(
            &["--capture", "source"],
            &[
                "capture: \"source\" goes with every source.kind but \"archive\" and \"http\", found \"archive\" (flag --capture)",
            ],
        );
        let frozen = "source.frozen_frames: expected 0 for no check, or at least 2, found 1: one frame has none before it to be equal to \
                      (flag --source-frozen-frames)";
        check(&["--source-kind", "watch", "--source-frozen-frames", "1"], &[frozen]);
        check(
            &["--source-kind", "stdin", "--source-stdin-format", "mjpeg", "--source-stdin-size", "4x4"],
            &[
                "source.stdin.size: only with source.stdin.format = \"rgb24\" or \"gray\" (flag --source-stdin-size)",
                path,
            ],
        );
    }

    #[test]
    fn raw_frames_without_a_size_are_refused_with_what_carries_it() {
        let command = "--source-kind command --source-command-run camera";
        let sources = |more: &str| {
            let file = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n";
            let flags: Vec<_> = command.split(' ').chain(more.split_whitespace()).collect();
            Sources::default().with_file(file).with_arguments(flags)
        };
        let size = "source.stdin.size: missing, and source.stdin.format is \"gray\": raw pixels do not tell their size; let ffmpeg write \
                    frames that carry it: `-f yuv4mpegpipe -`, or `-f image2pipe -c:v ppm -`";
        check_mistakes(sources("--source-stdin-format gray"), &[size]);
        for right in ["", "--source-stdin-size 4x4", "--source-stdin-format gray --source-stdin-size 4x4"] {
            let found = DeviceSettings::load(sources(right));
            assert!(found.is_ok(), "{right}: {found:?}");
        }
        let run = "source.command.run: missing, and source.kind is \"command\"";
        let file = "site = \"s\"\ngroup = \"g\"\nid = \"i\"\nslot = 0\nbundle = \"b\"\n[source]\nkind = \"command\"\n";
        check_mistakes(Sources::default().with_file(file), &[run]);
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
    fn a_snapshot_url_of_another_scheme_says_what_to_use() {
        for (url, advice) in [
            ("192.168.1.20/snap.jpg", "found \"none\": write http:// before it"),
            ("file:///srv/x.jpg", "found \"file\": for files use source.kind = \"folder\" or \"watch\""),
            (
                "RTSP://u:s3cret@cam/1",
                "found \"RTSP\": for a stream use source.kind = \"stdin\" behind ffmpeg",
            ),
            ("ftp://cam", "expected the scheme http, found \"ftp\""),
        ] {
            let found = DeviceSettings::load(sources(&["--source-kind", "http", "--source-http-url", url]));
            let Err(Stop::Mistakes(mistakes)) = found else { panic!("{url} was accepted") };
            assert!(mistakes[0].contains(advice) && !mistakes[0].contains("s3cret"), "{mistakes:?}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let file = format!("keep_mss = 3\n{SHIPPED}");
        let sources = Sources::default().with_file(file).with_arguments(["--source-path", "f"]);
        check_mistakes(sources, &["keep_mss: no such key; did you mean `keep_ms`? (line 1)"]);
    }

    #[test]
    fn a_name_that_would_break_a_topic_is_refused() {
        for id in ["cam/0", "cam+", "#", ""] {
            let found = DeviceSettings::load(sources(&["--id", id]));
            let Err(Stop::Mistakes(mistakes)) = found else { panic!("{id:?} was accepted") };
            assert!(mistakes[0].starts_with("id: "), "{mistakes:?}");
        }
    }
}
