//! Errors of enrolling, renewing and revoking.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why an identity was not made, renewed or revoked.
#[derive(Debug, Error)]
pub enum EnrollError {
    /// The folder has a site already.
    #[error("{}: has the site {site} already; choose another folder, or add members to this one", .folder.display())]
    SiteExists {
        /// The folder.
        folder: PathBuf,
        /// Name of the site in the folder.
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
    /// The name is taken in its group, or among the members without a group.
    #[error("{name}: is the {role} already; renew it, or choose another name")]
    Taken {
        /// Group and name.
        name: String,
        /// Role of the member that has the name.
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
    /// The group, the name or the hosts do not fit the role.
    #[error("{0}")]
    Name(String),
    /// An option of the command has a value that cannot work.
    #[error("{setting}: expected {expected}, found {found:?}; {advice}")]
    Setting {
        /// Flag of the command.
        setting: &'static str,
        /// Values that work.
        expected: &'static str,
        /// Value that was given.
        found: String,
        /// Advice to the user.
        advice: &'static str,
    },
    /// A certificate, a key or a list of revoked certificates cannot be made.
    #[error("{what}: {reason}")]
    Certificate {
        /// The certificate, list or key that could not be made.
        what: String,
        /// The reason.
        reason: String,
    },
}

impl EnrollError {
    /// An error of the operating system. If access is denied, the reason also says who owns the file, and what to do.
    pub(crate) fn system(path: &Path, error: &io::Error) -> Self {
        let denied = (error.kind() == io::ErrorKind::PermissionDenied).then(|| denied(path)).flatten();
        match denied {
            Some(denied) => Self::file(path, format!("{error}: {denied}")),
            None => Self::file(path, error),
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>, reason: impl fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    pub(crate) fn certificate(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::Certificate { what: what.to_string(), reason: reason.to_string() }
    }
}

/// Says who owns the file, or its nearest parent folder that is visible, and what to do. `None` if no owner can be read.
pub(crate) fn denied(path: &Path) -> Option<String> {
    let (seen, owner) = path.ancestors().find_map(|path| Some((path, path.metadata().ok()?.uid())))?;
    // `/proc/self` belongs to the user that this process runs as.
    let user = Path::new("/proc/self").metadata().ok()?.uid();
    let advice = match owner == user {
        true => format!("compare its mode and that of its folder: ls -ld {}", seen.display()),
        false => format!("run the command as that user: sudo -u '#{owner}' headwater ..."),
    };
    Some(format!("{} belongs to user {owner}, and this is user {user}; {advice}", seen.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_access_says_whose_the_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = EnrollError::system(&folder.path().join("gate/cam-6"), &denied).to_string();
        for part in ["gate/cam-6: permission denied: ", "belongs to user ", "and this is user "] {
            assert!(error.contains(part), "{part} in {error}");
        }
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert!(!EnrollError::system(folder.path(), &missing).to_string().contains("belongs to"));
    }
}
