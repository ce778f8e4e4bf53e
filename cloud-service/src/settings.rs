//! Settings of the service and of its program.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_settings::{
    AdminSettings, CommandLine, LogSettings, Misfit, Mistake, Program, SecuritySettings, Value, default,
    defaults, flat, optional, required, section, settings,
};
use serde::Deserialize;

settings! {
    /// Runs the cloud section of a bundle and answers requests of the Open Inference Protocol v2.
    #[derive(Clone, Debug)]
    pub struct CloudSettings {
        /// Options of the command line.
        pub command_line: CommandLine = flat(),
        /// Bundle whose cloud section answers.
        pub bundle: PathBuf = required("network.hwb").or_variable("HEADWATER_BUNDLE"),
        /// Bundle of the next network while a group switches over to it (docs/rollover.md). Requests that name the next network are
        /// answered by it.
        pub next_bundle: Option<PathBuf> = optional("next.hwb"),
        /// Settings of the service.
        pub service: CloudConfig = flat(),
    }
}

settings! {
    /// Settings of the service without those of its program. Every one has a default that suits one machine.
    #[derive(Clone, Debug)]
    pub struct CloudConfig {
        /// Engine of the cloud section: "ort" (ONNX Runtime), "tract" (built in), or "auto": ort where its library is found, else tract.
        pub engine: EngineChoice = default("auto").word(),
        /// Shared library of ONNX Runtime, 1.24 or later; left out, the usual places are searched.
        pub onnxruntime: Option<PathBuf> = optional("/usr/local/lib/libonnxruntime.so").or_variable("ORT_DYLIB_PATH"),
        /// Time after a stop signal in which the service says that it is not ready and still answers, ms. A balancer uses it to ask others;
        /// 0 where nobody asks for readiness.
        pub stop_delay_ms: u32 = default("2000").within(0..=600_000),
        /// Longest time that shutdown then waits for requests in flight, ms.
        pub grace_ms: u32 = default("5000").within(1..=600_000),
        /// Section `[http]`.
        pub http: HttpSettings = section(),
        /// Section `[grpc]`.
        pub grpc: GrpcSettings = section(),
        /// Identity and trust.
        pub security: SecuritySettings = flat(),
        /// Section `[model]`.
        pub model: ModelSettings = section(),
        /// Section `[log]`.
        pub log: LogSettings = section(),
        /// Section `[admin]`.
        pub admin: AdminSettings = section(),
    }
}

settings! {
    /// Section `[http]`: requests and connections.
    #[derive(Clone, Debug)]
    pub struct HttpSettings {
        /// Address to listen on, e.g. 0.0.0.0:8600; port 0 takes a free one.
        pub listen: SocketAddr = default("127.0.0.1:8600"),
        /// File of keys, one a line of 16 characters or more: requests must show one (authorization: Bearer KEY), or with `[tls]` a certificate.
        /// It is read again when it changes. Left out: with `[tls]` a certificate is needed, without it everybody is answered.
        pub keys_file: Option<PathBuf> = optional("/etc/headwater/keys"),
        /// Open connections. One more closes the connection that waits longest for a request; where each has a request, the new one is refused.
        pub max_connections: usize = default("256").within(1..=65_536),
        /// Open connections of one address; further ones are refused. More where several aggregators share an address; an aggregator has as many
        /// as its `cloud.max_requests`.
        pub max_connections_per_address: usize = default("64").within(1..=65_536),
        /// Longest time in which the head of a request must arrive, ms.
        pub head_timeout_ms: u32 = default("5000").within(1..=600_000),
        /// Longest time in which a client must read an answer, ms.
        pub answer_timeout_ms: u32 = default("10000").within(1..=600_000),
        /// Requests that are queued or running, for each network; one more is answered with 429.
        pub max_requests: usize = default("256").within(1..=65_536),
        /// Samples in one request; sets the limit of its body.
        pub max_samples: usize = default("64").within(1..=4096),
        /// Longest time of a request from its head to its answer, ms; a request may name a shorter time.
        pub deadline_ms: u32 = default("5000").within(1..=600_000),
    }
}

settings! {
    /// Section `[grpc]`: the same over gRPC, within the limits of `[http]`.
    #[derive(Clone, Debug)]
    pub struct GrpcSettings {
        /// Address to listen on for gRPC (the service inference.GRPCInferenceService of KServe and Triton). Left out: no gRPC. Builds with the
        /// feature `grpc` have it, as the containers do.
        pub listen: Option<SocketAddr> = optional("127.0.0.1:8601"),
    }
}

settings! {
    /// Section `[model]`: the cloud section as a model of the protocol.
    #[derive(Clone, Debug)]
    pub struct ModelSettings {
        /// Name of the model in /v2/models/{name}.
        pub name: String = default("headwater").by(model_name),
        /// Samples in one run of the model. More serves more a second under load and costs memory; no request waits for a full batch.
        pub max_batch: usize = default("64").within(1..=4096),
    }
}

/// Engine of the cloud section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// ONNX Runtime if its library is found, else tract.
    #[default]
    Auto,
    /// tract.
    Tract,
    /// ONNX Runtime, or the service does not start.
    Ort,
}

impl Default for CloudConfig {
    fn default() -> Self {
        defaults()
    }
}

impl Program for CloudSettings {
    const NAME: &'static str = "headwater-cloud";
    const PREFIX: &'static str = "HEADWATER_CLOUD_";
    const OTHER_VARIABLES: &'static [&'static str] = &[
        "HEADWATER_CLOUD_URL",
        "HEADWATER_CLOUD_MODEL",
        "HEADWATER_CLOUD_MAX_REQUESTS",
        "HEADWATER_CLOUD_LINGER_MS",
        "HEADWATER_CLOUD_BREAKER_",
    ];

    fn check(&self, _values: &[Value]) -> Vec<Misfit> {
        self.service.check()
    }
}

impl CloudConfig {
    /// Settings that do not fit each other.
    pub fn check(&self) -> Vec<Misfit> {
        let tls = self.security.tls.files().and_then(|files| match files {
            Some(files) if files.own.is_none() => {
                Err(Misfit::new("tls.certificate_file", "missing; a server needs it"))
            }
            Some(_) | None => Ok(()),
        });
        let server = self.security.check_server("http.listen", self.http.listen);
        let grpc = self.grpc.listen.map_or(Ok(()), |address| {
            if cfg!(not(feature = "grpc")) {
                let reason = format!(
                    "expected none, as this build has no gRPC, found {address}: build with --features grpc"
                );
                return Err(Misfit::new("grpc.listen", reason));
            }
            self.security.check_server("grpc.listen", address)
        });
        let listeners = [
            ("http.listen", Some(self.http.listen)),
            ("grpc.listen", self.grpc.listen),
            ("admin.listen", self.admin.listen),
        ];
        let again = listeners.iter().enumerate().filter_map(|(at, (key, address))| {
            let address = address.filter(|address| address.port() != 0)?;
            let (other, _) = listeners[..at].iter().find(|(_, other)| *other == Some(address))?;
            Some(Misfit::new(*key, format!("expected another address than {other}, found {address} again")))
        });
        let found = tls.err().into_iter().chain(server.err()).chain(grpc.err()).chain(self.admin.check());
        found.chain(again).collect()
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
        let made = HEADING.to_owned() + &example::<CloudSettings>();
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
            ("http.batch", "no such key"),
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
}
