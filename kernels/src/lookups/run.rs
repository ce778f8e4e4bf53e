//! One run: the map laid out anew, then a word of places after the other.

use super::{
    CHANNELS, COMPARED, FILTERS, LINE, Lanes, PLACES, Prepared, Sizes, TOGETHER, TRIPLE, TURN, UNROLLED,
    halves_are_whole,
};
use crate::rows::bits_at;
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{BLOCK, Counts, HALF, LANES, LooksUp};

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// As many as [`bytes_len`] says.
    pub(crate) bytes: &'a mut [u8],
    /// As many as [`sums_len`] says.
    pub(crate) sums: &'a mut [i16],
    /// As many as [`words_len`] says.
    pub(crate) words: &'a mut [u64],
}

/// The same, cut up.
struct Memory<'a> {
    /// The map, a byte for four channels of each place.
    planes: &'a mut [u8],
    /// What the taps see of a word of places.
    patches: &'a mut [[u8; LANES]],
    /// What is counted from the start, then the counts of each four filters.
    counts: &'a mut [Counts],
    /// A word of places for each filter.
    bits: &'a mut [u64],
}

impl<'a> Memory<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, scratch: &'a mut Scratch<'_>) -> Self {
        let (planes, rest) = scratch.bytes.split_at_mut(sizes.planes());
        // No vector lies in two lines of the cache.
        let unaligned = rest.as_ptr().align_offset(LINE).min(LINE);
        let (patches, _) = rest[unaligned..].as_chunks_mut();
        let unaligned = scratch.sums.as_ptr().align_offset(LINE).min(LINE / 2);
        let (counts, _) = scratch.sums[unaligned..].as_chunks_mut();
        let (counts, _) = counts.as_chunks_mut();
        Self {
            planes,
            patches: &mut patches[..sizes.turns * TURN * TOGETHER],
            counts: &mut counts[..(1 + sizes.groups) * TOGETHER],
            bits: &mut scratch.words[..sizes.groups * FILTERS],
        }
    }
}

/// Runs convolution, comparison and the pooling down. `stream` is `[channels, height, width]` without gaps; so is what is `given` where
/// [`gives_stream`](crate::places::gives_stream) says so, and otherwise `[filters, pooled rows, row words]`, not yet turned round where
/// thresholds are. It is zero at first.
#[inline(always)]
pub(crate) fn convolve<V: LooksUp>(
    v: V,
    shape: Convp,
    stream: &[u64],
    lanes: &[Lanes],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    given: &mut [u64],
) {
    let sizes = Sizes::of(shape);
    let prepared = Prepared::of(&sizes, lanes);
    let mut memory = Memory::of(&sizes, scratch);
    number_places(v, &sizes, stream, memory.planes);
    let places = shape.convolved().height * sizes.places.pitch;
    for word in 0..sizes.places.words {
        match (places - word * PLACES).div_ceil(HALF) {
            1 => of_word::<V, 1>(v, &sizes, word, &prepared, &mut memory),
            2 => of_word::<V, 2>(v, &sizes, word, &prepared, &mut memory),
            3 => of_word::<V, 3>(v, &sizes, word, &prepared, &mut memory),
            _ => of_word::<V, TOGETHER>(v, &sizes, word, &prepared, &mut memory),
        }
        sizes.places.put(word, memory.bits, thresholds, given);
    }
}

