//! Joint training: steps, epochs, checkpoints.

mod adam;
mod checkpoint;
mod step;
mod trainer;

pub use adam::Adam;
pub use checkpoint::{Checkpoint, CheckpointError, Progress};
pub use step::{StepResult, Workers, average, step, update_statistics};
pub use trainer::{EpochRecord, Event, ExitShares, Trainer};
