//! Binary weights over bits, many filters at once: products are counted by looking them up.
//!
//! Four channels of a place are one of 16 numbers, and so are their four weights. For four channels there is a table of the products
//! that are +1 with each of the 16 weights, and an instruction that shuffles bytes looks up 32 filters in it at once. A count of four
//! products takes half a byte, so a table holds the counts of two places, side by side: one lookup and one addition count 256
//! products. After three lookups the halves are nearly full; they are taken apart and added to bytes, and these to 16 bits before
//! they are full: three instructions for 256 products, and a bit more.
//!
//! Which table a pair of neighbours takes does not depend on the filter, so the numbers of the tables are worked out once for all filters.
//! Weights, counts and tables in use stay within the first cache: filters go in groups, rows of the map in blocks.
//!
//! A place outside the map counts nothing, so half of what is missing there is added before the comparison, as [`slices`](crate::slices)
//! does. [`slices`](crate::slices) has places in its lanes and serves few filters; this has filters in them, and serves small maps as
//! well as large ones.

use crate::rows::{bits_at, low_bits, pooled_rows};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{LANES, Vectors, count_lane};

/// Channels that one lookup counts.
const CHANNELS: usize = 4;
/// Longest side of a kernel that is run so: neighbours in a row that are counted before halves of bytes are full, `3 * 4 < 16`.
const NEIGHBOURS: usize = 3;
/// Fours of channels that are counted in a kernel row before bytes are full, `21 * 12 < 256`.
const FOURS_MAX: usize = 21;
/// Blocks of filters that are counted together.
const TOGETHER: usize = 4;
/// Counts of a block of rows: a quarter of a first cache, where weights and tables lie too.
const COUNTS_MAX: usize = 4096;
/// From this many filters on the lanes are filled well enough.
const LEAST_FILTERS: usize = 24;
/// Numbers of 16 bits up to the next line of the cache.
const LINE: usize = 32;

/// Pairs of as many places as there are lanes.
const PAIRS_AT_ONCE: usize = LANES - 1;

/// The number of four channels of a place outside the map.
const ABSENT: usize = 16;
/// Numbers that four channels have.
const NUMBERS: usize = ABSENT + 1;
/// A weight that nothing is counted for.
const NO_WEIGHT: u8 = 0x80;

/// Products that are +1, of the four channels of two neighbours with each of 16 weights: the first neighbour's in the low half. A pair
/// begins at 16 times its number. As long as numbers of 16 bits reach, so that none has to be compared with its length; only the
/// first 4.6 KB are ever read.
static PAIRS: [u8; PAIRS_LEN] = pairs();
const PAIRS_LEN: usize = u16::MAX as usize + TABLE;
/// Bytes of a table.
const TABLE: usize = 16;

/// Four weights of 32 filters each.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Nibbles([u8; LANES]);

const fn pairs() -> [u8; PAIRS_LEN] {
    let mut pairs = [0; PAIRS_LEN];
    let mut weights = 0;
    while weights < TABLE {
        let mut pair = 0;
        while pair < NUMBERS * NUMBERS {
            let (first, second) = (positive(pair % NUMBERS, weights), positive(pair / NUMBERS, weights));
            pairs[pair * TABLE + weights] = first | second << 4;
            pair += 1;
        }
        weights += 1;
    }
    pairs
}

/// The table that begins at a place.
#[inline(always)]
fn table_at<V: Vectors>(v: V, at: i16) -> V::Lookup {
    match PAIRS[usize::from(at.cast_unsigned())..].first_chunk() {
        Some(table) => v.table(table),
        // Not reached, which the compiler finds out.
        None => v.table(&[0; TABLE]),
    }
}

/// Products that are +1.
const fn positive(channels: usize, weights: usize) -> u8 {
    if channels == ABSENT { 0 } else { CHANNELS as u8 - (channels ^ weights).count_ones() as u8 }
}

