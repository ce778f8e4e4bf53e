//! Certificates, keys and revocation lists in files of PEM.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::error::TlsError;
use crate::file::read_bounded;

/// Largest file of an identity, in bytes; a revocation list takes about 40 bytes per revoked certificate.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// The certificates of a file, at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all_in(file, "a certificate (CERTIFICATE)")
}

/// The revocation lists of a file, at least one.
pub(super) fn revocation_lists(file: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    all_in(file, "a revocation list (X509 CRL)")
}

/// The private key of a file.
pub(super) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&content(file)?)
        .map_err(|_| TlsError::file(file, &"expected a private key in PEM, found none"))
}

/// Every item of a kind in a file, at least one.
fn all_in<T: PemObject>(file: &Path, what: &str) -> Result<Vec<T>, TlsError> {
    let items: Result<Vec<T>, _> = T::pem_slice_iter(&content(file)?).collect();
    let items = items.map_err(|error| TlsError::file(file, &format!("expected {what} in PEM: {error}")))?;
    if items.is_empty() {
        Err(TlsError::file(file, &format!("expected {what} in PEM, found none")))
    } else {
        Ok(items)
    }
}

fn content(file: &Path) -> Result<Vec<u8>, TlsError> {
    read_bounded(file, MAX_FILE_BYTES).map_err(|reason| TlsError::file(file, &reason))
}
