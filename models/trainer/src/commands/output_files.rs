//! Files that a command writes at its end, checked at its start: an hour of work is not lost to a wrong path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that will be written, with the name of its argument.
pub(crate) struct OutputFile<'a> {
    pub(crate) flag: &'a str,
    pub(crate) file: &'a Path,
}

impl<'a> OutputFile<'a> {
    /// The files that were asked for.
    pub(crate) fn asked(files: impl IntoIterator<Item = (&'a str, &'a Option<PathBuf>)>) -> Vec<Self> {
        let files = files.into_iter();
        files.filter_map(|(flag, file)| Some(Self { flag, file: file.as_deref()? })).collect()
    }
}

/// Refuses a file in a folder that does not exist, a path to something else than a plain file, and two arguments with the same file.
pub(crate) fn check_output_files(files: &[OutputFile<'_>]) -> Result<(), anyhow::Error> {
    for (at, OutputFile { flag, file }) in files.iter().enumerate() {
        let shown = file.display();
        if fs::symlink_metadata(file).is_ok_and(|found| !found.is_file()) {
            anyhow::bail!("{flag} {shown}: expected a plain file or none, found something else");
        }
        let folder = folder_of(file);
        if !folder.is_dir() {
            anyhow::bail!(
                "{flag} {shown}: expected the folder {} to be there, found none; make it first",
                folder.display()
            );
        }
        if let Some(other) = files[..at].iter().find(|other| is_same_file(other.file, file)) {
            return Err(same_file_error(&files[at], other));
        }
    }
    Ok(())
}

/// Refuses a file that the command reads.
pub(crate) fn check_not_read(files: &[OutputFile<'_>], read: &OutputFile<'_>) -> Result<(), anyhow::Error> {
    match files.iter().find(|written| is_same_file(written.file, read.file)) {
        Some(written) => Err(same_file_error(written, read)),
        None => Ok(()),
    }
}

fn same_file_error(written: &OutputFile<'_>, other: &OutputFile<'_>) -> anyhow::Error {
    let OutputFile { flag, file } = written;
    anyhow::anyhow!(
        "{flag} {}: expected another file than that of {}, found the same",
        file.display(),
        other.flag
    )
}

/// Whether two paths lead to the same file, through links too. The file need not exist.
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
    fn files_that_cannot_be_written_or_are_asked_for_twice_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let said = |files: &[(&str, PathBuf)]| {
            let files: Vec<_> = files.iter().map(|(flag, file)| OutputFile { flag, file }).collect();
            check_output_files(&files).map_err(|error| error.to_string())
        };
        assert_eq!(
            said(&[("--report", path("a.svg")), ("--out", path("b.hwb")), ("--frontier", "c.json".into())]),
            Ok(())
        );
        assert!(said(&[("--report", path("none/a.svg"))]).unwrap_err().contains("make it first"));
        assert!(said(&[("--report", folder.path().into())]).unwrap_err().contains("a plain file or none"));
        let twice = said(&[("--report", path("a")), ("--out", path("./a"))]).unwrap_err();
        assert!(twice.starts_with("--out ") && twice.contains("than that of --report"), "{twice}");
    }

    #[test]
    fn a_file_that_is_read_through_a_link_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("bundle.hwb"), "bundle").unwrap();
        std::os::unix::fs::symlink(path("bundle.hwb"), path("symbolic.hwb")).unwrap();
        fs::hard_link(path("bundle.hwb"), path("hard.hwb")).unwrap();
        for name in ["bundle.hwb", "symbolic.hwb", "hard.hwb"] {
            let read = path(name);
            let said = |written: &str| {
                let written = [OutputFile { flag: "--report", file: &path(written) }];
                check_not_read(&written, &OutputFile { flag: "BUNDLE", file: &read })
                    .map_err(|error| error.to_string())
            };
            assert!(said("bundle.hwb").unwrap_err().contains("than that of BUNDLE"), "{name}");
            assert_eq!(said("other.svg"), Ok(()));
        }
    }
}
