//! Binary weights over bits, by looking up: for processors that look up 32 bytes in one instruction.
//!
//! Four channels of a place are a number of four bits, a nibble, and so are the four weights that meet them. For each of the 16
//! weights there is a table of 16 bytes: the sum of the four products, for every nibble of the map. One lookup and one addition
//! do 128 products, where counting bits takes eight instructions for 256. The idea is that of lookup tables in a register, as in Quick
//! ADC and T-MAC; here the table is picked by the weights and the map is the index, so that neighbouring places are neighbouring
//! lanes, as everywhere in this crate.
//!
//! The nibbles of a map lie in planes, one for each four channels and kernel column. A plane is moved aside by its kernel column and
//! has the row length of what the convolution gives, so all places of a kernel row, over all rows of the map, are one run of bytes.
//! What lies outside the map has its highest bit set, for which a lookup gives 0: padding that counts as nothing.

use crate::plan;
use crate::rows::{low_bits, or_into, pool_down, pooled_rows};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{LANES, Vectors};

/// Channels of a nibble.
const CHANNELS: usize = 4;
/// Filters that are run at once, so that a nibble that is read serves so many.
const FILTERS: usize = 4;
/// The nibble of a place outside the map.
const OUTSIDE: u8 = 0x80;
/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;

/// Sixteen tables, one for each four weights, and bytes up to what an offset of 8 bits reaches.
///
/// Aligned so that no table lies in two lines of the cache.
#[repr(align(64))]
struct Tables([i8; 16 * 16 + 16]);

/// Tables for maps whose channels are a multiple of four: half the sum of four products, so that more of them fit in a byte.
static HALVES: Tables = tables(4, 2);
/// Tables for nibbles of so many channels, less one.
static WHOLE: [Tables; 4] = [tables(1, 1), tables(2, 1), tables(3, 1), tables(4, 1)];

/// The sums of `channels` products, in units of so much.
const fn tables(channels: i8, unit: i8) -> Tables {
    let mut tables = [0; 16 * 16 + 16];
    let mut at = 0;
    while at < 16 * 16 {
        let (weights, bits): (usize, usize) = (at / 16, at % 16);
        let different = ((weights ^ bits) & ((1 << channels) - 1)).count_ones() as i8;
        tables[at] = (channels - 2 * different) / unit;
        at += 1;
    }
    Tables(tables)
}

/// What one unit of a sum in a byte stands for, and how many nibbles fit in one.
const fn unit(shape: Convp) -> (i32, usize) {
    if shape.input.channels.is_multiple_of(CHANNELS) { (2, 127 / 2) } else { (1, 127 / 4) }
}

/// Whether this kernel runs the block: its step is 1 and its sums fit in 16 bits, the one past the largest too.
pub(crate) const fn runs(shape: Convp) -> bool {
    shape.conv.stride == 1 && shape.conv.kernel <= KERNEL_MAX && shape.taps() < i16::MAX as usize
}

/// Nibbles of a place.
const fn quads(shape: Convp) -> usize {
    shape.input.channels.div_ceil(CHANNELS)
}

/// Nibbles under the kernel.
const fn nibbles(shape: Convp) -> usize {
    quads(shape) * shape.conv.kernel * shape.conv.kernel
}

/// Blocks of lanes that hold all places of a convolved map.
const fn blocks(shape: Convp) -> usize {
    let convolved = shape.convolved();
    (convolved.height * convolved.width).div_ceil(LANES)
}

/// Bytes of a plane: as far as the last block reads, and as far as the last row is written.
const fn plane_len(shape: Convp) -> usize {
    let (rows, width) = (shape.input.height + 2 * shape.conv.pad, shape.convolved().width);
    let read = blocks(shape) * LANES + (shape.conv.kernel - 1) * width;
    let written = rows * width + LANES;
    if read > written { read } else { written }
}

/// Bytes of all planes, `[quad, kernel column, row, column]`.
pub(crate) const fn planes_len(shape: Convp) -> usize {
    quads(shape) * shape.conv.kernel * plane_len(shape)
}

