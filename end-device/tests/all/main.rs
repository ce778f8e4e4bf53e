//! The device from outside: the library with real sources and a real broker, and the program.

mod batches;
mod commands;
mod device;
mod pipes;
mod process;
mod sources;
mod spool;
mod support;
