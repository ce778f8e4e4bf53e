//! Settings of the service and of its program.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_inference::bundle::Networks;
use headwater_settings::{
    AdminSettings, Bounded, CommandLine, Conf, LogSettings, Mistake, SecuritySettings, Settings, defaults,
    word,
};
use serde::Deserialize;

use crate::admission::Admission;
use crate::engine;

/// Runs the cloud section of a bundle and answers requests of the Open Inference Protocol v2.
#[derive(Clone, Debug, Conf)]
#[conf(env_prefix = "HEADWATER_CLOUD_", name = "headwater-cloud", version, test)]
pub struct CloudSettings {
    /// Options of the command line.
    #[conf(flatten)]
    pub command_line: CommandLine,
    /// Bundle whose cloud section answers.
    #[conf(long, env)]
    pub bundle: PathBuf,
    /// Bundle of the next network while a group switches over to it (docs/rollover.md). Requests that name the next network are
    /// answered by it.
    #[conf(long, env)]
    pub next_bundle: Option<PathBuf>,
    /// Settings of the service.
    #[conf(flatten)]
    pub service: CloudConfig,
}

/// Settings of the service without those of its program. Every one has a default that suits one machine.
#[derive(Clone, Debug, Conf)]
pub struct CloudConfig {
    /// Engine of the cloud section: "ort" (ONNX Runtime), "tract" (built in), or "auto": ort where its library is found, else tract.
    #[conf(long, env, value_parser = word, default_value = "auto")]
    pub engine: EngineChoice,
    /// Shared library of ONNX Runtime, 1.24 or later; left out, the usual places are searched.
    #[conf(long, env)]
    pub onnxruntime: Option<PathBuf>,
    /// Time after a stop signal in which the service says that it is not ready and still answers, ms. A balancer uses it to ask others;
    /// 0 where nobody asks for readiness.
    #[conf(long, env, default_value = "2000")]
    pub stop_delay_ms: Bounded<0, 600_000, u32>,
    /// Longest time that shutdown then waits for requests in flight, ms.
    #[conf(long, env, default_value = "5000")]
    pub grace_ms: Bounded<1, 600_000, u32>,
    /// Section `[http]`.
    #[conf(flatten, prefix)]
    pub http: HttpSettings,
    /// Identity and trust.
    #[conf(flatten)]
    pub security: SecuritySettings,
    /// Section `[model]`.
    #[conf(flatten, prefix)]
    pub model: ModelSettings,
    /// Section `[log]`.
    #[conf(flatten, prefix)]
    pub log: LogSettings,
    /// Section `[admin]`.
    #[conf(flatten, prefix)]
    pub admin: AdminSettings,
}

/// Section `[http]`: requests and connections.
#[derive(Clone, Debug, Conf)]
pub struct HttpSettings {
    /// Address to listen on, e.g. 0.0.0.0:8600; port 0 takes a free one.
    #[conf(long, env, default_value = "127.0.0.1:8600")]
    pub listen: SocketAddr,
    /// File of keys, one a line of 16 characters or more: requests must show one (authorization: Bearer KEY), or with `[tls]` a certificate.
    /// It is read again when it changes. Left out: with `[tls]` a certificate is needed, without it everybody is answered.
    #[conf(long, env)]
    pub keys_file: Option<PathBuf>,
    /// Open connections. One more closes the connection that waits longest for a request; where each has a request, the new one is refused.
    #[conf(long, env, default_value = "256")]
    pub max_connections: Bounded<1, 65_536, usize>,
    /// Open connections of one address; further ones are refused. More where several aggregators share an address; an aggregator has as many
    /// as its `cloud.max_requests`.
    #[conf(long, env, default_value = "64")]
    pub max_connections_per_address: Bounded<1, 65_536, usize>,
    /// Longest time in which the head of a request must arrive, ms.
    #[conf(long, env, default_value = "5000")]
    pub head_timeout_ms: Bounded<1, 600_000, u32>,
    /// Longest time in which a client must read an answer, ms.
    #[conf(long, env, default_value = "10000")]
    pub answer_timeout_ms: Bounded<1, 600_000, u32>,
    /// Requests that are queued or running, for each network; one more is answered with 429.
    #[conf(long, env, default_value = "256")]
    pub max_requests: Bounded<1, 65_536, usize>,
    /// Samples in one request; sets the limit of its body.
    #[conf(long, env, default_value = "64")]
    pub max_samples: Bounded<1, 4096, usize>,
    /// Longest time of a request from its head to its answer, ms; a request may name a shorter time.
    #[conf(long, env, default_value = "5000")]
    pub deadline_ms: Bounded<1, 600_000, u32>,
}

