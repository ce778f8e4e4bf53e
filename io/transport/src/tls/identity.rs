//! The identity of either end.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::certificate::{Certificate, CertificateState};
use super::error::TlsError;
use super::files::{IdentityFiles, Material};
use crate::reloading::Reloading;

/// Identity of one end; `C` is its configuration in rustls. Clones share the content of the files.
#[derive(Clone)]
pub struct Identity<C> {
    files: IdentityFiles,
    used: Arc<Reloading<Used<C>>>,
}

/// Configuration, certificate and revoked serial numbers from the files when they were last usable.
struct Used<C> {
    config: Arc<C>,
    own: Option<Certificate>,
    revoked: BTreeSet<String>,
}

impl<C: 'static> Identity<C> {
    /// Reads the files, and makes the configuration by `config`.
    pub(super) fn of(
        files: IdentityFiles,
        config: impl Fn(&IdentityFiles, Material) -> Result<C, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let (paths, of_config) = (files.all().map(Into::into).collect(), files.clone());
        let make = move || {
            let mut material = of_config.read()?;
            let (own, revoked) = (material.certificate(), std::mem::take(&mut material.serials));
            Ok::<_, TlsError>(Used { config: Arc::new(config(&of_config, material)?), own, revoked })
        };
        files.warn_of_readers();
        Ok(Self { used: Arc::new(Reloading::new("certificates", paths, make)?), files })
    }

    /// The certificate that the next handshake shows; `None` for a client without a certificate.
    pub fn certificate(&self) -> Option<Certificate> {
        self.used.get().own.clone()
    }

    /// State of the certificate that the next handshake shows; `None` for a client without a certificate.
    pub fn certificate_state(&self) -> Option<CertificateState> {
        let expires_unix_s = self.certificate()?.expires_unix_s();
        Some(CertificateState { expires_unix_s, has_failed_reload: self.used.has_failed() })
    }

    /// Configuration of the next handshake, from the files as they are now.
    pub(super) fn config(&self) -> Arc<C> {
        Arc::clone(&self.used.get().config)
    }

    /// Returns true if a revocation list has this serial number.
    pub(super) fn has_revoked(&self, serial: &str) -> bool {
        self.used.get().revoked.contains(serial)
    }
}

impl<C> fmt::Debug for Identity<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("files", &self.files).finish()
    }
}