/// Bytes of one row with its padding, and as far as the last block of a plane's row reads.
pub(crate) const fn line_len(shape: Convp) -> usize {
    let read = shape.convolved().width.next_multiple_of(LANES) + shape.conv.kernel;
    let written = shape.conv.pad + shape.input.width.next_multiple_of(LANES);
    if read > written { read } else { written }
}

/// Bytes of weights that [`prepare`] writes: where the table of a nibble begins, `[filters / 4, quad, kernel column, kernel row, 4]`.
pub(crate) const fn offsets_len(shape: Convp) -> usize {
    shape.filters.div_ceil(FILTERS) * FILTERS * nibbles(shape)
}

/// Words of the bits of one filter over all places, and one more so that a row may be read past its end.
const fn stream_words(shape: Convp) -> usize {
    blocks(shape).div_ceil(2) + 1
}

/// Words of the bits of all filters.
pub(crate) const fn streams_words(shape: Convp) -> usize {
    shape.filters.next_multiple_of(FILTERS) * stream_words(shape)
}

/// Gathers the nibbles of weights `[filters, channels, kernel, kernel]`. Filters past the last are -1; nothing of them is kept.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, offsets: &mut [u8]) {
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    for (at, offset) in offsets.iter_mut().enumerate() {
        let (nibble, of_group) = (at / FILTERS, at % FILTERS);
        let filter = nibble / nibbles(shape) * FILTERS + of_group;
        let nibble = nibble % nibbles(shape);
        let (quad, kx, ky) = (nibble / (kernel * kernel), nibble / kernel % kernel, nibble % kernel);
        let of_quad = (quad * CHANNELS..channels).take(CHANNELS).enumerate();
        let weights = of_quad.filter(|_| filter < shape.filters).fold(0, |weights, (place, channel)| {
            weights | u8::from(weight(filter, (channel * kernel + ky) * kernel + kx)) << place
        });
        *offset = weights * 16;
    }
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// The nibbles of the map.
    pub(crate) planes: &'a mut [u8],
    /// The nibbles of a row with its padding.
    pub(crate) line: &'a mut [u8],
    /// The bits of each filter, place after place.
    pub(crate) streams: &'a mut [u64],
    /// One convolved row.
    pub(crate) row: &'a mut [u64],
}

/// Runs convolution, comparison and the pooling down. `map` is `[channels, height, row words]` with its row words; `pooled` is
/// `[filters, pooled rows, row words]`, zero at first.
#[inline(always)]
pub(crate) fn convolve<V: Vectors>(
    v: V,
    shape: Convp,
    map: (&[u64], usize),
    offsets: &[u8],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
) {
    fill(v, shape, map, scratch.line, scratch.planes);
    let fits = nibbles(shape) <= unit(shape).1;
    // Kernels of three rows are unrolled.
    match (shape.conv.kernel, fits) {
        (3, true) => sweep::<V, 3, false>(v, shape, offsets, thresholds, scratch),
        (3, false) => sweep::<V, 3, true>(v, shape, offsets, thresholds, scratch),
        (_, true) => sweep::<V, 0, false>(v, shape, offsets, thresholds, scratch),
        (_, false) => sweep::<V, 0, true>(v, shape, offsets, thresholds, scratch),
    }
    let convolved = shape.convolved();
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / shape.output().height;
    debug_assert_eq!(row_words, plan::row_words(shape));
    for y in 0..convolved.height {
        let (from, into) = (y * convolved.width, pooled_rows(shape.pool, y, shape.output().height));
        let streams = scratch.streams.chunks_exact(stream_words(shape));
        for (stream, pooled) in streams.zip(pooled.chunks_exact_mut(map_words)) {
            if row_words == 1 {
                or_into(bits_at(stream, from) & low_bits(convolved.width), &mut pooled[into.0..into.1]);
                continue;
            }
            let bits = &mut scratch.row[..row_words];
            for (place, word) in bits.iter_mut().enumerate() {
                let left = convolved.width.saturating_sub(place * 64);
                *word = bits_at(stream, from + place * 64) & low_bits(left);
            }
            pool_down(bits, into, pooled);
        }
    }
}

