//! An aggregator behind a real broker, with devices that speak by hand.

mod decisions;
mod group;
mod restart;
