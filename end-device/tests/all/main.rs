//! Tests of the device from outside: of the library with real sources and a real broker, and of the program.

mod batches;
mod commands;
mod device;
#[cfg(feature = "http")]
mod http;
mod pipes;
mod process;
mod regions;
mod sources;
mod spool;
mod streams;
mod support;
