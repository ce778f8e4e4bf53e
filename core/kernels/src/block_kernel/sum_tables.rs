//! Binary weights over pixels, by tables of sums.
//!
//! Three pixels with three signs have only eight sums. So each row of pixels becomes tables of eight sums, made once and shared by all
//! filters. A filter then adds one sum for each table: nine additions for a 3x3 kernel over three channels instead of 27, and no
//! multiplication. The taps of a kernel row, channel after channel, are cut into groups of three.
//!
//! ```text
//! pixels of a row    a b c d e ..
//! table of column 0  [ -a-b-c, +a-b-c, -a+b-c, +a+b-c, -a-b+c, +a-b+c, -a+b+c, +a+b+c ]
//!                    index = signs of the three weights as bits
//! ```
//!
//! A table holds its sums for 32 columns at once, a segment of a row of the convolution. At a stride of `s` neighbouring columns see
//! pixels that are `s` apart, so a row of pixels is first split into `s` lines:
//!
//! ```text
//! stride 2    pixels a b c d e f    line 0: a c e    line 1: b d f    tap 0 of columns 0, 1, ..: a c e; tap 1: b d f; tap 2: c e
//! ```

use super::{Block, BlockKernel, InputLayout, WeightBits};
use crate::bit_map::{low_bits, or_into};
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, SumTable, Weights};
use crate::pooling::pooled_rows;
use crate::shape::{Convp, InputKind, Map, Window, quotient, remainder};
use crate::simd::{LANES, Simd};
use crate::threshold::Threshold;

/// Number of taps that a table sums.
const GROUP: usize = 3;
/// Number of combinations of the signs of a group of taps.
const SIGNS: usize = 1 << GROUP;

/// Largest kernel side.
const MAX_KERNEL: usize = 16;
/// Largest number of weights of a filter: every sum fits in 16 bits, and so does the threshold above the largest sum.
const MAX_TAPS: usize = (i16::MAX as usize - 1) / 255;
/// The numbers of a tap that only fills up the last group.
const NO_TAP: [i16; LANES] = [0; LANES];

pub(super) struct SumTables;

impl BlockKernel for SumTables {
    const INPUT: InputLayout = InputLayout::Pixels;

    fn supports(shape: Convp, input: InputKind, path: CodePath) -> bool {
        let fits = shape.taps() <= MAX_TAPS && shape.conv.kernel <= MAX_KERNEL;
        // Convolutions of other strides have large windows, and so large tables, which paths of least memory avoid.
        input == InputKind::Pixels && fits && (shape.conv.stride == 1 || !path.is_low_memory())
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let sizes = Sizes::of(shape);
        Needs {
            signs: shape.filters * shape.conv.kernel * sizes.row_tables,
            tables: shape.conv.kernel * sizes.segments * sizes.row_tables,
            sums: shape.input.channels * shape.conv.stride * sizes.line,
            ..Needs::default()
        }
    }