/// Whether this kernel runs the block, and well.
pub(crate) const fn runs(shape: Convp) -> bool {
    // Twice a count, and two more, fits in 16 bits.
    shape.conv.stride == 1
        && shape.conv.kernel <= NEIGHBOURS
        && shape.filters >= LEAST_FILTERS
        && 2 * shape.taps() + 2 <= i16::MAX as usize
}

/// What a run asks for again and again, worked out once.
#[derive(Clone, Copy)]
struct Sizes {
    shape: Convp,
    /// Fours of channels.
    fours: usize,
    /// As many of them as are counted before bytes are full.
    at_once: usize,
    /// Blocks of 32 filters.
    blocks: usize,
    /// Pairs of a convolved row.
    pairs: usize,
    /// Numbers of pairs in a row of the map, from that of the first place that a kernel sees.
    columns: usize,
    /// Numbers of pairs of one four of channels.
    plane: usize,
    /// Convolved rows that are counted together.
    rows: usize,
}

impl Sizes {
    const fn of(shape: Convp) -> Self {
        let fours = shape.input.channels.div_ceil(CHANNELS);
        let Map { height, width, .. } = shape.convolved();
        let pairs = width.div_ceil(2);
        // As far as is read for the last pair.
        let columns = 2 * pairs + NEIGHBOURS;
        let blocks = shape.filters.div_ceil(LANES);
        let together = if blocks < TOGETHER { blocks } else { TOGETHER };
        let rows = COUNTS_MAX / (pairs * 2 * LANES * together);
        let rows = if rows < height { rows } else { height };
        Self {
            shape,
            fours,
            // Parts of one size: emptying the bytes takes as long after a short one.
            at_once: fours.div_ceil(fours.div_ceil(FOURS_MAX)),
            blocks,
            pairs,
            columns,
            plane: shape.input.height * columns,
            rows: if rows == 0 { 1 } else { rows },
        }
    }

    /// Weights of a kernel row, for each block of filters.
    const fn row_weights(&self) -> usize {
        self.fours * NEIGHBOURS
    }

    /// Counts of a block of rows.
    const fn counts(&self) -> usize {
        let together = if self.blocks < TOGETHER { self.blocks } else { TOGETHER };
        self.rows * self.pairs * 2 * LANES * together
    }

    /// Blocks in which the tables of a row are found.
    const fn row_blocks(&self) -> usize {
        self.columns.div_ceil(PAIRS_AT_ONCE)
    }

    /// Numbers of all pairs, and as far as the last block is written; a plane that begins with the last pair is whole.
    const fn index(&self) -> usize {
        (self.fours + 1) * self.plane + self.row_blocks() * PAIRS_AT_ONCE + LANES
    }
}

/// Weights that [`prepare`] writes.
pub(crate) const fn nibbles_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.blocks * shape.conv.kernel * sizes.row_weights()
}

/// Numbers of 16 bits of one run: where the tables of pairs begin, which taps are on the map, thresholds, counts.
pub(crate) const fn sums_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.index() + 2 * sizes.pairs + (sizes.row_blocks() + sizes.blocks) * LANES + sizes.counts() + LINE
}

/// Orders weights `[filters, channels, kernel, kernel]` as they are run: `[blocks that are run together, kernel row, four, block, neighbour]`.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, nibbles: &mut [Nibbles]) {
    let sizes = Sizes::of(shape);
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    // The four weights of a filter at a place of the kernel. A channel that there is not is 0 on the map: its weight is the other one.
    let four = |filter: usize, first: usize, place: usize| {
        (0..CHANNELS).fold(0, |four, at| {
            let channel = first + at;
            let is_set = channel >= channels || weight(filter, channel * kernel * kernel + place);
            four | u8::from(is_set) << at
        })
    };
    let mut nibbles = nibbles.iter_mut();
    for first in (0..sizes.blocks).step_by(TOGETHER) {
        let together = first..sizes.blocks.min(first + TOGETHER);
        for row in 0..kernel * sizes.fours {
            let (channel, ky) = (row % sizes.fours * CHANNELS, row / sizes.fours);
            for (block, kx) in together.clone().flat_map(|block| (0..NEIGHBOURS).map(move |kx| (block, kx))) {
                let Some(Nibbles(lanes)) = nibbles.next() else { return };
                for (lane, nibble) in lanes.iter_mut().enumerate() {
                    let filter = block * LANES + lane;
                    let is_there = kx < kernel && filter < shape.filters;
                    *nibble = if is_there { four(filter, channel, ky * kernel + kx) } else { NO_WEIGHT };
                }
            }
        }
    }
}

