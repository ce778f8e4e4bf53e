//! The waits of a policy, listed once.

use super::Policy;

/// A wait of a policy: its key in the policy file, and functions that read and change it in a `Policy`.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) key: &'static str,
    pub(super) value: fn(&Policy) -> u32,
    pub(super) value_mut: fn(&mut Policy) -> &mut u32,
}

macro_rules! waits {
    ($($key:ident),+) => {
        [$(Wait { key: stringify!($key), value: |policy| policy.$key, value_mut: |policy| &mut policy.$key }),+]
    };
}

/// Every wait, in the order of the keys of a policy file.
pub(super) static WAITS: [Wait; 4] = waits![window_ms, features_ms, deadline_ms, late_ms];
