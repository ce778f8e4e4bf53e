//! Binary weights over the pixels of a first block.
//!
//! Three neighbours and their three signs have only eight sums. So each row of numbers becomes a table of eight rows of sums, made
//! once and shared by all filters, and a filter adds one of the eight per channel and kernel row: nine additions for a 3x3 kernel
//! over three channels instead of 27, and no multiplication. A kernel row longer than three is cut into threes.

use crate::rows::{low_bits, or_into, pooled_rows, remainder};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{LANES, Vectors};

/// Neighbours that one table sums.
const GROUP: usize = 3;
/// Signs of a group.
const SIGNS: usize = 1 << GROUP;
/// The eight sums of a group, for one block of a row.
pub type Table = [[i16; LANES]; SIGNS];

/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;

/// Whether this kernel runs the block: its step is 1 and its sums fit in 16 bits, the one past the largest too.
pub(crate) const fn runs(shape: Convp) -> bool {
    shape.conv.stride == 1 && shape.conv.kernel <= KERNEL_MAX && shape.taps() * 255 < i16::MAX as usize
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// Tables of the rows under the kernel.
    pub(crate) tables: &'a mut [Table],
    /// A row of numbers with its padding.
    pub(crate) line: &'a mut [i16],
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
#[inline(always)]
pub(crate) fn convolve<V: Vectors>(
    v: V,
    shape: Convp,
    pixels: &[u8],
    signs: &[u8],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
) {
    let (kernel, blocks, tables) = (shape.conv.kernel, blocks(shape), tables(shape));
    let convolved = shape.convolved();
    let rows_left = shape.output().height;
    let row_words = pooled.len() / shape.filters / rows_left;
    scratch.line.fill(0);
    let mut made = 0;
    for y in 0..convolved.height {
        let (top, bottom) = shape.conv.inside(y, shape.input.height);
        while made < y + bottom - shape.conv.pad {
            let of_row = &mut scratch.tables[remainder(made, kernel) * blocks * tables..][..blocks * tables];
            fill(shape, pixels, made, scratch.line, of_row);
            made += 1;
        }
        // Where the tables of each kernel row begin; worked out once for all filters.
        let mut begins = [0; KERNEL_MAX];
        let mut slot = remainder(y + top - shape.conv.pad, kernel);
        for begin in &mut begins[top..bottom] {
            *begin = slot * blocks * tables;
            slot = if slot + 1 == kernel { 0 } else { slot + 1 };
        }
        let begins = &begins[top..bottom];
        let rows = pooled_rows(shape.pool, y, rows_left);
        for block in 0..blocks {
            let place = Place {
                rows,
                row_words,
                word: block * LANES / 64,
                shift: block * LANES % 64,
                kept: low_bits(convolved.width - block * LANES) as u32,
            };
            let under = Under { tables: &scratch.tables[block * tables..], begins, of_row: tables };
            let filters = Filters { signs, each: kernel * tables, first: top * tables, thresholds };
            // A kernel of three rows over one or three channels, inside the map and at its border, is unrolled.
            match (tables, begins.len()) {
                (1, 2) => few::<V, 1, 2>(v, &under, &filters, place, pooled),
                (1, 3) => few::<V, 1, 3>(v, &under, &filters, place, pooled),
                (3, 2) => few::<V, 3, 2>(v, &under, &filters, place, pooled),
                (3, 3) => few::<V, 3, 3>(v, &under, &filters, place, pooled),
                _ => any(v, &under, &filters, place, pooled),
            }
        }
    }
}

/// The tables under the kernel, of one block of a row.
struct Under<'a> {
    /// Tables, from this block's in the first row of the ring.
    tables: &'a [Table],
    /// Where those of each kernel row begin.
    begins: &'a [usize],
    /// How many a kernel row has.
    of_row: usize,
}