/// A byte for four channels of each place, `[four, row, column]`. What lies before, between and after the rows is not looked at.
#[inline(always)]
fn number_places<V: LooksUp>(v: V, sizes: &Sizes, stream: &[u64], planes: &mut [u8]) {
    let Map { channels, height, width } = sizes.places.shape.input;
    let map = height * width;
    // Whole blocks are written: what is too much is written over by what follows.
    let mut at = sizes.places.before();
    if sizes.places.pitch == width && map.is_multiple_of(BLOCK) && channels.is_multiple_of(CHANNELS) {
        // Channels have words of their own, and rows lie there as they do here.
        let words = map / BLOCK;
        for maps in stream[..channels * words].chunks_exact(CHANNELS * words) {
            let ((ab, cd), (blocks, _)) = (maps.split_at(2 * words), planes[at..].as_chunks_mut());
            let ((a, b), (c, d)) = (ab.split_at(words), cd.split_at(words));
            for ((((block, a), b), c), d) in blocks.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                v.number([*a, *b, *c, *d], block);
            }
            at += sizes.plane;
        }
        return;
    }
    // Without gaps between rows the map is one long row.
    let (rows, length) = if sizes.places.pitch == width { (1, map) } else { (height, width) };
    for first in (0..channels).step_by(CHANNELS) {
        for row in 0..rows {
            let (blocks, _) = planes[at + row * sizes.places.pitch..].as_chunks_mut();
            for (from, block) in (0..length).step_by(BLOCK).zip(blocks) {
                let mut bits = [0; CHANNELS];
                for (bits, channel) in bits.iter_mut().zip(first..channels) {
                    *bits = bits_at(stream, channel * map + row * width + from);
                }
                v.number(bits, block);
            }
        }
        at += sizes.plane;
    }
}

/// What each place of the kernel sees of one word of places, `X` vectors of them.
#[inline(always)]
fn see<V: LooksUp, const X: usize>(
    v: V,
    sizes: &Sizes,
    (word, kind): (usize, usize),
    masks: &[Lanes],
    planes: &[u8],
    patches: &mut [[[u8; LANES]; X]],
) {
    let kernel = sizes.places.shape.conv.kernel;
    let (masks, _) = masks.as_chunks::<TOGETHER>();
    let masks = &masks[kind * kernel * kernel..][..kernel * kernel];
    // As it is; the compiler does not know.
    let stride = sizes.plane.max(PLACES);
    for ((place, masks), patches) in masks.iter().enumerate().zip(patches.chunks_exact_mut(sizes.fours)) {
        let (ky, kx) = (place / kernel, place % kernel);
        let mut planes = &planes[word * PLACES + ky * sizes.places.pitch + kx..];
        for places in patches {
            let (plane, rest) = planes.split_at(stride);
            let (seen, _) = plane[..PLACES].as_chunks();
            planes = rest;
            for ((places, seen), Lanes(mask)) in places.iter_mut().zip(seen).zip(masks) {
                v.put_twice(seen, mask, places);
            }
        }
    }
}

/// The bits of one word of places, `X` vectors of them, for all filters.
#[inline(always)]
fn of_word<V: LooksUp, const X: usize>(
    v: V,
    sizes: &Sizes,
    word: usize,
    prepared: &Prepared<'_>,
    memory: &mut Memory<'_>,
) {
    let (patches, _) = memory.patches[..sizes.turns * TURN * X].as_chunks_mut::<X>();
    let kind = sizes.kind(word);
    see(v, sizes, (word, kind), prepared.masks, memory.planes, patches);

    // What is counted from the start.
    let (counts, _) = memory.counts[..(1 + sizes.groups) * X].as_chunks_mut::<X>();
    let Some((starts, counts)) = counts.split_first_mut() else { return };
    let (compared, _) = prepared.compared.as_chunks::<COMPARED>();
    let (missing, _) = prepared.missing[kind * TOGETHER * 2..].as_chunks();
    let is_even = halves_are_whole(sizes.places.shape);
    for (start, [Lanes(even), Lanes(odd)]) in starts.iter_mut().zip(missing) {
        *start = [*even, *odd, *even, *odd];
    }
    if !is_even {
        for (counts, [_, _, Lanes(first), Lanes(second)]) in counts.iter_mut().zip(compared) {
            for (counts, start) in counts.iter_mut().zip(&*starts) {
                *counts = half(start, [first, second]);
            }
        }
    }

    let (bits, _) = memory.bits.as_chunks_mut();
    let ((patches, _), (tables, _)) = (patches.as_chunks::<TRIPLE>(), prepared.tables.as_chunks::<TRIPLE>());
    let ((patches, _), mut turns) = (patches.as_chunks::<UNROLLED>(), tables.as_chunks::<UNROLLED>().0);
    let (parts, low) = (sizes.turns.div_ceil(sizes.at_once), v.low_halves());
    for (part, patches) in patches.chunks(sizes.at_once).enumerate() {
        let begins = part == 0 && is_even;
        let (of_part, rest) = turns.split_at(patches.len() * sizes.groups);
        turns = rest;
        let groups = of_part.chunks_exact(patches.len()).zip(&mut *counts);
        if part + 1 < parts {
            for (tables, counts) in groups {
                let (both, second) = count(v, low, patches, tables);
                for x in 0..X {
                    let before = if begins { &starts[x] } else { &counts[x] };
                    let sums = v.counts(both[x], second[x], before);
                    v.put_counts(sums, &mut counts[x]);
                }
            }
            continue;
        }
        for (((tables, counts), [Lanes(below_first), Lanes(below_second), ..]), bits) in
            groups.zip(compared).zip(&mut *bits)
        {
            let (both, second) = count(v, low, patches, tables);
            let before = if begins { &*starts } else { &*counts };
            let mut above = [[v.no_bytes(); X]; 2];
            for x in 0..X {
                let counts = v.counts(both[x], second[x], &before[x]);
                [above[0][x], above[1][x]] = v.above(counts, [below_first, below_second]);
            }
            let [[a, c], [b, d]] = [v.bits(&above[0]), v.bits(&above[1])];
            *bits = [a, b, c, d];
        }
    }
}

