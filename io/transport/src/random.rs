//! Random numbers of a service.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number that differs between processes and calls: the first keys of `RandomState` come from the system, and each call has other keys.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
