//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, bundle, report.

mod folder;
mod train;

pub use folder::RunFolder;
pub use train::{EvaluationParts, Finished, RunError, finish, train};
