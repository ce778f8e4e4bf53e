//! An aggregator on a real broker, with devices whose messages the tests send.

mod decisions;
mod group;
mod groups;
mod journal_fixtures;
mod restart;