    /// Collects the signs of each group, one byte a group: `[filters, kernel row, group]`.
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        let (kernel, sizes) = (shape.conv.kernel, Sizes::of(shape));
        for (row, signs) in prepared.signs.chunks_exact_mut(sizes.row_tables).enumerate() {
            let (filter, ky) = (row / kernel, row % kernel);
            // Index of a tap of kernel row `ky` among the weights of the filter.
            let weight = |tap: usize| (tap / kernel * kernel + ky) * kernel + tap % kernel;
            for (group, signs) in signs.iter_mut().enumerate() {
                *signs = group_signs(weights, filter, (group * GROUP..sizes.row_taps()).map(weight));
            }
        }
    }

    #[inline(always)]
    fn run<S: Simd>(simd: S, block: &Block<'_>, scratch: &mut Scratch<'_>, output: &mut [u64]) {
        let shape = block.shape;
        let (kernel, sizes) = (shape.conv.kernel, Sizes::of(shape));
        let pooled_height = shape.output().height;
        let row_words = output.len() / shape.filters / pooled_height;
        let row_len = sizes.segments * sizes.row_tables;
        let tables = &mut scratch.tables[..kernel * row_len];
        let lines = &mut scratch.sums[..shape.input.channels * shape.conv.stride * sizes.line];
        lines.fill(0);
        let pixels = PixelRows { sizes: &sizes, pixels: block.input.pixels, tap_starts: sizes.tap_starts() };
        // The tables of the pixel rows under the kernel form a ring: row `y` has slot `y % kernel`.
        let mut rows_made = 0;
        for y in 0..shape.convolved().height {
            let (top, bottom) = shape.conv.inside(y, shape.input.height);
            let first_row = y * shape.conv.stride + top - shape.conv.pad;
            // A stride above the kernel leaves out rows of pixels.
            rows_made = rows_made.max(first_row);
            while rows_made < first_row + bottom - top {
                let row = &mut tables[remainder(rows_made, kernel) * row_len..][..row_len];
                pixels.fill_tables(rows_made, lines, row);
                rows_made += 1;
            }
            // Index at which the tables of each kernel row begin, computed once for all filters.
            let mut starts = [0; MAX_KERNEL];
            let mut slot = remainder(first_row, kernel);
            for start in &mut starts[top..bottom] {
                *start = slot * row_len;
                slot = if slot + 1 == kernel { 0 } else { slot + 1 };
            }
            let rows = pooled_rows(shape.pool, y, pooled_height);
            for index in 0..sizes.segments {
                let segment = Segment {
                    block,
                    tables: &tables[index * sizes.row_tables..],
                    starts: &starts[top..bottom],
                    row_tables: sizes.row_tables,
                    filter_signs: kernel * sizes.row_tables,
                    first_sign: top * sizes.row_tables,
                    pooled: (rows.start, rows.end),
                    row_words,
                    column: index * LANES,
                    used: low_bits(shape.convolved().width - index * LANES) as u32,
                };
                // Loops are unrolled for windows of 3x3 and 5x5 over one or three channels; of 5x5 only where all rows lie on the map.
                match (sizes.row_tables, bottom - top) {
                    (1, 2) => segment.sum_unrolled::<S, 1, 2>(simd, output),
                    (1, 3) => segment.sum_unrolled::<S, 1, 3>(simd, output),
                    (3, 2) => segment.sum_unrolled::<S, 3, 2>(simd, output),
                    (3, 3) => segment.sum_unrolled::<S, 3, 3>(simd, output),
                    (2, 5) => segment.sum_unrolled::<S, 2, 5>(simd, output),
                    (5, 5) => segment.sum_unrolled::<S, 5, 5>(simd, output),
                    _ => segment.sum(simd, output),
                }
            }
        }
    }
}

/// The signs of the first three weights in `of_group` as bits: bit `i` is 1 if the `i`-th of these weights is +1.
pub(super) fn group_signs(
    weights: WeightBits<'_>,
    filter: usize,
    of_group: impl Iterator<Item = usize>,
) -> u8 {
    let of_group = of_group.take(GROUP).enumerate();
    of_group.fold(0, |signs, (bit, weight)| signs | u8::from(weights.is_positive(filter, weight)) << bit)
}

/// Sizes of a block's tables.
struct Sizes {
    shape: Convp,
    /// Number of segments of 32 columns in a row of the convolution.
    segments: usize,
    /// Number of tables for a segment of one row of pixels: one for each group of three taps; the last group may have fewer.
    row_tables: usize,
    /// Number of pixels of a line with padding, up to the last pixel that a segment reads.
    line: usize,
}

impl Sizes {
    #[inline(always)]
    const fn of(shape: Convp) -> Self {
        let (conv, segments) = (shape.conv, shape.convolved().width.div_ceil(LANES));
        let read = segments * LANES + quotient(conv.kernel - 1, conv.stride) + 1;
        let written = (conv.pad + shape.input.width).div_ceil(conv.stride);
        let line = if read > written { read } else { written };
        let row_tables = (shape.input.channels * conv.kernel).div_ceil(GROUP);
        Self { shape, segments, row_tables, line }
    }

    /// Taps of a kernel row over all channels.
    const fn row_taps(&self) -> usize {
        self.shape.input.channels * self.shape.conv.kernel
    }

    /// Index in the lines, `[channel, line, column]`, of the number that each tap of a kernel row adds at column 0. The taps that only fill
    /// up the last group have the index of the last tap.
    #[inline(always)]
    fn tap_starts(&self) -> [usize; MAX_TAPS + GROUP] {
        let Window { kernel, stride, .. } = self.shape.conv;
        let mut starts = [0; MAX_TAPS + GROUP];
        let (mut channel, mut kx) = (0, 0);
        for start in &mut starts[..self.row_tables * GROUP] {
            *start = (channel * stride + remainder(kx, stride)) * self.line + quotient(kx, stride);
            if kx + 1 < kernel {
                kx += 1;
            } else if channel + 1 < self.shape.input.channels {
                (channel, kx) = (channel + 1, 0);
            }
        }
        starts
    }
}

