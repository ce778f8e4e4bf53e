//! The waits of a policy, listed once.

use super::Policy;
use super::changes::Stated;

/// A wait of a policy: its key, and its value in a policy and in a file.
pub(super) struct Wait {
    pub(super) key: &'static str,
    pub(super) value: fn(&Policy) -> u32,
    pub(super) value_mut: fn(&mut Policy) -> &mut u32,
    pub(super) stated: fn(&Stated) -> Option<u32>,
}

macro_rules! waits {
    ($($key:ident),+) => {
        [$(Wait {
            key: stringify!($key),
            value: |policy| policy.$key,
            value_mut: |policy| &mut policy.$key,
            stated: |stated| stated.$key,
        }),+]
    };
}

/// Every wait, in the order of the keys of a policy file.
pub(super) const WAITS: [Wait; 4] = waits![window_ms, features_ms, deadline_ms, late_ms];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_are_the_first_keys_of_a_policy() {
        assert!(WAITS.iter().map(|wait| wait.key).eq(Policy::KEYS.into_iter().take(WAITS.len())));
    }
}