/// Section `[model]`: the cloud section as a model of the protocol.
#[derive(Clone, Debug, Conf)]
pub struct ModelSettings {
    /// Name of the model in /v2/models/{name}.
    #[conf(long, env, value_parser = model_name, default_value = "headwater")]
    pub name: String,
    /// Samples in one run of the model. More serves more a second under load and costs memory; no request waits for a full batch.
    #[conf(long, env, default_value = "64")]
    pub max_batch: Bounded<1, 4096, usize>,
}

/// Engine of the cloud section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// ONNX Runtime where its library is found, else tract.
    #[default]
    Auto,
    /// tract.
    Tract,
    /// ONNX Runtime, or the service does not start.
    Ort,
}

impl CloudSettings {
    /// Opens every file that the settings name, as a start would; returns all mistakes.
    pub fn open_files(&self) -> Vec<String> {
        let trusted = self.service.security.trusted_keys();
        let networks = Networks::open(&self.bundle, self.next_bundle.as_deref(), trusted);
        let (engine, admission) = (engine::choose(&self.service).err(), Admission::new(&self.service).err());
        networks.err().unwrap_or_default().into_iter().chain(engine).chain(admission).collect()
    }
}

impl Default for CloudConfig {
    fn default() -> Self {
        defaults().expect("every setting has a default")
    }
}

impl Settings for CloudSettings {
    fn check(&self) -> Vec<String> {
        self.service.check()
    }

    const OLD_VARIABLES: &'static str = "HEADWATER_CLOUD_";
    const ALIASES: &'static [(&'static str, &'static str)] =
        &[("RUST_LOG", "log.filter"), ("HEADWATER_BUNDLE", "bundle"), ("ORT_DYLIB_PATH", "onnxruntime")];
    const OTHER_VARIABLES: &'static [&'static str] = &[
        "HEADWATER_CLOUD_URL",
        "HEADWATER_CLOUD_MODEL",
        "HEADWATER_CLOUD_MAX_REQUESTS",
        "HEADWATER_CLOUD_LINGER_MS",
        "HEADWATER_CLOUD_BREAKER_",
    ];
    const RENAMED: &'static [(&'static str, &'static str)] = &[
        ("listen", "http.listen"),
        ("most_connections", "http.max_connections"),
        ("most_requests", "http.max_requests"),
        ("most_samples", "http.max_samples"),
        ("deadline_ms", "http.deadline_ms"),
        ("model_name", "model.name"),
        ("max_batch", "model.max_batch"),
    ];
}

impl Settings for CloudConfig {
    fn check(&self) -> Vec<String> {
        let tls = self.security.tls.files().and_then(|files| match files {
            Some(files) if files.own.is_none() => {
                Err("tls.certificate_file: missing; a server needs it".into())
            }
            Some(_) | None => Ok(()),
        });
        let server = self.security.check_server("http.listen", self.http.listen);
        tls.err().into_iter().chain(server.err()).chain(self.admin.check()).collect()
    }
}

fn model_name(name: &str) -> Result<String, Mistake> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_letter) {
        return Ok(name.into());
    }
    Err(Mistake(format!("expected 1 to 64 of a-z A-Z 0-9 . _ -, found {name:?}")))
}

#[cfg(test)]
mod tests {
    use headwater_settings::{Sources, Stop, example, load};

    use super::*;

    const HEADING: &str = "# Settings of `headwater-cloud` with their defaults. A flag wins over an environment variable, \
                           and the variable over this file.\n\n";

