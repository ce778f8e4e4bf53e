//! Checks of the folders that a program writes into: permissions and free space.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use crate::finding::Finding;

/// Free bytes that a journal needs to make its reserve file: twice the 1 MiB of that file.
const LEAST_BYTES: u64 = 2 << 20;

/// A file or folder that a program writes.
#[derive(Clone, Debug)]
pub struct Written {
    /// Setting that names the file or folder.
    pub key: String,
    /// Folder in which files are made.
    pub folder: PathBuf,
    /// File that the program extends; `None` if the setting names a folder.
    pub file: Option<PathBuf>,
    /// Bytes that the program may still write under its settings.
    pub wanted: u64,
}

impl Written {
    /// Checks that the program may write there, and that there is room.
    pub fn check(&self) -> Finding {
        let Self { key, folder, file, wanted } = self;
        let fail = |found: String, advice: String| Finding::fail("disk", format!("{key}: {found}"), advice);
        let shown = folder.display();
        // Without a file the program makes the folder itself, inside a folder that exists.
        let existing = match file {
            Some(_) => Some(folder.as_path()),
            None => folder.ancestors().find(|folder| folder.exists()),
        };
        let existing = existing.unwrap_or(Path::new("."));
        match existing.metadata() {
            Err(error) => {
                return fail(format!("{shown}: {error}"), format!("make the folder: mkdir -p {shown}"));
            }
            Ok(metadata) if !metadata.is_dir() => {
                let found = format!("expected a folder at {}, found a file", existing.display());
                return fail(found, "move the file away, or name another path".into());
            }
            Ok(_) => {}
        }
        let own = file.as_deref().filter(|file| file.exists());
        if let Some(file) = own.filter(|file| !file.is_file()) {
            return fail(
                format!("expected a file, found {}", file.display()),
                "name a file in the folder".into(),
            );
        }
        let may_write = access(existing, Access::WRITE_OK | Access::EXEC_OK)
            .and_then(|()| own.map_or(Ok(()), |file| access(file, Access::READ_OK | Access::WRITE_OK)));
        if let Err(error) = may_write {
            let found = format!("{} cannot be written: {error}", own.unwrap_or(existing).display());
            let advice =
                "give the program's user the folder (chown), on a file system that is mounted for writing";
            return fail(found, advice.into());
        }
        match statvfs(existing) {
            Err(error) => fail(format!("{shown}: room: {error}"), "look at the file system".into()),
            Ok(of) => judge_room(
                key,
                &folder.display().to_string(),
                of.f_bavail.saturating_mul(of.f_frsize),
                *wanted,
            ),
        }
    }
}

fn judge_room(key: &str, folder: &str, free: u64, wanted: u64) -> Finding {
    let found = format!("{key}: {folder} has {} free", size(free));
    let advice = "free some room, or name a folder on another disk";
    if free < LEAST_BYTES {
        Finding::fail("disk", found, advice)
    } else if free < wanted {
        Finding::warn("disk", format!("{found}; it may take {}", size(wanted)), advice)
    } else {
        Finding::ok("disk", found)
    }
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    fn level(folder: &Path, file: Option<&str>) -> (Level, String) {
        let file = file.map(|name| folder.join(name));
        let found = Written { key: "journal.path".into(), folder: folder.into(), file, wanted: 0 }.check();
        (found.level, found.found)
    }

    #[test]
    fn a_folder_that_cannot_take_the_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(level(folder.path(), Some("journal")).0, Level::Ok);
        let missing = folder.path().join("none");
        assert_eq!(level(&missing, Some("journal")).0, Level::Fail);
        // The device makes its folder.
        assert_eq!(level(&missing, None).0, Level::Ok);
        std::fs::write(&missing, "").unwrap();
        for file in [Some("journal"), None] {
            let (found, text) = level(&missing, file);
            assert!(found == Level::Fail && text.contains("found a file"), "{text}");
        }
        std::fs::create_dir(folder.path().join("journal")).unwrap();
        assert_eq!(level(folder.path(), Some("journal")).0, Level::Fail);
        assert_eq!(level(Path::new("/proc/self"), None).0, Level::Fail, "a file system that takes no files");
    }

    #[test]
    fn little_room_is_a_warning_and_none_a_fail() {
        for (free, expected) in [(0, Level::Fail), (LEAST_BYTES, Level::Warn), (1 << 30, Level::Ok)] {
            assert_eq!(judge_room("state_dir", "/var", free, 64 << 20).level, expected, "{free}");
        }
    }
}
