//! Address of a peer: scheme, host, port, and for HTTP a path.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Address of a peer, written `scheme://host:port` and for HTTP `scheme://host:port/path?query`.
///
/// The port may be left out. An address without a scheme is an address of MQTT without TLS. Blanks around the address are left out, and what a path
/// cannot hold (a blank, an umlaut) is percent-encoded, as browsers do. Display and Debug leave the query out, because cameras take
/// passwords there.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Path and query, percent-encoded; empty for `/`.
    path: String,
}

/// Protocol of an endpoint, with or without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// MQTT over TCP.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Longest piece of an address that an error repeats, in characters.
const MAX_SHOWN_CHARS: usize = 80;

impl Scheme {
    /// Name and default port of every scheme, in the order of the enum.
    const TABLE: [(&'static str, u16); 4] = [("mqtt", 1883), ("mqtts", 8883), ("http", 80), ("https", 443)];

    /// Name in an address.
    pub fn name(self) -> &'static str {
        Self::TABLE[self as usize].0
    }

    /// Port of an address that does not name its port.
    pub fn default_port(self) -> u16 {
        Self::TABLE[self as usize].1
    }

    /// Returns true if the scheme needs TLS.
    pub fn uses_tls(self) -> bool {
        matches!(self, Self::Mqtts | Self::Https)
    }

    /// Returns true if the scheme is MQTT, with or without TLS.
    pub fn is_mqtt(self) -> bool {
        matches!(self, Self::Mqtt | Self::Mqtts)
    }

    fn from_name(name: &str) -> Result<Self, EndpointError> {
        match name.to_ascii_lowercase().as_str() {
            "mqtt" | "tcp" => Ok(Self::Mqtt),
            "mqtts" | "ssl" | "tls" => Ok(Self::Mqtts),
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => Err(EndpointError::Scheme { expected: "mqtt, mqtts, http or https", found: shown(name) }),
        }
    }
}

impl Endpoint {
    /// An endpoint without a path; `host` is a name or an address without brackets.
    ///
    /// # Errors
    /// [`EndpointError`] for a host with characters that no name and no address has, or for port 0.
    pub fn new(scheme: Scheme, host: impl Into<String>, port: u16) -> Result<Self, EndpointError> {
        let host = host.into();
        let is_host_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%');
        if port == 0 {
            Err(EndpointError::Port("0".into()))
        } else if host.is_empty() || !host.bytes().all(is_host_byte) {
            Err(EndpointError::Form(shown(&host)))
        } else {
            Ok(Self { scheme, host, port, path: String::new() })
        }
    }

    /// The address of a broker without TLS.
    ///
    /// # Errors
    /// As [`Endpoint::new`].
    pub fn mqtt(host: impl Into<String>, port: u16) -> Result<Self, EndpointError> {
        Self::new(Scheme::Mqtt, host, port)
    }

    /// Reads the address of an MQTT broker; an address without a scheme is an address without TLS.
    ///
    /// # Errors
    /// [`EndpointError`] for another scheme, a malformed host or port, or a path.
    pub fn broker(text: &str) -> Result<Self, EndpointError> {
        let endpoint: Self = text.parse()?;
        let found = endpoint.scheme;
        match found.is_mqtt() {
            true => Ok(endpoint),
            false => Err(EndpointError::Scheme { expected: "mqtt or mqtts", found: found.name().into() }),
        }
    }

    /// Reads the address of an HTTP server; the scheme is required.
    ///
    /// # Errors
    /// [`EndpointError`] for another scheme, or a malformed host, port or path.
    pub fn http(text: &str) -> Result<Self, EndpointError> {
        let wrong = |found: &str| EndpointError::Scheme { expected: "http or https", found: found.into() };
        if !text.contains("://") {
            return Err(wrong("none"));
        }
        let endpoint: Self = text.parse()?;
        let found = endpoint.scheme;
        if found.is_mqtt() { Err(wrong(found.name())) } else { Ok(endpoint) }
    }

    /// The same server with another path and query, which must begin with `/`.
    #[must_use]
    pub fn with_path(&self, path: &str) -> Self {
        Self { path: if path == "/" { String::new() } else { encoded_path(path) }, ..self.clone() }
    }