/// A segment of a row of the convolution, with the tables under the kernel.
struct Segment<'a> {
    block: &'a Block<'a>,
    /// All tables, from the segment's first one on.
    tables: &'a [SumTable],
    /// Index at which the tables of each kernel row begin, for the kernel rows on the map.
    starts: &'a [usize],
    /// Number of tables of a kernel row.
    row_tables: usize,
    /// Number of signs of a filter, one for each table.
    filter_signs: usize,
    /// Index of a filter's first sign whose kernel row lies on the map.
    first_sign: usize,
    /// Pooled rows that the segment belongs to: first, end (exclusive).
    pooled: (usize, usize),
    row_words: usize,
    /// First column of the segment.
    column: usize,
    /// Bit `i` is 1 if column `i` of the segment lies on the map of the convolution.
    used: u32,
}

impl Segment<'_> {
    /// Computes the bits of all filters for a kernel with `R` rows on the map and `T` tables a row, with unrolled loops.
    #[inline(always)]
    fn sum_unrolled<S: Simd, const T: usize, const R: usize>(&self, simd: S, output: &mut [u64]) {
        let mut rows = [&[SumTable([[0; LANES]; SIGNS]); T]; R];
        for (row, &start) in rows.iter_mut().zip(self.starts) {
            if let Some(tables) = self.tables[start..].first_chunk() {
                *row = tables;
            }
        }
        for ((threshold, signs), map) in self.filters().zip(self.maps(output)) {
            let (signs, _) = signs[self.first_sign..].as_chunks::<T>();
            let Some(signs) = signs.first_chunk::<R>() else { return };
            let mut sums = simd.zero_sums();
            for (tables, signs) in rows.iter().zip(signs) {
                for (table, sign) in tables.iter().zip(signs) {
                    // Signs are below `SIGNS`; the remainder only saves the bounds check.
                    sums = simd.add_row(sums, &table.0[usize::from(*sign) % SIGNS]);
                }
            }
            // Fits in 16 bits: `supports` limits the weights of a filter to `MAX_TAPS`.
            self.write(simd.sums_at_least(sums, threshold.from as i16), map);
        }
    }

    /// Computes the bits of all filters, for any number of rows and tables.
    #[inline(always)]
    fn sum<S: Simd>(&self, simd: S, output: &mut [u64]) {
        for ((threshold, signs), map) in self.filters().zip(self.maps(output)) {
            let mut sums = simd.zero_sums();
            let rows = signs[self.first_sign..].chunks_exact(self.row_tables);
            for (&start, signs) in self.starts.iter().zip(rows) {
                for (table, sign) in self.tables[start..].iter().zip(signs) {
                    sums = simd.add_row(sums, &table.0[usize::from(*sign) % SIGNS]);
                }
            }
            self.write(simd.sums_at_least(sums, threshold.from as i16), map);
        }
    }

    /// Threshold and signs of each filter.
    #[inline(always)]
    fn filters(&self) -> impl Iterator<Item = (&Threshold, &[u8])> {
        self.block.thresholds.iter().zip(self.block.signs.chunks_exact(self.filter_signs))
    }

    /// The part of the output that belongs to each filter.
    #[inline(always)]
    fn maps<'a>(&self, output: &'a mut [u64]) -> impl Iterator<Item = &'a mut [u64]> + use<'a> {
        let map_words = output.len() / self.block.thresholds.len();
        output.chunks_exact_mut(map_words)
    }

    /// ORs the bits of the segment into the pooled rows of a filter.
    #[inline(always)]
    fn write(&self, bits: u32, map: &mut [u64]) {
        let bits = u64::from(bits & self.used) << (self.column % 64);
        let (from, to) = self.pooled;
        if self.row_words == 1 {
            return or_into(bits, &mut map[from..to]);
        }
        // Rows are indexed: chunks would divide by `row_words` for each filter.
        for row in from..to {
            map[row * self.row_words + self.column / 64] |= bits;
        }
    }
}

/// The pixels of a block's input, from which tables are made row by row.
struct PixelRows<'a> {
    sizes: &'a Sizes,
    pixels: &'a [u8],
    /// See [`Sizes::tap_starts`].
    tap_starts: [usize; MAX_TAPS + GROUP],
}

