//! The URL of a camera's snapshot, and the header with user and password.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::header::HeaderValue;

/// An `http://` URL without user and password. It is displayed without its query, which often holds a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SnapshotUrl {
    host: String,
    authority: String,
    port: u16,
    path: String,
}

impl SnapshotUrl {
    /// Name or address to connect to.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Port to connect to; 80 where none is named.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Value of the header `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for SnapshotUrl {
    type Err = String;

    /// The error names the mistake and never repeats the URL, which may hold a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("expected http://host[:port]/path: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(other) => return Err(format!("expected the scheme http, found {other}")),
            None => return Err("expected http://host[:port]/path, found no scheme".into()),
        }
        let authority = uri.authority().ok_or("expected a host, found none")?;
        if authority.as_str().contains('@') {
            return Err("expected no user and password in the URL; they belong into http_auth_file".into());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("expected a host, found none".into());
        }
        // A port that is no number of 16 bits reads as none.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16();
        if has_port && port.is_none_or(|port| port == 0) {
            return Err("expected a port from 1 to 65535".into());
        }
        Ok(Self {
            host: host.into(),
            authority: authority.as_str().into(),
            port: port.unwrap_or(80),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).into(),
        })
    }
}

impl fmt::Display for SnapshotUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, query) =
            self.path.split_once('?').map_or((self.path.as_str(), ""), |(path, _)| (path, "?..."));
        write!(f, "http://{}{path}{query}", self.authority)
    }
}

/// The header value for `user:password` (RFC 7617), marked as sensitive so that it is never printed.
pub(crate) fn basic_authorization(pair: &str) -> Result<HeaderValue, String> {
    if !pair.contains(':') || pair.chars().any(char::is_control) {
        return Err("expected user:password in one line".into());
    }
    let mut value = HeaderValue::from_str(&format!("Basic {}", base64(pair.as_bytes())))
        .map_err(|_| "expected user:password in one line".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index > group.len() { '=' } else { letter.into() });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed() {
        let url: SnapshotUrl = "http://cam.local:8080/snap.jpg?pwd=s3cret".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.path()), ("cam.local", 8080, "/snap.jpg?pwd=s3cret"));
        assert_eq!(url.to_string(), "http://cam.local:8080/snap.jpg?...");
        let url: SnapshotUrl = "http://[::1]".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.path(), url.authority()), ("::1", 80, "/", "[::1]"));
    }

    #[test]
    fn unusable_urls_are_refused_without_repeating_them() {
        for text in [
            "",
            "/snap",
            "https://cam/s3cret",
            "http://u:s3cret@cam/",
            "http://cam:0/",
            "http://cam:99999/",
            "ftp://cam",
        ] {
            let reason = text.parse::<SnapshotUrl>().err().unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(reason.contains("expected") && !reason.contains("s3cret"), "{reason}");
        }
    }

    #[test]
    fn user_and_password_become_the_header_of_the_standard() {
        // RFC 7617, section 2; RFC 4648, section 10.
        assert_eq!(basic_authorization("Aladdin:open sesame").unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert!(basic_authorization("nobody").is_err() && basic_authorization("a:b\r\nX: y").is_err());
        assert!(!format!("{:?}", basic_authorization("a:b").unwrap()).contains("Basic"));
    }
}
