//! Ids of samples of which nothing else is left, in a file beside the segments, so that the next life can still tell the leader.
//!
//! Twelve bytes each: the id and a sum, little endian. Ids are appended; those that are settled go with the file when none is left.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use headwater_protocol::SampleId;
use tracing::warn;

/// Its name in the folder.
pub(super) const FILE: &str = "given_up";

/// Bytes of an id in it.
const ID_BYTES: usize = 12;

/// Ids in the file before those that are settled are left out.
const MOST_IDS: usize = 4 * super::room::MOST_GIVEN_UP;

/// The file, where there is a folder.
#[derive(Debug, Default)]
pub(super) struct Ids {
    path: Option<PathBuf>,
    file: Option<File>,
    written: usize,
    has_failed: bool,
}

impl Ids {
    /// The file of a folder, and the ids in it. What is cut or altered in it is passed over.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Vec<SampleId>)> {
        let path = folder.join(FILE);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let (ids, _) = bytes.as_chunks::<ID_BYTES>();
        let ids = ids.iter().filter_map(|id| {
            let &[a, b, c, d, e, f, g, h, ref crc @ ..] = id;
            let number = [a, b, c, d, e, f, g, h];
            (*crc == crc32fast::hash(&number).to_le_bytes()).then(|| SampleId(u64::from_le_bytes(number)))
        });
        Ok((Self { path: Some(path), ..Self::default() }, ids.collect()))
    }

    /// Adds one. True when the file should be written anew, with those alone that are wanted.
    pub(super) fn add(&mut self, sample: SampleId) -> bool {
        let added = self.try_add(sample);
        self.check(added);
        self.written > MOST_IDS
    }

    /// Writes the file anew; without ids there is none.
    pub(super) fn write_anew(&mut self, ids: impl Iterator<Item = SampleId>) {
        let written = self.try_write_anew(ids);
        self.check(written);
    }

    /// What cannot be written is known to this life alone.
    fn check(&mut self, done: io::Result<()>) {
        if let Err(error) = done
            && !self.has_failed
        {
            self.has_failed = true;
            warn!(%error, file = FILE, "ids of samples that were given up are not kept over a restart");
        }
    }

    fn try_add(&mut self, sample: SampleId) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = match self.file.take() {
            Some(file) => self.file.insert(file),
            None => self.file.insert(OpenOptions::new().append(true).create(true).open(path)?),
        };
        file.write_all(&bytes(sample))?;
        self.written += 1;
        Ok(())
    }

    fn try_write_anew(&mut self, ids: impl Iterator<Item = SampleId>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = None;
        let all: Vec<u8> = ids.flat_map(bytes).collect();
        self.written = all.len() / ID_BYTES;
        if all.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // A new file put in place of the old one: a crash leaves either whole.
        let new = path.with_extension("new");
        fs::write(&new, all).and_then(|()| fs::rename(&new, path))
    }
}

fn bytes(sample: SampleId) -> [u8; ID_BYTES] {
    let [a, b, c, d, e, f, g, h] = sample.0.to_le_bytes();
    let [i, j, k, l] = crc32fast::hash(&sample.0.to_le_bytes()).to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_back_but_for_those_that_are_cut_or_altered() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ids, found) = Ids::open(dir.path()).unwrap();
        assert_eq!(found, []);
        for id in [1, 1 << 40, 3] {
            assert!(!ids.add(SampleId(id)));
        }
        assert_eq!(Ids::open(dir.path()).unwrap().1, [1, 1 << 40, 3].map(SampleId));
        let path = dir.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[13] ^= 1;
        bytes.pop();
        fs::write(&path, bytes).unwrap();
        let (mut ids, found) = Ids::open(dir.path()).unwrap();
        assert_eq!(found, [SampleId(1)]);
        ids.write_anew([SampleId(9)].into_iter());
        ids.add(SampleId(10));
        assert_eq!(Ids::open(dir.path()).unwrap().1, [SampleId(9), SampleId(10)]);
        ids.write_anew(std::iter::empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