/// The 64 bits that begin at a place; zero past the last word.
#[inline(always)]
fn bits_at(words: &[u64], from: usize) -> u64 {
    let word = |at| words.get(at).copied().unwrap_or(0);
    // A shift by 64 is none.
    word(from / 64) >> (from % 64) | word(from / 64 + 1) << 1 << (63 - from % 64)
}

/// Writes the bits of all filters to the streams: two blocks of places after the other, over all filters.
#[inline(always)]
fn sweep<V: Vectors, const K: usize, const WIDE: bool>(
    v: V,
    shape: Convp,
    offsets: &[u8],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
) {
    let (unit, _) = unit(shape);
    let planes = &*scratch.planes;
    for block in (0..blocks(shape)).step_by(2) {
        let of_groups = offsets.chunks_exact(FILTERS * nibbles(shape)).zip(thresholds.chunks(FILTERS));
        let streams = scratch.streams.chunks_exact_mut(FILTERS * stream_words(shape));
        for ((offsets, thresholds), streams) in of_groups.zip(streams) {
            let (offsets, _) = offsets.as_chunks::<FILTERS>();
            let mut from = [0; FILTERS];
            for (from, threshold) in from.iter_mut().zip(thresholds) {
                // Reachable sums fit in 16 bits, and one more than the largest does too.
                *from = (threshold.from + unit - 1).div_euclid(unit) as i16;
            }
            // Loops and no `map`: see the end of `tile`.
            let mut words = [0; FILTERS];
            if block + 1 < blocks(shape) {
                let bits = tile::<V, K, 2, WIDE>(v, shape, planes, block * LANES, offsets, from);
                for (word, [low, high]) in words.iter_mut().zip(bits) {
                    *word = u64::from(low) | u64::from(high) << LANES;
                }
            } else {
                let bits = tile::<V, K, 1, WIDE>(v, shape, planes, block * LANES, offsets, from);
                for (word, [low]) in words.iter_mut().zip(bits) {
                    *word = u64::from(low);
                }
            }
            for (word, stream) in words.iter().zip(streams.chunks_exact_mut(stream_words(shape))) {
                stream[block / 2] = *word;
            }
        }
    }
}

/// The bits of `B` blocks of places, from place `at` on, of a group of filters. `K` is the side of the kernel, or 0 where it is known at
/// run time alone; `WIDE` says that sums need 16 bits.
#[inline(always)]
fn tile<V: Vectors, const K: usize, const B: usize, const WIDE: bool>(
    v: V,
    shape: Convp,
    planes: &[u8],
    at: usize,
    offsets: &[[u8; FILTERS]],
    from: [i16; FILTERS],
) -> [[u32; B]; FILTERS] {
    let kernel = if K == 0 { shape.conv.kernel } else { K };
    let (width, (unit, room)) = (shape.convolved().width, unit(shape));
    let mut bytes = [[v.no_bytes(); B]; FILTERS];
    let mut sums = [[v.no_sums(); B]; FILTERS];
    // So many kernel columns that their sums fit in bytes.
    let together = if WIDE { room / kernel } else { quads(shape) * kernel };
    let of_parts = planes.chunks(together * plane_len(shape)).zip(offsets.chunks(together * kernel));
    for (part, (planes, offsets)) in of_parts.enumerate() {
        bytes = [[v.no_bytes(); B]; FILTERS];
        let of_columns = planes.chunks_exact(plane_len(shape)).zip(offsets.chunks_exact(kernel));
        for (column, (plane, offsets)) in of_columns.enumerate() {
            let left = shape.input.channels - (part * together + column) / kernel * CHANNELS;
            let tables = if unit == 2 { &HALVES.0 } else { &WHOLE[left.min(CHANNELS) - 1].0 };
            let span = &plane[at..];
            for (ky, offsets) in offsets.iter().enumerate().take(kernel) {
                let (indices, _) = span[ky * width..][..B * LANES].as_chunks::<LANES>();
                let mut loaded = [v.no_bytes(); B];
                for (loaded, indices) in loaded.iter_mut().zip(indices) {
                    *loaded = v.load(indices);
                }
                for (offset, bytes) in offsets.iter().zip(&mut bytes) {
                    let table = tables[usize::from(*offset)..].first_chunk::<16>();
                    let table = v.table(table.unwrap_or(&[0; 16]));
                    for (bytes, indices) in bytes.iter_mut().zip(loaded) {
                        *bytes = v.add(*bytes, v.look_up(table, indices));
                    }
                }
            }
        }
        if WIDE {
            for (sums, bytes) in sums.as_flattened_mut().iter_mut().zip(bytes.as_flattened()) {
                *sums = v.widen(*sums, *bytes);
            }
        }
    }
    // Loops and no closures: what takes a closure is a function of its own, compiled without the path's instructions.
    let mut bits = [[0; B]; FILTERS];
    for filter in 0..FILTERS {
        for block in 0..B {
            bits[filter][block] = if WIDE {
                v.widened_at_least(sums[filter][block], from[filter])
            } else {
                v.bytes_at_least(bytes[filter][block], from[filter] as i8)
            };
        }
    }
    bits
}

