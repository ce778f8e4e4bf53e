//! Files of the segments in a folder: `00000001.seg`, `00000002.seg`, ...

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::given_up_ids;

/// Extension of a segment's file name.
const EXTENSION: &str = "seg";

/// The path of a segment.
pub(super) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number:08}.{EXTENSION}"))
}

/// The segments of a folder in the order in which they were written. A missing folder is made; any other file is logged and left alone.
///
/// # Errors
/// When the folder cannot be made or read.
pub(super) fn segments(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    fs::create_dir_all(folder)?;
    let mut segments = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?.path();
        match number(&file) {
            Some(number) => segments.push((number, file)),
            None if file.file_name().is_some_and(|name| name == given_up_ids::FILE) => {}
            None => warn!(file = %file.display(), "not a segment of the spool: the file is left alone"),
        }
    }
    segments.sort();
    Ok(segments)
}

fn number(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?;
    let number = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok()?;
    // Only the spelling that `path` writes is a segment.
    (name == path(Path::new(""), number).to_str()?).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_distinguished_from_other_files_and_come_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("made/here");
        assert_eq!(segments(&folder).unwrap(), []);
        for name in ["00000010.seg", "00000009.seg", "1.seg", "+0000001.seg", "x.seg", "00000001.seg.new"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let found: Vec<u32> = segments(&folder).unwrap().into_iter().map(|(number, _)| number).collect();
        assert_eq!(found, [9, 10]);
    }
}