    /// Protocol.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query of an HTTP address; `/` when the address has none.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = match text.trim().split_once("://") {
            Some((name, rest)) => (Scheme::from_name(name)?, rest),
            None => (Scheme::Mqtt, text.trim()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(EndpointError::Credentials);
        }
        // A slash in a password ends the text that is taken for the host, so that text may hold the beginning of the password.
        let without_password = |error: EndpointError| match path.contains('@') {
            true => EndpointError::Credentials,
            false => error,
        };
        let form = || without_password(EndpointError::Form(shown(authority)));
        let (host, port) = host_and_port(authority).ok_or_else(form)?;
        let port = match port {
            None => scheme.default_port(),
            Some(digits) => {
                let port = digits.parse().ok().filter(|&port| port != 0);
                port.ok_or_else(|| without_password(EndpointError::Port(shown(digits))))?
            }
        };
        let endpoint = Self::new(scheme, host, port).map_err(|_| form())?;
        let path = encoded_path(path.split('#').next().unwrap_or_default());
        let path = if path.starts_with('?') { format!("/{path}") } else { path };
        match path.as_str() {
            "" | "/" => Ok(endpoint),
            _ if scheme.is_mqtt() => Err(EndpointError::Path),
            _ => Ok(Self { path, ..endpoint }),
        }
    }
}

/// A path and query in the characters of RFC 3986. A percent sign stays: most often the text is encoded already.
fn encoded_path(path: &str) -> String {
    percent_encoded(path, |byte| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte))
}

