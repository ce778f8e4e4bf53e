//! Sample ids of a device whose frames are the samples: milliseconds of the wall clock that never go back or repeat.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_protocol::SampleId;
use tracing::warn;

use crate::error::DeviceError;

/// File in the state folder: no id above the one in it was used, in digits.
const FILE: &str = "sample";

/// Ids reserved with one write: ten seconds of the clock.
const RESERVED: u64 = 10_000;

/// Gives ids. With a state folder they go on after a restart even where the clock was set back.
#[derive(Debug)]
pub(crate) struct SampleClock {
    last: u64,
    reserved: u64,
    path: Option<PathBuf>,
}

impl SampleClock {
    /// Goes on after the last id reserved in `state_dir`.
    ///
    /// # Errors
    /// [`DeviceError::State`] when it cannot be read.
    pub(crate) fn open(state_dir: Option<&Path>) -> Result<Self, DeviceError> {
        let path = state_dir.map(|dir| dir.join(FILE));
        let fail = |path: &Path, reason: String| DeviceError::State { path: path.into(), reason };
        let last = match path.as_deref().map(|path| (path, fs::read_to_string(path))) {
            None => 0,
            Some((path, Ok(text))) => text.trim().parse().map_err(|_| {
                let found: String = text.chars().take(20).collect();
                fail(path, format!("expected a sample id, found {found:?}: remove the file"))
            })?,
            Some((_, Err(error))) if error.kind() == ErrorKind::NotFound => 0,
            Some((path, Err(error))) => return Err(fail(path, error.to_string())),
        };
        Ok(Self { last, reserved: last, path })
    }

    /// The id of a frame that comes at `now`, the time since 1970: its milliseconds, or one more than the last.
    pub(crate) fn next(&mut self, now: Duration) -> SampleId {
        self.last = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(self.last.saturating_add(1));
        if self.last > self.reserved {
            self.reserved = self.last.saturating_add(RESERVED);
            self.write(self.reserved);
        }
        SampleId(self.last)
    }

    /// At a clean end: what was reserved and not used is given back.
    pub(crate) fn close(&self) {
        if self.last < self.reserved {
            self.write(self.last);
        }
    }

    /// A disk that is full must not stop the device: ids of this life are right all the same.
    fn write(&self, id: u64) {
        let Some(path) = &self.path else { return };
        let new = path.with_extension("new");
        if let Err(error) = fs::write(&new, format!("{id}\n")).and_then(|()| fs::rename(&new, path)) {
            warn!(%error, path = %path.display(), "the sample id is not kept over a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ids_are_milliseconds_and_never_repeat_or_go_back() {
        let mut clock = SampleClock::open(None).unwrap();
        let ids: Vec<u64> = [500, 500, 501, 600, 20].into_iter().map(|at| clock.next(ms(at)).0).collect();
        assert_eq!(ids, [500, 501, 502, 600, 601]);
    }

    #[test]
    fn a_restart_goes_on_after_the_last_life_even_with_the_clock_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = SampleClock::open(Some(dir.path())).unwrap();
        assert_eq!(first.next(ms(5_000)), SampleId(5_000));
        // As after a crash: nothing was given back.
        let mut second = SampleClock::open(Some(dir.path())).unwrap();
        let id = second.next(ms(1_000)).0;
        assert!(id > 5_000, "{id}");
        second.close();
        let mut third = SampleClock::open(Some(dir.path())).unwrap();
        assert_eq!(third.next(ms(1_000)).0, id + 1);
        assert_eq!(SampleClock::open(Some(dir.path())).unwrap().next(ms(1 << 40)).0, 1 << 40);
    }

    #[test]
    fn a_damaged_number_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "seven").unwrap();
        let error = SampleClock::open(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("seven") && error.contains("sample"), "{error}");
    }
}
