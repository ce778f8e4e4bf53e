//! The boot number, which distinguishes messages of different starts of the device.

use std::time::SystemTime;

use headwater_protocol::{Boot, NetworkId, Session};
use headwater_transport::{PUBLIC_MODE, random, replace_file};
use tracing::warn;

use super::{StateFolder, is_disk_full, line, unusable};
use crate::error::DeviceError;

/// File of the last boot number.
pub(super) const FILE: &str = "boot";

/// File of the last session as a number.
pub(super) const SESSION_FILE: &str = "session";

/// The boot number of this start: one more than the number in the folder, 1 in a new folder, or the seconds of the clock without a folder.
/// Numbers wrap after 65,535. The number is random if the number of the last start is lost or the disk is full: a random number hardly
/// repeats an earlier one. A number that gives this network the session of the last start is skipped, since messages of the two starts
/// would look alike.
///
/// # Errors
/// [`DeviceError::Unusable`] when the number cannot be read or written for another reason than damage or a full disk.
pub(crate) fn next_boot(
    folder: Option<&StateFolder>,
    network: NetworkId,
    clock: SystemTime,
) -> Result<Boot, DeviceError> {
    let Some(folder) = folder else {
        let seconds = clock.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        return Ok(Boot(seconds as u16));
    };
    let path = folder.dir.join(FILE);
    let mut boot = match folder.read_number::<u16>(FILE, "0 to 65535")? {
        Some(last) => last.wrapping_add(1),
        None if folder.is_new => 1,
        None => {
            warn!(file = %path.display(), "the boot number of earlier starts is lost: this start has a random one");
            random() as u16
        }
    };
    let session = |boot| u16::from_le_bytes(Session::of_boot(network, Boot(boot)).0);
    let session_path = folder.dir.join(SESSION_FILE);
    let last_session = folder.read_number::<u16>(SESSION_FILE, "0 to 65535")?;
    while last_session == Some(session(boot)) {
        boot = boot.wrapping_add(1);
    }
    let kept = replace_file(&path, line(boot), PUBLIC_MODE)
        .and_then(|()| replace_file(&session_path, line(session(boot)), PUBLIC_MODE));
    match kept {
        Ok(()) => Ok(Boot(boot)),
        Err(error) if is_disk_full(&error) => {
            warn!(%error, file = %path.display(), "the boot number cannot be kept: this start has a random one");
            Ok(Boot(random() as u16))
        }
        Err(error) => Err(unusable(&path, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use super::super::tests::{damaged, open};
    use super::*;

    const NETWORK: NetworkId = NetworkId([7; 32]);
    const CLOCK: SystemTime = SystemTime::UNIX_EPOCH;

    /// The boot number of the next start in this folder.
    fn boot(dir: &Path) -> Boot {
        next_boot(Some(&open(dir)), NETWORK, CLOCK).unwrap()
    }

    #[test]
    fn a_boot_whose_session_is_that_of_the_last_start_is_passed_over() {
        let next = Boot(2);
        let session = Session::of_boot(NETWORK, next);
        // This other network gives boot 1 the session that `NETWORK` gives boot 2.
        let collides = |number: &u32| Session::of_boot(other(*number), Boot(1)) == session;
        let last_network = (0..1 << 24).find(collides).map(other).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        assert_eq!(next_boot(Some(&open(&state)), last_network, CLOCK).unwrap(), Boot(1));
        assert_eq!(boot(&state), Boot(3));
        assert_eq!(boot(&state), Boot(4));
    }

    fn other(number: u32) -> NetworkId {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_le_bytes());
        NetworkId(id)
    }

    #[test]
    fn every_start_counts_one_up_and_wraps() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("made/here");
        assert_eq!(boot(&state), Boot(1));
        assert_eq!(boot(&state), Boot(2));
        fs::write(state.join(FILE), line(65_535)).unwrap();
        assert_eq!(boot(&state), Boot(0));
    }

    #[test]
    fn a_damaged_number_is_set_aside_and_the_start_has_a_random_one() {
        for contents in [&b""[..], b"seven", b"format 2: 65536", &[0; 4096], &[0xff; 4096]] {
            let mut boots = BTreeSet::new();
            for _ in 0..4 {
                let dir = tempfile::tempdir().unwrap();
                fs::write(dir.path().join(FILE), contents).unwrap();
                let folder = open(dir.path());
                let boot = next_boot(Some(&folder), NETWORK, CLOCK).unwrap();
                assert_eq!(damaged(&folder), 1);
                assert_eq!(fs::read(dir.path().join("boot.damaged-1")).unwrap(), contents);
                assert_eq!(next_boot(Some(&folder), NETWORK, CLOCK).unwrap(), Boot(boot.0.wrapping_add(1)));
                boots.insert(boot.0);
            }
            assert!(boots.len() > 1, "{boots:?}");
        }
    }

    #[test]
    fn a_folder_in_place_of_the_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let folder = open(dir.path());
        next_boot(Some(&folder), NETWORK, CLOCK).unwrap();
        assert!(damaged(&folder) == 1 && dir.path().join(FILE).is_file());
    }

    #[test]
    fn a_lost_number_does_not_begin_at_one_again() {
        let mut boots = BTreeSet::new();
        for _ in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("spool")).unwrap();
            boots.insert(boot(dir.path()).0);
        }
        assert!(boots.len() > 1, "{boots:?}");
    }

    #[test]
    fn without_a_folder_the_boot_number_comes_from_the_clock() {
        let later = CLOCK + Duration::from_secs(65_536 + 7);
        assert_eq!(next_boot(None, NETWORK, later).unwrap(), Boot(7));
    }

    #[test]
    fn a_boot_number_of_format_1_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let of_1 = include_str!("../../tests/fixtures/format-1/boot");
        fs::write(dir.path().join(FILE), of_1).unwrap();
        let error = next_boot(Some(&open(dir.path())), NETWORK, CLOCK).unwrap_err().to_string();
        assert!(error.contains("boot: expected format 2, found format 1: "), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), of_1);
    }
}
