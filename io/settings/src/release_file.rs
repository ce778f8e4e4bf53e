//! The file of releases: a line for each name with the release of the signed bundle that was used last.
//!
//! ```text
//! plant/line 7
//! plant/yard 3
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use headwater_transport::{PUBLIC_MODE, replace_file};

/// Release that was used last under a name; 0 for a name that the file does not have.
pub(crate) fn read(file: &Path, name: &str) -> Result<u64, String> {
    Ok(read_all(file)?.get(name).copied().unwrap_or(0))
}

/// Writes the release of a name, if it differs. The file is replaced as a whole, so that a kill leaves the earlier file.
pub(crate) fn keep(file: &Path, name: &str, release: u64) -> Result<(), String> {
    let mut releases = read_all(file)?;
    if releases.insert(name.to_owned(), release) == Some(release) {
        return Ok(());
    }
    let lines: String = releases.iter().map(|(name, release)| format!("{name} {release}\n")).collect();
    replace_file(file, lines, PUBLIC_MODE)
        .map_err(|error| format!("release_file: writing {}: {error}", file.display()))
}

fn read_all(file: &Path) -> Result<BTreeMap<String, u64>, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("release_file: reading {}: {error}", file.display())),
    };
    let parsed = text.lines().map(|line| {
        let (name, release) = line.rsplit_once(' ')?;
        Some((name.to_owned(), release.parse().ok()?))
    });
    parsed.collect::<Option<_>>().ok_or_else(|| {
        format!(
            "release_file: {}: expected lines of a name and a number, found others; without the file a bundle of any release is taken",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_release_and_another_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("release");
        assert_eq!(read(&file, "plant/line"), Ok(0));
        for (name, release) in [("plant/line", 7), ("plant/yard", 3), ("plant/line", 8)] {
            keep(&file, name, release).unwrap();
            assert_eq!(read(&file, name), Ok(release));
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "plant/line 8\nplant/yard 3\n");
        fs::write(&file, "seven").unwrap();
        let error = read(&file, "plant/line").unwrap_err();
        assert!(error.contains("expected lines of a name and a number"), "{error}");
        assert!(keep(&folder.path().join("none/release"), "plant/line", 1).is_err());
    }
}
