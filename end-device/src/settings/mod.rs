//! From a TOML file and what overrides it to a checked configuration, with every mistake at once.

mod effective;
mod reader;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{DeviceId, GroupId, Origin, SiteId, Slot, no_such_setting};

use crate::config::{Capture, DeviceConfig, EngineChoice, OnBrokenFrame};
use crate::source::SourceConfig;
use reader::{Reader, as_value, path};

/// Everything `headwater-device` needs to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The device.
    pub config: DeviceConfig,
    /// Bundle file; it may hold no more than this device's section.
    pub bundle: PathBuf,
    /// Policy in place of the bundle's; [`DeviceConfig::read_policy`] reads it.
    pub policy: Option<PathBuf>,
    /// Where its frames come from.
    pub source: SourceConfig,
    /// Where values came from; what is not in it stands at its default.
    pub origins: BTreeMap<String, Origin>,
}

/// A setting that a flag or the environment gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Key, as in the file.
    pub key: &'static str,
    /// Its value as text.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Every setting of a file, in the order in which they are shown; `http_auth` is one of the environment alone.
const KEYS: [&str; 33] = [
    "site",
    "group",
    "id",
    "slot",
    "broker",
    "bundle",
    "policy",
    "source",
    "frames",
    "roi",
    "max_age_ms",
    "folder_period_ms",
    "folder_end",
    "watch_existing",
    "watch_poll_ms",
    "http_url",
    "http_timeout_ms",
    "http_auth_file",
    "stdin_format",
    "stdin_size",
    "engine",
    "onnxruntime",
    "capture",
    "period_ms",
    "on_broken_frame",
    "state_dir",
    "upward_qos",
    "keep_samples",
    "keep_ms",
    "spool_bytes",
    "queue_samples",
    "keep_alive_s",
    "grace_ms",
];

/// All mistakes of a configuration, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub Vec<String>);

impl Settings {
    /// Reads the text of a file, if there is one, and what flags and environment give; a later one of the same key wins.
    ///
    /// # Errors
    /// [`SettingsError`] with every key that is missing, unknown or wrong: key, expected, found.
    pub fn read(file: Option<&str>, given: &[Given]) -> Result<Self, SettingsError> {
        let table = match file.map(str::parse::<toml::Table>) {
            None => toml::Table::new(),
            Some(Ok(table)) => table,
            Some(Err(error)) => return Err(SettingsError(vec![error.to_string()])),
        };
        let origins = table.keys().map(|key| (key.clone(), Origin::File)).collect();
        let mut reader = Reader { table, origins, mistakes: Vec::new() };
        for Given { key, value, origin } in given {
            reader.table.insert((*key).into(), as_value(value));
            reader.origins.insert((*key).into(), *origin);
        }
        let settings = reader.settings();
        let unknown = reader.table.keys().map(|key| no_such_setting(key, KEYS));
        reader.mistakes.extend(unknown);
        match settings {
            Some(settings) if reader.mistakes.is_empty() => Ok(settings),
            _ => Err(SettingsError(reader.mistakes)),
        }
    }
}

impl Reader {
    /// Takes every key before it gives up, so that all mistakes are found; `None` when a required one is missing or wrong.
    fn settings(&mut self) -> Option<Settings> {
        let site = self.required("site", SiteId::new);
        let group = self.required("group", GroupId::new);
        let id = self.required("id", DeviceId::new);
        let slot = self.slot();
        let broker = self.optional("broker", |text| BrokerAddress::from_str(&text));
        let broker = broker.or_else(|| BrokerAddress::mqtt("127.0.0.1", 1883).ok());
        let bundle = self.required("bundle", path);
        let policy = self.optional("policy", path);
        let engine = self.optional("engine", |word| match word.as_str() {
            "packed" => Ok(EngineChoice::Packed),
            "tract" => Ok(EngineChoice::Tract),
            "ort" => Ok(EngineChoice::Ort),
            other => Err(format!("expected \"packed\", \"tract\" or \"ort\", found {other:?}")),
        });
        let onnxruntime = self.optional("onnxruntime", path);
        let capture = self.capture();
        let source = self.source(capture);
        let on_broken_frame = self.optional("on_broken_frame", |word| match word.as_str() {
            "skip" => Ok(OnBrokenFrame::Skip),
            "fatal" => Ok(OnBrokenFrame::Fatal),
            other => Err(format!("expected \"skip\" or \"fatal\", found {other:?}")),
        });
        let state_dir = self.optional("state_dir", path);
        let upward_qos = self.number("upward_qos", 0..=1);
        let keep_samples = self.number("keep_samples", 1..=65_536);
        let keep_ms = self.number("keep_ms", 1..=600_000);
        let spool_bytes = self.number("spool_bytes", 0..=1 << 40);
        let queue_samples = self.number("queue_samples", 1..=4096);
        let keep_alive_s = self.number("keep_alive_s", 1..=3600);
        let grace_ms = self.number("grace_ms", 1..=60_000);

        let mut config = DeviceConfig::new(site?, group?, id?, slot?, broker?);
        set(&mut config.engine, engine);
        config.onnxruntime = onnxruntime;
        config.capture = capture;
        config.state_dir = state_dir;
        set(&mut config.on_broken_frame, on_broken_frame);
        set(
            &mut config.upward_qos,
            upward_qos.map(|qos| if qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce }),
        );
        set(&mut config.keep_samples, keep_samples.map(|n| n as usize));
        set(&mut config.keep_ms, keep_ms);
        set(&mut config.spool_bytes, spool_bytes);
        set(&mut config.queue_samples, queue_samples.map(|n| n as usize));
        set(&mut config.keep_alive_s, keep_alive_s.map(|n| n as u16));
        set(&mut config.grace_ms, grace_ms);
        Some(Settings { config, bundle: bundle?, policy, source: source?, origins: self.origins.clone() })
    }

    fn slot(&mut self) -> Option<Slot> {
        if !self.table.contains_key("slot") {
            self.mistakes.push("slot: missing".into());
            return None;
        }
        let slot = self.number("slot", 0..=Slot::MAX as u64 - 1)?;
        Slot::new(slot as u8).ok()
    }

    fn capture(&mut self) -> Capture {
        let has_period = self.table.contains_key("period_ms");
        let period_ms = self.number("period_ms", 1..=86_400_000);
        let word = self.optional("capture", |word| match word.as_str() {
            "trigger" => Ok(Word::Trigger),
            "clock" => Ok(Word::Clock),
            "source" => Ok(Word::Source),
            other => Err(format!("expected \"trigger\", \"clock\" or \"source\", found {other:?}")),
        });
        match (word, period_ms) {
            (Some(Word::Clock), Some(period_ms)) => return Capture::Clock { period_ms },
            (Some(Word::Clock), None) if !has_period => {
                self.wrong("period_ms", "missing, and capture is \"clock\"");
            }
            (Some(Word::Trigger | Word::Source), Some(_)) | (None, Some(_))
                if !self.has_mistake("capture") =>
            {
                self.wrong("period_ms", "only with capture = \"clock\"");
            }
            _ => {}
        }
        if word == Some(Word::Source) { Capture::Source } else { Capture::Trigger }
    }
}

