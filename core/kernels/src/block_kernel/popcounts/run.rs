//! One run: the map is transposed, then eight pixels are counted at a time, for all filters.

use super::transpose::transpose;
use super::{
    Block, BlockRun, LINE_WORDS, MAX_PASS_WORDS, Padding, Prepared, Scratch, Sizes, WORD_PIXELS,
    WORD_VECTORS, WORDS,
};
use crate::simd::{WordPopcount, WordPopcountCode};

/// A word for each of eight pixels.
type Words = [u64; WORDS];

/// The parts of scratch memory.
struct Buffers<'a> {
    /// The channels of the pixels, `[channel word, pixel]`.
    transposed: &'a mut [u64],
    /// Input words under the convolution window at each of eight neighbouring pixels.
    patch: &'a mut [Words],
    /// Masks of the patch: zero at padding.
    inside: &'a mut [Words],
    /// Differing bits so far, for each filter.
    counts: &'a mut [Words],
    /// Output bits of 64 pixels for each filter, one byte for eight pixels.
    bytes: &'a mut [[u8; WORD_VECTORS]],
    /// Output bits of 64 pixels as one word, for each filter.
    bits: &'a mut [u64],
}

impl<'a> Buffers<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, scratch: &'a mut Scratch<'_>) -> Self {
        let filters = sizes.pixels.shape.filters;
        let (transposed, rest) = scratch.words.split_at_mut(sizes.transposed());
        let (bits, rest) = rest.split_at_mut(filters);
        // Alignment, so that no vector crosses a cache line.
        let unaligned = rest.as_ptr().align_offset(size_of::<[u64; LINE_WORDS]>()).min(LINE_WORDS);
        let (rest, _) = rest[unaligned..].as_chunks_mut();
        let (patch, rest) = rest.split_at_mut(sizes.patch);
        let (inside, counts) = rest.split_at_mut(sizes.patch);
        let (bytes, _) = scratch.bytes[..filters * WORD_VECTORS].as_chunks_mut();
        Self { transposed, patch, inside, counts: &mut counts[..filters], bytes, bits }
    }
}

/// Place of eight pixels: the word of 64 pixels that they belong to, and their vector among the eight vectors of that word.
#[derive(Clone, Copy)]
struct Position {
    word: usize,
    vector: usize,
}

/// Padded taps of eight pixels.
#[derive(Clone, Copy)]
struct Padded<W> {
    /// Half of the padded taps, rounded down.
    half: W,
    /// Bit `i` is 1 if pixel `i` has an odd number of padded taps.
    odd: u8,
}

impl WordPopcountCode for BlockRun<'_, '_> {
    #[inline(always)]
    fn run<P: WordPopcount>(self, ops: P) {
        convolve(ops, self.block, self.scratch, self.output);
    }
}

#[inline(always)]
fn convolve<P: WordPopcount>(ops: P, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
    let sizes = Sizes::of(block.shape);
    let prepared = Prepared::of(&sizes, block.words);
    let mut buffers = Buffers::of(&sizes, scratch);
    transpose(ops, &sizes, block.input.bits, buffers.transposed);
    // Words of a patch that only fill up the last pass are masked like padding.
    buffers.inside[sizes.kernel_area() * sizes.channel_words..].fill([0; WORDS]);
    for word in 0..sizes.pixels.words {
        // Bits after the last pixel are left as they are; `write` ignores them.
        let vectors = (sizes.pixels.len() - word * WORD_PIXELS).div_ceil(WORDS).min(WORD_VECTORS);
        for vector in 0..vectors {
            let at = Position { word, vector };
            fill_patch(ops, &sizes, at, &prepared.padding, &mut buffers);
            let padded = padded_taps(ops, &sizes, at, &prepared.padding);
            match sizes.pass_words {
                1 => count::<P, 1>(ops, &prepared, vector, padded, &mut buffers),
                2 => count::<P, 2>(ops, &prepared, vector, padded, &mut buffers),
                3 => count::<P, 3>(ops, &prepared, vector, padded, &mut buffers),
                4 => count::<P, 4>(ops, &prepared, vector, padded, &mut buffers),
                5 => count::<P, 5>(ops, &prepared, vector, padded, &mut buffers),
                6 => count::<P, 6>(ops, &prepared, vector, padded, &mut buffers),
                7 => count::<P, 7>(ops, &prepared, vector, padded, &mut buffers),
                8 => count::<P, 8>(ops, &prepared, vector, padded, &mut buffers),
                _ => count::<P, MAX_PASS_WORDS>(ops, &prepared, vector, padded, &mut buffers),
            }
        }
        for (bits, bytes) in buffers.bits.iter_mut().zip(&*buffers.bytes) {
            *bits = u64::from_le_bytes(*bytes);
        }
        sizes.pixels.write(word, buffers.bits, block.thresholds, output);
    }
}

