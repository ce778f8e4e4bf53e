//! Members of a folder laid out like the archive.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::ArchiveError;
use super::collect::{Collector, Wanted, read_whole};

/// Reads `labels.json` and the frames one folder below, in the order of their names.
pub(super) fn read(root: &Path, into: &mut Collector<'_>) -> Result<(), ArchiveError> {
    for name in names(root).map_err(|source| into.io(source))? {
        let path = root.join(&name);
        if path.is_dir() {
            for file in names(&path).map_err(|source| into.io(source))? {
                read_file(&path.join(&file), &format!("{name}/{file}"), into)?;
            }
        } else {
            read_file(&path, &name, into)?;
        }
    }
    Ok(())
}

/// A frame that the file system refuses is a broken frame, like one that does not decode.
fn read_file(path: &Path, name: &str, into: &mut Collector<'_>) -> Result<(), ArchiveError> {
    let size = fs::metadata(path).map_or(0, |metadata| metadata.len());
    let wanted = into.look(name, size)?;
    if wanted == Wanted::Nothing {
        return Ok(());
    }
    let bytes = File::open(path).and_then(|file| read_whole(file, size));
    match wanted {
        Wanted::Nothing => Ok(()),
        Wanted::Labels => into.put_labels(&bytes.map_err(|source| into.io(source))?),
        Wanted::Frame(place) => into.put_frame(name, place, bytes.map_err(|error| error.to_string())),
    }
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?;
    let mut names: Vec<_> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}