/// Runs convolution, comparison and the pooling down. `map` is `[channels, height, row words]` with its row words; `pooled` is
/// `[filters, pooled rows, row words]`, zero at first; `sums` are as many as [`sums_len`] says.
#[inline(always)]
pub(crate) fn convolve<V: Vectors>(
    v: V,
    shape: Convp,
    map: (&[u64], usize),
    nibbles: &[Nibbles],
    thresholds: &[Threshold],
    sums: &mut [i16],
    pooled: &mut [u64],
) {
    let sizes = Sizes::of(shape);
    let (index, rest) = sums.split_at_mut(sizes.index());
    let (seen, rest) = rest.split_at_mut(2 * sizes.pairs);
    for (x, seen) in seen.iter_mut().enumerate() {
        // The second of the last pair may lie outside; its bit is cut off.
        let (left, right) = shape.conv.inside(x.min(shape.convolved().width - 1), shape.input.width);
        *seen = ((right - left) * shape.input.channels) as i16;
    }
    let (seen, _) = seen.as_chunks();
    // Vectors of counts and thresholds do not lie in two lines of the cache.
    let unaligned = rest.as_ptr().align_offset(size_of::<[i16; LINE]>()).min(LINE);
    let (blocks, _) = rest[unaligned..].as_chunks_mut::<LANES>();
    let (outside, blocks) = blocks.split_at_mut(sizes.row_blocks());
    let (least, counts) = blocks.split_at_mut(sizes.blocks);
    find_tables(v, &sizes, map, outside, index);
    for (least, thresholds) in least.iter_mut().zip(thresholds.chunks(LANES)) {
        for (filter, threshold) in thresholds.iter().enumerate() {
            // Twice the count and what is missing, less all taps, is the sum: both fit in 16 bits, and so does what is compared.
            least[count_lane(filter)] = (threshold.from + shape.taps() as i32) as i16;
        }
    }

    let of_block = shape.conv.kernel * sizes.row_weights();
    let map_words = pooled.len() / shape.filters;
    let groups = nibbles.chunks(TOGETHER * of_block).zip(least.chunks(TOGETHER));
    for ((nibbles, least), pooled) in groups.zip(pooled.chunks_mut(TOGETHER * LANES * map_words)) {
        let mut filters = Filters { nibbles, least, map_words, pooled };
        match filters.least.len() {
            1 => few::<V, 1>(v, &sizes, (index, seen), counts, &mut filters),
            2 => few::<V, 2>(v, &sizes, (index, seen), counts, &mut filters),
            3 => few::<V, 3>(v, &sizes, (index, seen), counts, &mut filters),
            _ => few::<V, TOGETHER>(v, &sizes, (index, seen), counts, &mut filters),
        }
    }
}

