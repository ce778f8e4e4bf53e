//! The server's end of TLS.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::PROVIDER;
use super::certificate::Certificate;
use super::error::TlsError;
use super::files::{IdentityFiles, Material};
use super::identity::Identity;

/// Identity for connections that this end accepts; clones share the content of the files.
pub type ServerIdentity = Identity<ServerConfig>;

/// The identity of one handshake.
pub struct ServerSession(TlsAcceptor);

impl ServerIdentity {
    /// Reads the files. Clients need a certificate of the authority.
    ///
    /// # Errors
    /// [`TlsError`]: a file that cannot be used, or files that do not fit each other.
    pub fn mutual(files: IdentityFiles) -> Result<Self, TlsError> {
        Self::of(files, |files, material| config(files, material, true))
    }

    /// Reads the files. Clients may come without a certificate; a certificate that a client shows must be of the authority.
    ///
    /// # Errors
    /// [`TlsError`]: a file that cannot be used, or files that do not fit each other.
    pub fn one_sided(files: IdentityFiles) -> Result<Self, TlsError> {
        Self::of(files, |files, material| config(files, material, false))
    }

    /// Returns true if a certificate that was accepted before is still valid: not revoked since, and not expired.
    pub fn still_accepts(&self, certificate: &Certificate) -> bool {
        certificate.expires > SystemTime::now() && !self.has_revoked(&certificate.serial)
    }

    /// The identity for the next handshake, from the files as they are now.
    pub fn session(&self) -> ServerSession {
        ServerSession(TlsAcceptor::from(self.config()))
    }

    /// The identity for the next handshake of a connection that speaks only HTTP/2, as agreed on in the handshake (ALPN).
    pub fn http2_session(&self) -> ServerSession {
        let mut config = ServerConfig::clone(&self.config());
        config.alpn_protocols = vec![b"h2".to_vec()];
        ServerSession(TlsAcceptor::from(Arc::new(config)))
    }
}

impl ServerSession {
    /// Makes the TLS handshake over an accepted socket. Returns the client's certificate if the client showed one.
    ///
    /// # Errors
    /// The reason why either end refused.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        socket: S,
    ) -> io::Result<(TlsStream<S>, Option<Certificate>)> {
        let stream = self.0.accept(socket).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let client = shown.map(|certificate| Certificate::parse(certificate)).transpose();
        let client = client.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
        Ok((stream, client))
    }
}

fn config(files: &IdentityFiles, material: Material, needs_client: bool) -> Result<ServerConfig, TlsError> {
    let Material { roots, own, revoked, .. } = material;
    let fit = |reason: &dyn fmt::Display| TlsError::file(files.main_file(), reason);
    let (chain, key) = own.ok_or_else(|| fit(&"a server needs a certificate and a key"))?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&PROVIDER))
        .with_crls(revoked)
        .only_check_end_entity_revocation()
        .allow_unknown_revocation_status();
    let verifier = if needs_client { verifier } else { verifier.allow_unauthenticated() };
    let verifier = verifier.build().map_err(|error| fit(&error))?;
    ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .map_err(|error| fit(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| fit(&error))
}
