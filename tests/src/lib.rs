//! Support for tests across the tiers: shipped data, settings of groups for tests, brokers, and the leader's journal.

pub mod group;
pub mod journal_contents;
pub mod other_programs;
pub mod schema_check;
pub mod shipped;
pub mod site;
pub mod waits;
