//! Sets a damaged journal aside: the readable lines become the new file, and the damaged file is kept under another name.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use headwater_transport::folder_of;
use tracing::warn;

use super::disk::{Disk, replace};
use super::reader::Damage;
use super::store::{ClosedLine, Store};

/// Most damaged files that are kept; beyond that the oldest is deleted.
const MAX_KEPT: usize = 3;

/// Most unreadable stretches that the log names.
const MAX_NAMED: usize = 8;

impl Store {
    /// Goes on with the readable lines in a new file. After an error the damaged file stays in use.
    ///
    /// # Errors
    /// The damaged file gets no second name, or no new file can be written.
    pub(super) fn set_aside(&mut self, damage: &Damage) -> io::Result<()> {
        let (path, stretches) = (self.path.display(), named(&damage.unreadable));
        match keep_and_replace(&*self.disk, &self.path, &self.file, &damage.readable) {
            Ok((kept, file, length)) => {
                let kept = kept.display();
                warn!(
                    %path, %kept, stretches,
                    "the journal has unreadable bytes: its readable lines count if one of them says the format, the damaged file is \
                     kept; samples of lost lines may be decided again"
                );
                move_lines(&mut self.closed, &damage.readable);
                self.take_file(file, length);
                Ok(())
            }
            Err(reason) => {
                warn!(
                    %path, stretches, %reason,
                    "the journal has unreadable bytes: its readable lines count; the damaged file cannot be set aside and stays in use"
                );
                self.ends_in_line = damage.ends_in_line;
                Err(reason)
            }
        }
    }
}

/// Gives the damaged file a second name, then writes the readable lines into a file that takes the first name. At every moment there is
/// a file under the first name. Returns the second name, the new file and its length in bytes.
fn keep_and_replace(
    disk: &dyn Disk,
    path: &Path,
    damaged: &File,
    readable: &[Range<u64>],
) -> io::Result<(PathBuf, File, u64)> {
    let mut kept = kept_files(path)?;
    let number = kept.last().map_or(1, |(number, _)| number.saturating_add(1));
    let name = path.with_added_extension(format!("damaged-{number}"));
    if fs::hard_link(path, &name).is_err() {
        // Some file systems have no hard links.
        fs::copy(path, &name).inspect_err(|_| _ = fs::remove_file(&name))?;
    }
    let copied = replace(path, true, |file| copy(disk, damaged, readable, file));
    let file = copied.inspect_err(|_| _ = fs::remove_file(&name))?;
    kept.push((number, name.clone()));
    for (_, surplus) in &kept[..kept.len().saturating_sub(MAX_KEPT)] {
        // A file that cannot be deleted costs room and nothing else.
        _ = fs::remove_file(surplus);
    }
    let length = readable.iter().map(|range| range.end - range.start).sum();
    Ok((name, file, length))
}

/// The damaged files that are kept, oldest first, with their numbers.
fn kept_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let prefix = Path::new(path.file_name().unwrap_or_default()).with_added_extension("damaged-");
    let mut kept = Vec::new();
    for file in fs::read_dir(folder_of(path))? {
        let file = file?;
        let name = file.file_name();
        let number = name.as_encoded_bytes().strip_prefix(prefix.as_os_str().as_encoded_bytes());
        let number = number.and_then(|number| str::from_utf8(number).ok()?.parse().ok());
        kept.extend(number.map(|number| (number, file.path())));
    }
    kept.sort();
    Ok(kept)
}

/// Copies ranges of the file `from` to the end of the file `to`, a block at a time.
fn copy(disk: &dyn Disk, from: &File, ranges: &[Range<u64>], to: &File) -> io::Result<()> {
    let mut block = vec![0; 1 << 16];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let length = block.len().min((range.end - at).try_into().unwrap_or(usize::MAX));
            from.read_exact_at(&mut block[..length], at)?;
            disk.append(to, &block[..length])?;
            at += length as u64;
        }
    }
    Ok(())
}

/// Changes the positions of lines to their positions in the new file, in which the readable ranges follow each other.
fn move_lines<'a>(lines: impl IntoIterator<Item = &'a mut ClosedLine>, readable: &[Range<u64>]) {
    let mut ranges = readable.iter();
    let Some(mut range) = ranges.next() else { return };
    let mut moved = 0;
    for line in lines {
        while line.at >= range.end {
            moved += range.end - range.start;
            let Some(next) = ranges.next() else { return };
            range = next;
        }
        line.at = moved + line.at - range.start;
    }
}

/// The first stretches as text, such as `4096..8192`.
fn named(stretches: &[Range<u64>]) -> String {
    let mut named: Vec<_> = stretches.iter().take(MAX_NAMED).map(|range| format!("{range:?}")).collect();
    let rest = stretches.len().saturating_sub(MAX_NAMED);
    if rest > 0 {
        named.push(format!("and {rest} more"));
    }
    named.join(", ")
}
