//! Admission of clients: holders of a certificate of the authority, or of a key.
//!
//! | `[tls]` | `http.keys_file` | who is answered |
//! | --- | --- | --- |
//! | no | no | everybody |
//! | no | yes | who shows a key |
//! | yes | no | who shows a certificate; others get no connection |
//! | yes | yes | who shows either; a client whose certificate is refused is refused even with a key |
//!
//! `/v2/health/live`, `/v2/health/ready` and `/openapi.json` answer everybody who gets a connection.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headwater_protocol::Fault;
use headwater_transport::tls::{Certificate, ServerIdentity};
use headwater_transport::{Reloading, read_bounded, warn_of_readers};
use tracing::warn;

use crate::refusal::Refusal;
use crate::settings::CloudConfig;

/// Roles of `headwater enroll` whose certificates are accepted. A certificate without a role is from another authority, and is accepted
/// too: that authority chooses who gets one.
const ROLES: [&str; 3] = ["leader", "edge", "operator"];

/// Bytes of the shortest key: a key of 128 bits is longer, in hexadecimal as in Base64.
const MIN_KEY_BYTES: usize = 16;

/// Largest file of keys, bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Certificates and keys that are accepted.
#[derive(Debug)]
pub(crate) struct Admission {
    identity: Option<ServerIdentity>,
    keys: Option<Reloading<Keys>>,
}

/// Keys of clients.
struct Keys(Vec<String>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Admission {
    /// Reads certificate and keys of the settings.
    ///
    /// # Errors
    /// The file that cannot be used, with its setting.
    pub(crate) fn new(config: &CloudConfig) -> Result<Self, String> {
        let keys = config.http.keys_file.clone().map(keys).transpose();
        let keys = keys.map_err(|reason| format!("http.keys_file: {reason}"))?;
        let identity = config.security.tls.files()?.map(|files| match &keys {
            Some(_) => ServerIdentity::one_sided(files),
            None => ServerIdentity::mutual(files),
        });
        let identity = identity.transpose().map_err(|error| config.security.tls.mistake(&error))?;
        if let Some(own) = identity.as_ref().and_then(ServerIdentity::certificate) {
            own.check_holder("cloud", &[]).map_err(|mistake| format!("tls.certificate_file: {mistake}"))?;
        }
        Ok(Self { identity, keys })
    }

    /// Own certificate and accepted authority; `None` without TLS.
    pub(crate) fn identity(&self) -> Option<&ServerIdentity> {
        self.identity.as_ref()
    }

    /// Checks the certificate and the `authorization` header of a client by the table at the top of this file.
    pub(crate) fn check(
        &self,
        certificate: Option<&Certificate>,
        authorization: Option<&str>,
    ) -> Result<(), Refusal> {
        let refuse = |reason: &str| Err(Refusal::new(Fault::Unauthorized, reason));
        match (&self.identity, certificate) {
            (Some(identity), Some(certificate)) if !identity.still_accepts(certificate) => {
                refuse("the client's certificate is revoked or has expired")
            }
            (Some(_), Some(Certificate { role: Some(role), .. })) if !ROLES.contains(&role.as_str()) => {
                refuse("the client's certificate is not that of a leader, an edge or an operator")
            }
            (Some(_), Some(_)) => Ok(()),
            (Some(_) | None, _) => match &self.keys {
                // The handshake has refused such a client already.
                None if self.identity.is_some() => {
                    refuse("expected a certificate of this service's authority")
                }
                None => Ok(()),
                Some(keys) => {
                    let shown = authorization.and_then(|value| {
                        // Schemes have no letter case (RFC 9110, section 11.1).
                        let (scheme, key) = value.split_once(' ')?;
                        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start())
                    });
                    let is_known = shown.is_some_and(|shown| keys.get().contain(shown));
                    let expected = "expected a key of this service: authorization: Bearer KEY";
                    if is_known { Ok(()) } else { refuse(expected) }
                }
            },
        }
    }
}

