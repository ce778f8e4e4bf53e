//! Sample ids of a device that makes a sample of each frame: milliseconds of the wall clock that never go back or repeat.

use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_protocol::SampleId;
use tracing::warn;

use crate::error::DeviceError;
use crate::state_folder::{read_number, replace_file};

/// File in the state folder. It holds the highest reserved id, in digits: no id above it was ever used.
const FILE: &str = "sample";

/// Ids reserved with one write: ten seconds of the clock.
const RESERVED: u64 = 10_000;

/// Source of ids. With a state folder, ids grow over a restart even if the clock was set back meanwhile.
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
    /// [`DeviceError::Stored`] when the file cannot be read.
    pub(crate) fn open(state_dir: Option<&Path>) -> Result<Self, DeviceError> {
        let path = state_dir.map(|dir| dir.join(FILE));
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
        // As after a crash: no id was given back.
        let mut second = FrameIds::open(Some(dir.path())).unwrap();
        let id = second.next(ms(1_000)).0;
        assert!(id > 5_000, "{id}");
        second.close();
        let mut third = FrameIds::open(Some(dir.path())).unwrap();
        assert_eq!(third.next(ms(1_000)).0, id + 1);
        assert_eq!(FrameIds::open(Some(dir.path())).unwrap().next(ms(1 << 40)).0, 1 << 40);
    }

    #[test]
    fn a_damaged_number_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "seven").unwrap();
        let error = FrameIds::open(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("seven") && error.contains("sample"), "{error}");
    }

    #[test]
    fn the_file_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), include_str!("../tests/fixtures/state/sample")).unwrap();
        let id = FrameIds::open(Some(dir.path())).unwrap().next(ms(0)).0;
        assert_eq!(id, 1_700_000_010_124, "one more than the last reserved id");
    }
}
