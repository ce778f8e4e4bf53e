//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, the bundle, the report.

mod finish;
mod folder;
mod train;

pub use finish::{FinishError, Finished, Held, Report, finish};
pub use folder::{RunFolder, RunInfo};
pub use train::{Notice, RunError, train};