/// Copies the input words under the convolution window at each of eight pixels, and makes the masks of these words.
#[inline(always)]
fn fill_patch<P: WordPopcount>(
    ops: P,
    sizes: &Sizes,
    at: Position,
    padding: &Padding<'_>,
    buffers: &mut Buffers<'_>,
) {
    let first =
        (at.word + sizes.leading_words) * WORD_PIXELS - sizes.pixels.leading_padding() + at.vector * WORDS;
    let inside = &padding.inside[at.word * padding.offsets.len()..][..padding.offsets.len()];
    let mut to = buffers.patch.iter_mut().zip(&mut *buffers.inside);
    for channel_word in 0..sizes.channel_words {
        let transposed = &buffers.transposed[channel_word * sizes.map_words * WORD_PIXELS + first..];
        for ((offset, inside), (to_patch, to_inside)) in padding.offsets.iter().zip(inside).zip(&mut to) {
            if let Some(words) = transposed[*offset as usize..].first_chunk() {
                *to_patch = *words;
            }
            ops.store(ops.broadcast_to((inside >> (at.vector * WORDS)) as u8, u64::MAX), to_inside);
        }
    }
}

/// Reads the numbers of padded taps of eight pixels.
#[inline(always)]
fn padded_taps<P: WordPopcount>(
    ops: P,
    sizes: &Sizes,
    at: Position,
    padding: &Padding<'_>,
) -> Padded<P::Words> {
    let digits = padding.padded[at.word * (sizes.digits + 1)..][..sizes.digits + 1].iter();
    let mut digits = digits.map(|digit| (digit >> (at.vector * WORDS)) as u8);
    let odd = digits.next().unwrap_or(0);
    let mut half = ops.broadcast_to(0, 0);
    for (digit, pixels) in digits.enumerate() {
        half = ops.or(half, ops.broadcast_to(pixels, 1 << digit));
    }
    Padded { half, odd }
}

/// Computes the bits of eight pixels for all filters, `N` words of a patch at a time.
#[inline(always)]
fn count<P: WordPopcount, const N: usize>(
    ops: P,
    prepared: &Prepared<'_>,
    vector: usize,
    padded: Padded<P::Words>,
    buffers: &mut Buffers<'_>,
) {
    let Padded { half, odd } = padded;
    let (patches, _) = buffers.patch.as_chunks::<N>();
    let (insides, _) = buffers.inside.as_chunks::<N>();
    let (weights, _) = prepared.weights.as_chunks::<N>();
    let (passes, vector) = (patches.len(), vector % WORD_VECTORS);
    let weights = weights.chunks_exact(buffers.bytes.len());
    for (pass, ((patch, inside), weights)) in patches.iter().zip(insides).zip(weights).enumerate() {
        let words = PassWords::<P, N>::load(ops, patch, inside);
        let filters = weights.iter().zip(&mut *buffers.counts);
        if pass + 1 < passes {
            for (weights, counts) in filters {
                let start = if pass == 0 { half } else { ops.load(counts) };
                ops.store(words.add_differing(ops, start, weights), counts);
            }
            continue;
        }
        let filters = filters.zip(&mut *buffers.bytes);
        if odd == 0 {
            for (((weights, counts), bytes), max) in filters.zip(prepared.max_even) {
                let start = if pass == 0 { half } else { ops.load(counts) };
                let count = words.add_differing(ops, start, weights);
                bytes[vector] = ops.at_most(count, max.cast_signed());
            }
            continue;
        }
        let max = prepared.max_even.iter().zip(prepared.max_odd);
        for (((weights, counts), bytes), (max_even, max_odd)) in filters.zip(max) {
            let start = if pass == 0 { half } else { ops.load(counts) };
            let count = words.add_differing(ops, start, weights);
            let even = ops.at_most(count, max_even.cast_signed());
            bytes[vector] = even & !odd | ops.at_most(count, max_odd.cast_signed()) & odd;
        }
    }
}

/// `N` words of the patch under the convolution window of eight pixels, with their padding masks, in registers.
struct PassWords<P: WordPopcount, const N: usize> {
    patch: [P::Words; N],
    inside: [P::Words; N],
}

impl<P: WordPopcount, const N: usize> PassWords<P, N> {
    #[inline(always)]
    fn load(ops: P, patch: &[Words; N], inside: &[Words; N]) -> Self {
        // Loops and not closures: a closure is not compiled with the instructions of the code path.
        let mut words = Self { patch: [ops.broadcast_to(0, 0); N], inside: [ops.broadcast_to(0, 0); N] };
        for word in 0..N {
            words.patch[word] = ops.load(&patch[word]);
            words.inside[word] = ops.load(&inside[word]);
        }
        words
    }

    /// Adds to `sums` the number of bits that differ from a filter's weights.
    #[inline(always)]
    fn add_differing(&self, ops: P, mut sums: P::Words, weights: &[u64; N]) -> P::Words {
        for (word, &weights) in weights.iter().enumerate() {
            sums = ops.add_differing(sums, self.patch[word], weights, self.inside[word]);
        }
        sums
    }
}
