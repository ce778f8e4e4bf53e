//! Errors of an identity.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::AlertDescription as Alert;

use thiserror::Error;

/// A file of an identity that cannot be used, or files that do not fit each other. The message repeats no key.
#[derive(Debug, Error)]
#[error("{}: {reason}", .file.display())]
pub struct TlsError {
    /// The file; if files do not fit each other, the file of the certificate, or of the authority for a client without a certificate.
    file: PathBuf,
    /// The reason of the system or of rustls, or what is wrong with the content.
    reason: String,
}

impl TlsError {
    /// File that the error is about.
    pub fn path(&self) -> &Path {
        &self.file
    }

    pub(super) fn file(file: impl Into<PathBuf>, reason: &dyn fmt::Display) -> Self {
        Self { file: file.into(), reason: reason.to_string() }
    }
}

/// A handshake that one end refused, and refuses again until a file changes. Found inside an [`io::Error`].
#[derive(Debug, Error)]
#[error("{0}")]
pub struct HandshakeRefused(pub(super) String);

impl HandshakeRefused {
    /// Returns true if an error is of this kind.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }

    /// Makes a peer's refusal of this end's certificate an error of this kind; returns any other read error as it is.
    pub(crate) fn of_alert(error: io::Error) -> io::Error {
        let reason = error.get_ref().and_then(|reason| reason.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::AlertReceived(alert)) = reason else { return error };
        let advice = match alert {
            Alert::CertificateRequired | Alert::HandshakeFailure => {
                "it wants a certificate: set `tls.certificate_file` and `tls.key_file`"
            }
            Alert::CertificateRevoked => "the own certificate is revoked: it needs a new one",
            Alert::CertificateExpired => "the own certificate has expired: renew it",
            Alert::UnknownCA | Alert::BadCertificate | Alert::CertificateUnknown | Alert::DecryptError => {
                "the own certificate is not of an authority that it trusts, or is revoked"
            }
            Alert::AccessDenied => "it does not admit the holder of the own certificate",
            _ => return error,
        };
        let text = format!("TLS: the peer refuses the connection ({alert:?}); {advice}");
        io::Error::new(io::ErrorKind::ConnectionRefused, Self(text))
    }
}
