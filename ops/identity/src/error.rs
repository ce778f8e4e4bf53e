//! Errors of enrolling, renewing and revoking.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thiserror::Error;

/// Reason why an identity was not made, renewed or revoked.
#[derive(Debug, Error)]
pub enum EnrollError {
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
    /// A site, a member or a file cannot be used; the text names it.
    #[error("{0}")]
    Refused(String),
}

impl EnrollError {
    /// An error of the operating system. If access is denied, the reason also names the owner of the file, and gives advice.
    pub(crate) fn system(path: &Path, error: &io::Error) -> Self {
        let denied = (error.kind() == io::ErrorKind::PermissionDenied).then(|| denied(path)).flatten();
        match denied {
            Some(denied) => Self::file(path, format!("{error}: {denied}")),
            None => Self::file(path, error),
        }
    }

    pub(crate) fn file(path: impl AsRef<Path>, reason: impl fmt::Display) -> Self {
        Self::refused(path.as_ref().display(), reason)
    }

    pub(crate) fn refused(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self::Refused(format!("{what}: {reason}"))
    }
}

/// Text with the owner of the file, or of its nearest visible parent folder, and advice; `None` if no owner can be read.
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
