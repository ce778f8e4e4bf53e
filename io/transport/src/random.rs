//! Random numbers of a service.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number that differs between processes and calls: the system makes the seed of a new hasher at random.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
