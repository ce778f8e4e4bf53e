//! Arrays with a value for each slot, as serde writes and reads them.

use headwater_protocol::Slot;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T: Serialize, S: Serializer>(
    values: &[T; Slot::MAX],
    out: S,
) -> Result<S::Ok, S::Error> {
    values.as_slice().serialize(out)
}

pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<[T; Slot::MAX], D::Error> {
    let values = Vec::deserialize(from)?;
    let found = values.len();
    values.try_into().map_err(|_| D::Error::invalid_length(found, &"a value for each of 64 slots"))
}
