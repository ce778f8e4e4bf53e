//! Numbers in files of the state folder: the boot number, which distinguishes messages of different starts of the device, and the
//! last sample id.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use headwater_protocol::{Boot, SampleId};
use tracing::warn;

use crate::error::DeviceError;

/// File of the last boot number, in digits.
const BOOT_FILE: &str = "boot";

/// The boot number of this start: one more than the last one in `state_dir` or, without a folder, the seconds of the clock.
/// Both wrap.
///
/// # Errors
/// [`DeviceError::Unusable`] when the number cannot be read or written.
pub(crate) fn next_boot(state_dir: Option<&Path>, clock: SystemTime) -> Result<Boot, DeviceError> {
    let Some(dir) = state_dir else {
        let seconds = clock.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        return Ok(Boot(seconds as u16));
    };
    let path = dir.join(BOOT_FILE);
    let last: u16 = read_number(&path, "0 to 65535")?.unwrap_or(0);
    let boot = last.wrapping_add(1);
    fs::create_dir_all(dir)
        .and_then(|()| replace_file(&path, format!("{boot}\n")))
        .map_err(|error| unusable(&path, error))?;
    Ok(Boot(boot))
}

/// File of the highest reserved sample id, in digits: no id above it was ever used.
const SAMPLE_FILE: &str = "sample";

/// Ids reserved with one write: ten seconds of the clock.
const RESERVED: u64 = 10_000;

/// Sample ids of a device that makes a sample of each frame: milliseconds of the wall clock that never go back or repeat. With a state
/// folder, ids grow over a restart even if the clock was set back meanwhile.
#[derive(Debug)]
pub(crate) struct FrameIds {
    last: u64,
    reserved: u64,
    path: Option<PathBuf>,
}

impl FrameIds {
    /// Continues after the last id reserved in `state_dir`.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] when the file cannot be read.
    pub(crate) fn open(state_dir: Option<&Path>) -> Result<Self, DeviceError> {
        let path = state_dir.map(|dir| dir.join(SAMPLE_FILE));
        let stored = path.as_deref().map(|path| read_number(path, "a sample id")).transpose()?;
        let last = stored.flatten().unwrap_or(0);
        Ok(Self { last, reserved: last, path })
    }

    /// The id of a frame that comes at `now`, the time since 1970: its milliseconds, or one more than the last id.
    pub(crate) fn next(&mut self, now: Duration) -> SampleId {
        self.last = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(self.last.saturating_add(1));
        if self.last > self.reserved {
            self.reserved = self.last.saturating_add(RESERVED);
            self.write(self.reserved);
        }
        SampleId(self.last)
    }

    /// Gives back the reserved ids that were not used, at a clean end.
    pub(crate) fn close(&self) {
        if self.last < self.reserved {
            self.write(self.last);
        }
    }

    /// A full disk must not stop the device: until its end the ids are right without the file.
    fn write(&self, id: u64) {
        let Some(path) = &self.path else { return };
        if let Err(error) = replace_file(path, format!("{id}\n")) {
            warn!(%error, path = %path.display(), "the last sample id cannot be written: ids may repeat after a restart");
        }
    }
}

/// Reads a number of digits; `None` without a file.
///
/// # Errors
/// [`DeviceError::Unusable`] for a file that cannot be read, or that is not a number as `expected`.
fn read_number<N: FromStr>(path: &Path, expected: &str) -> Result<Option<N>, DeviceError> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| {
            let found: String = text.chars().take(20).collect();
            unusable(path, format!("expected {expected}, found {found:?}: remove the file"))
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(path, error)),
    }
}

fn unusable(path: &Path, reason: impl Display) -> DeviceError {
    DeviceError::unusable("number kept in", path.display(), reason)
}

/// Replaces a file by a new one, so that a crash leaves one of them whole.
pub(crate) fn replace_file(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, contents).and_then(|()| fs::rename(&new, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn every_start_counts_one_up_and_wraps() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("made/here");
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(1));
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(2));
        fs::write(state.join(BOOT_FILE), "65535").unwrap();
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(0));
    }

    #[test]
    fn a_damaged_number_is_named_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(BOOT_FILE), "seven").unwrap();
        let error = next_boot(Some(dir.path()), CLOCK).unwrap_err().to_string();
        assert!(error.contains("seven") && error.contains("boot"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join(BOOT_FILE)).unwrap(), "seven");
    }

    #[test]
    fn without_a_folder_the_boot_number_comes_from_the_clock() {
        let later = CLOCK + Duration::from_secs(65_536 + 7);
        assert_eq!(next_boot(None, later).unwrap(), Boot(7));
    }

    #[test]
    fn the_boot_number_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(BOOT_FILE), include_str!("../tests/fixtures/state/boot")).unwrap();
        assert_eq!(next_boot(Some(dir.path()), CLOCK).unwrap(), Boot(4));
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ids_are_milliseconds_and_never_repeat_or_go_back() {
        let mut frame_ids = FrameIds::open(None).unwrap();
        let ids: Vec<u64> = [500, 500, 501, 600, 20].into_iter().map(|at| frame_ids.next(ms(at)).0).collect();
        assert_eq!(ids, [500, 501, 502, 600, 601]);
    }

    #[test]
    fn ids_grow_over_a_restart_even_with_the_clock_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = FrameIds::open(Some(dir.path())).unwrap();
        assert_eq!(first.next(ms(5_000)), SampleId(5_000));
        // As after a crash, `close` is not called, so the reserved ids stay used.
        let mut second = FrameIds::open(Some(dir.path())).unwrap();
        let id = second.next(ms(1_000)).0;
        assert!(id > 5_000, "{id}");
        second.close();
        let mut third = FrameIds::open(Some(dir.path())).unwrap();
        assert_eq!(third.next(ms(1_000)).0, id + 1);
        assert_eq!(FrameIds::open(Some(dir.path())).unwrap().next(ms(1 << 40)).0, 1 << 40);
    }

    #[test]
    fn a_damaged_sample_id_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SAMPLE_FILE), "seven").unwrap();
        let error = FrameIds::open(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("seven") && error.contains("sample"), "{error}");
    }

    #[test]
    fn the_sample_id_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SAMPLE_FILE), include_str!("../tests/fixtures/state/sample")).unwrap();
        let id = FrameIds::open(Some(dir.path())).unwrap().next(ms(0)).0;
        assert_eq!(id, 1_700_000_010_124, "one more than the last reserved id");
    }
}
