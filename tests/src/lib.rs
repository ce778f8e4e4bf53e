//! Support for tests across the tiers: the shipped data, tiers started in this process, real programs, and an observer.

pub mod account;
pub mod observer;
pub mod process;
pub mod programs;
pub mod shipped;
pub mod tiers;
