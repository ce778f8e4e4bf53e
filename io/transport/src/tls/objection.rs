//! The reason why a peer would refuse this end's certificate, for people who look for a mistake.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::CertificateError as Error;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use thiserror::Error;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::PROVIDER;
use super::error::TlsError;
use super::files::{IdentityFiles, Material};
use super::pem::certificates;

/// End of a connection that shows a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that connects.
    Client,
    /// The end that accepts.
    Server,
}

/// Objection of a peer to a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Objection {
    /// The certificate's validity has ended.
    #[error("it has expired")]
    Expired,
    /// The certificate's validity has not begun.
    #[error("it is not valid yet")]
    NotYetValid,
    /// The revocation list names the certificate.
    #[error("it is revoked")]
    Revoked,
    /// No authority of the authority file has signed the certificate.
    #[error("it is of another authority")]
    OtherAuthority,
    /// The certificate of a server names no host.
    #[error("it names no host that a client could call")]
    NoHost,
    /// Any other reason, in the words of rustls.
    #[error("{0}")]
    Other(String),
}

impl IdentityFiles {
    /// The objection of a peer with the same authority and revocation list at this moment. `None` if such a peer would accept the
    /// certificate, or if this end has no certificate.
    ///
    /// # Errors
    /// [`TlsError`]: a file that cannot be read.
    pub fn objection(&self, end: End) -> Result<Option<Objection>, TlsError> {
        let Material { roots, own, revoked, .. } = self.read()?;
        let Some((chain, _)) = own else { return Ok(None) };
        let Some((first, between)) = chain.split_first() else { return Ok(None) };
        let fit = |reason: &dyn fmt::Display| TlsError::file(self.main_file(), reason);
        let (now, provider) = (UnixTime::now(), Arc::clone(&PROVIDER));
        let judged = match end {
            End::Client => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .with_crls(revoked)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .build()
                    .map_err(|error| fit(&error))?;
                verifier.verify_client_cert(first, between, now).map(drop)
            }
            End::Server => {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                    .with_crls(revoked)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status()
                    .build()
                    .map_err(|error| fit(&error))?;
                let hosts = hosts(first);
                let mut names = hosts.iter().filter_map(|host| ServerName::try_from(host.as_str()).ok());
                let Some(name) = names.next() else { return Ok(Some(Objection::NoHost)) };
                verifier.verify_server_cert(first, between, &name, &[], now).map(drop)
            }
        };
        Ok(judged.err().map(|error| Objection::of(&error)))
    }
}

impl Objection {
    fn of(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(Error::Expired | Error::ExpiredContext { .. }) => Self::Expired,
            rustls::Error::InvalidCertificate(Error::NotValidYet | Error::NotValidYetContext { .. }) => {
                Self::NotYetValid
            }
            rustls::Error::InvalidCertificate(Error::Revoked) => Self::Revoked,
            rustls::Error::InvalidCertificate(Error::UnknownIssuer | Error::BadSignature) => {
                Self::OtherAuthority
            }
            other => Self::Other(other.to_string()),
        }
    }
}

/// Hosts that the first certificate of a PEM file names, as clients call them.
///
/// # Errors
/// [`TlsError`]: the file has no certificate.
pub fn certified_hosts(file: &Path) -> Result<Vec<String>, TlsError> {
    Ok(certificates(file)?.first().map(hosts).unwrap_or_default())
}

fn hosts(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = x509_cert::Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some((_, SubjectAltName(names)))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    let host = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
            let v6 = <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    };
    names.iter().filter_map(host).collect()
}
