//! Reads the members of a folder or a `.tar.gz`.

use std::io::Read;
use std::path::Path;

use tar::EntryType;

use super::collect::{Collector, Member};
use crate::DataError;
use crate::files::{read_plain, sorted_names};
use crate::tar_gz;

/// Gives the members of a `.tar.gz` to the collector.
pub(super) fn tar_gz(
    file: impl Read,
    max_bytes: u64,
    collector: &mut Collector<'_>,
) -> Result<(), DataError> {
    tar_gz::visit(file, &collector.at(), max_bytes, &mut |member| {
        let name = member.name;
        match member.kind {
            EntryType::Regular => {}
            EntryType::Directory | EntryType::XGlobalHeader => return Ok(()),
            _ if Member::of(name) == Member::Other => return Ok(()),
            other => return Err(collector.invalid("a plain file", format!("`{name}` of type {other:?}"))),
        }
        match collector.judge(name, member.size)? {
            Member::Other | Member::Misnamed => Ok(()),
            Member::Labels => collector.add_labels(&member.read()?),
            Member::Frame(id) => collector.add_frame(name, id, Ok(member.read()?)),
        }
    })
}

/// Reads `labels.json` and the frames one level below, in the order of their names.
pub(super) fn folder(root: &Path, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let names = |dir: &Path| sorted_names(dir).map_err(DataError::read(format!("frames {}", root.display())));
    for name in names(root)? {
        let (path, name) = (root.join(&name), name.to_string_lossy());
        if !path.is_dir() {
            read_file(&path, &name, collector)?;
            continue;
        }
        for file in names(&path)? {
            read_file(&path.join(&file), &format!("{name}/{}", file.to_string_lossy()), collector)?;
        }
    }
    Ok(())
}

/// Reads a file. A frame that the file system refuses to read is a broken frame.
fn read_file(path: &Path, name: &str, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let limit = collector.member_bytes();
    let bytes = || read_plain(path, limit);
    // The reader refuses a file that is too long.
    match collector.judge(name, 0)? {
        Member::Other | Member::Misnamed => Ok(()),
        Member::Labels => collector.add_labels(&bytes().map_err(DataError::read(path.display()))?),
        Member::Frame(id) => collector.add_frame(name, id, bytes().map_err(|error| error.to_string())),
    }
}
