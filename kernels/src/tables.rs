//! Binary weights over numbers: the pixels of the first block, or the ±1 of a later one with few channels.
//!
//! Three neighbours and their three signs have only eight sums. So each row of numbers becomes a table of eight rows of sums, made
//! once and shared by all filters, and a filter adds one of the eight per channel and kernel row: nine additions for a 3x3 kernel
//! over three channels instead of 27, and no multiplication. A kernel row longer than three is cut into threes.

use crate::rows::{clear_from, or_into, pool_down, pooled_rows};
use crate::shape::Convp;
use crate::threshold::Threshold;

/// Neighbours that one table sums.
const GROUP: usize = 3;
/// Signs of a group.
const SIGNS: usize = 1 << GROUP;
/// Sums that are added at once; rows are cut into blocks of so many.
pub(crate) const LANES: usize = 32;
/// The eight sums of a group, for one block of a row.
pub type Table = [[i16; LANES]; SIGNS];

/// How a path adds and compares a block of sums.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<A, Add, AtLeast> {
    /// Sums of nothing.
    pub(crate) zero: A,
    /// Adds one row of a table.
    pub(crate) add: Add,
    /// Bit `i` is set where sum `i` is at least so much.
    pub(crate) at_least: AtLeast,
}

/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;

/// Whether this kernel runs the block, whose numbers are at most `largest`: its step is 1 and its sums fit in 16 bits, the one past
/// the largest too.
pub(crate) const fn runs(shape: Convp, largest: usize) -> bool {
    shape.conv.stride == 1 && shape.conv.kernel <= KERNEL_MAX && shape.taps() * largest < i16::MAX as usize
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// Tables of the rows under the kernel.
    pub(crate) tables: &'a mut [Table],
    /// A row of numbers with its padding.
    pub(crate) line: &'a mut [i16],
    /// One convolved row.
    pub(crate) row: &'a mut [u64],
}

/// Groups of a kernel row.
const fn groups(shape: Convp) -> usize {
    shape.conv.kernel.div_ceil(GROUP)
}

/// Blocks of a convolved row.
const fn blocks(shape: Convp) -> usize {
    shape.convolved().width.div_ceil(LANES)
}

/// Tables of one row of pixels and one block: one a channel and group.
const fn tables(shape: Convp) -> usize {
    shape.input.channels * groups(shape)
}

/// Tables of the rows under the kernel, `[kernel row, block, channel, group]`.
pub(crate) const fn table_len(shape: Convp) -> usize {
    shape.conv.kernel * blocks(shape) * tables(shape)
}

