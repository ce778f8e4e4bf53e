//! Files of the state folder. One holds the boot number, which distinguishes messages of different starts of the device.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use headwater_protocol::Boot;

use crate::error::DeviceError;

/// File of the last boot number, in digits.
const FILE: &str = "boot";

/// The boot number of this start: one more than the last one in `state_dir` or, without a folder, the seconds of the clock.
/// Both wrap.
///
/// # Errors
/// [`DeviceError::Stored`] when the number cannot be read or written.
pub(crate) fn next_boot(state_dir: Option<&Path>, clock: SystemTime) -> Result<Boot, DeviceError> {
    let Some(dir) = state_dir else {
        let seconds = clock.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        return Ok(Boot(seconds as u16));
    };
    let path = dir.join(FILE);
    let last: u16 = read_number(&path, "0 to 65535")?.unwrap_or(0);
    let boot = last.wrapping_add(1);
    fs::create_dir_all(dir)
        .and_then(|()| replace_file(&path, format!("{boot}\n")))
        .map_err(|error| DeviceError::state(&path, error))?;
    Ok(Boot(boot))
}

/// Reads a number of digits; `None` without a file.
///
/// # Errors
/// [`DeviceError::Stored`] for a file that cannot be read, or that is not a number as `expected`.
pub(crate) fn read_number<N: FromStr>(path: &Path, expected: &str) -> Result<Option<N>, DeviceError> {
    match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| {
            let found: String = text.chars().take(20).collect();
            DeviceError::state(path, format!("expected {expected}, found {found:?}: remove the file"))
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DeviceError::state(path, error)),
    }
}

/// Replaces a file by a new one, so that a crash leaves one of them whole.
pub(crate) fn replace_file(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, contents).and_then(|()| fs::rename(&new, path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CLOCK: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn every_start_counts_one_up_and_wraps() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("made/here");
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(1));
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(2));
        fs::write(state.join(FILE), "65535").unwrap();
        assert_eq!(next_boot(Some(&state), CLOCK).unwrap(), Boot(0));
    }

    #[test]
    fn a_damaged_number_is_named_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "seven").unwrap();
        let error = next_boot(Some(dir.path()), CLOCK).unwrap_err().to_string();
        assert!(error.contains("seven") && error.contains("boot"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), "seven");
    }

    #[test]
    fn without_a_folder_the_boot_number_comes_from_the_clock() {
        let later = CLOCK + Duration::from_secs(65_536 + 7);
        assert_eq!(next_boot(None, later).unwrap(), Boot(7));
    }

    #[test]
    fn the_file_of_an_earlier_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), include_str!("../tests/fixtures/state/boot")).unwrap();
        assert_eq!(next_boot(Some(dir.path()), CLOCK).unwrap(), Boot(4));
    }
}
