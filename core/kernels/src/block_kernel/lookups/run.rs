//! One run: the input is rearranged, then one word of pixels after the other is computed.

use super::{
    BOUNDS, Block, BlockRun, CACHE_LINE, CHANNELS, FILTERS, LookupVector, Prepared, ROUND_LOOKUPS, Scratch,
    Sizes, TRIPLE, UNROLLED, WORD_PIXELS, WORD_VECTORS,
};
use crate::bit_map::bits_at;
use crate::shape::Map;
use crate::simd::{ByteLookup, ByteLookupCode, Counts, HALF, LANES};

impl ByteLookupCode for BlockRun<'_, '_> {
    #[inline(always)]
    fn run<L: ByteLookup>(self, ops: L) {
        convolve(ops, self.block, self.scratch, self.output);
    }
}

#[inline(always)]
fn convolve<L: ByteLookup>(ops: L, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
    let sizes = Sizes::of(block.shape);
    let mut run = Run::of(sizes, Prepared::of(&sizes, block.vectors), scratch);
    fill_planes(ops, &sizes, block.input.bits, run.planes);
    for word in 0..sizes.pixels.words {
        match (sizes.pixels.len() - word * WORD_PIXELS).div_ceil(HALF) {
            1 => run.count_word::<L, 1>(ops, word),
            2 => run.count_word::<L, 2>(ops, word),
            3 => run.count_word::<L, 3>(ops, word),
            _ => run.count_word::<L, WORD_VECTORS>(ops, word),
        }
        sizes.pixels.write(word, run.bits, block.thresholds, output);
    }
}

/// Writes the planes, `[channel group, row, column]`. Masks remove the bytes before, between and after the rows.
#[inline(always)]
fn fill_planes<L: ByteLookup>(ops: L, sizes: &Sizes, contiguous: &[u64], planes: &mut [u8]) {
    let Map { channels, height, width } = sizes.pixels.shape.input;
    let (map, pitch) = (height * width, sizes.pixels.pitch);
    // Whole words of pixels are written; the excess is overwritten by the next row or plane.
    let mut start = sizes.pixels.leading_padding();
    if pitch == width && map.is_multiple_of(WORD_PIXELS) && channels.is_multiple_of(CHANNELS) {
        // Channels share no words, and neither layout has gaps between rows.
        let words = map / WORD_PIXELS;
        for maps in contiguous[..channels * words].chunks_exact(CHANNELS * words) {
            let ((ab, cd), (blocks, _)) = (maps.split_at(2 * words), planes[start..].as_chunks_mut());
            let ((a, b), (c, d)) = (ab.split_at(words), cd.split_at(words));
            for ((((block, a), b), c), d) in blocks.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                ops.interleave([*a, *b, *c, *d], block);
            }
            start += sizes.plane;
        }
        return;
    }
    // Without gaps between rows the map is one long row.
    let (rows, length) = if pitch == width { (1, map) } else { (height, width) };
    for first in (0..channels).step_by(CHANNELS) {
        for row in 0..rows {
            let (blocks, _) = planes[start + row * pitch..].as_chunks_mut();
            for (column, block) in (0..length).step_by(WORD_PIXELS).zip(blocks) {
                let mut bits = [0; CHANNELS];
                for (bits, channel) in bits.iter_mut().zip(first..channels) {
                    *bits = bits_at(contiguous, channel * map + row * width + column);
                }
                ops.interleave(bits, block);
            }
        }
        start += sizes.plane;
    }
}

/// The input of one word of 64 output pixels.
struct WordInput<'a> {
    /// The planes, from the first pixel under the convolution window.
    planes: &'a [u8],
    /// Masks of the padding, for each kernel position.
    masks: &'a [[LookupVector; WORD_VECTORS]],
}

/// Copies the masked input bytes of 64 output pixels into `X` vectors, for each kernel position and group of channels.
#[inline(always)]
fn fill_patches<L: ByteLookup, const X: usize>(
    ops: L,
    sizes: &Sizes,
    input: &WordInput<'_>,
    patches: &mut [[[u8; LANES]; X]],
) {
    let kernel = sizes.pixels.shape.conv.kernel;
    // `sizes.plane` is at least `WORD_PIXELS`; `max` lets the compiler know it.
    let stride = sizes.plane.max(WORD_PIXELS);
    let patches = patches.chunks_exact_mut(sizes.channel_groups);
    for ((position, masks), patches) in input.masks.iter().enumerate().zip(patches) {
        let (ky, kx) = (position / kernel, position % kernel);
        let mut planes = &input.planes[ky * sizes.pixels.pitch + kx..];
        for patch in patches {
            let (plane, rest) = planes.split_at(stride);
            let (seen, _) = plane[..WORD_PIXELS].as_chunks();
            planes = rest;
            for ((to, seen), LookupVector(mask)) in patch.iter_mut().zip(seen).zip(masks) {
                ops.store_twice(seen, mask, to);
            }
        }
    }
}