/// Half of what is missing, one more than that where what twice the count has to reach is odd.
#[inline(always)]
fn half(missing: &Counts, is_odd: [&[i16; HALF]; 2]) -> Counts {
    let mut half = *missing;
    for (at, half) in half.iter_mut().enumerate() {
        for (half, is_odd) in half.iter_mut().zip(is_odd[at / 2]) {
            *half = (*half + is_odd) >> 1;
        }
    }
    half
}

/// What three lookups see of vectors of places.
type Seen<const X: usize> = [[[u8; LANES]; X]; TRIPLE];

/// Sums of both filters of a half, and of the second one, over some turns.
#[inline(always)]
fn count<V: LooksUp, const X: usize>(
    v: V,
    low: V::Bytes,
    patches: &[[Seen<X>; UNROLLED]],
    tables: &[[[Lanes; TRIPLE]; UNROLLED]],
) -> ([V::Bytes; X], [V::Bytes; X]) {
    let (mut both, mut second) = ([v.no_bytes(); X], [v.no_bytes(); X]);
    let mut turns = patches.iter().zip(tables);
    // Nothing is added in the first turn but its own sums.
    let Some(([first, next], [table, next_table])) = turns.next() else { return (both, second) };
    let (first, next) = (triple(v, first, table), triple(v, next, next_table));
    for x in 0..X {
        both[x] = v.add_pairs(first[x], next[x]);
        second[x] = v.add_bytes(v.high_halves(first[x], low), v.high_halves(next[x], low));
    }
    for (patches, tables) in turns {
        for (patches, tables) in patches.iter().zip(tables) {
            let sums = triple(v, patches, tables);
            for x in 0..X {
                both[x] = v.add_pairs(both[x], sums[x]);
                second[x] = v.add_bytes(second[x], v.high_halves(sums[x], low));
            }
        }
    }
    (both, second)
}

/// Sums of three lookups.
#[inline(always)]
fn triple<V: LooksUp, const X: usize>(v: V, [a, b, c]: &Seen<X>, tables: &[Lanes; TRIPLE]) -> [V::Bytes; X] {
    let mut sums = [v.no_bytes(); X];
    let table = v.table(&tables[0].0);
    for (sum, places) in sums.iter_mut().zip(a) {
        *sum = v.look_up(table, places);
    }
    for (table, places) in [(&tables[1], b), (&tables[2], c)] {
        let table = v.table(&table.0);
        for (sum, places) in sums.iter_mut().zip(places) {
            *sum = v.add_bytes(*sum, v.look_up(table, places));
        }
    }
    sums
}
