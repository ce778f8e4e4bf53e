//! The first block: `u8` pixels, binary weights.
//!
//! Three neighbouring pixels and their three signs have only eight sums. So each row of pixels becomes a table of eight rows of
//! sums, made once and shared by all filters, and a filter adds one of the eight per channel and kernel row: nine additions for a
//! 3x3 kernel over three channels instead of 27, and no multiplication. A kernel row longer than three is cut into threes.

use crate::bits::Scratch;
use crate::rows::pool_down;
use crate::shape::Convp;
use crate::threshold::Threshold;

/// Pixels that one table sums.
const GROUP: usize = 3;
/// Signs of a group.
const SIGNS: usize = 1 << GROUP;
/// Sums that are added at once; rows of the table are a multiple of it.
pub(crate) const LANES: usize = 16;

/// Largest number of taps whose sum of pixels fits in 16 bits.
pub(crate) const MOST_TAPS: usize = i16::MAX as usize / 255;

/// Whether this kernel runs the block: its sums fit and its step is 1.
pub(crate) const fn runs(shape: Convp) -> bool {
    shape.conv.stride == 1 && shape.taps() <= MOST_TAPS
}

/// Groups of a kernel row.
const fn groups(shape: Convp) -> usize {
    shape.conv.kernel.div_ceil(GROUP)
}

/// Sums in one row of the table.
const fn lanes(shape: Convp) -> usize {
    shape.convolved().width.div_ceil(LANES) * LANES
}

/// Sums that the tables of the rows under the kernel take.
pub(crate) const fn table_len(shape: Convp) -> usize {
    shape.conv.kernel * shape.input.channels * groups(shape) * SIGNS * lanes(shape)
}

/// Numbers of one row of pixels with its padding, and as far as the last lane's window reaches.
pub(crate) const fn line_len(shape: Convp) -> usize {
    lanes(shape) + groups(shape) * GROUP
}

/// Signs that [`prepare`] writes: one byte a group, `[filters, kernel row, channel, group]`.
pub(crate) const fn signs_len(shape: Convp) -> usize {
    shape.filters * shape.conv.kernel * shape.input.channels * groups(shape)
}

/// Gathers the signs of each group from weights `[filters, channels, kernel, kernel]`.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, signs: &mut [u8]) {
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    let mut at = 0;
    for filter in 0..shape.filters {
        for ky in 0..kernel {
            for channel in 0..channels {
                for group in 0..groups(shape) {
                    let taps = (group * GROUP..kernel).take(GROUP).enumerate();
                    signs[at] = taps.fold(0, |signs, (place, kx)| {
                        signs | u8::from(weight(filter, (channel * kernel + ky) * kernel + kx)) << place
                    });
                    at += 1;
                }
            }
        }
    }
}

/// Runs convolution, comparison and the pooling down; `pooled` is `[filters, pooled rows, row words]`, zero at first.
#[inline(always)]
pub(crate) fn convolve(
    shape: Convp,
    pixels: &[u8],
    signs: &[u8],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
    at_least: impl Fn(&[i16; LANES], i16) -> u16,
) {
    let (kernel, height, lanes) = (shape.conv.kernel, shape.input.height, lanes(shape));
    let table_row = shape.input.channels * groups(shape) * SIGNS * lanes;
    let signs_row = shape.input.channels * groups(shape);
    let rows = shape.convolved().height;
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    let mut made = 0;
    for y in 0..rows {
        let (top, bottom) = shape.conv.inside(y, height);
        let last = y + bottom - shape.conv.pad;
        while made < last {
            let table = &mut scratch.sums[made % kernel * table_row..][..table_row];
            fill(shape, pixels, made, scratch.line, table);
            made += 1;
        }
        for (filter, threshold) in thresholds.iter().enumerate() {
            let signs = &signs[filter * kernel * signs_row..][..kernel * signs_row];
            // Reachable sums fit in 16 bits, and one more than the largest does too.
            let from = threshold.from as i16;
            let bits = &mut scratch.row[..row_words];
            bits.fill(0);
            for block in 0..lanes / LANES {
                let mut sums = [0i16; LANES];
                for ky in top..bottom {
                    let row = y + ky - shape.conv.pad;
                    let table = &scratch.sums[row % kernel * table_row..][..table_row];
                    let tables = table.chunks_exact(SIGNS * lanes);
                    for (table, &signs) in tables.zip(&signs[ky * signs_row..][..signs_row]) {
                        let of_signs: &[i16; LANES] = table[usize::from(signs) * lanes + block * LANES..]
                            .first_chunk()
                            .expect("rows of the table are whole blocks");
                        for (sum, add) in sums.iter_mut().zip(of_signs) {
                            *sum += add;
                        }
                    }
                }
                bits[block * LANES / 64] |= u64::from(at_least(&sums, from)) << (block * LANES % 64);
            }
            crate::rows::clear_from(shape.convolved().width, bits);
            pool_down(shape.pool, y, bits, &mut pooled[filter * map_words..][..map_words]);
        }
    }
}

