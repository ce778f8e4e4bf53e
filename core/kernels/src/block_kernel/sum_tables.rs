//! Binary weights over pixels, by tables of sums.
//!
//! Three neighbouring pixels with three signs have only eight sums. So each row of pixels becomes tables of eight sums, made once
//! and shared by all filters. A filter then adds one of the eight sums for each channel and kernel row: nine additions for a 3x3 kernel
//! over three channels instead of 27, and no multiplication. A longer kernel row is cut into groups of three.
//!
//! ```text
//! pixels of a row    a b c d e ..
//! table of column 0  [ -a-b-c, +a-b-c, -a+b-c, +a+b-c, -a-b+c, +a-b+c, -a+b+c, +a+b+c ]
//!                    index = signs of the three weights as bits
//! ```
//!
//! A table holds its sums for 32 columns at once, a segment of a row.

use core::ops::Range;

use super::{Block, BlockKernel, InputLayout, WeightBits};
use crate::bit_map::{low_bits, or_into};
use crate::code_path::CodePath;
use crate::memory::{Needs, Scratch, SumTable, Weights};
use crate::pooling::pooled_rows;
use crate::shape::{Convp, InputKind, Map, remainder};
use crate::simd::{LANES, Simd};
use crate::threshold::Threshold;

/// Number of neighbouring taps that a table sums.
const GROUP: usize = 3;
/// Number of combinations of the signs of a group of taps.
const SIGNS: usize = 1 << GROUP;

/// Largest kernel side.
const MAX_KERNEL: usize = 16;

/// Tables of sums; see the module.
pub(super) struct SumTables;

impl BlockKernel for SumTables {
    const INPUT: InputLayout = InputLayout::Pixels;

    fn supports(shape: Convp, input: InputKind, _: CodePath) -> bool {
        // Every sum fits in 16 bits, and so does the threshold above the largest sum.
        let fits = shape.taps() * 255 < i16::MAX as usize;
        input == InputKind::Pixels && shape.conv.stride == 1 && shape.conv.kernel <= MAX_KERNEL && fits
    }

    #[inline(always)]
    fn needs(shape: Convp) -> Needs {
        let sizes = Sizes::of(shape);
        Needs {
            signs: shape.filters * shape.conv.kernel * sizes.row_tables,
            tables: shape.conv.kernel * sizes.segments * sizes.row_tables,
            sums: shape.input.channels * sizes.line,
            ..Needs::default()
        }
    }

