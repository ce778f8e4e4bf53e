//! Counting with carry-save adders, over the pixels of a tile.

use super::ROUND_GROUPS;

/// Number of pixels that are counted at once.
pub(super) const TILE: usize = 256;
/// Words of a tile.
pub(super) const TILE_WORDS: usize = TILE / 64;
/// One bit for each pixel of a tile.
pub(super) type TileRow = [u64; TILE_WORDS];
pub(super) const NO_BITS: TileRow = [0; TILE_WORDS];
const ALL_BITS: TileRow = [u64::MAX; TILE_WORDS];

/// Number of neighbouring taps that are summed together.
pub(super) const GROUP: usize = 3;
/// Number of combinations of the signs of a group of taps.
pub(super) const SIGNS: usize = 1 << GROUP;
/// Number of +1 products of three taps at each pixel, for each combination of signs: its binary digits, ones, then twos.
pub(super) type Sums = [[TileRow; 2]; SIGNS];
pub(super) const SUMS_WORDS: usize = SIGNS * 2 * TILE_WORDS;

/// Largest number of binary digits of a count.
pub(super) const MAX_DIGITS: usize = 15;
/// Number of the lowest binary digits, ones to sixteens, to which each round of [`ROUND_GROUPS`] groups adds. Carries into higher digits
/// wait until there are two.
pub(super) const MIN_DIGITS: usize = 5;

#[inline(always)]
pub(super) fn xor(mut a: TileRow, b: TileRow) -> TileRow {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

#[inline(always)]
pub(super) fn and(mut a: TileRow, b: TileRow) -> TileRow {
    a.iter_mut().zip(b).for_each(|(a, b)| *a &= b);
    a
}

#[inline(always)]
pub(super) fn or(mut a: TileRow, b: TileRow) -> TileRow {
    a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
    a
}

/// Sums and carries of three rows.
#[inline(always)]
fn add(a: TileRow, b: TileRow, c: TileRow) -> (TileRow, TileRow) {
    let either = xor(a, b);
    (xor(either, c), or(and(a, b), and(either, c)))
}

/// Sums and carries of two rows.
#[inline(always)]
fn add_two(a: TileRow, b: TileRow) -> (TileRow, TileRow) {
    (xor(a, b), and(a, b))
}

/// The ones and twos of a group of taps whose weights have these signs.
#[inline(always)]
fn group_sum(sums: &Sums, signs: u8) -> (TileRow, TileRow) {
    let [ones, twos] = &sums[usize::from(signs) % SIGNS];
    (*ones, *twos)
}

/// Adds the number of a filter's +1 products at each pixel of a tile to `count`, in binary digits.
#[inline(always)]
pub(super) fn count_up(digits: usize, sums: &[Sums], signs: &[u8], count: &mut [TileRow; MAX_DIGITS]) {
    let [mut ones, mut twos, mut fours, mut eights, mut sixteens, ..] = *count;
    // A carry out of the sixteens or above is kept until a second one comes, and both are added at once. As in a binary counter, a
    // carry into digit `MIN_DIGITS + i` is pending while bit `i` of the number of rounds is set.
    let mut pending = [NO_BITS; MAX_DIGITS];
    let (sums, _) = sums.as_chunks::<ROUND_GROUPS>();
    let (signs, _) = signs.as_chunks::<ROUND_GROUPS>();
    let mut rounds = 0usize;
    for (sums, signs) in sums.iter().zip(signs) {
        // Carries are added as soon as there are two, so that few rows are in use at any time.
        let mut fours_carry = [NO_BITS; 2];
        let mut eights_carry = [NO_BITS; 2];
        for half in 0..2 {
            let mut twos_carry = [NO_BITS; 2];
            let mut group_carry = [NO_BITS; 2];
            for pair in 0..2 {
                let group = 4 * half + 2 * pair;
                let (ones_a, twos_a) = group_sum(&sums[group], signs[group]);
                let (ones_b, twos_b) = group_sum(&sums[group + 1], signs[group + 1]);
                (ones, twos_carry[pair]) = add(ones, ones_a, ones_b);
                (twos, group_carry[pair]) = add(twos, twos_a, twos_b);
            }
            (twos, fours_carry[half]) = add(twos, twos_carry[0], twos_carry[1]);
            (fours, eights_carry[half]) = add(fours, group_carry[0], group_carry[1]);
        }
        let (sum, last_eights) = add(fours, fours_carry[0], fours_carry[1]);
        fours = sum;
        let (sum, sixteens_a) = add(eights, eights_carry[0], eights_carry[1]);
        let (sum, sixteens_b) = add_two(sum, last_eights);
        eights = sum;
        let (sum, mut carry) = add(sixteens, sixteens_a, sixteens_b);
        sixteens = sum;
        let mut digit = MIN_DIGITS;
        while digit < digits && rounds >> (digit - MIN_DIGITS) & 1 == 1 {
            (count[digit], carry) = add(count[digit], pending[digit], carry);
            digit += 1;
        }
        if digit < digits {
            pending[digit] = carry;
        }
        rounds += 1;
    }
    [count[0], count[1], count[2], count[3], count[4]] = [ones, twos, fours, eights, sixteens];
    let mut carry = NO_BITS;
    for digit in MIN_DIGITS..digits {
        let is_pending = rounds >> (digit - MIN_DIGITS) & 1 == 1;
        let last = if is_pending { pending[digit] } else { NO_BITS };
        (count[digit], carry) = add(count[digit], last, carry);
    }
}

/// A row with the bits of the pixels set where `2 * count + half >= number`.
///
/// The digits are compared from the lowest on. After each digit the result says whether the digits so far are at least those of `number`.
#[inline(always)]
pub(super) fn reaches(number: i32, half: TileRow, count: &[TileRow]) -> TileRow {
    let mut reaches = if number & 1 == 1 { half } else { ALL_BITS };
    for (index, &digit) in count.iter().enumerate() {
        let is_zero = if number >> (index + 1) & 1 == 0 { ALL_BITS } else { NO_BITS };
        reaches = or(and(digit, reaches), and(or(digit, reaches), is_zero));
    }
    reaches
}
