//! The files of an identity, in PEM.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use super::certificate::{Certificate, revocations, subject};
use super::error::TlsError;
use super::pem::{certificates, key, revocation_lists};
use crate::file::warn_of_readers;

/// Names of the files of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// Certificates of the authorities whose peers are trusted.
    pub authority: PathBuf,
    /// Certificate and key of this end; `None` for a client without a certificate.
    pub own: Option<KeyPair>,
    /// File with the revocation lists of the authorities; `None` if nothing is checked for revocation.
    pub revoked: Option<PathBuf>,
}

/// The file of a certificate with its chain, and the file of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPair {
    /// File with the certificate, followed by the certificates between it and the authority.
    pub certificate: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
}

/// Content of the files.
pub(super) struct Material {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
    /// Serial numbers in the revocation lists.
    pub(super) serials: BTreeSet<String>,
}

impl IdentityFiles {
    /// Paths of all files of the identity.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let own = self.own.iter().flat_map(|own| [&own.certificate, &own.key]);
        own.chain([&self.authority]).chain(&self.revoked).map(PathBuf::as_path)
    }

    /// The file that an error names when the files do not fit each other.
    pub(super) fn main_file(&self) -> &Path {
        self.own.as_ref().map_or(&self.authority, |own| &own.certificate)
    }

    /// Warns if others than the owner may read the key.
    pub(super) fn warn_of_readers(&self) {
        if let Some(own) = &self.own {
            warn_of_readers(&own.key);
        }
    }

    pub(super) fn read(&self) -> Result<Material, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authority)? {
            roots.add(certificate).map_err(|error| TlsError::file(&self.authority, &error))?;
        }
        let own = self.own.as_ref().map(|own| Ok((certificates(&own.certificate)?, key(&own.key)?)));
        let revoked = self.revoked.as_deref().map(|file| self.checked_lists(file)).transpose()?;
        let (revoked, serials) = revoked.unwrap_or_default();
        Ok(Material { roots: Arc::new(roots), own: own.transpose()?, revoked, serials })
    }

    /// The revocation lists of a file, and the serial numbers in them. One of the authorities must have issued each list: any other list
    /// would end every handshake.
    fn checked_lists(
        &self,
        file: &Path,
    ) -> Result<(Vec<CertificateRevocationListDer<'static>>, BTreeSet<String>), TlsError> {
        let authorities = certificates(&self.authority)?;
        let names: Vec<_> = authorities.iter().filter_map(|authority| subject(authority)).collect();
        let (lists, mut serials) = (revocation_lists(file)?, BTreeSet::new());
        for list in &lists {
            let (issuer, revoked) = revocations(list).map_err(|reason| TlsError::file(file, &reason))?;
            serials.extend(revoked);
            if !names.contains(&issuer) {
                let found = String::from_utf8_lossy(&issuer)
                    .chars()
                    .filter(char::is_ascii_graphic)
                    .collect::<String>();
                let reason = format!(
                    "expected a list of the authority in {}, found one of {found:?}",
                    self.authority.display()
                );
                return Err(TlsError::file(file, &reason));
            }
        }
        Ok((lists, serials))
    }
}

impl Material {
    /// This end's certificate; `None` without one, or if it cannot be parsed.
    pub(super) fn certificate(&self) -> Option<Certificate> {
        let (chain, _) = self.own.as_ref()?;
        Certificate::parse(chain.first()?).ok()
    }
}