/// The filters of a block.
struct Filters<'a> {
    /// Signs of all kernel rows.
    signs: &'a [u8],
    /// Signs of one filter.
    each: usize,
    /// The first sign of the first kernel row that lies on the map.
    first: usize,
    thresholds: &'a [Threshold],
}

/// Where the bits of one block of a convolved row go.
#[derive(Clone, Copy)]
struct Place {
    /// The pooled rows whose window holds the row: from, to (exclusive).
    rows: (usize, usize),
    row_words: usize,
    word: usize,
    shift: usize,
    /// Bits that lie on the map.
    kept: u32,
}

impl Place {
    /// ORs the bits into the map of a filter.
    #[inline(always)]
    fn put(self, bits: u32, pooled: &mut [u64]) {
        let bits = u64::from(bits & self.kept) << self.shift;
        let (from, to) = self.rows;
        if self.row_words == 1 {
            return or_into(bits, &mut pooled[from..to]);
        }
        for row in pooled.chunks_exact_mut(self.row_words).take(to).skip(from) {
            row[self.word] |= bits;
        }
    }
}

/// The bits of one block of a row for all filters, where the kernel lies on `R` rows of `T` tables: so few that all is unrolled.
#[inline(always)]
fn few<V: Vectors, const T: usize, const R: usize>(
    v: V,
    under: &Under<'_>,
    filters: &Filters<'_>,
    place: Place,
    pooled: &mut [u64],
) {
    let mut rows = [&[[[0; LANES]; SIGNS]; T]; R];
    for (row, &begin) in rows.iter_mut().zip(under.begins) {
        if let Some(tables) = under.tables[begin..].first_chunk() {
            *row = tables;
        }
    }
    let map_words = pooled.len() / filters.thresholds.len();
    let signs = filters.signs.chunks_exact(filters.each);
    for ((threshold, signs), pooled) in
        filters.thresholds.iter().zip(signs).zip(pooled.chunks_exact_mut(map_words))
    {
        let (signs, _) = signs[filters.first..].as_chunks::<T>();
        let Some(signs) = signs.first_chunk::<R>() else { return };
        let mut sums = v.no_sums();
        for (tables, signs) in rows.iter().zip(signs) {
            for (table, sign) in tables.iter().zip(signs) {
                // Three signs; the remainder only tells the compiler.
                sums = v.add_row(sums, &table[usize::from(*sign) % SIGNS]);
            }
        }
        // Reachable sums fit in 16 bits, and one more than the largest does too.
        place.put(v.sums_at_least(sums, threshold.from as i16), pooled);
    }
}

/// As [`few`], for any number of rows and tables.
#[inline(always)]
fn any<V: Vectors>(v: V, under: &Under<'_>, filters: &Filters<'_>, place: Place, pooled: &mut [u64]) {
    let map_words = pooled.len() / filters.thresholds.len();
    let signs = filters.signs.chunks_exact(filters.each);
    for ((threshold, signs), pooled) in
        filters.thresholds.iter().zip(signs).zip(pooled.chunks_exact_mut(map_words))
    {
        let mut sums = v.no_sums();
        let of_rows = signs[filters.first..].chunks_exact(under.of_row);
        for (&begin, signs) in under.begins.iter().zip(of_rows) {
            for (table, sign) in under.tables[begin..].iter().zip(signs) {
                sums = v.add_row(sums, &table[usize::from(*sign) % SIGNS]);
            }
        }
        place.put(v.sums_at_least(sums, threshold.from as i16), pooled);
    }
}

/// The tables of one row, `[blocks, channels, groups]`. `line` has room for the row with its padding, which stays zero.
#[inline(always)]
fn fill(shape: Convp, pixels: &[u8], row: usize, line: &mut [i16], of_row: &mut [Table]) {
    let Map { channels, height, width } = shape.input;
    for channel in 0..channels {
        let pixels = &pixels[(channel * height + row) * width..][..width];
        let places = &mut line[shape.conv.pad..][..width];
        places.iter_mut().zip(pixels).for_each(|(place, &pixel)| *place = i16::from(pixel));
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
