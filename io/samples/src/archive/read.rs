//! Reads the members of a folder or a `.tar.gz`.

use std::io::Read;
use std::path::Path;

use tar::EntryType;

use super::collect::{Collector, MAX_TOTAL_BYTES, Member};
use crate::DataError;
use crate::files::{read_plain, sorted_names};
use crate::image_codec::MAX_FILE_BYTES;
use crate::tar_gz;

/// Gives the members of a `.tar.gz` to the collector.
pub(super) fn tar_gz(file: impl Read, collector: &mut Collector<'_>) -> Result<(), DataError> {
    tar_gz::visit(file, &collector.at(), MAX_TOTAL_BYTES, &mut |member| {
        let name = member.name;
        match member.kind {
            EntryType::Regular => collector.add(name, member.size, || member.read().map(Ok)),
            EntryType::Directory | EntryType::XGlobalHeader => Ok(()),
            _ if Member::of(name) == Member::Other => Ok(()),
            other => Err(collector.invalid("a plain file", format!("`{name}` of type {other:?}"))),
        }
    })
}

/// Reads `labels.json` and the frames one level below, in the order of their names. A frame that the file system refuses to read is a broken frame.
pub(super) fn folder(root: &Path, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let names = |dir: &Path| sorted_names(dir).map_err(DataError::read(format!("frames {}", root.display())));
    // The size is given as 0, since `read_plain` refuses a file that is too long.
    let mut add = |path: &Path, name: &str| collector.add(name, 0, || Ok(read_plain(path, MAX_FILE_BYTES)));
    for name in names(root)? {
        let (path, name) = (root.join(&name), name.to_string_lossy());
        if !path.is_dir() {
            add(&path, &name)?;
            continue;
        }
        for file in names(&path)? {
            add(&path.join(&file), &format!("{name}/{}", file.to_string_lossy()))?;
        }
    }
    Ok(())
}