/// Where the tables of all pairs begin, `[four, row, column]`: the first place that a kernel sees is column 0. `outside` is what a pair
/// has more where places of it are outside the map.
#[inline(always)]
fn find_tables<V: Vectors>(
    v: V,
    sizes: &Sizes,
    (map, row_words): (&[u64], usize),
    outside: &mut [[i16; LANES]],
    index: &mut [i16],
) {
    let Map { channels, height, width } = sizes.shape.input;
    let pad = sizes.shape.conv.pad;
    let absent = |column: usize| {
        if (pad..pad + width).contains(&column) { 0 } else { (ABSENT * TABLE) as i16 }
    };
    for (at, outside) in outside.as_flattened_mut().iter_mut().enumerate() {
        let column = at / LANES * PAIRS_AT_ONCE + at % LANES;
        *outside = absent(column) + NUMBERS as i16 * absent(column + 1);
    }
    let map = &map[..channels * height * row_words];
    let of_fours = map.chunks(CHANNELS * height * row_words);
    for (four, map) in of_fours.enumerate() {
        let index = &mut index[four * sizes.plane..];
        if row_words == 1 && sizes.columns < 64 && map.len() == CHANNELS * height {
            // Rows that fit in one word are simply shifted.
            let ((a, b), (c, d)) = {
                let (low, high) = map.split_at(2 * height);
                (low.split_at(height), high.split_at(height))
            };
            for (y, (((a, b), c), d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
                let index = &mut index[y * sizes.columns..];
                for (block, outside) in outside.iter().enumerate() {
                    let (column, mut bits) = (block * PAIRS_AT_ONCE, [*a, *b, *c, *d]);
                    bits.iter_mut().for_each(|bits| *bits = *bits << pad >> column);
                    put_tables(v, bits, outside, &mut index[column..]);
                }
            }
            continue;
        }
        for y in 0..height {
            let index = &mut index[y * sizes.columns..];
            for (block, outside) in outside.iter().enumerate() {
                let column = block * PAIRS_AT_ONCE;
                let mut bits = [0; CHANNELS];
                for (bits, rows) in bits.iter_mut().zip(map.chunks_exact(height * row_words)) {
                    let row = &rows[y * row_words..][..row_words];
                    *bits = if column < pad { row[0] << (pad - column) } else { bits_at(row, column - pad) };
                }
                put_tables(v, bits, outside, &mut index[column..]);
            }
        }
    }
}

/// What is written past a row is written over by the next one.
#[inline(always)]
fn put_tables<V: Vectors>(v: V, bits: [u64; CHANNELS], outside: &[i16; LANES], index: &mut [i16]) {
    if let Some(tables) = index.first_chunk_mut() {
        let [a, b, c, d] = bits;
        v.pair_up([a as u32, b as u32, c as u32, d as u32], NUMBERS as i8, outside, tables);
    }
}

/// Blocks of filters that are counted together.
struct Filters<'a> {
    nibbles: &'a [Nibbles],
    /// What twice a count and what is missing is compared with.
    least: &'a [[i16; LANES]],
    /// Words of one filter in `pooled`.
    map_words: usize,
    pooled: &'a mut [u64],
}

/// Counts and compares `B` blocks of filters over the whole map.
#[inline(always)]
fn few<V: Vectors, const B: usize>(
    v: V,
    sizes: &Sizes,
    (index, seen): (&[i16], &[[i16; 2]]),
    counts: &mut [[i16; LANES]],
    filters: &mut Filters<'_>,
) {
    let height = sizes.shape.convolved().height;
    let (nibbles, _) = filters.nibbles.as_chunks::<NEIGHBOURS>();
    let (nibbles, _) = nibbles.as_chunks::<B>();
    let (counts, _) = counts.as_chunks_mut::<2>();
    let (counts, _) = counts.as_chunks_mut::<B>();
    for first in (0..height).step_by(sizes.rows) {
        let rows = first..height.min(first + sizes.rows);
        let counts = &mut counts[..rows.len() * sizes.pairs];
        counts.fill([[[0; LANES]; 2]; B]);
        for (ky, nibbles) in nibbles.chunks_exact(sizes.fours).enumerate() {
            for (part, nibbles) in nibbles.chunks(sizes.at_once).enumerate() {
                let index = &index[part * sizes.at_once * sizes.plane..];
                for (y, counts) in rows.clone().zip(counts.chunks_exact_mut(sizes.pairs)) {
                    let (top, bottom) = sizes.shape.conv.inside(y, sizes.shape.input.height);
                    if !(top..bottom).contains(&ky) {
                        continue;
                    }
                    let index = &index[(y + ky - sizes.shape.conv.pad) * sizes.columns..];
                    for (pair, counts) in counts.iter_mut().enumerate() {
                        count(v, sizes, &index[pair * 2..], nibbles, counts);
                    }
                }
            }
        }
        for (y, counts) in rows.zip(counts.chunks_exact(sizes.pairs)) {
            put_row(v, sizes, y, seen, counts, filters);
        }
    }
}

