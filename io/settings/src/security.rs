//! Identity of a program, the authorities and keys that it trusts, and the links that may go without TLS.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use headwater_protocol::{SiteId, Trust, VerifyingKey};
use headwater_transport::tls::{ClientIdentity, IdentityFiles, KeyPair, TlsError};
use headwater_transport::{BrokerAccess, Endpoint};
use tracing::warn;

use crate::declare::{optional, section, switch};
use crate::release_file;
use crate::sections::BrokerSettings;
use crate::settings;
use crate::values::{List, Misfit, Mistake};

settings! {
    /// Settings of links that others could read or forge.
    #[derive(Clone, Debug, Default)]
    pub struct SecuritySettings {
        /// Allow links without TLS beyond this machine. Anybody on the way can then read and forge messages: for laboratories.
        pub insecure: bool = switch(),
        /// Public keys of `headwater sign`, with commas between. Bundles without a signature by one of them are refused. Left out: every bundle
        /// is taken.
        pub trusted_keys: Option<List<VerifyingKey>> = optional("c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff").by(public_keys),
        /// File in which the program keeps the release of the signed bundle that it used last; bundles of earlier releases are refused. Left
        /// out: a bundle of any release is taken.
        pub release_file: Option<PathBuf> = optional("/var/lib/headwater/release"),
        /// Section `[tls]`.
        pub tls: TlsSettings = section(),
    }

    /// Section `[tls]`. Files are read again when they change; open connections go on.
    #[derive(Clone, Debug, Default)]
    pub struct TlsSettings {
        /// Certificates of the authorities whose peers are trusted (PEM). Needed for mqtts:// and https://; `headwater enroll` makes one.
        pub authority_file: Option<PathBuf> = optional("/etc/headwater/authority.pem"),
        /// Certificate of this program (PEM), with those between it and the authority.
        pub certificate_file: Option<PathBuf> = optional("/etc/headwater/certificate.pem"),
        /// Private key of the certificate (PEM).
        pub key_file: Option<PathBuf> = optional("/etc/headwater/key.pem"),
        /// Certificates that the authority has revoked (PEM, X509 CRL).
        pub revoked_file: Option<PathBuf> = optional("/etc/headwater/revoked.crl"),
    }
}

impl TlsSettings {
    /// The files; `None` if no file is named.
    ///
    /// # Errors
    /// The key of a file that is missing beside another.
    pub fn files(&self) -> Result<Option<IdentityFiles>, Misfit> {
        let missing = |key: &str, beside: &str| {
            let reason = format!("missing; tls.{beside} needs it");
            Err(Misfit::new(format!("tls.{key}"), reason).with(format!("tls.{beside}")))
        };
        let own = match (&self.certificate_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                Some(KeyPair { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            (Some(_), None) => return missing("key_file", "certificate_file"),
            (None, Some(_)) => return missing("certificate_file", "key_file"),
        };
        match (&self.authority_file, own, &self.revoked_file) {
            (Some(authority), own, revoked) => {
                Ok(Some(IdentityFiles { authority: authority.clone(), own, revoked: revoked.clone() }))
            }
            (None, Some(_), _) => missing("authority_file", "certificate_file"),
            (None, None, Some(_)) => missing("authority_file", "revoked_file"),
            (None, None, None) => Ok(None),
        }
    }

    /// The identity for connections that the program opens; `None` if no file is named.
    ///
    /// # Errors
    /// A missing key, or a file that cannot be used, with its path.
    pub fn client(&self) -> Result<Option<ClientIdentity>, String> {
        let Some(files) = self.files().map_err(|misfit| misfit.to_string())? else { return Ok(None) };
        ClientIdentity::new(files).map(Some).map_err(|error| self.mistake(&error))
    }

    /// An error of these files, with the setting that names the file.
    pub fn mistake(&self, error: &TlsError) -> String {
        format!("{}: {error}", self.setting_of(error.path()))
    }

    /// Setting that names a file; the section if no setting does.
    pub fn setting_of(&self, file: &Path) -> &'static str {
        let Self { authority_file, certificate_file, key_file, revoked_file } = self;
        let settings = [
            ("tls.authority_file", authority_file),
            ("tls.certificate_file", certificate_file),
            ("tls.key_file", key_file),
            ("tls.revoked_file", revoked_file),
        ];
        let own = settings.into_iter().find(|(_, own)| own.as_deref() == Some(file));
        own.map_or("tls", |(setting, _)| setting)
    }
}

impl SecuritySettings {
    /// The rule for signed bundles that the program takes: keys, site and oldest release; `None` if every bundle is taken. `name` is the name
    /// under which the release file holds the release that was used last.
    ///
    /// # Errors
    /// A file of releases that cannot be read, or that holds something else.
    pub fn trust<'a>(&'a self, name: &str, site: Option<&'a SiteId>) -> Result<Option<Trust<'a>>, String> {
        let Some(keys) = &self.trusted_keys else { return Ok(None) };
        let oldest_release =
            self.release_file.as_deref().map_or(Ok(0), |file| release_file::read(file, name))?;
        Ok(Some(Trust { keys: &keys.0, site, oldest_release }))
    }

