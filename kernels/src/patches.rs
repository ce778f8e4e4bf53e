//! Binary weights over bits, counted word by word: for steps other than 1, and where memory goes before time.
//!
//! Rows of the map are turned so that the channels of a place lie next to each other. Then a kernel row covers one run of bits,
//! and a patch of the map is as many runs as the kernel has rows. Equal bits multiply to +1, different ones to -1, so the
//! sum is `taps - 2 * popcount(patch ^ weights)`. Padding counts as nothing: rows outside the map are left out, and places
//! outside it are masked.

use crate::rows::{pool_down, pooled_rows};
use crate::shape::Convp;
use crate::threshold::Threshold;

/// Words of one run: the bits of a kernel row.
const fn run_words(shape: Convp) -> usize {
    (shape.conv.kernel * shape.input.channels).div_ceil(64)
}

/// Words of a patch, and of the weights of one filter.
pub(crate) const fn patch_words(shape: Convp) -> usize {
    shape.conv.kernel * run_words(shape)
}

/// Words of one turned row with its padding, and one more so that a run may be read past its end.
const fn stream_words(shape: Convp) -> usize {
    ((shape.input.width + 2 * shape.conv.pad) * shape.input.channels).div_ceil(64) + 1
}

/// Words of all turned rows.
pub(crate) const fn streams_words(shape: Convp) -> usize {
    shape.input.height * stream_words(shape)
}

/// Turns weights `[filters, channels, kernel, kernel]` to `[filters, kernel row, kernel column, channel]`, each kernel row in words
/// of its own.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, words: &mut [u64]) {
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    words.fill(0);
    for (filter, words) in words.chunks_exact_mut(patch_words(shape)).enumerate() {
        for (ky, run) in words.chunks_exact_mut(run_words(shape)).enumerate() {
            for at in 0..kernel * channels {
                let (kx, channel) = (at / channels, at % channels);
                let bit = weight(filter, (channel * kernel + ky) * kernel + kx);
                run[at / 64] |= u64::from(bit) << (at % 64);
            }
        }
    }
}

/// Words that [`convolve`] needs for patches: those of one row, then the masks of its border.
pub(crate) fn patches_words(shape: Convp) -> usize {
    (shape.convolved().width + border(shape).count()) * patch_words(shape)
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// One convolved row.
    pub(crate) row: &'a mut [u64],
    /// The turned rows.
    pub(crate) streams: &'a mut [u64],
    /// The patches of a row, then the masks of its border.
    pub(crate) patches: &'a mut [u64],
}

/// Runs convolution, comparison and the pooling down. `map` is `[channels, height, row words]` with its row words; `pooled` is
/// `[filters, pooled rows, row words]`, zero at first.
#[inline(always)]
pub(crate) fn convolve(
    shape: Convp,
    map: (&[u64], usize),
    weights: &[u64],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
) {
    turn(shape, map, scratch.streams);
    let (convolved, words) = (shape.convolved(), patch_words(shape));
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    let (patches, masks) = scratch.patches.split_at_mut(convolved.width * words);
    for (x, mask) in border(shape).zip(masks.chunks_exact_mut(words)) {
        let (left, right) = shape.conv.inside(x, shape.input.width);
        mask_columns(shape, left, right, mask);
    }
    for y in 0..convolved.height {
        let (top, bottom) = shape.conv.inside(y, shape.input.height);
        let within = top * run_words(shape)..bottom * run_words(shape);
        for (x, patch) in patches.chunks_exact_mut(words).enumerate() {
            gather(shape, scratch.streams, y, x, (top, bottom), patch);
        }
        let into = pooled_rows(shape.pool, y, shape.output().height);
        let of_filters = weights.chunks_exact(words).zip(thresholds);
        for ((weights, threshold), pooled) in of_filters.zip(pooled.chunks_exact_mut(map_words)) {
            let bits = &mut scratch.row[..row_words];
            bits.fill(0);
            // At least `from` of `taps` ±1 products: at most so many of them are -1.
            let limit = |taps: usize| (taps as i32 - threshold.from).div_euclid(2);
            let whole = limit((bottom - top) * shape.conv.kernel * shape.input.channels);
            match (words, within.len()) {
                (1, 1) => compare::<1>(patches, weights, whole, bits),
                (2, 2) => compare::<2>(patches, weights, whole, bits),
                (3, 3) => compare::<3>(patches, weights, whole, bits),
                (6, 6) => compare::<6>(patches, weights, whole, bits),
                (9, 9) => compare::<9>(patches, weights, whole, bits),
                (18, 18) => compare::<18>(patches, weights, whole, bits),
                _ => {
                    for (x, patch) in patches.chunks_exact(words).enumerate() {
                        let bit = different(&patch[within.clone()], &weights[within.clone()]) as i32 <= whole;
                        bits[x / 64] |= u64::from(bit) << (x % 64);
                    }
                }
            }
            for (x, mask) in border(shape).zip(masks.chunks_exact(words)) {
                let (left, right) = shape.conv.inside(x, shape.input.width);
                let (patch, weights) = (&patches[x * words..][within.clone()], &weights[within.clone()]);
                let different = different_masked(patch, weights, &mask[within.clone()]);
                let bit = different as i32 <= limit((bottom - top) * (right - left) * shape.input.channels);
                bits[x / 64] = bits[x / 64] & !(1 << (x % 64)) | u64::from(bit) << (x % 64);
            }
            pool_down(bits, into, pooled);
        }
    }
}

