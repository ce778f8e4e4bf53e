//! Edge sections: those in the leader's process, and an edge that is a process of its own.

mod handle;
mod model;
mod own;
mod service;

pub use handle::{Edge, EdgeHandle};
pub(crate) use own::{EdgeReply, OwnEdges};