    /// Writes the release of the bundle in use under this name to the release file, if bundles must be signed and `release_file` is set.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_release(&self, name: &str, release: Option<u64>) -> Result<(), String> {
        let (Some(_), Some(file)) = (&self.trusted_keys, &self.release_file) else { return Ok(()) };
        release.map_or(Ok(()), |release| release_file::keep(file, name, release))
    }

    /// Checks how the program reaches its broker, without opening a file.
    pub fn check_broker(&self, broker: &BrokerSettings) -> Vec<Misfit> {
        let link = self.check_link("broker.address", &broker.address);
        [link, self.tls.files().map(drop), broker.check_credentials()]
            .into_iter()
            .filter_map(Result::err)
            .collect()
    }

    /// Access of the program to its broker, with every file read.
    ///
    /// # Errors
    /// Every setting and file that cannot be used.
    pub fn broker_access(&self, broker: &BrokerSettings) -> Result<BrokerAccess, Vec<String>> {
        let mistakes = self.check_broker(broker);
        if !mistakes.is_empty() {
            return Err(mistakes.into_iter().map(String::from).collect());
        }
        match (self.tls.client(), broker.credentials()) {
            (Ok(identity), Ok(credentials)) => {
                Ok(BrokerAccess { address: broker.address.clone(), identity, credentials })
            }
            (identity, credentials) => Err(identity.err().into_iter().chain(credentials.err()).collect()),
        }
    }

    /// Checks that a link may be opened to this address: with TLS and an authority, on loopback, or with `insecure`.
    ///
    /// # Errors
    /// Names the missing part, for the setting `key`.
    pub fn check_link(&self, key: &str, endpoint: &Endpoint) -> Result<(), Misfit> {
        match (endpoint.scheme().uses_tls(), &self.tls.authority_file) {
            (true, Some(_)) => Ok(()),
            (true, None) => {
                let reason = format!("missing; {key} = {endpoint} needs it");
                Err(Misfit::new("tls.authority_file", reason).with(key))
            }
            (false, _) if self.insecure || is_own_host(endpoint) => Ok(()),
            (false, _) => {
                let secure = if endpoint.scheme().is_mqtt() { "mqtts" } else { "https" };
                let reason = format!(
                    "expected {secure}:// or an address of this machine, found {endpoint}; anybody on the way can read and forge its messages \
                     (--insecure allows it)"
                );
                Err(Misfit::new(key, reason))
            }
        }
    }

    /// Warns of a link without TLS beyond this machine.
    pub fn warn_of_link(&self, key: &str, endpoint: &Endpoint) {
        if !endpoint.scheme().uses_tls() && !is_own_host(endpoint) {
            warn!(%endpoint, "INSECURE: {key} has no TLS; anybody on the way can read and forge its messages");
        }
    }

    /// Checks that a server may listen on this address: with TLS, on loopback, or with `insecure`.
    ///
    /// # Errors
    /// Names the missing part, for the setting `key`.
    pub fn check_server(&self, key: &str, address: SocketAddr) -> Result<(), Misfit> {
        if self.insecure || !self.is_open_to_all(address) {
            return Ok(());
        }
        let expected = "expected an address of this machine or tls.certificate_file";
        let reason = format!("{expected}, found {address} without TLS (--insecure allows it)");
        Err(Misfit::new(key, reason).with("tls.certificate_file"))
    }

    /// Warns of a server without TLS that other machines can reach.
    pub fn warn_of_server(&self, key: &str, address: SocketAddr) {
        if self.is_open_to_all(address) {
            warn!(%address, "INSECURE: {key} has no TLS; anybody on the way can read and forge its messages");
        }
    }

    fn is_open_to_all(&self, address: SocketAddr) -> bool {
        !address.ip().is_loopback() && self.tls.certificate_file.is_none()
    }
}

/// Reads public keys. The mistake does not repeat the text, which may be a private key.
fn public_keys(text: &str) -> Result<List<VerifyingKey>, Mistake> {
    text.parse().map_err(|_: Mistake| {
        let found = text.chars().count();
        Mistake(format!("expected public keys of 64 hex digits, with commas between, found {found} characters that are none"))
    })
}