/// Writes the planes of a map. Each row of nibbles is made once, with its padding, and copied to the plane of each kernel column; a block
/// past the end of a row is written over by the next row.
#[inline(always)]
fn fill<V: Vectors>(v: V, shape: Convp, map: (&[u64], usize), line: &mut [u8], planes: &mut [u8]) {
    let (input, kernel, pad) = (shape.input, shape.conv.kernel, shape.conv.pad);
    let (width, plane_len) = (shape.convolved().width, plane_len(shape));
    line.fill(OUTSIDE);
    for (quad, planes) in planes.chunks_exact_mut(kernel * plane_len).enumerate() {
        for plane in planes.chunks_exact_mut(plane_len) {
            plane[..pad * width].fill(OUTSIDE);
        }
        for y in 0..input.height {
            gather(v, input, map, (quad, y), &mut line[pad..]);
            for (kx, plane) in planes.chunks_exact_mut(plane_len).enumerate() {
                let (moved, _) = line[kx..].as_chunks::<LANES>();
                let (places, _) = plane[(pad + y) * width..].as_chunks_mut::<LANES>();
                for (place, moved) in places.iter_mut().zip(moved).take(width.div_ceil(LANES)) {
                    v.store(v.load(moved), place);
                }
            }
        }
        // Now, since the last row's last block may reach into it.
        for plane in planes.chunks_exact_mut(plane_len) {
            plane[(pad + input.height) * width..].fill(OUTSIDE);
        }
    }
}

/// Writes the nibbles of one row of a quad, and `OUTSIDE` from its end to the end of the last block.
#[inline(always)]
fn gather<V: Vectors>(
    v: V,
    input: Map,
    (map, row_words): (&[u64], usize),
    (quad, y): (usize, usize),
    line: &mut [u8],
) {
    let channels = input.channels - quad * CHANNELS;
    let (blocks, _) = line.as_chunks_mut::<LANES>();
    for (block, nibbles) in blocks.iter_mut().enumerate().take(input.width.div_ceil(LANES)) {
        // Two blocks a word.
        let (word, shift) = (block / 2, block % 2 * LANES);
        let outside = !low_bits(input.width - block * LANES) as u32;
        let mut found = v.spread(v.no_bytes(), outside, OUTSIDE);
        for place in 0..channels.min(CHANNELS) {
            let row = ((quad * CHANNELS + place) * input.height + y) * row_words;
            found = v.spread(found, (map[row + word] >> shift) as u32, 1 << place);
        }
        v.store(found, nibbles);
    }
}
