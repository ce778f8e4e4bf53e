//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, bundle, report.

mod evaluated_part;
mod folder;
mod folds;
pub mod out_of_fold;
mod rank_file;
mod ranks;
mod train;

pub use evaluated_part::EvaluatedPart;
pub use folder::RunFolder;
pub use folds::{Folds, OtherParts};
pub use ranks::train_on_ranks;
pub use train::{EvaluationParts, Finished, RunError, finish, train};
