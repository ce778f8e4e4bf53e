//! Helpers for tests across the tiers: shipped data, groups, programs, brokers, the leader's journal, and whole sites.
//!
//! A module imports only modules to its right or in the lines below. The test `module_orders` checks this diagram:
//!
//! ```text
//! sites           site  inputs  other_programs  programs
//! groups          group
//! checks          schema_check  journal_contents  waits
//! data            shipped
//! ```

pub mod group;
pub mod inputs;
pub mod journal_contents;
pub mod other_programs;
pub mod programs;
pub mod schema_check;
pub mod shipped;
pub mod site;
pub mod waits;
