//! Files that a device cannot use are renamed and kept for an operator, a bounded number in each folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

/// Reason for which a file is set aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    /// The part of the file's new name that names the reason.
    word: &'static str,
    /// Largest number of files in a folder that are set aside for this reason; beyond this number the oldest files are removed.
    max_files: usize,
}

impl Aside {
    /// The file cannot be read, or has other contents than were written.
    pub(crate) const DAMAGED: Self = Self { word: "damaged", max_files: 8 };
    /// The file belongs to another device. 512 segments of 256 KiB hold a spool of 128 MiB, twice the default size.
    pub(crate) const OTHER_DEVICE: Self = Self { word: "other", max_files: 512 };

    /// The number at the end of the name of a file that was set aside for this reason; `None` for any other name.
    fn number(self, name: &str) -> Option<u64> {
        name.rsplit_once('.')?.1.strip_prefix(self.word)?.strip_prefix('-')?.parse().ok()
    }
}

/// Renames a file to `<name>.damaged-<n>` or `<name>.other-<n>`, with a line in the log. A file that cannot be renamed is left where it is.
pub(crate) fn set_aside(path: &Path, aside: Aside, reason: &str) {
    match rename(path, aside) {
        Ok(kept_as) => {
            warn!(file = %path.display(), kept_as = %kept_as.display(), reason, "a file of the state folder is set aside");
        }
        Err(error) => {
            warn!(file = %path.display(), %error, reason, "a file of the state folder cannot be used nor set aside");
        }
    }
}

/// True for the name of a file that was set aside.
pub(crate) fn is_set_aside(name: &str) -> bool {
    [Aside::DAMAGED, Aside::OTHER_DEVICE].iter().any(|aside| aside.number(name).is_some())
}

fn rename(path: &Path, aside: Aside) -> io::Result<PathBuf> {
    let no_file = || io::Error::from(io::ErrorKind::InvalidInput);
    let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(no_file)?;
    let mut earlier: Vec<(u64, PathBuf)> = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        if let Some(number) = file.file_name().to_str().and_then(|name| aside.number(name)) {
            earlier.push((number, file.path()));
        }
    }
    earlier.sort();
    let number = earlier.last().map_or(0, |(number, _)| *number).saturating_add(1);
    let surplus = (earlier.len() + 1).saturating_sub(aside.max_files);
    for (_, file) in earlier.into_iter().take(surplus) {
        fs::remove_file(file)?;
    }
    let kept_as = folder.join(format!("{}.{}-{number}", name.to_string_lossy(), aside.word));
    fs::rename(path, &kept_as)?;
    Ok(kept_as)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_files_are_kept_under_growing_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for at in 0..20 {
            let file = dir.path().join(format!("{:08}.seg", at % 3));
            fs::write(&file, [at]).unwrap();
            set_aside(&file, Aside::DAMAGED, "test");
            assert!(!file.exists());
        }
        fs::write(dir.path().join("boot"), "1").unwrap();
        set_aside(&dir.path().join("boot"), Aside::OTHER_DEVICE, "test");
        let mut files: Vec<_> = (fs::read_dir(dir.path()).unwrap())
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_by_key(|name| Aside::DAMAGED.number(name));
        assert_eq!(files.len(), 1 + Aside::DAMAGED.max_files);
        assert_eq!((files[0].as_str(), files[1].as_str()), ("boot.other-1", "00000000.seg.damaged-13"));
        assert_eq!(fs::read(dir.path().join("00000001.seg.damaged-20")).unwrap(), [19]);
        assert!(files.iter().all(|name| is_set_aside(name)) && !is_set_aside("00000001.seg"));
    }

    #[test]
    fn a_file_that_is_gone_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        set_aside(&dir.path().join("boot"), Aside::DAMAGED, "test");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
