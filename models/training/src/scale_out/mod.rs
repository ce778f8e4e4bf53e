//! Training on several ranks: processes, on one machine or several, that train one network together.
//!
//! ```text
//! communicator  messages among ranks: MPI in `headwater-train`, threads in tests, none in a run of one process
//! agreement     check that all ranks have the same data, spec and recipe
//! shards        the samples of each rank
//! exchange      sums of a vector over all ranks ── compression
//! rank          synchronous steps or local steps, by the recipe; rank_state: the state that one rank alone has
//! ```
//! Nothing here opens a socket: the communicator transports the messages.

pub mod agreement;
mod communicator;
pub mod compression;
pub mod exchange;
#[cfg(test)]
pub(crate) mod in_process;
mod rank;
mod rank_state;
pub mod shards;
#[cfg(test)]
mod tests;

pub use communicator::{Alone, Communicator};
pub use rank::{NotFinite, Rank, RankPlan, RankStep};
pub use rank_state::RankState;
