//! Secrets, from the environment or from files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::{read_bounded, warn_of_readers};
use crate::reloading::Reloading;

/// A password or key, which is never printed. Clones share the secret.
#[derive(Clone)]
pub struct Secret(Source);

#[derive(Clone)]
enum Source {
    Text(Arc<str>),
    File(Arc<Reloading<String>>),
}

impl Secret {
    /// A secret that does not change.
    pub fn of_text(text: impl Into<Arc<str>>) -> Self {
        Self(Source::Text(text.into()))
    }

    /// The first line of a file, which may be replaced at any time. Warns if others than the owner may read the file.
    ///
    /// # Errors
    /// The path and the reason; never the content.
    pub fn of_file(file: impl Into<PathBuf>) -> Result<Self, String> {
        let file = file.into();
        warn_of_readers(&file);
        let reloading = Reloading::new("secret", vec![file.clone()], move || first_line(&file))?;
        Ok(Self(Source::File(Arc::new(reloading))))
    }

    /// The secret as it is now.
    pub fn get(&self) -> String {
        match &self.0 {
            Source::Text(text) => text.to_string(),
            Source::File(file) => (*file.get()).clone(),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Largest file of a secret, bytes.
const MAX_BYTES: u64 = 64 * 1024;

fn first_line(file: &Path) -> Result<String, String> {
    let of = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let content = read_bounded(file, MAX_BYTES).map_err(|reason| of(&reason))?;
    let text = String::from_utf8(content).map_err(|_| of(&"expected text in UTF-8, found other bytes"))?;
    // Some editors put a byte order mark before the text.
    match text.trim_start_matches('\u{feff}').lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        Some(_) | None => Err(of(&"expected a secret in the first line, found none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "\u{feff}s3cret\r\nmore\n").unwrap();
        assert_eq!(first_line(&file).unwrap(), "s3cret");
        std::fs::write(&file, "\u{feff}\n").unwrap();
        assert!(first_line(&file).is_err());
    }

    #[test]
    fn a_secret_is_the_first_line_of_its_file_and_never_printed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("password");
        std::fs::write(&file, "horse battery\nsecond line\n").expect("writes");
        let secret = Secret::of_file(&file).expect("a secret");
        assert_eq!(secret.get(), "horse battery");
        assert_eq!(format!("{secret:?} {:?}", Secret::of_text("staple")), "*** ***");
        std::fs::write(&file, "\n").expect("writes");
        let refused = Secret::of_file(&file).expect_err("no secret");
        assert!(refused.contains("password: expected a secret"), "{refused}");
        assert!(Secret::of_file(folder.path().join("none")).is_err());
    }
}
