//! The decision path: bundle, engines, aggregation, exit rule, and the decision state machine.
//!
//! Pure: opens no socket, reads no clock and no environment, starts no thread.

pub mod aggregate;
pub mod bundle;
pub mod cascade;
pub mod cost;
pub mod edge;
pub mod engine;
pub mod exit;
pub mod leader;
pub mod manifest;
pub mod policy;
pub mod sections;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod whole;
