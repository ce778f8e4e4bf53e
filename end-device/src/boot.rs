//! The boot number: which life of the device a message comes from.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use headwater_protocol::Boot;

use crate::error::DeviceError;

/// File in the state folder: the last boot number, in digits.
const FILE: &str = "boot";

/// The number of this life: one more than the last one kept in `state_dir`, or, without a folder, the seconds of the clock.
/// Both wrap.
///
/// # Errors
/// [`DeviceError::State`] when the number cannot be read or kept.
pub(crate) fn next_boot(state_dir: Option<&Path>, clock: SystemTime) -> Result<Boot, DeviceError> {
    let Some(dir) = state_dir else {
        let seconds = clock.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        return Ok(Boot(seconds as u16));
    };
    let path = dir.join(FILE);
    let fail = |reason: String| DeviceError::State { path: path.clone(), reason };
    let last = match fs::read_to_string(&path) {
        Ok(text) => text
            .trim()
            .parse::<u16>()
            .map_err(|_| fail(format!("expected 0 to 65535, found {:?}: remove the file", clipped(&text))))?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(fail(error.to_string())),
    };
    let boot = last.wrapping_add(1);
    // A new file put in place of the old one: a crash leaves either whole.
    let new = dir.join("boot.new");
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&new, format!("{boot}\n")))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| fail(error.to_string()))?;
    Ok(Boot(boot))
}

fn clipped(text: &str) -> String {
    text.chars().take(20).collect()
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
    fn without_a_folder_the_clock_tells_lives_apart() {
        let later = CLOCK + Duration::from_secs(65_536 + 7);
        assert_eq!(next_boot(None, later).unwrap(), Boot(7));
    }
}
