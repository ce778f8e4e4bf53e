//! A value that is made from files, and made anew when one of the files changes.

use std::fmt::{self, Display};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, info};

/// Shortest time between two checks of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A value that is made from files. While new files cannot be used, the last good value stays, and the reason is logged once.
pub struct Reloading<T> {
    /// Name of the files' content, for the log.
    what: &'static str,
    files: Vec<PathBuf>,
    make: Box<Make<T>>,
    state: Mutex<State<T>>,
}

type Make<T> = dyn Fn() -> Result<T, String> + Send + Sync;

struct State<T> {
    value: Arc<T>,
    versions: Vec<Version>,
    checked: Instant,
    /// True when the files in these versions could not be used, for example because of their rights, or between the writes of two files.
    has_failed: bool,
}

/// Version of a file: inode number, size, and the times of the last change of content and of attributes, in
/// seconds and nanoseconds; `None` for a file that is not there.
type Version = Option<[i64; 6]>;

impl<T> Reloading<T> {
    /// Makes the value for the first time. `what` names the value in the log.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn new<E: Display>(
        what: &'static str,
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let versions = versions(&files);
        let value = Arc::new(make()?);
        let state = Mutex::new(State { value, versions, checked: Instant::now(), has_failed: false });
        let make = Box::new(move || make().map_err(|reason| reason.to_string()));
        Ok(Self { what, files, make, state })
    }

    /// The value of the present files; the last good value if the present files cannot be used. Checks the files at most once a second.
    pub fn get(&self) -> Arc<T> {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= CHECK_EVERY {
            state.checked = Instant::now();
            let versions = versions(&self.files);
            let is_new = versions != state.versions;
            if is_new || state.has_failed {
                state.versions = versions;
                let made = (self.make)();
                match &made {
                    Ok(_) => info!(files = ?self.files, "{} replaced", self.what),
                    // A version of the files that cannot be used is reported once, and tried again at every check.
                    Err(reason) if is_new => {
                        error!(reason, "replaced {} cannot be used; the earlier ones stay in use", self.what);
                    }
                    Err(_) => {}
                }
                state.has_failed = made.is_err();
                if let Ok(value) = made {
                    state.value = Arc::new(value);
                }
            }
        }
        Arc::clone(&state.value)
    }

    /// Returns true if the present files cannot be used, so that the value still comes from earlier files.
    pub fn has_failed(&self) -> bool {
        self.get();
        self.state.lock().has_failed
    }
}

impl<T> fmt::Debug for Reloading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("what", &self.what)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

fn versions(files: &[PathBuf]) -> Vec<Version> {
    let version = |file: &Path| {
        let of = std::fs::metadata(file).ok()?;
        Some([
            of.ino().cast_signed(),
            of.size().cast_signed(),
            of.mtime(),
            of.mtime_nsec(),
            of.ctime(),
            of.ctime_nsec(),
        ])
    };
    files.iter().map(|file| version(file)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The value after the next check of the files.
    fn later(value: &Reloading<String>) -> String {
        std::thread::sleep(CHECK_EVERY + Duration::from_millis(50));
        (*value.get()).clone()
    }

    #[test]
    fn a_file_of_the_same_size_is_read_again_and_one_that_cannot_be_used_is_tried_again() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (file, gate) = (folder.path().join("value"), folder.path().join("gate"));
        fs::write(&file, "one").expect("writes");
        fs::write(&gate, "").expect("writes");
        let (path, is_open) = (file.clone(), gate.clone());
        let make = move || match is_open.exists() {
            true => fs::read_to_string(&path).map_err(|error| error.to_string()),
            false => Err("closed".to_owned()),
        };
        let value = Reloading::new("values", vec![file.clone()], make).expect("a value");
        let modified = fs::metadata(&file).and_then(|of| of.modified()).expect("a time");
        fs::write(&file, "two").expect("writes");
        fs::File::open(&file).and_then(|file| file.set_modified(modified)).expect("sets the time");
        assert_eq!(later(&value), "two");
        // The cause may pass without a change of the file, for example when the rights of a folder change.
        fs::remove_file(&gate).expect("removes");
        fs::write(&file, "six").expect("writes");
        assert_eq!(later(&value), "two");
        fs::write(&gate, "").expect("writes");
        assert_eq!(later(&value), "six");
    }
}
