//! Edge sections: local ones in the leader's process, and an edge that is a process of its own.

mod local;
mod model;
mod process;
mod worker;

pub(crate) use local::{EdgeReply, LocalEdges};
pub use process::GroupEdge;
