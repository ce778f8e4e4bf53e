//! Errors of the authority.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Why an identity was not made, renewed or revoked.
#[derive(Debug, Error)]
pub enum EnrollError {
    /// The folder has a site already.
    #[error("{}: has the site {site} already; choose another folder, or add members to this one", .folder.display())]
    SiteExists {
        /// The folder.
        folder: PathBuf,
        /// Name of its site.
        site: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Key and certificate of the authority do not belong together.
    #[error(
        "{}: expected the certificate of the key in {}, found that of another key; bring back the pair that `headwater enroll init` wrote",
        .certificate.display(),
        .key.display()
    )]
    AuthorityPair {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// The name is taken in its group.
    #[error("{name}: is the {role} already; renew it, or choose another name")]
    Taken {
        /// Group and name.
        name: String,
        /// Role of the holder.
        role: &'static str,
    },
    /// No member has this name.
    #[error("{name}: no such member; members are {known}")]
    Unknown {
        /// Group and name that was asked for.
        name: String,
        /// The members.
        known: String,
    },
    /// The member is revoked.
    #[error("{0}: is revoked; enroll it under another name")]
    Revoked(String),
    /// Group or name do not fit the role.
    #[error("{0}")]
    Name(String),
    /// A certificate or a list cannot be made.
    #[error("{what}: {reason}")]
    Certificate {
        /// The certificate, list or key that could not be made.
        what: String,
        /// The reason.
        reason: String,
    },
}

impl EnrollError {
    pub(crate) fn file(path: impl Into<PathBuf>, reason: impl fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    pub(crate) fn certificate(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::Certificate { what: what.to_string(), reason: reason.to_string() }
    }
}