/// Copies weights for [`convolve_any`]: `[filters, taps]`, each filter in words of its own.
pub(crate) fn prepare_any(shape: Convp, weight: impl Fn(usize, usize) -> bool, words: &mut [u64]) {
    words.fill(0);
    for (filter, words) in words.chunks_exact_mut(shape.taps().div_ceil(64)).enumerate() {
        for tap in 0..shape.taps() {
            words[tap / 64] |= u64::from(weight(filter, tap)) << (tap % 64);
        }
    }
}

/// As [`convolve`], for every shape and one sum after the other: large kernels and steps other than 1 are rare in a first block.
pub(crate) fn convolve_any(
    shape: Convp,
    pixels: &[u8],
    weights: &[u64],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
) {
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    let convolved = shape.convolved();
    let filters = weights.chunks_exact(shape.taps().div_ceil(64)).zip(thresholds);
    for ((weights, threshold), pooled) in filters.zip(pooled.chunks_exact_mut(map_words)) {
        for y in 0..convolved.height {
            let bits = &mut scratch.row[..row_words];
            bits.fill(0);
            for x in 0..convolved.width {
                let bit = sum_at(shape, pixels, weights, y, x) >= threshold.from;
                bits[x / 64] |= u64::from(bit) << (x % 64);
            }
            pool_down(shape.pool, y, bits, pooled);
        }
    }
}

/// The convolution at a place.
fn sum_at(shape: Convp, pixels: &[u8], weights: &[u64], y: usize, x: usize) -> i32 {
    let (map, conv) = (shape.input, shape.conv);
    let ((top, bottom), (left, right)) = (conv.inside(y, map.height), conv.inside(x, map.width));
    let mut sum = 0;
    for channel in 0..map.channels {
        for ky in top..bottom {
            let row = (channel * map.height + y * conv.stride + ky - conv.pad) * map.width;
            for kx in left..right {
                let tap = (channel * conv.kernel + ky) * conv.kernel + kx;
                let pixel = i32::from(pixels[row + x * conv.stride + kx - conv.pad]);
                sum += if weights[tap / 64] >> (tap % 64) & 1 == 1 { pixel } else { -pixel };
            }
        }
    }
    sum
}

/// The sums of one row of pixels: `[channels, groups, signs, lanes]`. `line` has room for the row with its padding.
#[inline(always)]
fn fill(shape: Convp, pixels: &[u8], row: usize, line: &mut [i16], table: &mut [i16]) {
    let (map, lanes) = (shape.input, lanes(shape));
    let mut tables = table.chunks_exact_mut(SIGNS * lanes);
    for channel in 0..map.channels {
        let pixels = &pixels[(channel * map.height + row) * map.width..][..map.width];
        for (place, &pixel) in line[shape.conv.pad..].iter_mut().zip(pixels) {
            *place = i16::from(pixel);
        }
        for (group, table) in (0..groups(shape)).zip(&mut tables) {
            let taps = shape.conv.kernel - group * GROUP;
            for block in (0..lanes).step_by(LANES) {
                let neighbours = [0, 1, 2].map(|place| {
                    let from = group * GROUP + block + place;
                    if place < taps {
                        *line[from..].first_chunk().expect("the line is long enough")
                    } else {
                        [0; LANES]
                    }
                });
                for (signs, sums) in signed_sums(&neighbours).iter().enumerate() {
                    table[signs * lanes + block..][..LANES].copy_from_slice(sums);
                }
            }
        }
    }
}

/// The eight sums of three rows of neighbours; bit `i` of the index is the sign of row `i`.
#[inline(always)]
fn signed_sums([a, b, c]: &[[i16; LANES]; GROUP]) -> [[i16; LANES]; SIGNS] {
    let mut sums = [[0; LANES]; SIGNS];
    for x in 0..LANES {
        let (plus, minus) = (a[x] + b[x], a[x] - b[x]);
        let with_minus_c = [-plus - c[x], minus - c[x], -minus - c[x], plus - c[x]];
        for (signs, sum) in with_minus_c.into_iter().enumerate() {
            sums[signs][x] = sum;
            sums[signs + 4][x] = sum + 2 * c[x];
        }
    }
    sums
}