impl PixelRows<'_> {
    /// Makes the tables of one row of pixels: `[segments, groups]`. The padding in `lines` stays zero.
    #[inline(always)]
    fn fill_tables(&self, row: usize, lines: &mut [i16], tables: &mut [SumTable]) {
        let Sizes { shape, row_tables, line, .. } = *self.sizes;
        let (Map { height, width, .. }, Window { stride, pad, .. }) = (shape.input, shape.conv);
        // All channels are first converted to numbers: a line that is read right after it was written would stall the processor.
        let rows = self.pixels.chunks_exact(height * width).map(|pixels| &pixels[row * width..][..width]);
        if stride == 1 {
            for (pixels, line) in rows.zip(lines.chunks_exact_mut(line)) {
                copy_every(1, pixels, &mut line[pad..]);
            }
        } else {
            for (pixels, lines) in rows.zip(lines.chunks_exact_mut(stride * line)) {
                for (phase, line) in lines.chunks_exact_mut(line).enumerate() {
                    // The first column of the line that is no padding, and the pixel at this column.
                    let column = pad.saturating_sub(phase).div_ceil(stride);
                    let first = column * stride + phase - pad;
                    copy_every(stride, pixels.get(first..).unwrap_or(&[]), &mut line[column..]);
                }
            }
        }
        let (taps, _) = self.tap_starts.as_chunks::<GROUP>();
        for (segment, tables) in tables.chunks_exact_mut(row_tables).enumerate() {
            let line_at = |start: usize| &lines[start + segment * LANES..];
            let mut taps_left = self.sizes.row_taps();
            for (table, &[a, b, c]) in tables.iter_mut().zip(taps) {
                let numbers = if (b, c) == (a + 1, a + 2) {
                    // Neighbours of one line, as in most kernels: one check of bounds for all three.
                    let neighbours = line_at(a).first_chunk::<{ LANES + GROUP - 1 }>();
                    neighbours.map(|n| (n.first_chunk(), n[1..].first_chunk(), n[2..].first_chunk()))
                } else {
                    let b = if taps_left > 1 { line_at(b).first_chunk() } else { Some(&NO_TAP) };
                    let c = if taps_left > 2 { line_at(c).first_chunk() } else { Some(&NO_TAP) };
                    Some((line_at(a).first_chunk(), b, c))
                };
                debug_assert!(matches!(numbers, Some((Some(_), Some(_), Some(_)))), "lines are too short");
                let Some((Some(a), Some(b), Some(c))) = numbers else { return };
                fill_table([a, b, c], table);
                taps_left = taps_left.saturating_sub(GROUP);
            }
        }
    }
}

/// Copies every `stride`-th pixel, from the first on.
#[inline(always)]
fn copy_every(stride: usize, pixels: &[u8], line: &mut [i16]) {
    match stride {
        1 => line.iter_mut().zip(pixels).for_each(|(number, &pixel)| *number = i16::from(pixel)),
        2 => {
            let (pairs, last) = pixels.as_chunks::<2>();
            line.iter_mut().zip(pairs).for_each(|(number, &[pixel, _])| *number = i16::from(pixel));
            if let ([pixel], Some(number)) = (last, line.get_mut(pairs.len())) {
                *number = i16::from(*pixel);
            }
        }
        _ => {
            let pixels = pixels.iter().step_by(stride);
            line.iter_mut().zip(pixels).for_each(|(number, &pixel)| *number = i16::from(pixel));
        }
    }
}

/// Computes the eight sums of three taps at each of 32 columns.
#[inline(always)]
fn fill_table([a, b, c]: [&[i16; LANES]; GROUP], table: &mut SumTable) {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &mut table.0;
    for x in 0..LANES {
        let (a, b, c) = (a[x], b[x], c[x]);
        let (sum, difference) = (a + b, a - b);
        t0[x] = -sum - c;
        t1[x] = difference - c;
        t2[x] = -difference - c;
        t3[x] = sum - c;
        t4[x] = c - sum;
        t5[x] = difference + c;
        t6[x] = c - difference;
        t7[x] = sum + c;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_kernel::tests::{any_block, check};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sum_tables_equal_the_reference(case in any_block(InputKind::Pixels, 1..5, 1..70)) {
            check::<SumTables>(&case)?;
        }
    }
}
