//! Where the broker is: `mqtt://host:port`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Host and port of a broker, written `mqtt://host:port`; the port may be left out (1883).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BrokerAddress {
    host: String,
    port: u16,
}

/// Port of MQTT without TLS.
const DEFAULT_PORT: u16 = 1883;

impl BrokerAddress {
    /// An address from its parts; `host` without brackets or port.
    ///
    /// # Errors
    /// [`AddressError`] for a host that cannot be one.
    pub fn new(host: impl Into<String>, port: u16) -> Result<Self, AddressError> {
        let host = host.into();
        let is_host = !host.is_empty()
            && host
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%'));
        if is_host && port != 0 {
            Ok(Self { host, port })
        } else {
            Err(AddressError::Form(format!("{host}:{port}")))
        }
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for BrokerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(clipped(text));
        let rest = match text.split_once("://") {
            Some(("mqtt" | "tcp", rest)) => rest,
            Some(("mqtts" | "ssl" | "tls", _)) => return Err(AddressError::Tls(clipped(text))),
            Some((scheme, _)) => return Err(AddressError::Scheme(clipped(scheme))),
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(form)?;
                (host, after.strip_prefix(':').or_else(|| after.is_empty().then_some("")).ok_or_else(form)?)
            }
            None => match rest.split_once(':') {
                Some((host, port)) if !port.contains(':') && !port.is_empty() => (host, port),
                Some(_) => return Err(form()),
                None => (rest, ""),
            },
        };
        let port = match port {
            "" => DEFAULT_PORT,
            digits => match digits.parse::<u16>() {
                Ok(port) if port != 0 => port,
                _ => return Err(AddressError::Port(clipped(digits))),
            },
        };
        Self::new(host, port).map_err(|_| form())
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "mqtt://[{}]:{}", self.host, self.port),
            false => write!(f, "mqtt://{}:{}", self.host, self.port),
        }
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Text that is no broker address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Not host and port.
    #[error("broker address: expected mqtt://host:port, found {0:?}")]
    Form(String),
    /// A port outside 1 to 65535.
    #[error("broker address: expected a port from 1 to 65535, found {0:?}")]
    Port(String),
    /// A scheme we do not speak.
    #[error("broker address: expected mqtt://host:port, found the scheme {0:?}")]
    Scheme(String),
    /// TLS is asked for.
    #[error("broker address: {0:?} asks for TLS, which this build does not speak: use mqtt://host:port")]
    Tls(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(&str, u16), AddressError>) {
        let found = text.parse::<BrokerAddress>();
        assert_eq!(found, expected.map(|(host, port)| BrokerAddress { host: host.into(), port }));
    }

    #[test]
    fn host_and_port_are_read() {
        check("mqtt://broker.local:1884", Ok(("broker.local", 1884)));
        check("127.0.0.1:1883", Ok(("127.0.0.1", 1883)));
        check("mqtt://[::1]:9000", Ok(("::1", 9000)));
        check("mqtt://localhost/", Ok(("localhost", 1883)));
    }

    #[test]
    fn what_is_no_address_is_named() {
        check("", Err(AddressError::Form(String::new())));
        check("mqtt://", Err(AddressError::Form("mqtt://".into())));
        check("mqtt://host:", Err(AddressError::Form("mqtt://host:".into())));
        check("mqtt://host:0", Err(AddressError::Port("0".into())));
        check("mqtt://host:70000", Err(AddressError::Port("70000".into())));
        check("mqtt://::1", Err(AddressError::Form("mqtt://::1".into())));
        check("http://host:1883", Err(AddressError::Scheme("http".into())));
        check("mqtts://host:8883", Err(AddressError::Tls("mqtts://host:8883".into())));
        check("mqtt://two words:1", Err(AddressError::Form("mqtt://two words:1".into())));
    }

    #[test]
    fn an_address_prints_as_it_is_read() {
        for text in ["mqtt://broker.local:1884", "mqtt://[::1]:9000"] {
            assert_eq!(text.parse::<BrokerAddress>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
    }
}
