//! Where a data set lies. The environment is read by the caller and passed in.

use std::path::{Path, PathBuf};

/// No folder for a data set.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Neither an argument nor a root was given.
    #[error(
        "{dataset}: no folder given; name it with --data-dir, or set HEADWATER_DATA to the folder \
         that holds `{dataset}`"
    )]
    NotGiven {
        /// Data set asked for, which is also the name of its folder under the root.
        dataset: String,
    },
    /// What was given is no folder.
    #[error(
        "{dataset}: expected a folder at {} (from {origin}), found none; correct the path",
        path.display()
    )]
    NoFolder {
        /// Data set asked for.
        dataset: String,
        /// Where it should be.
        path: PathBuf,
        /// Who said so.
        origin: &'static str,
    },
}

/// The file `name` in `dir`, or the same with the first of `endings` that is there.
pub(crate) fn file(dir: &Path, name: &str, endings: &[&str]) -> Option<PathBuf> {
    endings.iter().map(|ending| dir.join(format!("{name}{ending}"))).find(|path| path.is_file())
}

/// The folder of a data set: `explicit` itself, else the folder `dataset` under `root` (the caller's
/// `HEADWATER_DATA`).
///
/// # Errors
/// [`DataDirError`] when there is neither, or no folder at the place they name.
pub fn find(dataset: &str, explicit: Option<&Path>, root: Option<&Path>) -> Result<PathBuf, DataDirError> {
    let (path, origin) = match (explicit, root) {
        (Some(dir), _) => (dir.to_path_buf(), "--data-dir"),
        (None, Some(root)) => (root.join(dataset), "HEADWATER_DATA"),
        (None, None) => return Err(DataDirError::NotGiven { dataset: dataset.into() }),
    };
    if path.is_dir() {
        Ok(path)
    } else {
        Err(DataDirError::NoFolder { dataset: dataset.into(), path, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_comes_before_the_environment() {
        let root = tempfile::tempdir().unwrap();
        let own = tempfile::tempdir().unwrap();
        let under_root = root.path().join("mnist");
        std::fs::create_dir(&under_root).unwrap();
        assert_eq!(find("mnist", Some(own.path()), Some(root.path())).unwrap(), own.path());
        assert_eq!(find("mnist", None, Some(root.path())).unwrap(), under_root);
    }

    #[test]
    fn what_is_missing_is_named_with_its_origin() {
        let error = |explicit, root| find("mnist", explicit, root).unwrap_err().to_string();
        assert!(error(None, None).contains("--data-dir"));
        assert!(error(Some(Path::new("no/where")), None).contains("no/where (from --data-dir)"));
        assert!(error(None, Some(Path::new("no"))).contains("no/mnist (from HEADWATER_DATA)"));
    }
}