/// A text with `%` and two digits in place of each byte that does not stay.
pub(crate) fn percent_encoded(text: &str, stays: impl Fn(u8) -> bool) -> String {
    let encode = |byte| if stays(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// Host without brackets, and the digits of the port where the address has one.
fn host_and_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, after) = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match after.strip_prefix(':') {
        Some(port) if !port.contains(':') && !port.is_empty() => Some((host, Some(port))),
        None if after.is_empty() => Some((host, None)),
        Some(_) | None => None,
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{open}{}{close}:{}", self.scheme.name(), self.host, self.port)?;
        match self.path.split_once('?') {
            Some((path, _)) => write!(f, "{path}?..."),
            None => f.write_str(&self.path),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// At most the first 80 characters of a piece of an address, without a user and a password before an `@`.
fn shown(text: &str) -> String {
    let text = text.rsplit_once('@').map_or(text, |(_, after)| after);
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// Mistake in the text of an address. The messages repeat no password, path or query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The text is not a host and a port.
    #[error("expected scheme://host:port, the host a name or an address in ASCII, found {0:?}")]
    Form(String),
    /// The address of a broker has a path.
    #[error("expected the address of a broker, mqtt://host:port, found one with a path: leave it out")]
    Path,
    /// The port is outside 1 to 65535.
    #[error("expected a port from 1 to 65535, found {0:?}")]
    Port(String),
    /// The scheme is unknown, or wrong for this peer.
    #[error("expected the scheme {expected}, found {found:?}")]
    Scheme {
        /// Schemes that this peer may have.
        expected: &'static str,
        /// The scheme of the text.
        found: String,
    },
    /// The address has a user or a password.
    #[error("expected an address without user and password, found one with them: they belong in a file")]
    Credentials,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scheme: Scheme, host: &str, port: u16, path: &str) {
        let found: Endpoint = text.parse().expect("an address");
        assert_eq!((found.scheme(), found.host(), found.port(), found.path()), (scheme, host, port, path));
    }

    #[track_caller]
    fn refused(text: &str, expected: &EndpointError) {
        assert_eq!(text.parse::<Endpoint>().as_ref(), Err(expected));
    }

    #[test]
    fn scheme_host_port_and_path_are_read() {
        check("mqtt://broker.local:1884", Scheme::Mqtt, "broker.local", 1884, "/");
        check("127.0.0.1:1883", Scheme::Mqtt, "127.0.0.1", 1883, "/");
        check("mqtt://[::1]:9000", Scheme::Mqtt, "::1", 9000, "/");
        check("mqtt://localhost/", Scheme::Mqtt, "localhost", 1883, "/");
        check("mqtts://broker", Scheme::Mqtts, "broker", 8883, "/");
        check("http://[::1]", Scheme::Http, "::1", 80, "/");
        check("https://cloud/", Scheme::Https, "cloud", 443, "/");
        check(
            "http://cam.local:8080/snap.jpg?pwd=s3cret#top",
            Scheme::Http,
            "cam.local",
            8080,
            "/snap.jpg?pwd=s3cret",
        );
        check("http://cam?user=a@b", Scheme::Http, "cam", 80, "/?user=a@b");
        check(" HTTP://cam/SNAP.jpg\n", Scheme::Http, "cam", 80, "/SNAP.jpg");
        check("MQTTS://broker", Scheme::Mqtts, "broker", 8883, "/");
    }

    #[test]
    fn what_a_path_cannot_hold_is_percent_encoded_and_what_is_encoded_stays() {
        let path = |text: &str, expected: &str| {
            check(&format!("http://cam{text}"), Scheme::Http, "cam", 80, expected);
        };
        path("/two words", "/two%20words");
        path("?user=a b", "/?user=a%20b");
        path("/Küche.jpg?n=ü", "/K%C3%BCche.jpg?n=%C3%BC");
        path("/a%20b+c?d=100%", "/a%20b+c?d=100%");
        path("/\"<>`{}|\\^\t\u{7f}", "/%22%3C%3E%60%7B%7D%7C%5C%5E%09%7F");
        path("/-._~:@!$&'()*+,;=?[]/?", "/-._~:@!$&'()*+,;=?[]/?");
    }

    #[test]
    fn text_that_is_no_address_is_refused_with_its_reason() {
        let form = |host: &str| EndpointError::Form(host.into());
        refused("", &form(""));
        refused("mqtt://", &form(""));
        refused("mqtt://host:", &form("host:"));
        refused("mqtt://host:0", &EndpointError::Port("0".into()));
        refused("mqtt://host:70000", &EndpointError::Port("70000".into()));
        refused("mqtt://::1", &form("::1"));
        refused("mqtt://two words:1", &form("two words:1"));
        refused("mqtt://host:1883/path", &EndpointError::Path);
        refused("mqtt://host:1883?query", &EndpointError::Path);
        refused("http://küche/snap.jpg", &form("küche"));
        let expected = "mqtt, mqtts, http or https";
        refused("ftp://cam", &EndpointError::Scheme { expected, found: "ftp".into() });
    }

    #[test]
    fn an_address_of_another_protocol_is_refused_by_its_scheme() {
        let scheme = |expected, found: &str| Err(EndpointError::Scheme { expected, found: found.into() });
        assert_eq!(Endpoint::broker("http://host:1883"), scheme("mqtt or mqtts", "http"));
        assert_eq!(Endpoint::http("mqtt://host"), scheme("http or https", "mqtt"));
        assert_eq!(Endpoint::http("host:8600"), scheme("http or https", "none"));
        assert_eq!(Endpoint::http("cam/snap.jpg"), scheme("http or https", "none"));
        assert!(Endpoint::broker("host").is_ok() && Endpoint::http("https://host").is_ok());
    }

    #[test]
    fn no_error_repeats_a_password_a_path_or_a_query() {
        for text in [
            "http://u:s3cret@cam/",
            "http://u:s3cret/s3cret@cam/",
            "http://u:s3cret?s3cret@cam/",
            "http://s3cret s3cret#@cam",
            "mqtt://s3cret@broker",
            "u:s3cret@broker:1883",
            "u:s3cret@x://broker",
            "http//u:s3cret@cam",
            "http://cam:0/s3cret",
            "http://cam:99999/?s3cret",
            "mqtt://broker/s3cret",
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            for shown in [error.to_string(), format!("{error:?}")] {
                assert!(!shown.contains("s3cret"), "{shown}");
            }
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn long_text_is_clipped_in_an_error() {
        let error = format!("mqtt://{}!", "x".repeat(1000)).parse::<Endpoint>().expect_err("not a host");
        assert_eq!(error, EndpointError::Form("x".repeat(MAX_SHOWN_CHARS)));
    }

    #[test]
    fn an_address_prints_as_it_is_read_but_for_its_query() {
        for text in ["mqtt://broker.local:1884", "mqtts://[::1]:9000", "https://cloud:443/v2/models"] {
            assert_eq!(text.parse::<Endpoint>().map(|a| a.to_string()), Ok(text.to_owned()));
        }
        let camera = Endpoint::http("http://cam.local:8080/snap.jpg?pwd=s3cret").expect("an address");
        assert_eq!(format!("{camera} {camera:?}").matches("http://cam.local:8080/snap.jpg?...").count(), 2);
    }

    #[test]
    fn a_path_is_replaced() {
        let cloud = Endpoint::http("http://cloud:8600/old?query").expect("an address");
        assert_eq!(cloud.with_path("/v2/models/m").to_string(), "http://cloud:8600/v2/models/m");
        assert_eq!(cloud.with_path("/").to_string(), "http://cloud:8600");
        assert_eq!(cloud.with_path("/a b/").path(), "/a%20b/");
    }
}