/// Places of a row whose window reaches into the padding.
fn border(shape: Convp) -> impl Iterator<Item = usize> {
    let (conv, width) = (shape.conv, shape.input.width);
    (0..shape.convolved().width).filter(move |&x| {
        let start = x * conv.stride;
        start < conv.pad || start + conv.kernel > width + conv.pad
    })
}

/// Sets bit `x` where patch `x` differs from the weights in at most `limit` places; for patches of `N` words, which stay in
/// registers.
#[inline(always)]
fn compare<const N: usize>(patches: &[u64], weights: &[u64], limit: i32, bits: &mut [u64]) {
    let Some(weights) = weights.first_chunk::<N>() else { return };
    let (patches, _) = patches.as_chunks::<N>();
    for (word, patches) in bits.iter_mut().zip(patches.chunks(64)) {
        for (x, patch) in patches.iter().enumerate() {
            let mut different = 0;
            for i in 0..N {
                different += (patch[i] ^ weights[i]).count_ones();
            }
            *word |= u64::from(different as i32 <= limit) << x;
        }
    }
}

#[inline(always)]
fn different(a: &[u64], b: &[u64]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[inline(always)]
fn different_masked(a: &[u64], b: &[u64], mask: &[u64]) -> u32 {
    a.iter().zip(b).zip(mask).map(|((a, b), mask)| ((a ^ b) & mask).count_ones()).sum()
}

/// The runs under the kernel at a place, those of rows inside the map.
#[inline(always)]
fn gather(
    shape: Convp,
    streams: &[u64],
    y: usize,
    x: usize,
    (top, bottom): (usize, usize),
    patch: &mut [u64],
) {
    let (words, bits) = (run_words(shape), shape.conv.kernel * shape.input.channels);
    let from = x * shape.conv.stride * shape.input.channels;
    let (word, shift) = (from / 64, from % 64);
    let last_mask = if bits % 64 == 0 { u64::MAX } else { (1 << (bits % 64)) - 1 };
    for ky in top..bottom {
        let row = y * shape.conv.stride + ky - shape.conv.pad;
        let stream = &streams[row * stream_words(shape)..][..stream_words(shape)];
        let run = &mut patch[ky * words..][..words];
        for (at, run) in run.iter_mut().enumerate() {
            let low = stream[word + at] >> shift;
            // A shift by 64 is none; the word after the last is there for reading.
            let high = stream.get(word + at + 1).map_or(0, |next| (next << 1) << (63 - shift));
            *run = low | high;
        }
        run[words - 1] &= last_mask;
    }
}

/// Ones where the kernel columns `left..right` are, in every kernel row.
fn mask_columns(shape: Convp, left: usize, right: usize, mask: &mut [u64]) {
    let channels = shape.input.channels;
    mask.fill(0);
    for run in mask.chunks_exact_mut(run_words(shape)) {
        for at in left * channels..right * channels {
            run[at / 64] |= 1 << (at % 64);
        }
    }
}

/// Rows `[channels, height, row words]` to rows whose places are `channels` bits each, with the padding as zeros on both sides.
#[inline(always)]
fn turn(shape: Convp, (map, row_words): (&[u64], usize), streams: &mut [u64]) {
    let input = shape.input;
    streams[..streams_words(shape)].fill(0);
    for (y, stream) in streams.chunks_exact_mut(stream_words(shape)).take(input.height).enumerate() {
        for channel in (0..input.channels).step_by(8) {
            let together = (input.channels - channel).min(8);
            for x in (0..input.width).step_by(8) {
                let mut square = 0u64;
                for of_eight in 0..together {
                    let row = ((channel + of_eight) * input.height + y) * row_words;
                    square |= (map[row + x / 64] >> (x % 64) & 0xff) << (8 * of_eight);
                }
                let square = transpose(square);
                for place in 0..(input.width - x).min(8) {
                    let at = (x + place + shape.conv.pad) * input.channels + channel;
                    put(stream, at, square >> (8 * place) & 0xff);
                }
            }
        }
    }
}

/// ORs eight bits into a stream.
#[inline(always)]
fn put(stream: &mut [u64], at: usize, bits: u64) {
    let (word, shift) = (at / 64, at % 64);
    stream[word] |= bits << shift;
    if shift > 56 {
        stream[word + 1] |= bits >> (64 - shift);
    }
}

/// An 8x8 square of bits, rows to columns (Hacker's Delight, 7-3).
#[inline(always)]
const fn transpose(square: u64) -> u64 {
    let mut x = square;
    let mut t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_of_bits_is_transposed() {
        let square = 0x0123_4567_89ab_cdef;
        let turned = transpose(square);
        for row in 0..8 {
            for column in 0..8 {
                assert_eq!(turned >> (8 * column + row) & 1, square >> (8 * row + column) & 1);
            }
        }
    }
}
