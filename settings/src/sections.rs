//! Sections that several programs share: a key has one name on every tier.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use conf::Conf;
use headwater_telemetry::{FilterError, LogFormat, check_filter};
use headwater_transport::{Credentials, Endpoint, Secret};

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
#[derive(Clone, Conf)]
pub struct BrokerSettings {
    /// MQTT broker, mqtt://host:port, or mqtts://host:port with TLS (section `[tls]`).
    #[conf(long, env, value_parser = Endpoint::broker, default_value = "mqtt://127.0.0.1:1883")]
    pub address: Endpoint,
    /// User at the broker, where a certificate does not say who this program is.
    #[conf(long, env)]
    pub user: Option<String>,
    /// File whose first line is the user's password; it is read again when it changes. Or give the password in the environment, as
    /// `..._BROKER_PASSWORD`.
    #[conf(long, env)]
    pub password_file: Option<PathBuf>,
    /// Password of the user.
    #[conf(env, secret)]
    pub password: Option<String>,
}

impl BrokerSettings {
    /// Checks that a password comes from one place and has a user.
    ///
    /// # Errors
    /// The key that is missing, or one too many.
    pub(crate) fn check_credentials(&self) -> Result<(), String> {
        match (&self.user, &self.password_file, &self.password) {
            (_, Some(_), Some(_)) => {
                Err("broker.password_file: the environment has a password too; keep one of them".into())
            }
            (None, None, None) | (Some(_), _, _) => Ok(()),
            (None, _, _) => Err("broker.user: missing, and there is a password".into()),
        }
    }

    /// User and password; `None` without a user.
    ///
    /// # Errors
    /// A file that cannot be used, with the key.
    pub fn credentials(&self) -> Result<Option<Credentials>, String> {
        let file = self.password_file.as_ref().map(Secret::of_file).transpose();
        let file = file.map_err(|reason| format!("broker.password_file: {reason}"))?;
        let password = file.or_else(|| self.password.as_deref().map(Secret::of_text));
        Ok(self.user.clone().map(|user| Credentials { user, password }))
    }
}

impl fmt::Debug for BrokerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerSettings")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("password_file", &self.password_file)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .finish()
    }
}

/// Section `[log]`.
#[derive(Clone, Debug, Conf)]
pub struct LogSettings {
    /// Events that are logged: "error", "warn", "info", "debug", "trace", or one level per module (`info,headwater_link=debug`).
    #[conf(long, env, value_parser = log_filter, default_value = "info")]
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

fn log_filter(text: &str) -> Result<String, FilterError> {
    check_filter(text).map(|()| text.to_owned())
}