    /// Collects the signs of each group, one byte a group: `[filters, kernel row, channel, group]`.
    fn prepare(shape: Convp, weights: WeightBits<'_>, prepared: &mut Weights<'_>) {
        let (kernel, channels, groups) = (shape.conv.kernel, shape.input.channels, Sizes::of(shape).groups);
        let mut signs = prepared.signs.iter_mut();
        for filter in 0..shape.filters {
            for (ky, channel) in (0..kernel).flat_map(|ky| (0..channels).map(move |channel| (ky, channel))) {
                let row = (channel * kernel + ky) * kernel;
                for (group, signs) in (0..groups).zip(&mut signs) {
                    *signs = group_signs(weights, filter, row, group * GROUP..kernel);
                }
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
        let lines = &mut scratch.sums[..shape.input.channels * sizes.line];
        lines.fill(0);
        // The tables of the pixel rows under the kernel form a ring: those of row `y` are at `y % kernel`.
        let mut rows_made = 0;
        for y in 0..shape.convolved().height {
            let (top, bottom) = shape.conv.inside(y, shape.input.height);
            while rows_made < y + bottom - shape.conv.pad {
                let row = &mut tables[remainder(rows_made, kernel) * row_len..][..row_len];
                fill_row(&sizes, block.input.pixels, rows_made, lines, row);
                rows_made += 1;
            }
            // Where the tables of each kernel row begin, computed once for all filters.
            let mut starts = [0; MAX_KERNEL];
            let mut slot = remainder(y + top - shape.conv.pad, kernel);
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
                // Kernels of three rows over one or three channels are unrolled, inside the map and at its border.
                match (sizes.row_tables, bottom - top) {
                    (1, 2) => segment.sum_unrolled::<S, 1, 2>(simd, output),
                    (1, 3) => segment.sum_unrolled::<S, 1, 3>(simd, output),
                    (3, 2) => segment.sum_unrolled::<S, 3, 2>(simd, output),
                    (3, 3) => segment.sum_unrolled::<S, 3, 3>(simd, output),
                    _ => segment.sum(simd, output),
                }
            }
        }
    }
}

/// The signs of a group of up to three weights as bits: bit `i` is 1 if weight `i` is +1.
pub(super) fn group_signs(weights: WeightBits<'_>, filter: usize, row: usize, columns: Range<usize>) -> u8 {
    let columns = columns.take(GROUP).enumerate();
    columns.fold(0, |signs, (bit, kx)| signs | u8::from(weights.is_positive(filter, row + kx)) << bit)
}

/// Sizes of a block's tables.
struct Sizes {
    shape: Convp,
    /// Number of groups of three taps in a kernel row; the last group may have fewer.
    groups: usize,
    /// Number of segments of 32 columns in a row of the convolution.
    segments: usize,
    /// Number of tables for a segment of one row of pixels: one for each channel and group.
    row_tables: usize,
    /// Number of pixels of a row with padding, up to the last pixel that a segment reads.
    line: usize,
}

impl Sizes {
    #[inline(always)]
    const fn of(shape: Convp) -> Self {
        let groups = shape.conv.kernel.div_ceil(GROUP);
        let segments = shape.convolved().width.div_ceil(LANES);
        let (read, written) = (segments * LANES + groups * GROUP, shape.conv.pad + shape.input.width);
        let line = if read > written { read } else { written };
        Self { shape, groups, segments, row_tables: shape.input.channels * groups, line }
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
        let mut rows = [&[[[0; LANES]; SIGNS]; T]; R];
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
                    sums = simd.add_row(sums, &table[usize::from(*sign) % SIGNS]);
                }
            }
            // `supports` has checked that thresholds fit in 16 bits.
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
                    sums = simd.add_row(sums, &table[usize::from(*sign) % SIGNS]);
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
        for row in map.chunks_exact_mut(self.row_words).take(to).skip(from) {
            row[self.column / 64] |= bits;
        }
    }
}

/// Makes the tables of one row of pixels: `[segments, channels, groups]`. The padding in `lines` stays zero.
#[inline(always)]
fn fill_row(sizes: &Sizes, pixels: &[u8], row: usize, lines: &mut [i16], tables: &mut [SumTable]) {
    let Sizes { shape, groups, line, .. } = *sizes;
    let Map { height, width, .. } = shape.input;
    // All channels are first converted to numbers: a line that is read right after it was written would stall the processor.
    let channels = pixels.chunks_exact(height * width);
    for (pixels, line) in channels.zip(lines.chunks_exact_mut(line)) {
        let inner = line[shape.conv.pad..].iter_mut();
        inner.zip(&pixels[row * width..][..width]).for_each(|(number, &pixel)| *number = i16::from(pixel));
    }
    for (segment, tables) in tables.chunks_exact_mut(sizes.row_tables).enumerate() {
        for (tables, line) in tables.chunks_exact_mut(groups).zip(lines.chunks_exact(line)) {
            for (group, table) in tables.iter_mut().enumerate() {
                let neighbours = &line[segment * LANES + group * GROUP..][..LANES + GROUP - 1];
                fill_table(neighbours, shape.conv.kernel - group * GROUP, table);
            }
        }
    }
}

/// Computes the eight sums of three neighbours at each of 32 columns. Neighbours after the first `taps` are beyond the kernel and count as
/// zero.
#[inline(always)]
fn fill_table(line: &[i16], taps: usize, table: &mut SumTable) {
    let (has_b, has_c) = (i16::from(taps > 1), i16::from(taps > 2));
    let (a, b, c) = (&line[..LANES], &line[1..=LANES], &line[2..LANES + 2]);
    let [t0, t1, t2, t3, t4, t5, t6, t7] = table;
    for x in 0..LANES {
        let (a, b, c) = (a[x], b[x] * has_b, c[x] * has_c);
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