    /// Values of the keys without a default.
    const EXAMPLE_VALUES: &str = "bundle = \"network.hwb\"\nnext_bundle = \"next.hwb\"\n\
        onnxruntime = \"/usr/local/lib/libonnxruntime.so\"\ninsecure = true\ntrusted_keys = \"c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff\"\n\
        [http]\nkeys_file = \"/etc/headwater/keys\"\n[tls]\nauthority_file = \"/etc/headwater/authority.pem\"\ncertificate_file = \"/etc/headwater/certificate.pem\"\n\
        key_file = \"/etc/headwater/key.pem\"\nrevoked_file = \"/etc/headwater/revoked.crl\"\n[admin]\nlisten = \"127.0.0.1:9600\"\nremote = true";

    #[track_caller]
    fn mistakes(file: &str) -> Vec<String> {
        match load::<CloudSettings>(Sources::default().with_file(file)) {
            Err(Stop::Mistakes(mistakes)) => mistakes,
            other => panic!("expected mistakes, found {other:?}"),
        }
    }

    #[test]
    fn the_example_file_is_made_from_the_declaration() {
        let file = include_str!("../headwater-cloud.toml");
        let made = HEADING.to_owned() + &example::<CloudSettings>(None, EXAMPLE_VALUES).unwrap();
        if std::env::var_os("HEADWATER_WRITE_EXAMPLES").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/headwater-cloud.toml"), &made).unwrap();
        }
        assert_eq!(made, file, "HEADWATER_WRITE_EXAMPLES=1 writes the file");
        load::<CloudSettings>(Sources::default().with_file(file)).unwrap();
    }

    #[test]
    fn every_mistake_of_a_file_is_named_at_once() {
        let file = "bundle = \"a.hwb\"\ngrace_ms = 10\nengine = \"torch\"\n[http]\nlisten = \"nowhere\"\ndeadline_ms = 0\nbatch = 3\n\
            [model]\nmax_bach = 3\nmax_batch = \"many\"\nname = \"a/b\"";
        let expected = [
            ("http.batch", "no such setting"),
            ("model.max_bach", "did you mean `model.max_batch`?"),
            ("http.listen", "found \"nowhere\""),
            ("http.deadline_ms", "expected 1 to 600000, found 0"),
            ("model.max_batch", "expected 1 to 4096, found many"),
            ("model.name", "expected 1 to 64 of a-z A-Z 0-9 . _ -, found \"a/b\""),
            ("engine", "expected \"auto\", \"tract\" or \"ort\", found \"torch\""),
        ];
        let found = mistakes(file);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (key, reason) in expected {
            let is_named = |mistake: &String| mistake.starts_with(key) && mistake.contains(reason);
            assert!(found.iter().any(is_named), "{key}: {reason} in {found:?}");
        }
    }

    #[test]
    fn an_old_key_is_refused_naming_the_new_one() {
        for (old, new) in CloudSettings::RENAMED {
            let found = mistakes(&format!("bundle = \"a.hwb\"\n{old} = 1"));
            // The value 1 does not fit every key, which is a second mistake.
            assert_eq!(found[0], format!("{old}: is now `{new}`"), "{found:?}");
        }
    }

    #[test]
    fn printed_settings_read_back_as_the_same_settings() {
        let file = "bundle = \"a.hwb\"\nnext_bundle = \"next.hwb\"\ngrace_ms = 7\nengine = \"ort\"\n\
            onnxruntime = \"lib.so\"\n[http]\nmax_samples = 3\n[model]\nname = \"other\"";
        let printed =
            |file: String| load::<CloudSettings>(Sources::default().with_file(file)).unwrap().to_toml(None);
        let settings = printed(file.into());
        assert_eq!(settings.parse::<toml::Table>().unwrap(), printed(settings.clone()).parse().unwrap());
        for line in ["max_samples = 3", "name = \"other\"", "engine = \"ort\"", "next_bundle = \"next.hwb\""]
        {
            assert!(settings.contains(line), "{line} in\n{settings}");
        }
    }
}
