//! Reads the members of a folder or a `.tar.gz`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use tar::EntryType;

use super::collect::{Collector, Needed};
use super::member::Member;
use crate::DataError;
use crate::tar_gz::{self, read_whole};

/// Reads a `.tar.gz`.
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
            None => Ok(()),
            Some(Needed::Labels) => collector.add_labels(&member.read()?),
            Some(Needed::Frame(id)) => collector.add_frame(name, id, Ok(member.read()?)),
        }
    })
}

/// Reads `labels.json` and the frames one level below, in the order of their names.
pub(super) fn folder(root: &Path, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let names = |dir: &Path| file_names(dir).map_err(DataError::read(format!("frames {}", root.display())));
    for name in names(root)? {
        let path = root.join(&name);
        if path.is_dir() {
            for file in names(&path)? {
                read_file(&path.join(&file), &format!("{name}/{file}"), collector)?;
            }
        } else {
            read_file(&path, &name, collector)?;
        }
    }
    Ok(())
}

/// Reads a file. A frame that the file system refuses to read is a broken frame.
fn read_file(path: &Path, name: &str, collector: &mut Collector<'_>) -> Result<(), DataError> {
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let Some(needed) = collector.judge(name, size)? else { return Ok(()) };
    let bytes = File::open(path).and_then(|file| read_whole(file, size));
    match needed {
        Needed::Labels => collector.add_labels(&bytes.map_err(DataError::read(collector.at()))?),
        Needed::Frame(id) => collector.add_frame(name, id, bytes.map_err(|error| error.to_string())),
    }
}

fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?;
    let mut names: Vec<_> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}