/// Numbers of one row of pixels with its padding, and as far as the last lane's window reaches.
pub(crate) const fn line_len(shape: Convp) -> usize {
    let (reach, padded) = (blocks(shape) * LANES + groups(shape) * GROUP, shape.conv.pad + shape.input.width);
    if reach > padded { reach } else { padded }
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
///
/// `read(channel, row, line)` writes a row of the map to `line`, which begins at its first place.
#[inline(always)]
pub(crate) fn convolve<A: Copy>(
    shape: Convp,
    read: impl Fn(usize, usize, &mut [i16]),
    signs: &[u8],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
    lanes: &Lanes<A, impl Fn(A, &[i16; LANES]) -> A, impl Fn(A, i16) -> u32>,
) {
    let (kernel, blocks, tables) = (shape.conv.kernel, blocks(shape), tables(shape));
    let convolved = shape.convolved();
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    // Bits of a row that fits in one word.
    let kept = if convolved.width < 64 { (1 << convolved.width) - 1 } else { u64::MAX };
    scratch.line.fill(0);
    let mut made = 0;
    for y in 0..convolved.height {
        let (top, bottom) = shape.conv.inside(y, shape.input.height);
        while made < y + bottom - shape.conv.pad {
            let of_row = &mut scratch.tables[made % kernel * blocks * tables..][..blocks * tables];
            fill(shape, &read, made, scratch.line, of_row);
            made += 1;
        }
        // Where the tables of each kernel row begin; worked out once for all filters.
        let mut begins = [0; KERNEL_MAX];
        for (ky, begin) in begins.iter_mut().enumerate().take(bottom).skip(top) {
            *begin = (y + ky - shape.conv.pad) % kernel * blocks * tables;
        }
        let begins = &begins[top..bottom];
        let into = pooled_rows(shape.pool, y, shape.output().height);
        let of_filters = thresholds.iter().zip(signs.chunks_exact(kernel * tables));
        for ((threshold, signs), pooled) in of_filters.zip(pooled.chunks_exact_mut(map_words)) {
            let signs = &signs[top * tables..bottom * tables];
            if row_words == 1 {
                let mut bits = block_bits(threshold, signs, begins, scratch.tables, tables, lanes);
                if blocks > 1 {
                    let second = &scratch.tables[tables..];
                    bits |= block_bits(threshold, signs, begins, second, tables, lanes) << LANES;
                }
                or_into(bits & kept, &mut pooled[into.0..into.1]);
                continue;
            }
            let bits = &mut scratch.row[..row_words];
            bits.fill(0);
            for block in 0..blocks {
                let of_block = &scratch.tables[block * tables..];
                let found = block_bits(threshold, signs, begins, of_block, tables, lanes);
                bits[block * LANES / 64] |= found << (block * LANES % 64);
            }
            clear_from(convolved.width, bits);
            pool_down(bits, into, pooled);
        }
    }
}

/// The bits of one block of a convolved row of one filter. `of_block` begins with the tables of the block in the first row of the ring,
/// `begins` says where those of each kernel row begin, and `signs` are of the same kernel rows.
#[inline(always)]
fn block_bits<A: Copy>(
    threshold: &Threshold,
    signs: &[u8],
    begins: &[usize],
    of_block: &[Table],
    tables: usize,
    lanes: &Lanes<A, impl Fn(A, &[i16; LANES]) -> A, impl Fn(A, i16) -> u32>,
) -> u64 {
    let sums = match tables {
        1 => add_up::<A, 1>(lanes.zero, begins, of_block, signs, &lanes.add),
        3 => add_up::<A, 3>(lanes.zero, begins, of_block, signs, &lanes.add),
        _ => {
            let mut sums = lanes.zero;
            for (&begin, signs) in begins.iter().zip(signs.chunks_exact(tables)) {
                for (table, signs) in of_block[begin..][..tables].iter().zip(signs) {
                    sums = (lanes.add)(sums, &table[usize::from(*signs) % SIGNS]);
                }
            }
            sums
        }
    };
    // Reachable sums fit in 16 bits, and one more than the largest does too.
    u64::from((lanes.at_least)(sums, threshold.from as i16))
}

/// The sums of one block, over the tables of each kernel row, `T` of them: so few that the loop over them is unrolled.
#[inline(always)]
fn add_up<A: Copy, const T: usize>(
    zero: A,
    begins: &[usize],
    of_block: &[Table],
    signs: &[u8],
    add: &impl Fn(A, &[i16; LANES]) -> A,
) -> A {
    let (signs, _) = signs.as_chunks::<T>();
    let mut sums = zero;
    for (&begin, signs) in begins.iter().zip(signs) {
        if let Some(tables) = of_block[begin..].first_chunk::<T>() {
            for i in 0..T {
                // Three signs; the remainder only tells the compiler.
                sums = add(sums, &tables[i][usize::from(signs[i]) % SIGNS]);
            }
        }
    }
    sums
}

/// The tables of one row, `[blocks, channels, groups]`. `line` has room for the row with its padding, which stays zero.
#[inline(always)]
fn fill(
    shape: Convp,
    read: &impl Fn(usize, usize, &mut [i16]),
    row: usize,
    line: &mut [i16],
    of_row: &mut [Table],
) {
    for channel in 0..shape.input.channels {
        read(channel, row, &mut line[shape.conv.pad..][..shape.input.width]);
        for (block, of_block) in of_row.chunks_exact_mut(tables(shape)).enumerate() {
            for (group, table) in of_block[channel * groups(shape)..][..groups(shape)].iter_mut().enumerate()
            {
                let neighbours = &line[block * LANES + group * GROUP..][..LANES + GROUP - 1];
                signed_sums(neighbours, shape.conv.kernel - group * GROUP, table);
            }
        }
    }
}

/// The eight sums of three neighbours; bit `i` of the index is the sign of neighbour `i`. Neighbours past the kernel's `taps` count
/// as nothing.
#[inline(always)]
fn signed_sums(line: &[i16], taps: usize, table: &mut Table) {
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