/// What the setting `capture` may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Trigger,
    Clock,
    Source,
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../headwater-device.toml");

    #[track_caller]
    fn check(file: &str, flags: &[(&'static str, &str)], expected: &[&str]) {
        let mistakes = Settings::read(Some(file), &given(flags)).map_or_else(|error| error.0, |_| Vec::new());
        assert_eq!(mistakes, expected);
    }

    fn given(flags: &[(&'static str, &str)]) -> Vec<Given> {
        let flag = |(key, value): &(&'static str, &str)| Given {
            key,
            value: (*value).to_owned(),
            origin: Origin::Flag,
        };
        flags.iter().map(flag).collect()
    }

    #[test]
    fn the_commented_file_gives_the_defaults() {
        let settings = Settings::read(Some(SHIPPED), &[]).unwrap();
        let DeviceConfig { site, group, id, slot, broker, .. } = settings.config.clone();
        assert_eq!(settings.config, DeviceConfig::new(site, group, id, slot, broker));
    }

    #[test]
    fn what_overrides_wins_over_the_file() {
        let flags = given(&[("slot", "5"), ("id", "7"), ("upward_qos", "1")]);
        let config = Settings::read(Some(SHIPPED), &flags).unwrap().config;
        assert_eq!((config.slot, config.id.to_string().as_str()), (Slot::new(5).unwrap(), "7"));
        assert_eq!(config.upward_qos, QoS::AtLeastOnce);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let missing = ["site: missing", "group: missing", "id: missing", "slot: missing"];
        let missing: Vec<_> = missing.into_iter().chain(["bundle: missing", "frames: missing"]).collect();
        check("", &[], &missing);
        check(
            SHIPPED,
            &[("slot", "64"), ("broker", "mqtt://host:0"), ("keep_samples", "0"), ("colour", "red")],
            &[
                "slot: expected 0 to 63, found 64",
                "broker: broker address: expected a port from 1 to 65535, found \"0\"",
                "keep_samples: expected 1 to 65536, found 0",
                "colour: no such setting",
            ],
        );
    }

    #[test]
    fn capture_and_period_belong_together() {
        check(SHIPPED, &[("capture", "clock")], &["period_ms: missing, and capture is \"clock\""]);
        check(SHIPPED, &[("period_ms", "100")], &["period_ms: only with capture = \"clock\""]);
        check(
            SHIPPED,
            &[("capture", "sometimes")],
            &["capture: expected \"trigger\", \"clock\" or \"source\", found \"sometimes\""],
        );
        let clock = given(&[("capture", "clock"), ("period_ms", "100")]);
        let config = Settings::read(Some(SHIPPED), &clock).unwrap().config;
        assert_eq!(config.capture, Capture::Clock { period_ms: 100 });
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        check("keep_mss = 3", &given_shipped(), &["keep_mss: no such setting; did you mean `keep_ms`?"]);
    }

    #[test]
    fn a_name_that_would_break_a_topic_is_refused() {
        for id in ["cam/0", "cam+", "#", ""] {
            let error = Settings::read(Some(SHIPPED), &given(&[("id", id)])).unwrap_err().to_string();
            assert!(error.starts_with("id: "), "{error}");
        }
    }

    fn given_shipped() -> [(&'static str, &'static str); 6] {
        [("site", "s"), ("group", "g"), ("id", "i"), ("slot", "0"), ("bundle", "b"), ("frames", "f")]
    }

    #[test]
    fn every_key_is_explained_in_the_commented_file() {
        for key in KEYS {
            let is_there = SHIPPED.lines().any(|line| {
                line.trim_start_matches("# ").strip_prefix(key).is_some_and(|rest| rest.starts_with(" = "))
            });
            assert!(is_there, "{key}");
        }
    }

    #[test]
    fn text_that_is_no_toml_is_named() {
        let error = Settings::read(Some("site = "), &[]).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
