//! Class scores as bytes: floats, or levels of a few bits.
//!
//! ```text
//! f32      | score of class 0, little endian | score of class 1 | ...
//! 4_bits   byte 0: level of class 1, level of class 0     byte 1: 0, level of class 2       three classes
//! ```
//!
//! Levels stand one after another, lowest bit first; the bits after the last one are zero. The network says which score a level stands for.

use serde::{Deserialize, Serialize};

use crate::bits::packed_len;

/// Encoding of class scores in a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScoreEncoding {
    /// Little-endian `f32`, 4 bytes a class (DDNN's `4|C|`).
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// 256 levels.
    #[serde(rename = "8_bits")]
    Bits8,
    /// 64 levels.
    #[serde(rename = "6_bits")]
    Bits6,
    /// 16 levels.
    #[serde(rename = "4_bits")]
    Bits4,
    /// 8 levels.
    #[serde(rename = "3_bits")]
    Bits3,
    /// 4 levels.
    #[serde(rename = "2_bits")]
    Bits2,
}

impl ScoreEncoding {
    /// Every encoding.
    pub const ALL: [Self; 6] = [Self::F32, Self::Bits8, Self::Bits6, Self::Bits4, Self::Bits3, Self::Bits2];

    /// Bits of one score.
    pub const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::Bits8 => 8,
            Self::Bits6 => 6,
            Self::Bits4 => 4,
            Self::Bits3 => 3,
            Self::Bits2 => 2,
        }
    }

    /// Number of levels; `None` for floats.
    pub const fn levels(self) -> Option<u16> {
        match self {
            Self::F32 => None,
            coded => Some(1 << coded.bits()),
        }
    }

    /// Bytes that the scores of `classes` classes take.
    pub const fn bytes(self, classes: usize) -> usize {
        packed_len(classes.saturating_mul(self.bits()))
    }
}

/// Reads little-endian floats.
pub fn floats(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

/// Appends levels of `bits` bits each, 1 to 8.
pub fn put_levels(levels: impl IntoIterator<Item = u8>, bits: usize, out: &mut Vec<u8>) {
    let (mut held, mut count) = (0u32, 0);
    for level in levels {
        held |= u32::from(level) << count;
        count += bits;
        while count >= 8 {
            out.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
}

/// Reads levels of `bits` bits each, 1 to 8. Zero bits after the last level may read as more levels.
pub fn levels(bytes: &[u8], bits: usize) -> impl Iterator<Item = u8> {
    let mask = ((1u16 << bits) - 1) as u8;
    (0..bytes.len() * 8 / bits).map(move |index| {
        let at = index * bits;
        let next = bytes.get(at / 8 + 1).copied().unwrap_or(0);
        let two = u16::from_le_bytes([bytes[at / 8], next]);
        (two >> (at % 8)) as u8 & mask
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_lowest_bit_first() {
        let of = |levels: &[u8], bits| {
            let mut bytes = Vec::new();
            put_levels(levels.iter().copied(), bits, &mut bytes);
            bytes
        };
        assert_eq!(of(&[0x1, 0x2, 0x3], 4), [0x21, 0x03]);
        assert_eq!(of(&[1, 2, 3, 4], 3), [0b11_010_001, 0b1000]);
        assert_eq!(of(&[3, 0, 2, 1, 3], 2), [0b01_10_00_11, 0b11]);
        assert_eq!(of(&[63, 0, 1], 6), [63, 0b0001_0000, 0]);
        assert_eq!(of(&[200, 7], 8), [200, 7]);
    }

    #[test]
    fn levels_survive_their_bytes() {
        for encoding in ScoreEncoding::ALL {
            let Some(count) = encoding.levels() else { continue };
            for classes in 1..40 {
                let all: Vec<u8> = (0..classes).map(|class| (class * 37 % u32::from(count)) as u8).collect();
                let mut bytes = Vec::new();
                put_levels(all.iter().copied(), encoding.bits(), &mut bytes);
                assert_eq!(bytes.len(), encoding.bytes(all.len()));
                assert_eq!(levels(&bytes, encoding.bits()).take(all.len()).collect::<Vec<_>>(), all);
            }
        }
    }

    #[test]
    fn the_names_of_a_spec_are_read() {
        let names = ScoreEncoding::ALL.map(|encoding| serde_json::json!(encoding));
        assert_eq!(names, ["f32", "8_bits", "6_bits", "4_bits", "3_bits", "2_bits"]);
        assert_eq!(ScoreEncoding::F32.bytes(10), 40);
        assert_eq!(ScoreEncoding::Bits3.bytes(10), 4);
    }
}
