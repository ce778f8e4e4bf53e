//! Joint training: steps, epochs, checkpoints.

mod adam;
mod checkpoint;
mod step;
mod trainer;
mod workers;

pub use adam::{Adam, AdamStep};
pub use checkpoint::{Checkpoint, CheckpointError, Progress};
pub use step::{exact_statistics, set_statistics, step, update_statistics};
pub use trainer::{Diverged, EpochRecord, Event, Trainer};
pub use workers::Workers;
