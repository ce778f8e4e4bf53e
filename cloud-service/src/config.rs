//! What an operator may set.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use headwater_protocol::no_such_setting;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Value;

/// Settings of the cloud service; every one has a default that fits one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudConfig {
    /// Bundle of the network that a group is about to switch over to; its requests are answered too. `None`: there is none.
    pub next_bundle: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Name of the model in `/v2/models/{name}`.
    pub model_name: String,
    /// What runs the cloud section.
    pub engine: EngineChoice,
    /// The shared library of ONNX Runtime; `None` looks in the usual places.
    pub onnxruntime: Option<PathBuf>,
    /// Most samples in one run of the model. More serves more a second under load and costs memory; nothing waits for it.
    pub max_batch: usize,
    /// Most samples in one request; sets the body limit.
    pub most_samples: usize,
    /// Most requests queued or running, of each network; one more is answered with 429.
    pub most_requests: usize,
    /// Most open connections; more wait in the backlog of the operating system.
    pub most_connections: usize,
    /// Longest time a request may take, ms, from its head to its answer; a caller may ask for less.
    pub deadline_ms: u32,
    /// Longest time that shutdown waits for requests in flight, ms.
    pub grace_ms: u32,
}

/// What runs the cloud section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// ONNX Runtime where its library is found, else tract.
    #[default]
    Auto,
    /// tract.
    Tract,
    /// ONNX Runtime, or the service does not start.
    Ort,
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "tract" => Ok(Self::Tract),
            "ort" => Ok(Self::Ort),
            other => Err(format!("expected auto, tract or ort, found {other:?}")),
        }
    }
}

impl Default for CloudConfig {
    fn default() -> Self {
        Self {
            next_bundle: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8600)),
            model_name: "headwater".into(),
            engine: EngineChoice::Auto,
            onnxruntime: None,
            max_batch: 64,
            most_samples: 64,
            most_requests: 256,
            most_connections: 256,
            deadline_ms: 5_000,
            grace_ms: 5_000,
        }
    }
}

impl CloudConfig {
    /// Replaces what the TOML text sets. Keys are the field names.
    ///
    /// # Errors
    /// Every mistake of the text, one a line: unknown keys, wrong types.
    pub fn read_toml(&mut self, text: &str) -> Result<(), Vec<String>> {
        let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| vec![e.to_string()])?;
        let mut mistakes = Vec::new();
        take_path(&mut table, "next_bundle", &mut self.next_bundle, &mut mistakes);
        take(&mut table, "listen", &mut self.listen, &mut mistakes);
        take(&mut table, "model_name", &mut self.model_name, &mut mistakes);
        take(&mut table, "engine", &mut self.engine, &mut mistakes);
        take_path(&mut table, "onnxruntime", &mut self.onnxruntime, &mut mistakes);
        take(&mut table, "max_batch", &mut self.max_batch, &mut mistakes);
        take(&mut table, "most_samples", &mut self.most_samples, &mut mistakes);
        take(&mut table, "most_requests", &mut self.most_requests, &mut mistakes);
        take(&mut table, "most_connections", &mut self.most_connections, &mut mistakes);
        take(&mut table, "deadline_ms", &mut self.deadline_ms, &mut mistakes);
        take(&mut table, "grace_ms", &mut self.grace_ms, &mut mistakes);
        mistakes.extend(table.keys().map(|key| no_such_setting(key, KEYS)));
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// Key and value of every setting, as a file could hold them; `None` where nothing is set.
    pub fn effective(&self) -> Vec<(&'static str, Option<Value>)> {
        let number = |number: usize| Some(Value::Integer(number as i64));
        let engine = match self.engine {
            EngineChoice::Auto => "auto",
            EngineChoice::Tract => "tract",
            EngineChoice::Ort => "ort",
        };
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string().into());
        let values = [
            path(&self.next_bundle),
            Some(Value::from(self.listen.to_string())),
            Some(Value::from(self.model_name.as_str())),
            Some(Value::from(engine)),
            path(&self.onnxruntime),
            number(self.max_batch),
            number(self.most_samples),
            number(self.most_requests),
            number(self.most_connections),
            number(self.deadline_ms as usize),
            number(self.grace_ms as usize),
        ];
        KEYS.into_iter().zip(values).collect()
    }

    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// Every mistake, each with key, expected and found.
    pub fn check(&self) -> Result<(), Vec<String>> {
        let mut mistakes = Vec::new();
        let name = &self.model_name;
        if name.is_empty()
            || name.len() > 64
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        {
            mistakes.push(format!("model_name: expected 1 to 64 of a-z A-Z 0-9 . _ -, found {name:?}"));
        }
        for (key, found, most) in [
            ("max_batch", self.max_batch, 4096),
            ("most_samples", self.most_samples, 4096),
            ("most_requests", self.most_requests, 65_536),
            ("most_connections", self.most_connections, 65_536),
            ("deadline_ms", self.deadline_ms as usize, 600_000),
            ("grace_ms", self.grace_ms as usize, 600_000),
        ] {
            if found == 0 || found > most {
                mistakes.push(format!("{key}: expected 1 to {most}, found {found}"));
            }
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }
}

/// Every setting of a file.
const KEYS: [&str; 11] = [
    "next_bundle",
    "listen",
    "model_name",
    "engine",
    "onnxruntime",
    "max_batch",
    "most_samples",
    "most_requests",
    "most_connections",
    "deadline_ms",
    "grace_ms",
];

fn take<T: DeserializeOwned>(table: &mut toml::Table, key: &str, into: &mut T, mistakes: &mut Vec<String>) {
    if let Some(value) = table.remove(key) {
        match value.try_into() {
            Ok(value) => *into = value,
            Err(error) => mistakes.push(format!("{key}: {}", error.message())),
        }
    }
}

fn take_path(table: &mut toml::Table, key: &str, into: &mut Option<PathBuf>, mistakes: &mut Vec<String>) {
    if table.contains_key(key) {
        take(table, key, into.get_or_insert_default(), mistakes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_holds_and_is_what_the_commented_file_says() {
        let mut config = CloudConfig::default();
        assert_eq!(config.check(), Ok(()));
        config.read_toml(include_str!("../headwater-cloud.toml")).unwrap();
        assert_eq!(config, CloudConfig::default());
    }

    #[test]
    fn every_mistake_of_a_file_is_named_at_once() {
        let mistakes = CloudConfig::default()
            .read_toml("listen = \"nowhere\"\nmax_batch = \"many\"\nbatch = 3\ngrace_ms = 10")
            .unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        for (mistake, key) in mistakes.iter().zip(["listen:", "max_batch:", "batch:"]) {
            assert!(mistake.starts_with(key), "{mistake}");
        }
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let mistakes = CloudConfig::default().read_toml("max_bach = 3").unwrap_err();
        assert_eq!(mistakes, ["max_bach: no such setting; did you mean `max_batch`?"]);
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same_configuration() {
        let config = CloudConfig {
            next_bundle: Some("next.hwb".into()),
            onnxruntime: Some("lib.so".into()),
            engine: EngineChoice::Ort,
            most_samples: 3,
            grace_ms: 7,
            ..CloudConfig::default()
        };
        let lines =
            config.effective().into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?)));
        let mut read = CloudConfig::default();
        read.read_toml(&lines.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!(read, config);
    }

    #[test]
    fn every_value_out_of_range_is_named_at_once() {
        let config =
            CloudConfig { max_batch: 0, deadline_ms: 0, model_name: "a/b".into(), ..CloudConfig::default() };
        let mistakes = config.check().unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    }
}
