//! The name of a leader: a random number in a file beside its journal, so that a restart is the same leader.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use headwater_protocol::InstanceId;
use headwater_transport::{PUBLIC_MODE, random, replace_file};
use tracing::warn;

/// Most bytes of the file that are read: more than a name has.
const MAX_BYTES: u64 = 64;

/// The name of the leader with this journal; without a journal, a new name for each process. If the name cannot be kept in its file, the
/// leader starts all the same, but its restart is another leader.
pub(crate) fn instance_of_journal(journal: Option<&Path>) -> InstanceId {
    let Some(path) = journal.map(|journal| journal.with_added_extension("instance")) else {
        return InstanceId(random());
    };
    match read(&path) {
        Ok(Some(known)) => return known,
        Ok(None) => {}
        Err(error) => {
            warn!(file = %path.display(), %error, "the name of this leader cannot be read, a new one is made");
        }
    }
    let name = InstanceId(random());
    if let Err(error) = replace_file(&path, format!("{name}\n"), PUBLIC_MODE) {
        warn!(file = %path.display(), %error, "the name of this leader cannot be kept; a restart waits like another leader");
    }
    name
}

/// Reads a name; `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<InstanceId>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    InstanceId::try_from(text.trim_end().to_owned()).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_keeps_its_name_with_its_journal_and_a_damaged_name_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let first = instance_of_journal(Some(&journal));
        assert_eq!(instance_of_journal(Some(&journal)), first);
        assert_ne!(instance_of_journal(Some(&folder.path().join("other"))), first);
        for damaged in [&b""[..], b"\0\0\0\0", b"not a name\n", &[0xff; 1000]] {
            std::fs::write(journal.with_added_extension("instance"), damaged).unwrap();
            let next = instance_of_journal(Some(&journal));
            assert_ne!(next, first);
            assert_eq!(instance_of_journal(Some(&journal)), next);
        }
    }

    #[test]
    fn without_a_journal_every_process_has_another_name() {
        assert_ne!(instance_of_journal(None), instance_of_journal(None));
    }

    #[test]
    fn a_name_that_cannot_be_kept_is_used_all_the_same() {
        let missing = Path::new("/nowhere/journal");
        assert_ne!(instance_of_journal(Some(missing)), instance_of_journal(Some(missing)));
    }
}
