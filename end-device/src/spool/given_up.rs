//! File of the ids of given-up samples that lie in no segment, so that the next start can still report these samples to the leader.
//!
//! ```text
//! 0          8             16      20            28      32
//! +----------+-------------+-------+-------------+-------+ ...
//! | HWGIVEN2 | sample id   | crc   | sample id   | crc   |
//! +----------+-------------+-------+-------------+-------+ ...
//! ```
//!
//! The digit in `HWGIVEN2` is the format. All numbers are little endian. Ids are appended. The file is removed when no id is left.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use headwater_protocol::SampleId;
use headwater_transport::{PUBLIC_MODE, replace_file};
use tracing::warn;

use crate::error::DeviceError;
use crate::give_up_reason::GiveUpReason;
use crate::report::SharedReport;
use crate::state_folder::{Aside, is_disk_full, other_format, set_aside};

/// The reason for which a write failed.
pub(super) fn reason_of(error: &io::Error) -> GiveUpReason {
    if is_disk_full(error) { GiveUpReason::DISK_FULL } else { GiveUpReason::DISK }
}

/// Name of the file in the folder.
pub(super) const FILE: &str = "given_up";

/// First bytes of the file; the digit is its format. The file of format 1 began with an id.
const MAGIC: &[u8; 8] = b"HWGIVEN2";

/// Bytes of an id and its check sum in the file.
const ID_BYTES: usize = 12;

/// Largest number of given-up samples whose ids are kept; beyond this number the lowest ids are forgotten.
pub(super) const MAX_GIVEN_UP: usize = 65_536;

/// Number of ids in the file beyond which the file is rewritten without the settled ids.
const MAX_IDS: usize = 4 * MAX_GIVEN_UP;

/// The file of ids; `path` is `None` for a spool in memory.
#[derive(Debug, Default)]
pub(super) struct GivenUpIds {
    path: Option<PathBuf>,
    file: Option<File>,
    written: usize,
    has_failed: bool,
}

impl GivenUpIds {
    /// Opens the file of a folder, and reads its ids. A file with altered ids is set aside; a cut id at its end is skipped.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] for a file of format 1.
    pub(super) fn open(folder: &Path, report: &SharedReport) -> Result<(Self, Vec<SampleId>), DeviceError> {
        let path = folder.join(FILE);
        let (ids, damage) = match read(&path) {
            Ok(bytes) if bytes.first_chunk().and_then(decoded).is_some() => {
                return Err(other_format(&path, '1'));
            }
            // A killed process may have written only a part of the first bytes.
            Ok(bytes) if MAGIC.starts_with(&bytes) => (Vec::new(), None),
            Ok(bytes) => {
                let ids = bytes.strip_prefix(MAGIC);
                let damage = ids.is_none().then(|| "expected ids of given-up samples".to_owned());
                let (entries, _) = ids.unwrap_or_default().as_chunks::<ID_BYTES>();
                let ids: Vec<SampleId> = entries.iter().filter_map(decoded).collect();
                let altered = entries.len() - ids.len();
                let altered = (altered > 0)
                    .then(|| format!("expected ids with their check sums, found {altered} others"));
                (ids, damage.or(altered))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        if let Some(damage) = damage {
            set_aside(&path, Aside::DAMAGED, &damage);
            report.lock().state_damaged += 1;
        }
        Ok((Self { path: Some(path), ..Self::default() }, ids))
    }

    /// Appends an id; returns true when the file is so long that the caller should rewrite it.
    pub(super) fn append(&mut self, sample: SampleId) -> bool {
        let appended = self.try_append(sample);
        self.log_failure(appended);
        self.written > MAX_IDS
    }

    /// Rewrites the file with these ids; without ids the file is removed.
    pub(super) fn rewrite(&mut self, ids: impl Iterator<Item = SampleId>) {
        let written = self.try_rewrite(ids);
        self.log_failure(written);
    }

    /// Logs a failure, unless the previous write failed too. Ids that cannot be written are lost at the end of the process.
    fn log_failure(&mut self, done: io::Result<()>) {
        let has_failed = done.is_err();
        if let (Err(error), false) = (done, self.has_failed) {
            warn!(%error, file = FILE, "ids of given-up samples cannot be written: a restart forgets them");
        }
        self.has_failed = has_failed;
    }

    fn try_append(&mut self, sample: SampleId) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = match self.file.take() {
            Some(file) => self.file.insert(file),
            None => self.file.insert(OpenOptions::new().append(true).create(true).open(path)?),
        };
        let length = file.metadata()?.len();
        // A write that failed, or a killed process, may have left a part of the first bytes or of an id.
        match length.checked_sub(MAGIC.len() as u64).map(|ids| ids % ID_BYTES as u64) {
            None => {
                file.set_len(0)?;
                file.write_all(MAGIC)?;
            }
            Some(cut) if cut > 0 => file.set_len(length - cut)?,
            Some(_) => {}
        }
        file.write_all(&encoded(sample))?;
        self.written += 1;
        Ok(())
    }

    fn try_rewrite(&mut self, ids: impl Iterator<Item = SampleId>) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file = None;
        let all: Vec<u8> = MAGIC.iter().copied().chain(ids.flat_map(encoded)).collect();
        self.written = all.len() / ID_BYTES;
        if self.written == 0 {
            return super::remove_file(path);
        }
        replace_file(path, all, PUBLIC_MODE)
    }
}