/// Returns true if the host is `localhost` or a loopback address.
fn is_own_host(endpoint: &Endpoint) -> bool {
    let host = endpoint.host();
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use headwater_transport::{Credentials, Secret};

    use super::*;

    #[test]
    fn files_that_need_each_other_are_named() {
        let with = |authority: bool, certificate: bool, key: bool, revoked: bool| {
            let file = |is: bool| is.then(|| PathBuf::from("x"));
            TlsSettings {
                authority_file: file(authority),
                certificate_file: file(certificate),
                key_file: file(key),
                revoked_file: file(revoked),
            }
        };
        assert_eq!(with(false, false, false, false).files(), Ok(None));
        assert!(with(true, false, false, false).files().unwrap().unwrap().own.is_none());
        assert!(with(true, true, true, true).files().unwrap().unwrap().own.is_some());
        for (settings, key) in [
            (with(true, true, false, false), "tls.key_file: missing"),
            (with(true, false, true, false), "tls.certificate_file: missing"),
            (with(false, true, true, false), "tls.authority_file: missing"),
            (with(false, false, false, true), "tls.authority_file: missing"),
        ] {
            assert!(settings.files().unwrap_err().to_string().starts_with(key));
        }
    }

    #[test]
    fn a_link_without_tls_stays_on_this_machine_unless_insecure_is_said() {
        let check = |has_authority: bool, address: &str, insecure| {
            let tls =
                TlsSettings { authority_file: has_authority.then(|| "x".into()), ..TlsSettings::default() };
            let settings = SecuritySettings { insecure, tls, ..SecuritySettings::default() };
            settings.check_link("broker.address", &address.parse().unwrap())
        };
        for address in ["mqtt://127.0.0.1", "mqtt://localhost:1883", "mqtt://[::1]:1883", "http://127.0.0.53"]
        {
            assert_eq!(check(false, address, false), Ok(()), "{address}");
        }
        for address in ["mqtt://10.0.0.5", "mqtt://localhost.example", "http://cloud"] {
            assert!(
                check(false, address, false).unwrap_err().to_string().contains("--insecure allows it"),
                "{address}"
            );
            assert_eq!(check(false, address, true), Ok(()));
        }
        assert!(
            check(false, "mqtts://broker", true)
                .unwrap_err()
                .to_string()
                .starts_with("tls.authority_file: missing")
        );
        assert_eq!(check(true, "mqtts://broker", false), Ok(()));
    }

    #[test]
    fn a_server_without_tls_stays_on_this_machine_unless_insecure_is_said() {
        let check = |address: &str, insecure, has_certificate: bool| {
            let tls = TlsSettings {
                certificate_file: has_certificate.then(|| "x".into()),
                ..TlsSettings::default()
            };
            let settings = SecuritySettings { insecure, tls, ..SecuritySettings::default() };
            settings.check_server("http.listen", address.parse().unwrap())
        };
        assert_eq!(check("127.0.0.1:8600", false, false), Ok(()));
        assert!(
            check("0.0.0.0:8600", false, false).unwrap_err().to_string().contains("--insecure allows it")
        );
        assert_eq!(check("0.0.0.0:8600", true, false), Ok(()));
        assert_eq!(check("0.0.0.0:8600", false, true), Ok(()));
    }

    #[test]
    fn a_mistake_in_trusted_keys_does_not_repeat_them() {
        let key = "c0ffee".repeat(10) + "c0ff";
        assert_eq!(public_keys(&format!("{key},{key}")).unwrap().0.len(), 2);
        let Mistake(refused) = public_keys("MFECAQEwBQYDK2Vw").unwrap_err();
        assert!(refused.contains("64 hex digits") && !refused.contains("MFEC"), "{refused}");
    }

    #[test]
    fn a_password_needs_a_user_and_comes_from_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "staple\n").unwrap();
        let credentials = |user: bool, from_file: bool, from_environment: bool| {
            let broker = BrokerSettings {
                address: "mqtt://127.0.0.1".parse().unwrap(),
                user: user.then(|| "cam-0".into()),
                password_file: from_file.then(|| file.clone()),
                password: from_environment.then(|| Secret::of_text("battery")),
            };
            assert!(!format!("{broker:?}").contains("battery"));
            broker.check_credentials().map_err(String::from).and_then(|()| broker.credentials())
        };
        let password =
            |found: Result<Option<Credentials>, String>| found.unwrap().unwrap().password.unwrap().get();
        assert_eq!(password(credentials(true, true, false)), "staple");
        assert_eq!(password(credentials(true, false, true)), "battery");
        assert!(credentials(false, false, false).unwrap().is_none());
        assert!(credentials(true, true, true).unwrap_err().starts_with("broker.password_file: "));
        assert!(credentials(false, false, true).unwrap_err().starts_with("broker.user: missing"));
    }
}
