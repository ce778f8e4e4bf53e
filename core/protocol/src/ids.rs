//! Ids as types. An id with a limit or a form is checked when it is made.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Id of one event seen by a group. Ids of a group only grow; they never restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SampleId(pub u64);

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! position_id {
    ($(#[$doc:meta])* $name:ident, $(#[$max_doc:meta])* $error:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("maximum" = 63)))]
        #[serde(try_from = "u8")]
        pub struct $name(u8);

        impl $name {
            $(#[$max_doc])*
            pub const MAX: usize = 64;

            /// # Errors
            /// [`IdError`] for positions from 64 on.
            pub const fn new(position: u8) -> Result<Self, IdError> {
                if (position as usize) < Self::MAX { Ok(Self(position)) } else { Err(IdError::$error(position)) }
            }

            /// Position as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The first `count` positions, at most 64.
            pub fn first(count: usize) -> impl ExactSizeIterator<Item = Self> + Clone {
                (0..count.min(Self::MAX) as u8).map(Self)
            }
        }

        impl TryFrom<u8> for $name {
            type Error = IdError;
            fn try_from(position: u8) -> Result<Self, IdError> {
                Self::new(position)
            }
        }

        impl From<$name> for u8 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

position_id!(
    /// Position of a device in the trained network, `0..N`; each slot has its own weights.
    Slot,
    /// Largest number of slots in a network, in training and in serving: a [`SlotSet`](crate::SlotSet) is one word of 64 bits.
    Slot
);
position_id!(
    /// Position of an edge in the trained network, `0..E`; each edge has its own section.
    EdgeIndex,
    /// Largest number of edges in a network, the same as of slots: every edge has at least one slot.
    Edge
);

/// Position among the sources of a join: a device slot, a slot of one edge, or an edge. The type has no values; it only makes
/// [`SourceSet`](crate::SourceSet) a type of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {}

/// Number of a device's start; it wraps. Messages of an earlier start have another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Boot(pub u16);

/// SHA-256 of a bundle's `network.json` as stored. All tiers of a group must have the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("pattern" = "^[0-9a-f]{64}$")))]
#[serde(try_from = "String", into = "String")]
pub struct NetworkId(pub [u8; 32]);

impl NetworkId {
    /// First 12 hex digits of the id, for people.
    pub fn short(self) -> String {
        self.to_string()[..12].to_owned()
    }
}

/// Hash of a network id and a boot, or of a network id alone, which every binary message carries.
///
/// The hash is FNV-1a of 32 bits, its two halves joined by exclusive or, little endian. It is taken over the id's 32 bytes,
/// then the boot's two, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Session(pub [u8; 2]);

impl Session {
    /// The session of one start of a device or an edge. A receiver accepts a message only if the network and boot of the sender's birth
    /// (device) or status (edge) give the session in its header.
    pub fn of_boot(network: NetworkId, boot: Boot) -> Self {
        Self::hash(network.0.into_iter().chain(boot.0.to_le_bytes()))
    }

    /// The session of triggers and requests.
    pub fn of_network(network: NetworkId) -> Self {
        Self::hash(network.0)
    }

    fn hash(bytes: impl IntoIterator<Item = u8>) -> Self {
        let hash = bytes
            .into_iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self(((hash >> 16) as u16 ^ hash as u16).to_le_bytes())
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// First eight bytes of the SHA-256 of a policy's values as JSON. A decision names the policy that it was made under.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("pattern" = "^[0-9a-f]{16}$")))]
#[serde(try_from = "String", into = "String")]
pub struct PolicyId(pub [u8; 8]);

/// Public ed25519 key that verifies signatures of bundles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VerifyingKey(pub [u8; 32]);

macro_rules! hex_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse_hex(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

hex_id!(NetworkId);
hex_id!(PolicyId);
hex_id!(VerifyingKey);

/// The conditions under which a program accepts a signed bundle.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// Trusted keys: one of these must have signed the bundle.
    pub keys: &'a [VerifyingKey],
    /// Site of the program, which the bundle must allow; `None` accepts bundles for any site.
    pub site: Option<&'a SiteId>,
    /// Lowest number of a release that is accepted.
    pub oldest_release: u64,
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(
            feature = "schema",
            derive(schemars::JsonSchema),
            schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))
        )]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// # Errors
            /// [`IdError::Name`] unless the name is 1 to 64 of `a-z A-Z 0-9 . _ -`; it becomes one level of a topic.
            pub fn new(name: impl Into<String>) -> Result<Self, IdError> {
                let name = name.into();
                if is_name(&name) { Ok(Self(name)) } else { Err(IdError::Name { what: $what, found: clipped(&name, 80) }) }
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(name: &str) -> Result<Self, IdError> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(name: String) -> Result<Self, IdError> {
                Self::new(name)
            }
        }
    };
}

name_id!(
    /// Name of a device. It is one level of the device's topics, so that a broker can limit the device to them.
    DeviceId,
    "device id"
);
name_id!(
    /// Name of an edge. It is one level of the edge's topics.
    EdgeId,
    "edge id"
);
name_id!(
    /// Name of a site.
    SiteId,
    "site"
);
name_id!(
    /// Name of a group: devices whose views form one sample.
    GroupId,
    "group"
);

name_id!(
    /// Name of a policy of a bundle.
    PolicyName,
    "policy name"
);
name_id!(
    /// Name of a member of a site, as the member's certificate states it. It is one level of the topics that the member alone may write.
    MemberName,
    "member"
);

/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The first `chars` characters of `text` without its control characters, for one line of an error message.
pub fn clipped(text: &str, chars: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(chars).collect()
}

/// Bytes as lower-case hex digits, two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

/// Bytes from hex digits in either case, two digits a byte.
///
/// # Errors
/// [`IdError::Hex`] for another number of digits, or other characters.
pub fn parse_hex<const BYTES: usize>(text: &str) -> Result<[u8; BYTES], IdError> {
    let refused = || IdError::Hex { digits: 2 * BYTES, found: clipped(text, 80) };
    let is_hex = text.len() == 2 * BYTES && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default();
    if is_hex { Ok(std::array::from_fn(byte)) } else { Err(refused()) }
}

/// An id that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// The device slot is above 63.
    #[error("device slot: expected 0 to 63, found {0}")]
    Slot(u8),
    /// The edge is above 63.
    #[error("edge: expected 0 to 63, found {0}")]
    Edge(u8),
    /// The text is not the hex digits of an id.
    #[error("id: expected {digits} hex digits, found {found:?}")]
    Hex {
        /// Expected number of digits.
        digits: usize,
        /// The text found, clipped.
        found: String,
    },
    /// The name cannot be one level of a topic.
    #[error(
        "{what}: expected 1 to 64 of a-z A-Z 0-9 . _ - (it becomes one level of an MQTT topic), found {found:?}"
    )]
    Name {
        /// Kind of id.
        what: &'static str,
        /// The text found, clipped.
        found: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that other implementations must agree with.
    #[test]
    fn golden_sessions() {
        let network = NetworkId(std::array::from_fn(|i| i as u8));
        assert_eq!(Session::of_network(network).to_string(), "76a4");
        assert_eq!(Session::of_boot(network, Boot(0)).to_string(), "1332");
        assert_eq!(Session::of_boot(network, Boot(0x0102)).to_string(), "2f8e");
    }

    #[test]
    fn names_with_topic_characters_are_refused() {
        for bad in ["", "a/b", "+", "#", "a b", &"x".repeat(65), "é"] {
            assert!(DeviceId::new(bad).is_err(), "{bad:?}");
        }
        assert!(DeviceId::new("cam-0.north_side").is_ok());
    }

    #[test]
    fn a_network_id_survives_its_text() {
        let id = NetworkId(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("zz".parse::<NetworkId>().is_err());
        assert!("é".repeat(32).parse::<NetworkId>().is_err());
    }

    #[test]
    fn slots_end_at_sixty_three() {
        assert!(Slot::new(63).is_ok());
        assert_eq!(Slot::new(64), Err(IdError::Slot(64)));
        assert_eq!(Slot::first(3).map(Slot::index).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn edges_end_at_sixty_three() {
        assert!(EdgeIndex::new(63).is_ok());
        assert_eq!(EdgeIndex::new(64), Err(IdError::Edge(64)));
        assert_eq!(serde_json::from_str::<EdgeIndex>("2").unwrap(), EdgeIndex(2));
        assert!(serde_json::from_str::<EdgeIndex>("64").is_err());
    }
}
