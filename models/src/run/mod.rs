//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, bundle, report.

mod finish;
mod folder;
mod train;

pub use finish::{EvaluationParts, Finished, finish};
pub use folder::RunFolder;
pub use train::{RunError, train};
