//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, bundle, report.

mod folder;
mod folds;
pub mod out_of_fold;
mod train;

pub use folder::RunFolder;
pub use folds::{Folds, OtherParts};
pub use out_of_fold::{FittedPart, ThresholdOrigin};
pub use train::{EvaluationParts, Finished, RunError, finish, train};
