//! Sets of slots, edges or sources, each in one machine word.
//!
//! ```text
//! bit    63 ...  3   2   1   0
//!         0 ...  0   1   0   1      the set {0, 2}
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ops::{BitAnd, BitOr, BitOrAssign, Sub};

use serde::{Deserialize, Serialize};

use crate::ids::{EdgeIndex, Slot, Source};

/// A set of positions from 0 to 63: slots, edges or sources. On the wire it is a `u64` in which bit `i` stands for position `i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct BitSet<P>(u64, PhantomData<P>);

/// A set of device slots.
pub type SlotSet = BitSet<Slot>;

/// A set of edges of one trained network; edges are the tier between devices and cloud.
pub type EdgeSet = BitSet<EdgeIndex>;

/// A set of the sources of one join: device slots, slots of one edge, or edges.
pub type SourceSet = BitSet<Source>;

impl<P> BitSet<P> {
    /// The set without any position.
    pub const EMPTY: Self = Self::from_bits(0);

    /// The set whose word is `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits, PhantomData)
    }

    /// The word of the set: bit `i` is 1 when position `i` is in the set.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The first `count` positions; all 64 for a larger count.
    pub const fn first(count: usize) -> Self {
        Self::from_bits(if count < Slot::MAX { (1 << count) - 1 } else { u64::MAX })
    }

    /// The set of the positions at which a presence row is true. Values after the first 64 are ignored.
    pub fn from_row(row: &[bool]) -> Self {
        let row = row.iter().take(Slot::MAX).enumerate();
        Self::from_bits(row.fold(0, |bits, (index, &is_in)| bits | u64::from(is_in) << index))
    }

    /// A presence row of `count` values, true at the positions in the set.
    pub fn row(self, count: usize) -> Vec<bool> {
        (0..count).map(|index| index < Slot::MAX && self.0 >> index & 1 == 1).collect()
    }

    /// Number of positions in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The positions in the set, in rising order. The iteration takes time for these positions alone, not for all 64.
    pub fn positions(self) -> impl Iterator<Item = u8> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let lowest = rest.trailing_zeros() as u8;
            rest &= rest.checked_sub(1)?;
            Some(lowest)
        })
    }

    /// The same positions as sources of a join.
    pub const fn sources(self) -> SourceSet {
        BitSet::from_bits(self.0)
    }

    /// True if no position is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl<P: Copy + Into<u8> + TryFrom<u8>> BitSet<P> {
    /// The set of one position.
    pub fn single(position: P) -> Self {
        Self::from_bits(1 << position.into())
    }

    /// True if the position is in the set.
    pub fn contains(self, position: P) -> bool {
        self.0 >> position.into() & 1 == 1
    }

    /// True if every position of this set is in `other`.
    pub fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Adds a position.
    pub fn insert(&mut self, position: P) {
        self.0 |= Self::single(position).0;
    }

    /// Takes a position out.
    pub fn remove(&mut self, position: P) {
        self.0 &= !Self::single(position).0;
    }

    /// The positions in the set as ids, in rising order; positions that are no ids are left out.
    pub fn iter(self) -> impl Iterator<Item = P> {
        self.positions().filter_map(|position| P::try_from(position).ok())
    }
}

impl<P> Default for BitSet<P> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<P> BitOr for BitSet<P> {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self::from_bits(self.0 | other.0)
    }
}

impl<P> BitAnd for BitSet<P> {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self::from_bits(self.0 & other.0)
    }
}

impl<P> Sub for BitSet<P> {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::from_bits(self.0 & !other.0)
    }
}

impl<P> BitOrAssign for BitSet<P> {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl<P: Copy + Into<u8> + TryFrom<u8>> FromIterator<P> for BitSet<P> {
    fn from_iter<I: IntoIterator<Item = P>>(positions: I) -> Self {
        positions.into_iter().fold(Self::EMPTY, |set, position| set | Self::single(position))
    }
}

impl<P> fmt::Debug for BitSet<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Self(self.0, PhantomData).positions()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn slots(indices: &[u8]) -> SlotSet {
        indices.iter().map(|&index| Slot::new(index).unwrap()).collect()
    }

    #[test]
    fn bit_i_stands_for_position_i() {
        assert_eq!(slots(&[0, 2, 63]).bits(), 1 << 63 | 0b101);
        assert_eq!(SlotSet::from_bits(0b101), slots(&[0, 2]));
        assert_eq!(serde_json::to_string(&slots(&[0, 2])).unwrap(), "5");
        assert_eq!(serde_json::from_str::<SlotSet>("5").unwrap(), slots(&[0, 2]));
        assert_eq!(format!("{:?}", slots(&[0, 2])), "{0, 2}");
    }

    #[test]
    fn the_first_positions_end_at_sixty_four() {
        for (count, bits) in [(0, 0), (1, 1), (63, u64::MAX >> 1), (64, u64::MAX), (65, u64::MAX)] {
            assert_eq!(SlotSet::first(count).bits(), bits, "{count}");
        }
    }

    #[test]
    fn a_presence_row_becomes_a_set_and_back() {
        assert_eq!(SlotSet::from_row(&[true, false, true]), slots(&[0, 2]));
        assert_eq!(SlotSet::from_row(&[]), SlotSet::EMPTY);
        assert_eq!(SlotSet::from_row(&[true; 70]), SlotSet::first(64));
        assert_eq!(slots(&[0, 2]).row(4), [true, false, true, false]);
        assert_eq!(SlotSet::first(64).row(65).iter().filter(|is_in| **is_in).count(), 64);
    }

    #[test]
    fn every_operation_is_that_of_a_set() {
        let words = [0, 1, 0b1011, 0b0110, 1 << 63, u64::MAX, 0x0f0f << 40];
        let set = |bits: u64| -> BTreeSet<usize> { (0..64).filter(|i| bits >> i & 1 == 1).collect() };
        let found = |slots: SlotSet| -> BTreeSet<usize> { slots.iter().map(Slot::index).collect() };
        for (a, b) in words.into_iter().flat_map(|a| words.map(|b| (a, b))) {
            let (left, right) = (SlotSet::from_bits(a), SlotSet::from_bits(b));
            assert_eq!(found(left | right), &set(a) | &set(b));
            assert_eq!(found(left & right), &set(a) & &set(b));
            assert_eq!(found(left - right), &set(a) - &set(b));
            assert_eq!(left.is_subset(right), set(a).is_subset(&set(b)));
            assert_eq!((left.len(), left.is_empty()), (set(a).len(), set(a).is_empty()));
            let mut united = left;
            united |= right;
            assert_eq!(united, left | right);
            for slot in Slot::first(Slot::MAX) {
                assert_eq!(left.contains(slot), set(a).contains(&slot.index()));
                let (mut with, mut without) = (left, left);
                with.insert(slot);
                without.remove(slot);
                assert_eq!((with, without), (left | SlotSet::single(slot), left - SlotSet::single(slot)));
            }
        }
    }
}
