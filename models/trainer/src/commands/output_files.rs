//! Files that a command writes at its end, checked at its start: an hour of work is not lost to a wrong path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file of a command, with the name of its argument.
pub(crate) type NamedFile<'a> = (&'a str, &'a Path);

/// Refuses to write a file in a folder that does not exist, over something else than a plain file, and over the file of another argument.
pub(crate) fn check_output_file(
    (flag, file): NamedFile<'_>,
    other: Option<NamedFile<'_>>,
) -> Result<(), anyhow::Error> {
    let shown = file.display();
    if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
        anyhow::bail!("{flag} {shown}: expected a plain file or none, found something else");
    }
    let folder = folder_of(file);
    if !folder.is_dir() {
        let folder = folder.display();
        anyhow::bail!("{flag} {shown}: expected the folder {folder} to be there, found none; make it first");
    }
    if let Some((other, _)) = other.filter(|(_, other)| is_same_file(other, file)) {
        anyhow::bail!("{flag} {shown}: expected another file than that of {other}, found the same");
    }
    Ok(())
}

/// True when two paths lead to the same file, through links too. The file need not exist.
fn is_same_file(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) {
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let whole = |file: &Path| Some(fs::canonicalize(folder_of(file)).ok()?.join(file.file_name()?));
    whole(one).is_some_and(|one| Some(one) == whole(other))
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().unwrap_or(Path::new("/"));
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_or_is_read_through_a_link_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("bundle.hwb"), "bundle").unwrap();
        std::os::unix::fs::symlink(path("bundle.hwb"), path("symbolic.hwb")).unwrap();
        fs::hard_link(path("bundle.hwb"), path("hard.hwb")).unwrap();
        for read in ["bundle.hwb", "symbolic.hwb", "hard.hwb", "./bundle.hwb"] {
            let said = |file: &str| {
                let (file, read) = (path(file), path(read));
                let checked = check_output_file(("--out", file.as_path()), Some(("BUNDLE", read.as_path())));
                checked.map_or_else(|error| error.to_string(), |()| String::new())
            };
            assert!(said("bundle.hwb").contains("than that of BUNDLE"), "{read}");
            assert_eq!(said("other.hwb"), "");
            assert!(said("none/a.hwb").contains("make it first"));
            assert!(said("").contains("a plain file or none"));
        }
    }
}
