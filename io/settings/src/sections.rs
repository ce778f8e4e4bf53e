//! Sections that several programs share: a key has one name on every tier.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_telemetry::{FilterError, LogFormat, check_filter};
use headwater_transport::{Credentials, Endpoint, Secret};

use crate::declare::{default, optional, secret, switch};
use crate::settings;
use crate::values::Misfit;

settings! {
    /// Options of the command line that are no settings of the file.
    #[derive(Clone, Debug)]
    pub struct CommandLine {
        /// File of settings (TOML).
        pub config: Option<PathBuf> = optional("settings.toml").no_file(),
        /// Checks the settings, prints those in effect with where each came from, and ends: 0, or 2 with every mistake.
        pub check_config: bool = switch().flag_only(),
        /// Asks the admin port of the running program with the same settings whether the program is live, and ends: 0, or 1 with the reason. For
        /// the health checks of containers.
        pub check_live: bool = switch().flag_only(),
    }

    /// Section `[broker]`.
    #[derive(Clone, Debug)]
    pub struct BrokerSettings {
        /// MQTT broker, mqtt://host:port, or mqtts://host:port with TLS (section `[tls]`).
        pub address: Endpoint = default("mqtt://127.0.0.1:1883").by(Endpoint::broker),
        /// User at the broker, where a certificate does not say who this program is.
        pub user: Option<String> = optional("cam-0"),
        /// File whose first line is the user's password; it is read again when it changes. Or give the password in the environment, as
        /// `..._BROKER_PASSWORD`.
        pub password_file: Option<PathBuf> = optional("/etc/headwater/password"),
        /// Password of the user.
        pub password: Option<Secret> = secret().by(|text: &str| Ok::<_, Infallible>(Secret::of_text(text))),
    }

    /// Section `[log]`.
    #[derive(Clone, Debug)]
    pub struct LogSettings {
        /// Events that are logged: "error", "warn", "info", "debug", "trace", or one level per module (`info,headwater_link=debug`).
        pub filter: String = default("info").by(log_filter).or_variable("RUST_LOG"),
        /// "text" for people, "json" for programs: one object a line.
        pub format: LogFormat = default("text").word(),
    }

    /// Section `[admin]`.
    #[derive(Clone, Debug)]
    pub struct AdminSettings {
        /// Address of the admin port, which is read-only: /status, /metrics, /live, /ready. Port 0 takes a free one. Left out: no admin port.
        pub listen: Option<SocketAddr> = optional("127.0.0.1:9600"),
        /// Allows an admin port beyond this machine. The port has neither TLS nor passwords: whoever reaches it reads states and counts.
        pub remote: bool = switch(),
    }
}

impl BrokerSettings {
    /// Checks that a password comes from one place and has a user.
    ///
    /// # Errors
    /// The key that is missing, or one too many.
    pub(crate) fn check_credentials(&self) -> Result<(), Misfit> {
        match (&self.user, &self.password_file, &self.password) {
            (_, Some(_), Some(_)) => Err(Misfit::new(
                "broker.password_file",
                "the environment has a password too; keep one of them",
            )),
            (None, None, None) | (Some(_), _, _) => Ok(()),
            (None, _, _) => Err(Misfit::new("broker.user", "missing, and there is a password")),
        }
    }

    /// User and password; `None` without a user.
    ///
    /// # Errors
    /// A file that cannot be used, with the key.
    pub fn credentials(&self) -> Result<Option<Credentials>, String> {
        let file = self.password_file.as_ref().map(Secret::of_file).transpose();
        let file = file.map_err(|reason| format!("broker.password_file: {reason}"))?;
        let password = file.or_else(|| self.password.clone());
        Ok(self.user.clone().map(|user| Credentials { user, password }))
    }
}

impl AdminSettings {
    /// The mistake of an admin port that other machines could reach while `remote` is not set; otherwise `None`.
    pub fn check(&self) -> Option<Misfit> {
        let beyond = self.listen.filter(|listen| !listen.ip().is_loopback() && !self.remote)?;
        Some(Misfit::new(
            "admin.listen",
            format!(
                "expected an address of this machine alone (127.0.0.1 or ::1), found {beyond}; admin.remote = true allows others to read \
                 states and counts without a password"
            ),
        ))
    }
}

fn log_filter(text: &str) -> Result<String, FilterError> {
    check_filter(text).map(|()| text.to_owned())
}
