//! The state folder: the files that outlive a restart of the device.
//!
//! ```text
//! state_dir/
//!   lock                 held while a device uses the folder
//!   boot                 number of the last start (boot_number.rs)
//!   session              session of the last start (boot_number.rs)
//!   sample               last reserved sample id of capture "source" (frame_ids.rs)
//!   spool/               answers that wait to be sent (../spool)
//!   boot.damaged-1       a file that could not be read, for an operator (set_aside.rs)
//! ```
//!
//! Every file but `lock` names its format, which is 2. A device does not start with a file of another format, so that spooled answers are
//! not lost.
//!
//! A damaged file never stops the device: the file is set aside, named in the log and counted.

mod boot_number;
mod frame_ids;
mod set_aside;

use std::fmt::Display;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tracing::warn;

pub(crate) use boot_number::next_boot;
pub(crate) use frame_ids::FrameIds;
pub(crate) use set_aside::{Aside, is_set_aside, set_aside};

use crate::error::DeviceError;
use crate::report::SharedReport;

/// Format of the files in the folder.
pub(crate) const FORMAT: u8 = 2;

/// File that is locked while a device uses the folder. The file contains the id of the device's process.
const LOCK_FILE: &str = "lock";

/// Longest text of a number or a process id in a file, in bytes.
const MAX_NUMBER_BYTES: u64 = 64;

/// A state folder that no other running device uses.
#[derive(Debug)]
pub(crate) struct StateFolder {
    pub(crate) dir: PathBuf,
    pub(crate) report: SharedReport,
    /// True when no earlier start left files here.
    is_new: bool,
}

/// Lock of a state folder, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    /// `None` if the file system has no locks or no room for the file.
    file: Option<File>,
}

impl StateFolder {
    /// Makes the folder if it is missing, and locks it for this device.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] when the folder cannot be used, or another running device uses it.
    pub(crate) fn open(dir: &Path, report: SharedReport) -> Result<(Self, StateLock), DeviceError> {
        fs::create_dir_all(dir).map_err(|error| unusable(dir, error))?;
        let is_new = is_new(dir).map_err(|error| unusable(dir, error))?;
        let lock = StateLock::take(dir)?;
        Ok((Self { dir: dir.into(), report, is_new }, lock))
    }

    /// Reads the number in a file as [`line`] writes it; format 1 had the digits alone. `None` if there is no file, or if the file is
    /// damaged, which is then set aside.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] for a file that this user may not read, and for one of another format.
    fn read_number<N: FromStr>(&self, file: &str, expected: &str) -> Result<Option<N>, DeviceError> {
        let path = self.dir.join(file);
        let damage = match read_start(&path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let parts = text.strip_prefix("format ").and_then(|text| text.split_once(": "));
                let (format, number) =
                    parts.map_or((Ok(1), &*text), |(format, number)| (format.parse(), number));
                match (format, number.trim().parse()) {
                    (Ok(FORMAT), Ok(number)) => return Ok(Some(number)),
                    (Ok(found), Ok(_)) => return Err(other_format(&path, found)),
                    _ => {
                        let found: String = text.chars().take(20).collect();
                        format!("expected {expected}, found {found:?}")
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(unusable(&path, error)),
            Err(error) => error.to_string(),
        };
        set_aside(&path, Aside::DAMAGED, &damage);
        self.report.lock().state_damaged += 1;
        Ok(None)
    }
}

impl StateLock {
    fn take(dir: &Path) -> Result<Self, DeviceError> {
        let path = dir.join(LOCK_FILE);
        let mut file =
            match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
                Ok(file) => file,
                Err(error) if is_disk_full(&error) => {
                    warn!(%error, file = %path.display(), "the state folder is not locked: the disk is full");
                    return Ok(Self { file: None });
                }
                Err(error) => return Err(unusable(&path, error)),
            };
        match file.try_lock() {
            Ok(()) => {
                // The process id serves only the error text of a second device, so a failed write does not matter.
                let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                Ok(Self { file: Some(file) })
            }
            Err(TryLockError::WouldBlock) => {
                let holder = read_start(&path).unwrap_or_default();
                let holder = String::from_utf8_lossy(&holder).trim().parse::<u32>();
                let process = holder.map(|id| format!(" (process {id})")).unwrap_or_default();
                let reason = "give each device a folder of its own";
                Err(unusable(dir, format!("another running device{process} uses it: {reason} (state_dir)")))
            }
            Err(TryLockError::Error(error)) => {
                warn!(%error, file = %path.display(), "the state folder is not locked: the file system has no locks");
                Ok(Self { file: None })
            }
        }
    }

    /// Ends the lock.
    pub(crate) fn release(&self) {
        // If unlocking fails, the lock ends when the file is closed.
        let _ = self.file.as_ref().map(File::unlock);
    }
}

/// True when no earlier start left files in the folder. Files of other programs do not count, such as `lost+found` on a new disk.
fn is_new(dir: &Path) -> io::Result<bool> {
    for file in fs::read_dir(dir)? {
        let name = file?.file_name();
        let name = name.to_string_lossy();
        let own = [boot_number::FILE, boot_number::SESSION_FILE, frame_ids::FILE, LOCK_FILE, "spool"];
        if own
            .iter()
            .any(|own| name == *own || name.strip_prefix(own).is_some_and(|rest| rest.starts_with('.')))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_NUMBER_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unusable(path: &Path, reason: impl Display) -> DeviceError {
    DeviceError::unusable("state folder", path.display(), reason)
}

/// The error for a file of another format.
pub(crate) fn other_format(path: &Path, found: impl Display) -> DeviceError {
    let reason = format!(
        "expected format {FORMAT}, found format {found}: start once with the release that wrote it until its spool is empty and then \
         move the folder away, or name another one (state_dir)"
    );
    unusable(path, reason)
}

/// Contents of a file with a number.
fn line(number: impl Display) -> String {
    format!("format {FORMAT}: {number}\n")
}

/// True when a write failed for want of space.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn open(dir: &Path) -> StateFolder {
        StateFolder::open(dir, SharedReport::default()).unwrap().0
    }

    pub(super) fn damaged(folder: &StateFolder) -> u64 {
        folder.report.lock().state_damaged
    }

    #[test]
    fn a_second_device_is_refused_until_the_first_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("made/here");
        let (_, first) = StateFolder::open(&state, SharedReport::default()).unwrap();
        let error = StateFolder::open(&state, SharedReport::default()).unwrap_err().to_string();
        let process = std::process::id().to_string();
        for part in ["another running device", "state_dir", state.to_str().unwrap(), &process] {
            assert!(error.contains(part), "{error}");
        }
        first.release();
        let (_, second) = StateFolder::open(&state, SharedReport::default()).unwrap();
        drop(second);
        StateFolder::open(&state, SharedReport::default()).unwrap();
    }

    #[test]
    fn a_folder_is_new_until_a_device_has_used_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        assert!(open(dir.path()).is_new);
        assert!(!open(dir.path()).is_new);
    }

    #[test]
    fn a_folder_that_is_a_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "mine").unwrap();
        let error = StateFolder::open(&file, SharedReport::default()).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
    }

    #[test]
    fn only_want_of_space_is_a_full_disk() {
        assert!(
            is_disk_full(&ErrorKind::StorageFull.into()) && is_disk_full(&ErrorKind::QuotaExceeded.into())
        );
        assert!(!is_disk_full(&ErrorKind::PermissionDenied.into()));
        // 28 is `ENOSPC`: no space left on the device.
        #[cfg(target_os = "linux")]
        assert!(is_disk_full(&io::Error::from_raw_os_error(28)));
    }
}