/// Adds to the counts of a pair what `B` blocks of filters have over some fours of channels in one kernel row.
#[inline(always)]
fn count<V: Vectors, const B: usize>(
    v: V,
    sizes: &Sizes,
    index: &[i16],
    nibbles: &[[[Nibbles; NEIGHBOURS]; B]],
    counts: &mut [[[i16; LANES]; 2]; B],
) {
    let mut both = [v.no_bytes(); B];
    let mut second = [v.no_bytes(); B];
    for (nibbles, index) in nibbles.iter().zip(index.chunks_exact(sizes.plane)) {
        let Some(&[a, b, c]) = index.first_chunk::<NEIGHBOURS>() else { return };
        let tables = [table_at(v, a), table_at(v, b), table_at(v, c)];
        for block in 0..B {
            let [a, b, c] = &nibbles[block];
            let sum = v.add_bytes(v.look_up(tables[0], &a.0), v.look_up(tables[1], &b.0));
            let sum = v.add_bytes(sum, v.look_up(tables[2], &c.0));
            both[block] = v.add_bytes(both[block], sum);
            second[block] = v.add_bytes(second[block], v.high_halves(sum));
        }
    }
    for block in 0..B {
        let [of_first, of_second] = &mut counts[block];
        // What was carried from the low halves into the high ones is taken back.
        v.add_counts(v.less_halves(both[block], second[block]), of_first);
        v.add_counts(second[block], of_second);
    }
}

/// Compares the counts of one convolved row and ORs the bits into the pooled rows whose window holds it.
#[inline(always)]
fn put_row<V: Vectors, const B: usize>(
    v: V,
    sizes: &Sizes,
    y: usize,
    seen: &[[i16; 2]],
    counts: &[[[[i16; LANES]; 2]; B]],
    filters: &mut Filters<'_>,
) {
    let shape = sizes.shape;
    let (width, rows_left) = (shape.convolved().width, shape.output().height);
    let (top, bottom) = shape.conv.inside(y, shape.input.height);
    let (from, to) = pooled_rows(shape.pool, y, rows_left);
    let (map_words, row_words) = (filters.map_words, filters.map_words / rows_left);
    for (block, least) in filters.least.iter().enumerate() {
        let pooled = &mut filters.pooled[block * LANES * map_words..];
        let (mut on_map, mut needed) = (i16::MIN, [0; LANES]);
        for (word, counts) in counts.chunks(64 / 2).enumerate() {
            let mut columns = [0; LANES];
            let seen = seen[word * (64 / 2)..].chunks(8 / 2);
            for ((eight, counts), seen) in counts.chunks(8 / 2).enumerate().zip(seen) {
                let mut bits = v.no_bytes();
                let mut bit = 1;
                for (counts, seen) in counts.iter().zip(seen) {
                    for (counts, seen) in counts[block].iter().zip(seen) {
                        if on_map != *seen {
                            on_map = *seen;
                            let missing = shape.taps() as i16 - (bottom - top) as i16 * on_map;
                            for (needed, least) in needed.iter_mut().zip(least) {
                                // Half of what twice the count has to reach, rounded up.
                                *needed = (least - missing + 1) >> 1;
                            }
                        }
                        bits = v.set_where_at_least(bits, bit, counts, &needed);
                        bit <<= 1;
                    }
                }
                for (column, bits) in columns.iter_mut().zip(v.bytes(bits)) {
                    *column |= u64::from(bits) << (eight * 8);
                }
            }
            let kept = low_bits(width - word * 64);
            for row in from..to {
                let mut at = row * row_words + word;
                for column in columns {
                    // There are fewer filters in the last block than lanes.
                    let Some(pooled) = pooled.get_mut(at) else { break };
                    *pooled |= column & kept;
                    at += map_words;
                }
            }
        }
    }
}
