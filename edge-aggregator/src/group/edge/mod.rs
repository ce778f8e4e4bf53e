//! Edge sections: local ones in the leader's process, and an edge that is a separate process.

mod local;
mod worker;

pub(crate) use local::{EdgeReply, LocalEdges};
pub use worker::GroupEdge;
