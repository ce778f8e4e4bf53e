//! Sections that several programs share: a key has one name on every tier.

use std::net::SocketAddr;
use std::path::PathBuf;

use conf::Conf;
use headwater_telemetry::LogFormat;
use headwater_transport::Endpoint;

use crate::values::word;

/// Options of the command line that are no settings of the file.
#[derive(Clone, Debug, Conf)]
pub struct CommandLine {
    /// File of settings (TOML).
    #[conf(long, env)]
    pub config: Option<PathBuf>,
    /// Checks the settings, prints those in effect with where each came from, and ends: 0, or 2 with every mistake.
    #[conf(long)]
    pub check_config: bool,
}

/// Section `[broker]`.
#[derive(Clone, Debug, Conf)]
pub struct BrokerSettings {
    /// MQTT broker, mqtt://host:port.
    #[conf(long, env, value_parser = Endpoint::broker, default_value = "mqtt://127.0.0.1:1883")]
    pub address: Endpoint,
}

/// Section `[log]`.
#[derive(Clone, Debug, Conf)]
pub struct LogSettings {
    /// Events that are logged: "error", "warn", "info", "debug", "trace", or one level per module (`info,headwater_link=debug`).
    #[conf(long, env, default_value = "info")]
    pub filter: String,
    /// "text" for people, "json" for programs: one object a line.
    #[conf(long, env, value_parser = word, default_value = "text")]
    pub format: LogFormat,
}

/// Section `[admin]`.
#[derive(Clone, Debug, Conf)]
pub struct AdminSettings {
    /// Address of the admin listener (metrics at /metrics); port 0 takes a free one. Left out: no listener.
    #[conf(long, env)]
    pub listen: Option<SocketAddr>,
}
