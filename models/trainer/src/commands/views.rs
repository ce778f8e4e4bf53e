//! Place of the decoded views of a data set: memory, or the user's cache.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use clap::Args;
use headwater_calibration::data::{Parts, load};
use headwater_samples::data_set::{OpenOptions, Preparation, PreparationEvent};
use headwater_training::memory;

use super::output::print_error;
use super::progress::StatusLine;
use super::{Failure, cores};

/// Arguments for the place of decoded views.
#[derive(Args, Clone)]
pub(crate) struct ViewPlace {
    /// Folder for files of decoded views, made when the views of `folders` or `table` are too many for the memory, and read by every later command
    /// on the same images in the same shape. `$XDG_CACHE_HOME/headwater`, or `~/.cache/headwater`, when left out. The oldest such files are
    /// removed when all together have more than 50 GB and more than four times the newest.
    #[arg(long, value_name = "DIR")]
    pub(super) cache: Option<PathBuf>,
    /// Most decoded views in memory, in MiB; more are in a file. An eighth of the machine's memory, but at most 1536, when left out. Less is for
    /// machines that do other work; the results are the same.
    #[arg(long, value_name = "N")]
    pub(super) view_memory_mib: Option<u32>,
}

impl ViewPlace {
    /// Opens a data set in a folder, and prints progress and the data set's notes on stderr.
    pub(crate) fn open(
        &self,
        (name, folder): (&str, &Path),
        options: OpenOptions<'_>,
    ) -> Result<Parts, Failure> {
        let cache = self.cache.clone().or_else(usual_cache);
        let status = RefCell::new(StatusLine::of_slow_work());
        let notify = |event: PreparationEvent<'_>| match event {
            PreparationEvent::Progress { done, of } => {
                status.borrow_mut().show(|| format!("computing the views: {done} of {of}"));
            }
            PreparationEvent::Line(line) => status.borrow().line(line),
        };
        let preparation = Preparation {
            folder: cache.as_deref(),
            memory_bytes: self.view_memory_mib.map_or_else(memory::view_bytes, |mib| u64::from(mib) << 20),
            threads: cores(),
            notify: Some(&notify),
        };
        let parts = load(name, folder, OpenOptions { preparation, ..options }).map_err(Failure::usage);
        status.borrow().clear();
        let parts = parts?;
        for note in parts.data.notes() {
            print_error(&format!("warning: {name}: {note}"));
        }
        Ok(parts)
    }
}

/// The folder of this program in the user's cache, by the XDG Base Directory Specification; `None` if neither `XDG_CACHE_HOME` nor `HOME` is an
/// absolute path.
fn usual_cache() -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("headwater"))
}
