//! The client's end of TLS.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::PROVIDER;
use super::error::{HandshakeRefused, TlsError};
use super::files::{IdentityFiles, Material};
use super::identity::Identity;

/// Identity for connections that this end opens; clones share the content of the files.
pub type ClientIdentity = Identity<ClientConfig>;

impl ClientIdentity {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`]: a file that cannot be used, or files that do not fit each other.
    pub fn new(files: IdentityFiles) -> Result<Self, TlsError> {
        Self::of(files, config)
    }

    /// Makes the TLS handshake over a connected socket, with the files as they are now; the server's certificate must name `host`.
    ///
    /// # Errors
    /// The reason why either end refused.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        socket: S,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {host:?} is no host name"))
        })?;
        let connector = TlsConnector::from(self.config());
        connector.connect(name, socket).await.map_err(|error| explained(&error, host))
    }
}

/// The error of a handshake, with the peer and, if there is one, a remedy.
fn explained(error: &io::Error, host: &str) -> io::Error {
    use rustls::CertificateError::{
        BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, Revoked,
        UnknownIssuer,
    };
    let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
    // A peer that does not speak TLS refuses nothing.
    if matches!(reason, None | Some(rustls::Error::InvalidMessage(_))) {
        return io::Error::new(error.kind(), format!("TLS with {host}: {error}"));
    }
    let remedy = match reason {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            "; it is of another authority than `tls.authority_file`"
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "; call the server by a name of its certificate, or renew the certificate with this name"
        }
        Some(rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. })) => "; renew it",
        Some(rustls::Error::InvalidCertificate(Revoked)) => "; the server needs a new one",
        Some(rustls::Error::InvalidCertificate(other)) if is_authority(other) => {
            "; the server shows the certificate of an authority itself (CA:TRUE, as `openssl req -x509` makes it): give it one that this authority \
             has signed (`headwater enroll` makes both)"
        }
        Some(_) | None => "",
    };
    io::Error::new(error.kind(), HandshakeRefused(format!("TLS with {host}: {error}{remedy}")))
}

/// Returns true for the objection to an authority's certificate in the place of a server's.
fn is_authority(error: &rustls::CertificateError) -> bool {
    // The type of the error within belongs to a crate that rustls does not show.
    matches!(error, rustls::CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

fn config(files: &IdentityFiles, material: Material) -> Result<ClientConfig, TlsError> {
    let Material { roots, own, revoked, .. } = material;
    let fit = |reason: &dyn fmt::Display| TlsError::file(files.main_file(), reason);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER))
        .with_crls(revoked)
        .only_check_end_entity_revocation()
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| fit(&error))?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .map_err(|error| fit(&error))?
        .with_webpki_verifier(verifier);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| fit(&error)),
    }
}
