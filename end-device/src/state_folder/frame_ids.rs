//! Sample ids of a device that makes a sample of each frame.

use std::path::PathBuf;
use std::time::Duration;

use headwater_protocol::SampleId;
use headwater_transport::{PUBLIC_MODE, replace_file};
use tracing::{info, warn};

use super::{StateFolder, line};
use crate::error::DeviceError;

/// File of the highest reserved sample id. A higher id was used only if the file could not be written.
pub(super) const FILE: &str = "sample";

/// Number of ids reserved with one write: ten seconds of the clock in milliseconds.
const RESERVED: u64 = 10_000;

/// Gives ids in ascending order: the wall clock in milliseconds, or one more than the last id if the clock is not above the last id. With a
/// state folder, ids grow over a restart even if the clock was set back meanwhile.
#[derive(Debug)]
pub(crate) struct FrameIds {
    last: u64,
    reserved: u64,
    path: Option<PathBuf>,
    has_failed: bool,
}

impl FrameIds {
    /// Continues after the reserved id in the folder and after the highest spooled id. Without both, ids begin with the wall clock.
    ///
    /// # Errors
    /// [`DeviceError::Unusable`] for a file that this user may not read, and for one of another format.
    pub(crate) fn open(folder: Option<&StateFolder>, spooled: Option<SampleId>) -> Result<Self, DeviceError> {
        let path = folder.map(|folder| folder.dir.join(FILE));
        let reserved =
            folder.map(|folder| folder.read_number(FILE, "a sample id")).transpose()?.flatten().unwrap_or(0);
        let last = reserved.max(spooled.unwrap_or_default().0);
        Ok(Self { last, reserved, path, has_failed: false })
    }

    /// The id of a frame that comes at `now`, the time since 1970: the milliseconds of `now`, or one more than the last id if that is more.
    pub(crate) fn next(&mut self, now: Duration) -> SampleId {
        self.last = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(self.last.saturating_add(1));
        if self.last > self.reserved {
            self.reserved = self.last.saturating_add(RESERVED);
            self.write(self.reserved);
        }
        SampleId(self.last)
    }

    /// Gives back the reserved ids that were not used, at a clean end.
    pub(crate) fn close(&mut self) {
        if self.last < self.reserved {
            self.write(self.last);
        }
    }

    /// Writes the highest reserved id. A failure, such as a full disk, is only logged: the running device does not need the file.
    fn write(&mut self, id: u64) {
        let Some(path) = &self.path else { return };
        let written = replace_file(path, line(id), PUBLIC_MODE);
        match (&written, self.has_failed) {
            (Err(error), false) => {
                warn!(%error, path = %path.display(), "the last sample id cannot be written: ids may repeat after a restart");
            }
            (Ok(()), true) => info!(path = %path.display(), "the last sample id can be written again"),
            (Err(_), true) | (Ok(()), false) => {}
        }
        self.has_failed = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::tests::{damaged, open};
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ids_of(dir: &Path) -> FrameIds {
        FrameIds::open(Some(&open(dir)), None).unwrap()
    }

    #[test]
    fn ids_are_milliseconds_and_never_repeat_or_go_back() {
        let mut frame_ids = FrameIds::open(None, None).unwrap();
        let ids: Vec<u64> = [500, 500, 501, 600, 20].into_iter().map(|at| frame_ids.next(ms(at)).0).collect();
        assert_eq!(ids, [500, 501, 502, 600, 601]);
    }

    #[test]
    fn ids_grow_over_a_restart_even_with_the_clock_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = ids_of(dir.path());
        assert_eq!(first.next(ms(5_000)), SampleId(5_000));
        // As after a crash, `close` is not called, so the reserved ids stay used.
        let mut second = ids_of(dir.path());
        let id = second.next(ms(1_000)).0;
        assert!(id > 5_000, "{id}");
        second.close();
        let mut third = ids_of(dir.path());
        assert_eq!(third.next(ms(1_000)).0, id + 1);
        assert_eq!(ids_of(dir.path()).next(ms(1 << 40)).0, 1 << 40);
    }

    #[test]
    fn a_damaged_sample_id_is_set_aside_and_ids_continue_after_the_spool_or_with_the_clock() {
        for contents in [&b""[..], b"seven", &[0; 4096]] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(FILE), contents).unwrap();
            let folder = open(dir.path());
            let mut ids = FrameIds::open(Some(&folder), Some(SampleId(9_000))).unwrap();
            assert_eq!(damaged(&folder), 1);
            assert_eq!(fs::read(dir.path().join("sample.damaged-1")).unwrap(), contents);
            assert_eq!(ids.next(ms(5_000)), SampleId(9_001));
            assert_eq!(ids.next(ms(9_500)), SampleId(9_500));
        }
    }

    #[test]
    fn an_id_that_cannot_be_written_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = ids_of(dir.path());
        fs::create_dir_all(dir.path().join("sample/full")).unwrap();
        assert_eq!(ids.next(ms(5_000)), SampleId(5_000));
        assert_eq!(ids.next(ms(50_000)), SampleId(50_000));
        fs::remove_dir_all(dir.path().join("sample")).unwrap();
        assert_eq!(ids.next(ms(500_000)), SampleId(500_000));
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "format 2: 510000\n");
    }

    #[test]
    fn an_id_of_format_1_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), include_str!("../../tests/fixtures/format-1/sample")).unwrap();
        let error = FrameIds::open(Some(&open(dir.path())), None).unwrap_err().to_string();
        assert!(error.contains("sample: expected format 2, found format 1: "), "{error}");
    }
}
