//! A run folder: spec, recipe, seed, commit, metrics per epoch, checkpoints, bundle, report.

mod evaluated_part;
mod finish;
mod folder;
mod folds;
pub mod out_of_fold;
mod rank_file;
mod train;

pub use evaluated_part::{evaluated, evaluated_by_ranks};
pub use finish::{EvaluationParts, Finished, finish};
pub use folder::{RunFolder, lock};
pub use folds::{Folds, OtherParts};
pub use train::{RunError, train};