impl Keys {
    /// True if `shown` is one of the keys. The time taken does not tell how much of a wrong key is right.
    fn contain(&self, shown: &str) -> bool {
        let is_equal = |key: &String| {
            let differences = key.bytes().zip(shown.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
            key.len() == shown.len() && std::hint::black_box(differences) == 0
        };
        self.0.iter().fold(false, |found, key| found | is_equal(key))
    }
}

/// Keys of a file, one a line; empty lines and lines that begin with `#` are ignored. After a change of the file, keys that are gone are
/// refused; from then on an empty or missing file means that no key is accepted.
fn keys(file: PathBuf) -> Result<Reloading<Keys>, String> {
    warn_of_readers(&file);
    let at_start = read_keys(&file)?;
    if at_start.0.is_empty() {
        return Err(format!("{}: expected a key in each line, found none", file.display()));
    }
    Reloading::new("keys of clients", vec![file.clone()], move || {
        let keys = match std::fs::metadata(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Keys(Vec::new()),
            Ok(_) | Err(_) => read_keys(&file)?,
        };
        if keys.0.is_empty() {
            let file = file.display();
            warn!(%file, "http.keys_file has no key left: clients without a certificate are refused until a line has one");
        }
        Ok::<_, String>(keys)
    })
}

fn read_keys(file: &Path) -> Result<Keys, String> {
    let of = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let content = read_bounded(file, MAX_FILE_BYTES).map_err(|reason| of(&reason))?;
    let text = String::from_utf8(content).map_err(|_| of(&"expected text in UTF-8, found other bytes"))?;
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).zip(1..);
    let keys = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')).map(|(key, line)| {
        let refuse = |reason: String| Err(of(&format!("line {line}: {reason}")));
        if key.starts_with("-----BEGIN") {
            return refuse(
                "expected keys, one a line, found a file of a certificate or a private key".into(),
            );
        }
        if key.len() < MIN_KEY_BYTES {
            return refuse(format!("expected a key of {MIN_KEY_BYTES} characters or more"));
        }
        Ok(key.to_owned())
    });
    keys.collect::<Result<_, _>>().map(Keys)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn with_keys(text: &str) -> Result<Reloading<Keys>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        std::fs::write(&file, text).unwrap();
        keys(file)
    }

    #[test]
    fn a_key_is_needed_where_there_are_keys() {
        let keys = with_keys("# two groups\n0123456789abcdef\n\n  fedcba9876543210\n").unwrap();
        let admission = Admission { identity: None, keys: Some(keys) };
        for key in ["0123456789abcdef", "fedcba9876543210"] {
            for scheme in ["Bearer", "bearer", "BEARER", "Bearer "] {
                assert_eq!(admission.check(None, Some(&format!("{scheme} {key}"))), Ok(()), "{scheme}");
            }
        }
        for wrong in [
            "Bearer 0123456789abcdeX",
            "Bearer ",
            "Bearer 0123456789abcdef0",
            "0123456789abcdef",
            "Basic 0123456789abcdef",
        ] {
            let refusal = admission.check(None, Some(wrong)).unwrap_err();
            assert_eq!(refusal.fault, Fault::Unauthorized);
            assert!(!refusal.message.contains("0123"));
        }
        assert!(admission.check(None, None).is_err());
        assert_eq!(Admission { identity: None, keys: None }.check(None, None), Ok(()));
    }

    #[test]
    fn a_file_of_keys_that_cannot_work_is_named() {
        for (text, reason) in [
            ("# none\n", "expected a key"),
            ("short\n", "line 1: expected a key of 16"),
            ("-----BEGIN PRIVATE KEY-----\n", "found a file of a certificate"),
        ] {
            let refused = with_keys(text).unwrap_err();
            assert!(refused.contains(reason) && !refused.contains("short"), "{refused}");
        }
    }

    #[test]
    fn the_last_key_can_be_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys");
        for is_removed in [false, true] {
            std::fs::write(&file, "\u{feff}0123456789abcdef\n").unwrap();
            let admission = Admission { identity: None, keys: Some(keys(file.clone()).unwrap()) };
            let check = || admission.check(None, Some("Bearer 0123456789abcdef"));
            assert_eq!(check(), Ok(()));
            if is_removed {
                std::fs::remove_file(&file).unwrap();
            } else {
                std::fs::write(&file, "# 0123456789abcdef\n").unwrap();
            }
            std::thread::sleep(Duration::from_millis(1100));
            assert!(check().is_err(), "removed: {is_removed}");
        }
    }

    #[test]
    fn only_members_that_ask_the_cloud_are_admitted_by_their_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let mut site = headwater_identity::Site::create(
            &folder.path().join("site"),
            "hall".parse().unwrap(),
            &["localhost".into()],
            &headwater_identity::BrokerOptions::default(),
            30,
        )
        .unwrap();
        let cloud = headwater_identity::Member::new(headwater_identity::Role::Cloud, None, "cloud").unwrap();
        let own = site.enroll(cloud, &["localhost".into()], 30).unwrap();
        let files = headwater_transport::tls::IdentityFiles {
            authority: own.join("authority.pem"),
            own: Some(headwater_transport::tls::KeyPair {
                certificate: own.join("certificate.pem"),
                key: own.join("key.pem"),
            }),
            revoked: None,
        };
        let admission = Admission { identity: Some(ServerIdentity::mutual(files).unwrap()), keys: None };
        let holder = |role: Option<&str>| Certificate {
            site: Some("hall".into()),
            group: Some("gate".into()),
            name: Some("somebody".into()),
            role: role.map(str::to_owned),
            serial: "01".into(),
            expires: SystemTime::now() + Duration::from_secs(60),
        };
        for role in [Some("leader"), Some("edge"), Some("operator"), None] {
            assert_eq!(admission.check(Some(&holder(role)), None), Ok(()), "{role:?}");
        }
        for role in ["device", "consumer", "broker"] {
            assert!(admission.check(Some(&holder(Some(role))), None).is_err(), "{role}");
        }
        let expired = Certificate { expires: SystemTime::now() - Duration::from_secs(1), ..holder(None) };
        assert!(admission.check(Some(&expired), None).is_err());
    }
}
