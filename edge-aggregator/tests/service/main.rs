//! The aggregator from outside: on a real broker with devices whose messages the tests send, and its settings.

mod claims;
mod decisions;
mod full_disk;
mod group;
mod groups;
mod registry;
mod repeats;
mod restart;
mod settings;
