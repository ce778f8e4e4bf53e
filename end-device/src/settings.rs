//! From a TOML file and what overrides it to a checked configuration, with every mistake at once.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{DeviceId, GroupId, SiteId, Slot};
use toml::Value;

use crate::config::{Capture, DeviceConfig, EngineChoice, OnBrokenFrame};

/// Everything `headwater-device` needs to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The device.
    pub config: DeviceConfig,
    /// Bundle file; it may hold no more than this device's section.
    pub bundle: PathBuf,
    /// Archive or folder of frames.
    pub frames: PathBuf,
}

/// All mistakes of a configuration, one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(pub Vec<String>);

impl Settings {
    /// Reads the text of a file, if there is one, and the overrides (key and value, as flags and environment give them).
    ///
    /// # Errors
    /// [`SettingsError`] with every key that is missing, unknown or wrong: key, expected, found.
    pub fn read(file: Option<&str>, overrides: &[(&str, String)]) -> Result<Self, SettingsError> {
        let table = match file.map(str::parse::<toml::Table>) {
            None => toml::Table::new(),
            Some(Ok(table)) => table,
            Some(Err(error)) => return Err(SettingsError(vec![error.to_string()])),
        };
        let mut reader = Reader { table, mistakes: Vec::new() };
        for (key, value) in overrides {
            reader.table.insert((*key).into(), as_value(value));
        }
        let settings = reader.settings();
        reader.mistakes.extend(reader.table.keys().map(|key| format!("{key}: no such setting")));
        match settings {
            Some(settings) if reader.mistakes.is_empty() => Ok(settings),
            _ => Err(SettingsError(reader.mistakes)),
        }
    }
}

struct Reader {
    table: toml::Table,
    mistakes: Vec<String>,
}

impl Reader {
    /// Takes every key before it gives up, so that all mistakes are found; `None` when a required one is missing or wrong.
    fn settings(&mut self) -> Option<Settings> {
        let site = self.required("site", SiteId::new);
        let group = self.required("group", GroupId::new);
        let id = self.required("id", DeviceId::new);
        let slot = self.slot();
        let broker = self.optional("broker", |text| BrokerAddress::from_str(&text));
        let broker = broker.or_else(|| BrokerAddress::new("127.0.0.1", 1883).ok());
        let bundle = self.required("bundle", path);
        let frames = self.required("frames", path);
        let engine = self.optional("engine", |word| match word.as_str() {
            "packed" => Ok(EngineChoice::Packed),
            "tract" => Ok(EngineChoice::Tract),
            "ort" => Ok(EngineChoice::Ort),
            other => Err(format!("expected \"packed\", \"tract\" or \"ort\", found {other:?}")),
        });
        let onnxruntime = self.optional("onnxruntime", path);
        let capture = self.capture();
        let on_broken_frame = self.optional("on_broken_frame", |word| match word.as_str() {
            "skip" => Ok(OnBrokenFrame::Skip),
            "fatal" => Ok(OnBrokenFrame::Fatal),
            other => Err(format!("expected \"skip\" or \"fatal\", found {other:?}")),
        });
        let state_dir = self.optional("state_dir", path);
        let upward_qos = self.number("upward_qos", 0..=1);
        let keep_samples = self.number("keep_samples", 1..=65_536);
        let keep_ms = self.number("keep_ms", 1..=600_000);
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
        set(&mut config.queue_samples, queue_samples.map(|n| n as usize));
        set(&mut config.keep_alive_s, keep_alive_s.map(|n| n as u16));
        set(&mut config.grace_ms, grace_ms);
        Some(Settings { config, bundle: bundle?, frames: frames? })
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
        let is_clock = self.optional("capture", |word| match word.as_str() {
            "trigger" => Ok(false),
            "clock" => Ok(true),
            other => Err(format!("expected \"trigger\" or \"clock\", found {other:?}")),
        });
        match (is_clock.unwrap_or(false), period_ms) {
            (true, Some(period_ms)) => return Capture::Clock { period_ms },
            (true, None) if !has_period => {
                self.mistakes.push("period_ms: missing, and capture is \"clock\"".into());
            }
            (false, Some(_)) if is_clock.is_some() || !self.has_mistake("capture") => {
                self.mistakes.push("period_ms: only with capture = \"clock\"".into());
            }
            _ => {}
        }
        Capture::Trigger
    }

    fn required<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Option<T> {
        if !self.table.contains_key(key) {
            self.mistakes.push(format!("{key}: missing"));
        }
        self.optional(key, parse)
    }

    fn optional<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Option<T> {
        let parsed = match self.table.remove(key)? {
            Value::String(text) => parse(text).map_err(|error| error.to_string()),
            // A flag such as `--id 7` reads as a number.
            Value::Integer(number) => parse(number.to_string()).map_err(|error| error.to_string()),
            other => Err(format!("expected text, found {}", other.type_str())),
        };
        parsed.map_err(|reason| self.mistakes.push(format!("{key}: {reason}"))).ok()
    }

    fn number(&mut self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let found = self.table.remove(key)?;
        let number = found.as_integer().and_then(|number| u64::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.mistakes.push(format!(
                "{key}: expected {} to {}, found {found}",
                range.start(),
                range.end()
            ));
        }
        number
    }

    fn has_mistake(&self, key: &str) -> bool {
        self.mistakes.iter().any(|mistake| mistake.starts_with(key))
    }
}

fn as_value(text: &str) -> Value {
    text.parse().map_or_else(|_| Value::String(text.into()), Value::Integer)
}

fn path(text: String) -> Result<PathBuf, &'static str> {
    if text.is_empty() { Err("expected a path, found nothing") } else { Ok(PathBuf::from(text)) }
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

    const SHIPPED: &str = include_str!("../headwater-device.toml");

    #[track_caller]
    fn check(file: &str, overrides: &[(&str, &str)], expected: &[&str]) {
        let overrides: Vec<_> = overrides.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        let mistakes = Settings::read(Some(file), &overrides).map_or_else(|error| error.0, |_| Vec::new());
        assert_eq!(mistakes, expected);
    }

    #[test]
    fn the_commented_file_gives_the_defaults() {
        let settings = Settings::read(Some(SHIPPED), &[]).unwrap();
        let DeviceConfig { site, group, id, slot, broker, .. } = settings.config.clone();
        assert_eq!(settings.config, DeviceConfig::new(site, group, id, slot, broker));
    }

    #[test]
    fn what_overrides_wins_over_the_file() {
        let overrides = [("slot", "5".to_owned()), ("id", "7".to_owned()), ("upward_qos", "1".to_owned())];
        let config = Settings::read(Some(SHIPPED), &overrides).unwrap().config;
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
            &["capture: expected \"trigger\" or \"clock\", found \"sometimes\""],
        );
        let clock = [("capture", "clock".to_owned()), ("period_ms", "100".to_owned())];
        let config = Settings::read(Some(SHIPPED), &clock).unwrap().config;
        assert_eq!(config.capture, Capture::Clock { period_ms: 100 });
    }

    #[test]
    fn text_that_is_no_toml_is_named() {
        let error = Settings::read(Some("site = "), &[]).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
