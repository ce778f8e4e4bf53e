//! Floats as serde writes and reads them in a state: their bits, since JSON has no number for NaN and infinity.

use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(values: &[f32], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(values.iter().map(|value| value.to_bits()))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let bits = Vec::<u32>::deserialize(from)?;
    Ok(bits.into_iter().map(f32::from_bits).collect())
}