/// Reads the file; bytes beyond the largest length of the file are ignored.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take((MAGIC.len() + (MAX_IDS + 1) * ID_BYTES) as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The id of an entry; `None` if the entry was altered.
fn decoded(entry: &[u8; ID_BYTES]) -> Option<SampleId> {
    let (id, crc) = entry.split_first_chunk::<8>()?;
    (crc == crc32fast::hash(id).to_le_bytes()).then(|| SampleId(u64::from_le_bytes(*id)))
}

fn encoded(sample: SampleId) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    let (id, crc) = bytes.split_at_mut(8);
    id.copy_from_slice(&sample.0.to_le_bytes());
    crc.copy_from_slice(&crc32fast::hash(id).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(folder: &Path) -> (GivenUpIds, Vec<SampleId>) {
        open_counting(folder, 0)
    }

    /// Opens the file, and checks the number of damaged files in the report.
    #[track_caller]
    fn open_counting(folder: &Path, damaged: u64) -> (GivenUpIds, Vec<SampleId>) {
        let report = SharedReport::default();
        let opened = GivenUpIds::open(folder, &report).unwrap();
        assert_eq!(report.lock().state_damaged, damaged);
        opened
    }

    #[test]
    fn an_id_is_appended_behind_the_last_whole_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let (mut ids, _) = open(dir.path());
        ids.append(SampleId(1));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &whole[8..13]].concat()).unwrap();
        ids.append(SampleId(2));
        assert_eq!(open(dir.path()).1, [1, 2].map(SampleId));
        fs::write(&path, &MAGIC[..3]).unwrap();
        open(dir.path()).0.append(SampleId(3));
        assert_eq!(open(dir.path()).1, [SampleId(3)]);
    }

    #[test]
    fn ids_are_read_back_except_those_that_are_cut_or_altered() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let (mut ids, found) = open(folder);
        assert_eq!(found, []);
        for id in [1, 1 << 40, 3] {
            assert!(!ids.append(SampleId(id)));
        }
        assert_eq!(open(folder).1, [1, 1 << 40, 3].map(SampleId));
        let path = dir.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes.pop();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(folder).1, [1, 1 << 40].map(SampleId), "a killed process leaves a cut id");
        bytes[21] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (mut ids, found) = open_counting(folder, 1);
        assert_eq!(found, [SampleId(1)]);
        ids.rewrite([SampleId(9)].into_iter());
        ids.append(SampleId(10));
        assert_eq!(open(folder).1, [SampleId(9), SampleId(10)]);
        ids.rewrite(std::iter::empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the altered file is kept");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let (mut ids, found) = open_counting(dir.path(), 1);
        assert_eq!(found, []);
        ids.append(SampleId(3));
        assert_eq!(open(dir.path()).1, [SampleId(3)]);
    }

    #[test]
    fn a_file_of_format_1_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let of_1 = include_bytes!("../../tests/fixtures/format-1/spool/given_up");
        fs::write(&path, of_1).unwrap();
        let error = GivenUpIds::open(dir.path(), &SharedReport::default()).unwrap_err().to_string();
        assert!(error.contains("given_up: expected format 2, found format 1: "), "{error}");
        assert_eq!(fs::read(&path).unwrap(), of_1);
    }

    #[test]
    fn a_full_disk_has_a_reason_of_its_own() {
        assert_eq!(reason_of(&io::ErrorKind::StorageFull.into()), GiveUpReason::DISK_FULL);
        assert_eq!(reason_of(&io::ErrorKind::PermissionDenied.into()), GiveUpReason::DISK);
    }
}
