//! Edge sections: those in the leader's process, and an edge that is a process of its own.

mod model;
mod own;
mod service;

pub(crate) use own::{EdgeReply, OwnEdges};
pub use service::{Edge, EdgeHandle};
