//! The keys of a policy in JSON, and of an operator's file.

use std::fmt;
use std::sync::LazyLock;

use headwater_protocol::Exit;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::Policy;
use super::waits::{WAITS, Wait};

pub(super) const NO_ANSWER: &str = "no_answer";

pub(super) const CLAIM_ABOVE: &str = "claim_above";

/// Key by which a policy file names the policy of the bundle that it changes.
pub(super) const USE: &str = "use";

/// Key by which an operator's command keeps out the commands of planning programs.
pub(super) const PINNED: &str = "pinned";

/// A key at the top of a policy.
#[derive(Clone, Copy)]
pub(super) enum Key {
    Exit(Exit),
    Wait(&'static Wait),
    NoAnswer,
    ClaimAbove,
    Use,
    Pinned,
}

impl Key {
    fn name(self) -> &'static str {
        match self {
            Self::Exit(exit) => exit.name(),
            Self::Wait(wait) => wait.key,
            Self::NoAnswer => NO_ANSWER,
            Self::ClaimAbove => CLAIM_ABOVE,
            Self::Use => USE,
            Self::Pinned => PINNED,
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let of_exit = || Exit::from_name(name).map(Self::Exit);
        let of_wait = || WAITS.iter().find(|wait| wait.key == name).map(Self::Wait);
        let other = match name {
            NO_ANSWER => Some(Self::NoAnswer),
            CLAIM_ABOVE => Some(Self::ClaimAbove),
            USE => Some(Self::Use),
            PINNED => Some(Self::Pinned),
            _ => None,
        };
        of_exit().or_else(of_wait).or(other)
    }
}

/// The key is checked before its value is read, so that a mistake has the place of the key.
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<str>::deserialize(from)?;
        Self::from_name(&name).ok_or_else(|| D::Error::unknown_field(&name, &KNOWN))
    }
}

/// Keys at the top of a policy, without further exits such as `cloud.1`.
static KNOWN: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let waits = WAITS.iter().map(|wait| wait.key);
    Exit::FIRST
        .into_iter()
        .map(Exit::name)
        .chain(waits)
        .chain([NO_ANSWER, CLAIM_ABOVE, USE, PINNED])
        .collect()
});

/// Values that are read key by key: a whole policy, or the part of a policy that a file states.
pub(super) trait ByKey: Default {
    /// Takes the value of a key from an object.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: Key, from: &mut A) -> Result<(), A::Error>;
}

/// Reads an object; a key that appears twice is an error.
pub(super) fn read<'de, T: ByKey, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Values<T>(T);

    impl<'de, T: ByKey> Visitor<'de> for Values<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a policy")
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
            let mut known = Vec::new();
            while let Some(key) = map.next_key::<Key>()? {
                if known.contains(&key.name()) {
                    return Err(A::Error::custom(format_args!("`{}` twice", key.name())));
                }
                known.push(key.name());
                self.0.take(key, &mut map)?;
            }
            Ok(self.0)
        }
    }
    from.deserialize_map(Values(T::default()))
}

impl ByKey for Policy {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: Key, from: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Exit(exit) => *self.of_mut(exit) = from.next_value()?,
            Key::Wait(wait) => *(wait.value_mut)(self) = from.next_value()?,
            Key::NoAnswer => self.no_answer = from.next_value()?,
            Key::ClaimAbove => self.claim_above = from.next_value()?,
            Key::Use | Key::Pinned => {
                return Err(A::Error::custom(format_args!("`{}`: only a policy file states it", key.name())));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from)
    }
}