/// Prepared weights and the parts of scratch memory.
struct Run<'a> {
    sizes: Sizes,
    prepared: Prepared<'a>,
    /// For each channel group one byte a pixel.
    planes: &'a mut [u8],
    /// Input bytes that the kernel positions see at the 64 pixels of one word.
    patches: &'a mut [[u8; LANES]],
    /// The counts at the start, then the counts of each filter group.
    counts: &'a mut [Counts],
    /// Output bits of 64 pixels as one word, for each filter.
    bits: &'a mut [u64],
}

impl<'a> Run<'a> {
    #[inline(always)]
    fn of(sizes: Sizes, prepared: Prepared<'a>, scratch: &'a mut Scratch<'_>) -> Self {
        let (planes, rest) = scratch.bytes.split_at_mut(sizes.planes());
        // Alignment, so that no vector crosses a cache line.
        let unaligned = rest.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE);
        let (patches, _) = rest[unaligned..].as_chunks_mut();
        let unaligned = scratch.sums.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE / 2);
        let (counts, _) = scratch.sums[unaligned..].as_chunks_mut();
        let (counts, _) = counts.as_chunks_mut();
        let bits = &mut scratch.words[..sizes.filter_groups * FILTERS];
        Self { sizes, prepared, planes, patches, counts, bits }
    }

    /// Computes the output bits of 64 pixels, one word in `X` vectors, for all filters.
    #[inline(always)]
    fn count_word<L: ByteLookup, const X: usize>(&mut self, ops: L, word: usize) {
        let (sizes, prepared) = (&self.sizes, &self.prepared);
        let (patches, _) = self.patches[..sizes.rounds * ROUND_LOOKUPS * X].as_chunks_mut::<X>();
        let kind = sizes.kind(word);
        let masks = &prepared.masks.as_chunks().0[kind * sizes.kernel_area()..][..sizes.kernel_area()];
        let input = WordInput { planes: &self.planes[word * WORD_PIXELS..], masks };
        fill_patches(ops, sizes, &input, patches);

        let (counts, _) = self.counts[..(1 + sizes.filter_groups) * X].as_chunks_mut::<X>();
        let Some((start, counts)) = counts.split_first_mut() else { return };
        let (bounds, _) = prepared.bounds.as_chunks::<BOUNDS>();
        start_counts(sizes, prepared, kind, start, counts);

        let (bits, _) = self.bits.as_chunks_mut();
        let ((patches, _), (tables, _)) =
            (patches.as_chunks::<TRIPLE>(), prepared.tables.as_chunks::<TRIPLE>());
        let ((patches, _), mut tables) = (patches.as_chunks::<UNROLLED>(), tables.as_chunks::<UNROLLED>().0);
        let (passes, nibble_mask) = (sizes.rounds.div_ceil(sizes.pass_rounds), ops.nibble_mask());
        for (pass, patches) in patches.chunks(sizes.pass_rounds).enumerate() {
            let is_start_shared = pass == 0 && sizes.is_padding_even();
            let (pass_tables, rest) = tables.split_at(patches.len() * sizes.filter_groups);
            tables = rest;
            let mut groups = pass_tables.chunks_exact(patches.len());
            if pass + 1 < passes {
                for counts in &mut *counts {
                    let Some(tables) = groups.next() else { return };
                    let (both, second) = sum_lookups(ops, nibble_mask, patches, tables);
                    for x in 0..X {
                        let before = if is_start_shared { &start[x] } else { &counts[x] };
                        let sums = ops.add_counts(both[x], second[x], before);
                        ops.store_counts(sums, &mut counts[x]);
                    }
                }
                continue;
            }
            let (mut bits, mut bounds) = (bits.iter_mut(), bounds.iter());
            for counts in &mut *counts {
                let (Some(tables), Some(bits)) = (groups.next(), bits.next()) else { return };
                let Some([LookupVector(first), LookupVector(second), ..]) = bounds.next() else { return };
                let bounds = [first, second];
                let (both, second) = sum_lookups(ops, nibble_mask, patches, tables);
                let before = if is_start_shared { &*start } else { &*counts };
                let mut above = [[ops.zero_bytes(); X]; 2];
                for x in 0..X {
                    let counts = ops.add_counts(both[x], second[x], &before[x]);
                    [above[0][x], above[1][x]] = ops.above(counts, bounds);
                }
                let [[a, c], [b, d]] = [ops.lane_bits(&above[0]), ops.lane_bits(&above[1])];
                *bits = [a, b, c, d];
            }
        }
    }
}

