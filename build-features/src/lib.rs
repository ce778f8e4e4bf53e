//! One set of features of third-party crates, whichever packages are built; the set is in `Cargo.toml`.
