//! Joint training: steps and epochs.

mod order;
mod step;
mod trainer;

pub use order::{EpochOrder, OwnShards, Shard};
pub use step::{combined, exact_statistics, put_statistics, read_statistics, worker_gradients};
pub use trainer::{Diverged, Event, Trainer};
