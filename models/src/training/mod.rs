//! Joint training: steps, epochs, checkpoints.

mod adam;
mod checkpoint;
mod step;
mod trainer;
mod workers;

pub use adam::{Adam, AdamStep};
pub(crate) use checkpoint::write_whole;
pub use checkpoint::{Checkpoint, CheckpointError, Progress};
pub use step::{step, update_statistics};
pub use trainer::{EpochRecord, Event, Trainer};
pub use workers::Workers;
