//! A value that is made from files, and made anew when one of them changes.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info};

/// Shortest time between two looks at the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A value that is made from files. While new files cannot be used, the last good value stays, and the reason is logged once.
pub struct Reloading<T> {
    /// What the files hold, for the log.
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
}

/// What tells two versions of a file apart; `None` for a file that is not there.
type Version = Option<(SystemTime, u64)>;

impl<T> Reloading<T> {
    /// Makes the value for the first time. `what` names it in the log.
    ///
    /// # Errors
    /// That of `make`.
    pub fn new<E: Display>(
        what: &'static str,
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let versions = versions(&files);
        let value = Arc::new(make()?);
        let state = Mutex::new(State { value, versions, checked: Instant::now() });
        let make = Box::new(move || make().map_err(|reason| reason.to_string()));
        Ok(Self { what, files, make, state })
    }

    /// The value of the files as they are; of the last good ones where the present ones cannot be used.
    pub fn get(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= CHECK_EVERY {
            state.checked = Instant::now();
            let versions = versions(&self.files);
            if versions != state.versions {
                // A version that cannot be used is reported once.
                state.versions = versions;
                match (self.make)() {
                    Ok(value) => {
                        state.value = Arc::new(value);
                        info!(files = ?self.files, "{} replaced", self.what);
                    }
                    Err(reason) => {
                        error!(reason, "replaced {} cannot be used; the earlier ones stay in use", self.what);
                    }
                }
            }
        }
        Arc::clone(&state.value)
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
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    files.iter().map(|file| version(file)).collect()
}
