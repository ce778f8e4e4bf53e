//! Cargo resolves build dependencies only of a crate that has a build script; this one has nothing to do.

fn main() {}