/// Writes the counts at the start, half of the padded taps: to `start` if all filters share them, else to each filter group.
#[inline(always)]
fn start_counts<const X: usize>(
    sizes: &Sizes,
    prepared: &Prepared<'_>,
    kind: usize,
    start: &mut [Counts; X],
    counts: &mut [[Counts; X]],
) {
    let (padded, _) = prepared.padded[kind * WORD_VECTORS * 2..].as_chunks();
    for (start, [LookupVector(even), LookupVector(odd)]) in start.iter_mut().zip(padded) {
        *start = [*even, *odd, *even, *odd];
    }
    if sizes.is_padding_even() {
        return;
    }
    let (bounds, _) = prepared.bounds.as_chunks::<BOUNDS>();
    for (counts, [_, _, LookupVector(first), LookupVector(second)]) in counts.iter_mut().zip(bounds) {
        for (counts, start) in counts.iter_mut().zip(&*start) {
            *counts = half(start, [first, second]);
        }
    }
}

/// Half of the padded taps, rounded up if the filter's bound is odd.
#[inline(always)]
fn half(padded: &Counts, is_bound_odd: [&[i16; HALF]; 2]) -> Counts {
    let mut half = *padded;
    for (index, half) in half.iter_mut().enumerate() {
        for (half, is_odd) in half.iter_mut().zip(is_bound_odd[index / 2]) {
            *half = (*half + is_odd) >> 1;
        }
    }
    half
}

/// Input bytes of three lookups, for `X` vectors of pixels.
type Patch<const X: usize> = [[[u8; LANES]; X]; TRIPLE];

/// Sums lookups over the rounds of a pass. Returns the sums of both filters of each half together, and the sums of the second
/// filter alone.
#[inline(always)]
fn sum_lookups<L: ByteLookup, const X: usize>(
    ops: L,
    nibble_mask: L::Bytes,
    patches: &[[Patch<X>; UNROLLED]],
    tables: &[[[LookupVector; TRIPLE]; UNROLLED]],
) -> ([L::Bytes; X], [L::Bytes; X]) {
    let (mut both, mut second) = ([ops.zero_bytes(); X], [ops.zero_bytes(); X]);
    // The first round needs no addition to earlier sums.
    let Some(([first, next], patches)) = patches.split_first() else { return (both, second) };
    let Some(([table, next_table], tables)) = tables.split_first() else { return (both, second) };
    let (first, next) = (sum_triple(ops, first, table), sum_triple(ops, next, next_table));
    for x in 0..X {
        both[x] = ops.add_pairs(first[x], next[x]);
        second[x] = ops.add_high_nibbles(first[x], next[x], nibble_mask);
    }
    for (patches, tables) in patches.iter().zip(tables) {
        for (patch, tables) in patches.iter().zip(tables) {
            let sums = sum_triple(ops, patch, tables);
            for x in 0..X {
                both[x] = ops.add_pairs(both[x], sums[x]);
                second[x] = ops.add_bytes(second[x], ops.high_nibbles(sums[x], nibble_mask));
            }
        }
    }
    (both, second)
}

/// Sums three lookups.
#[inline(always)]
fn sum_triple<L: ByteLookup, const X: usize>(
    ops: L,
    [a, b, c]: &Patch<X>,
    tables: &[LookupVector; TRIPLE],
) -> [L::Bytes; X] {
    let mut sums = [ops.zero_bytes(); X];
    let table = ops.load_table(&tables[0].0);
    for (sum, indices) in sums.iter_mut().zip(a) {
        *sum = ops.look_up(table, indices);
    }
    for (table, patch) in [(&tables[1], b), (&tables[2], c)] {
        let table = ops.load_table(&table.0);
        for (sum, indices) in sums.iter_mut().zip(patch) {
            *sum = ops.add_bytes(*sum, ops.look_up(table, indices));
        }
    }
    sums
}
