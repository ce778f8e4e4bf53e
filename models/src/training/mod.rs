//! Joint training: steps, epochs, checkpoints.

mod checkpoint;
mod optimiser;
mod order;
mod step;
mod trainer;
mod workers;

pub use checkpoint::{Checkpoint, CheckpointError, Progress};
pub use optimiser::{Moments, OptimiserStep};
pub use order::{EpochOrder, OwnShards, Shard};
pub use step::{combined, exact_statistics, set_statistics, step, update_statistics, worker_gradients};
pub use trainer::{Diverged, EpochRecord, Event, Trainer};
pub use workers::Workers;
