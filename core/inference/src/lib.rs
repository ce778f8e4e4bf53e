//! The decision path: bundle, engines, aggregation, exit rule, and the decision state machine.
//!
//! The crate opens no socket, reads no clock and no environment, and starts no thread.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! tests           testing
//! whole network   whole
//! groups          edge  leader
//! execution       sections  cascade  engine
//! files           bundle  cost
//! decisions       exit  policy  aggregate
//! ground          manifest  regular_file
//! ```

// A match on an enum must name every variant, so that no new variant is overlooked.
#![warn(clippy::wildcard_enum_match_arm)]

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
mod regular_file;
pub mod sections;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod whole;
