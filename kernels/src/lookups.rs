//! Binary weights over bits, many filters: products are counted by looking them up.
//!
//! Four channels of a place are one of 16 numbers, and so are a filter's four weights for them. For four weights there is a table of the
//! products that are +1 with each of the 16 numbers, and an instruction that shuffles bytes looks up many places in it at once. A
//! count of four products takes half a byte, so one table holds the counts of two filters, and the other half of a vector that of two
//! more: one lookup and one addition count 16 places of four channels for four filters, 256 products. After three lookups the halves
//! of bytes are nearly full; the high ones are added up once more by themselves, and before bytes are full they are added to
//! 16 bits: two instructions for 256 products, and a bit more.
//!
//! Tables are made of the weights when a section is loaded. The map is laid out anew at each run: a byte a place for each four
//! channels, and of these, 64 places at a time, what each tap of the kernel sees of them (im2col). So all filters read the
//! same bytes one after the other, whatever the window is, and what comes out is a word of 64 places for each filter.
//!
//! A place outside the map counts nothing, so half of what is missing there is counted from the start, as [`slices`](crate::slices)
//! does.

use crate::rows::{bits_at, low_bits, pooled_rows};
use crate::shape::{Convp, Map, Window};
use crate::threshold::Threshold;
use crate::vectors::{Counts, HALF, LANES, Vectors};

/// Channels that one lookup counts.
const CHANNELS: usize = 4;
/// Filters whose counts one table holds.
const FILTERS: usize = 4;
/// Lookups until half a byte is full, `3 * 4 < 16`.
const TRIPLE: usize = 3;
/// Triples until a byte is full, `21 * 12 < 256`.
const TRIPLES_MAX: usize = 21;
/// Vectors of places that are counted together, as many as registers hold the counts of.
const TOGETHER: usize = 4;
/// Places that are numbered together.
const BLOCK: usize = 64;
/// Places that are counted together: the bits of a word.
const PLACES: usize = TOGETHER * HALF;
/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;
/// From this many filters on it is faster than slices.
const LEAST_FILTERS: usize = 24;
/// The number of a place outside the map: nothing is counted for it, whatever bits lie beside the highest one.
const ABSENT: u8 = 0x80;
/// Bytes up to the next line of the cache.
const LINE: usize = 64;

/// What one vector holds: numbers of 16 bits, or bytes, two a number.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Lanes([i16; HALF]);

impl Lanes {
    fn of_bytes(bytes: &[u8; LANES]) -> Self {
        let mut lanes = Self::default();
        for (number, bytes) in lanes.0.iter_mut().zip(bytes.as_chunks().0) {
            *number = i16::from_ne_bytes(*bytes);
        }
        lanes
    }
}

/// Whether this kernel runs the block, and well.
pub(crate) const fn runs(shape: Convp) -> bool {
    let Window { kernel, stride, pad } = shape.conv;
    // Half of what is missing at a place is a whole number.
    let is_even = pad == 0 || shape.input.channels.is_multiple_of(2);
    is_even
        && stride == 1
        && kernel <= KERNEL_MAX
        && shape.filters >= LEAST_FILTERS
        && shape.taps() < i16::MAX as usize
}

/// Whether a run gives one stream of bits: where nothing is pooled, and places lie as they come out. Otherwise it gives rows.
pub(crate) fn gives_stream(shape: Convp) -> bool {
    shape.pool == (Window { kernel: 1, stride: 1, pad: 0 }) && pitch(shape) == shape.convolved().width
}

/// Places from one row to the next.
const fn pitch(shape: Convp) -> usize {
    let (before, after) = (shape.input.width, shape.convolved().width);
    if before > after { before } else { after }
}

/// What a run asks for again and again, worked out once.
#[derive(Clone, Copy)]
struct Sizes {
    shape: Convp,
    pitch: usize,
    /// Fours of channels.
    fours: usize,
    /// Lookups of a filter at a place: fours of channels times places of the kernel, in whole triples.
    steps: usize,
    /// As many of them as are counted before bytes are full.
    at_once: usize,
    /// Fours of filters.
    groups: usize,
    /// Words of places.
    words: usize,
    /// Places outside the map before, between and after the planes of four channels: as many as windows see beyond it.
    outside: usize,
    /// Places of four channels, and those outside before them.
    plane: usize,
    /// Words after which columns lie in words as before.
    patterns: usize,
}

impl Sizes {
    const fn of(shape: Convp) -> Self {
        let (pitch, kernel) = (pitch(shape), shape.conv.kernel);
        let fours = shape.input.channels.div_ceil(CHANNELS);
        let triples = (fours * kernel * kernel).div_ceil(TRIPLE);
        let words = (shape.convolved().height * pitch).div_ceil(PLACES);
        // The pitch over its greatest common divisor with 64.
        let shift = pitch.trailing_zeros();
        let patterns = pitch >> if shift < PLACES.trailing_zeros() { shift } else { PLACES.trailing_zeros() };
        let outside = shape.conv.pad * (pitch + 1);
        Self {
            shape,
            pitch,
            fours,
            steps: triples * TRIPLE,
            // Parts of one size: emptying the bytes takes as long after a short one.
            at_once: triples.div_ceil(triples.div_ceil(TRIPLES_MAX)) * TRIPLE,
            groups: shape.filters.div_ceil(FILTERS),
            words,
            outside,
            plane: outside + shape.input.height * pitch,
            patterns: if patterns < words { patterns } else { words },
        }
    }

    /// Bytes of all planes: as far as the last window sees, and whole blocks are written.
    const fn planes(&self) -> usize {
        let seen = self.words * PLACES + (self.shape.conv.kernel - 1) * (self.pitch + 1);
        let last = if seen > self.plane { seen } else { self.plane };
        (self.fours - 1) * self.plane + last + self.outside + BLOCK
    }

    /// What is absent: for each pattern and kernel column, the vectors of a word.
    const fn masks(&self) -> usize {
        self.patterns * self.shape.conv.kernel * TOGETHER
    }

    /// What is counted from the start: for each vector of places, those of even lanes and of odd ones.
    const fn starts(&self) -> usize {
        self.words * TOGETHER * 2
    }
}

/// Lanes of the weights that [`prepare`] and [`prepare_thresholds`] write: tables, masks, starts, thresholds.
pub(crate) const fn lanes_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.groups * sizes.steps + sizes.masks() + sizes.starts() + sizes.groups * 2
}

/// Bytes of one run: the map, a byte a place; what the taps see of a word of places.
pub(crate) const fn bytes_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.planes() + sizes.steps * TOGETHER * LANES + LINE
}

/// Numbers of 16 bits of one run: counts of a word of places.
pub(crate) const fn sums_len(shape: Convp) -> usize {
    Sizes::of(shape).groups * TOGETHER * 4 * HALF + LINE / 2
}

/// Words of one run: bits of a word of places.
pub(crate) const fn words_len(shape: Convp) -> usize {
    Sizes::of(shape).groups * FILTERS
}

/// Weights as they are run.
struct Parts<'a> {
    tables: &'a [Lanes],
    masks: &'a [Lanes],
    starts: &'a [Lanes],
    below: &'a [Lanes],
}

impl<'a> Parts<'a> {
    fn of(sizes: &Sizes, lanes: &'a [Lanes]) -> Self {
        let (tables, rest) = lanes.split_at(sizes.groups * sizes.steps);
        let (masks, rest) = rest.split_at(sizes.masks());
        let (starts, below) = rest.split_at(sizes.starts());
        Self { tables, masks, starts, below }
    }
}

/// Products that are +1.
const fn positive(channels: usize, weights: usize) -> u8 {
    CHANNELS as u8 - (channels ^ weights).count_ones() as u8
}

/// Makes tables of weights `[filters, channels, kernel, kernel]` in the order they are run, `[lookups that are counted together, four of
/// filters, lookup]`, and what a place is missing.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, lanes: &mut [Lanes]) {
    let sizes = Sizes::of(shape);
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    // The four weights of a filter for a lookup. A channel that there is not is 0 on the map: its weight is the other one.
    let four = |filter: usize, step: usize| {
        let (first, place) = (step / (kernel * kernel) * CHANNELS, step % (kernel * kernel));
        (0..CHANNELS).fold(0, |four, at| {
            let channel = first + at;
            let is_set = channel >= channels || weight(filter, channel * kernel * kernel + place);
            four | usize::from(is_set) << at
        })
    };
    let (tables, rest) = lanes.split_at_mut(sizes.groups * sizes.steps);
    let (masks, rest) = rest.split_at_mut(sizes.masks());
    let (starts, _) = rest.split_at_mut(sizes.starts());
    let mut tables = tables.iter_mut();
    for first in (0..sizes.steps).step_by(sizes.at_once) {
        for group in 0..sizes.groups {
            for step in first..sizes.steps.min(first + sizes.at_once) {
                let Some(lanes) = tables.next() else { return };
                let mut table = [0; LANES];
                for (at, filter) in (group * FILTERS..shape.filters).take(FILTERS).enumerate() {
                    if step >= sizes.fours * kernel * kernel {
                        continue;
                    }
                    let weights = four(filter, step);
                    for (number, byte) in table[at / 2 * HALF..][..HALF].iter_mut().enumerate() {
                        *byte |= positive(number, weights) << (at % 2 * 4);
                    }
                }
                *lanes = Lanes::of_bytes(&table);
            }
        }
    }

    let seen = |position: usize, length: usize| {
        let (from, to) = shape.conv.inside(position, length);
        to - from
    };
    // Column and row of a place; none where a row has ended.
    let column = |place: usize| Some(place % sizes.pitch).filter(|&x| x < shape.convolved().width);
    let row = |place: usize| Some(place / sizes.pitch).filter(|&y| y < shape.convolved().height);
    for (at, lanes) in masks.iter_mut().enumerate() {
        let mut mask = [0; LANES];
        let (word, kx, vector) = (at / TOGETHER / kernel, at / TOGETHER % kernel, at % TOGETHER);
        for (lane, byte) in mask.iter_mut().enumerate() {
            let x = (word * PLACES + vector * HALF + lane % HALF) % sizes.pitch + kx;
            let is_there = (shape.conv.pad..shape.conv.pad + shape.input.width).contains(&x);
            *byte = if is_there { 0 } else { ABSENT };
        }
        *lanes = Lanes::of_bytes(&mask);
    }
    for (at, start) in starts.iter_mut().enumerate() {
        let (vector, parity) = (at / 2, at % 2);
        let missing = |lane: usize| {
            let place = vector * HALF + 2 * (lane % (HALF / 2)) + parity;
            let (x, y) = (column(place)?, row(place)?);
            let seen = seen(x, shape.input.width) * seen(y, shape.input.height);
            Some(((shape.taps() - seen * channels) / 2) as i16)
        };
        *start = Lanes(core::array::from_fn(|lane| missing(lane).unwrap_or(0)));
    }
}

/// Writes what counts are compared with.
pub(crate) fn prepare_thresholds(shape: Convp, thresholds: &[Threshold], lanes: &mut [Lanes]) {
    let sizes = Sizes::of(shape);
    let at = lanes.len() - sizes.groups * 2;
    // Twice a count, and what is missing, less all taps, is the sum; it is one too few when it is below half of what that comes to.
    let below = |filter: usize| match thresholds.get(filter) {
        Some(threshold) => ((threshold.from + shape.taps() as i32 + 1).div_euclid(2) - 1) as i16,
        None => 0,
    };
    for (at, lanes) in lanes[at..].iter_mut().enumerate() {
        let filter = |lane: usize| at / 2 * FILTERS + lane / (HALF / 2) * 2 + at % 2;
        *lanes = Lanes(core::array::from_fn(|lane| below(filter(lane))));
    }
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// As many as [`bytes_len`] says.
    pub(crate) bytes: &'a mut [u8],
    /// As many as [`sums_len`] says.
    pub(crate) sums: &'a mut [i16],
    /// As many as [`words_len`] says.
    pub(crate) words: &'a mut [u64],
}

/// Runs convolution, comparison and the pooling down. `stream` is `[channels, height, width]` without gaps; so is what is `given` where
/// [`gives_stream`] says so, and otherwise `[filters, pooled rows, row words]`, not yet turned round where thresholds are. It is zero
/// at first.
#[inline(always)]
pub(crate) fn convolve<V: Vectors>(
    v: V,
    shape: Convp,
    stream: &[u64],
    lanes: &[Lanes],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    given: &mut [u64],
) {
    let sizes = Sizes::of(shape);
    let parts = Parts::of(&sizes, lanes);
    let (planes, rest) = scratch.bytes.split_at_mut(sizes.planes());
    let unaligned = rest.as_ptr().align_offset(LINE).min(LINE);
    let (patches, _) = rest[unaligned..].as_chunks_mut();
    let patches = &mut patches[..sizes.steps * TOGETHER];
    let unaligned = scratch.sums.as_ptr().align_offset(LINE).min(LINE / 2);
    let (counts, _) = scratch.sums[unaligned..].as_chunks_mut();
    let (counts, _) = counts.as_chunks_mut();
    let counts = &mut counts[..sizes.groups * TOGETHER];
    let bits = &mut scratch.words[..sizes.groups * FILTERS];

    number_places(v, &sizes, stream, planes);
    let places = shape.convolved().height * sizes.pitch;
    for word in 0..sizes.words {
        match (places - word * PLACES).div_ceil(HALF) {
            1 => of_word::<V, 1>(v, &sizes, word, &parts, planes, patches, counts, bits),
            2 => of_word::<V, 2>(v, &sizes, word, &parts, planes, patches, counts, bits),
            3 => of_word::<V, 3>(v, &sizes, word, &parts, planes, patches, counts, bits),
            _ => of_word::<V, TOGETHER>(v, &sizes, word, &parts, planes, patches, counts, bits),
        }
        if gives_stream(shape) {
            put_stream(&sizes, word, bits, thresholds, given);
        } else {
            put_rows(&sizes, word, bits, given);
        }
    }
}

/// A byte for four channels of each place, `[four, row, column]`, as far as windows see beyond the map: what they see outside it is
/// absent, but for columns where the next row lies.
#[inline(always)]
fn number_places<V: Vectors>(v: V, sizes: &Sizes, stream: &[u64], planes: &mut [u8]) {
    let Map { channels, height, width } = sizes.shape.input;
    // Without gaps between rows the map is one long row.
    let (rows, length) = if sizes.pitch == width { (1, height * width) } else { (height, width) };
    for four in 0..sizes.fours {
        // What is written past a row is written over by the next one, and what is past a plane by what is outside.
        let (outside, plane) = planes[four * sizes.plane..].split_at_mut(sizes.outside);
        outside.fill(ABSENT);
        for row in 0..rows {
            let (blocks, _) = plane[row * sizes.pitch..].as_chunks_mut::<BLOCK>();
            let mut from = [0; CHANNELS];
            for (from, channel) in from.iter_mut().zip(four * CHANNELS..) {
                *from = (channel * height + row) * width;
            }
            let there = (channels - four * CHANNELS).min(CHANNELS);
            for block in &mut blocks[..length.div_ceil(BLOCK)] {
                let mut bits = [0; CHANNELS];
                for (bits, from) in bits.iter_mut().zip(&mut from).take(there) {
                    *bits = bits_at(stream, *from);
                    *from += BLOCK;
                }
                let (halves, _) = block.as_chunks_mut();
                if let [low, high] = halves {
                    v.number(bits.map(|bits| bits as u32), low);
                    v.number(bits.map(|bits| (bits >> 32) as u32), high);
                }
            }
        }
        plane[height * sizes.pitch..][..sizes.outside].fill(ABSENT);
    }
}

/// The bits of one word of places, `X` vectors of them, for all filters.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "weights, and four memories that are cut once")]
fn of_word<V: Vectors, const X: usize>(
    v: V,
    sizes: &Sizes,
    word: usize,
    parts: &Parts<'_>,
    planes: &[u8],
    patches: &mut [[u8; LANES]],
    counts: &mut [Counts],
    bits: &mut [u64],
) {
    let kernel = sizes.shape.conv.kernel;
    let (patches, _) = patches[..sizes.steps * X].as_chunks_mut::<X>();
    let masks = &parts.masks[word % sizes.patterns * kernel * TOGETHER..][..kernel * TOGETHER];
    let (masks, _) = masks.as_chunks::<TOGETHER>();
    for place in 0..kernel * kernel {
        let (ky, kx) = (place / kernel, place % kernel);
        let mut at = word * PLACES + ky * sizes.pitch + kx;
        for patches in patches[place..].chunks_mut(kernel * kernel).take(sizes.fours) {
            let (Some(places), Some(seen)) = (patches.first_mut(), planes[at..].first_chunk::<PLACES>())
            else {
                break;
            };
            let (seen, _) = seen.as_chunks();
            for ((places, seen), Lanes(mask)) in places.iter_mut().zip(seen).zip(&masks[kx]) {
                v.put_twice(seen, mask, places);
            }
            at += sizes.plane;
        }
    }

    let (counts, _) = counts[..sizes.groups * X].as_chunks_mut::<X>();
    let mut starts = [Counts::default(); X];
    for (start, pair) in starts.iter_mut().zip(parts.starts[word * TOGETHER * 2..].as_chunks().0) {
        let [Lanes(even), Lanes(odd)] = pair;
        *start = [*even, *odd, *even, *odd];
    }
    let (below, _) = parts.below.as_chunks();
    let (bits, _) = bits.as_chunks_mut();
    let (mut tables, mut steps) = (parts.tables, 0);
    for patches in patches.chunks(sizes.at_once) {
        let is_first = steps == 0;
        steps += patches.len();
        let (of_part, rest) = tables.split_at(patches.len() * sizes.groups);
        tables = rest;
        let groups = of_part.chunks_exact(patches.len()).zip(&mut *counts);
        if steps < sizes.steps {
            for (tables, counts) in groups {
                let (both, second) = count(v, patches, tables);
                for x in 0..X {
                    let before = if is_first { &starts[x] } else { &counts[x] };
                    let sums = v.counts(both[x], second[x], before);
                    v.put_counts(sums, &mut counts[x]);
                }
            }
            continue;
        }
        for (((tables, counts), [Lanes(first), Lanes(second)]), bits) in groups.zip(below).zip(&mut *bits) {
            let below = [first, second];
            let before = if is_first { &starts } else { &*counts };
            let (both, second) = count(v, patches, tables);
            let mut above = [[v.no_bytes(); X]; 2];
            for x in 0..X {
                [above[0][x], above[1][x]] = v.above(v.counts(both[x], second[x], &before[x]), below);
            }
            let [[a, c], [b, d]] = [v.bits(&above[0]), v.bits(&above[1])];
            *bits = [a, b, c, d];
        }
    }
}

/// Sums of both filters of a half, and of the second one, over some lookups.
#[inline(always)]
fn count<V: Vectors, const X: usize>(
    v: V,
    patches: &[[[u8; LANES]; X]],
    tables: &[Lanes],
) -> ([V::Bytes; X], [V::Bytes; X]) {
    let mut both = [v.no_bytes(); X];
    let mut second = [v.no_bytes(); X];
    let ((patches, _), (tables, _)) = (patches.as_chunks::<TRIPLE>(), tables.as_chunks::<TRIPLE>());
    // By twos, since the loop itself takes as long as a few products.
    let ((twos, patch), (tables, table)) = (patches.as_chunks::<2>(), tables.as_chunks::<2>());
    for (patches, tables) in twos.iter().zip(tables) {
        for (patches, tables) in patches.iter().zip(tables) {
            (both, second) = add(v, patches, tables, (both, second));
        }
    }
    for (patches, tables) in patch.iter().zip(table) {
        (both, second) = add(v, patches, tables, (both, second));
    }
    (both, second)
}

/// Adds three lookups.
#[inline(always)]
fn add<V: Vectors, const X: usize>(
    v: V,
    [a, b, c]: &[[[u8; LANES]; X]; TRIPLE],
    tables: &[Lanes; TRIPLE],
    (mut both, mut second): ([V::Bytes; X], [V::Bytes; X]),
) -> ([V::Bytes; X], [V::Bytes; X]) {
    let table = v.table(&tables[0].0);
    let mut sums = [v.no_bytes(); X];
    for (sum, places) in sums.iter_mut().zip(a) {
        *sum = v.look_up(table, places);
    }
    for (table, places) in [(&tables[1], b), (&tables[2], c)] {
        let table = v.table(&table.0);
        for (sum, places) in sums.iter_mut().zip(places) {
            *sum = v.add_bytes(*sum, v.look_up(table, places));
        }
    }
    for x in 0..X {
        both[x] = v.add_pairs(both[x], sums[x]);
        second[x] = v.add_bytes(second[x], v.high_halves(sums[x]));
    }
    (both, second)
}

/// Writes the bits of a word of places to the stream that is given.
#[inline(always)]
fn put_stream(sizes: &Sizes, word: usize, bits: &[u64], thresholds: &[Threshold], given: &mut [u64]) {
    let places = sizes.shape.convolved().height * sizes.pitch;
    let kept = low_bits(places - word * PLACES);
    let bits = bits.iter().zip(thresholds);
    let bits = bits.map(|(bits, threshold)| if threshold.flipped { !bits & kept } else { bits & kept });
    if places.is_multiple_of(PLACES) {
        // Each filter has words of its own.
        for (bits, map) in bits.zip(given.chunks_exact_mut(sizes.words)) {
            map[word] = bits;
        }
        return;
    }
    let mut at = word * PLACES;
    for bits in bits {
        let (place, shift) = (at / 64, at % 64);
        given[place] |= bits << shift;
        if shift != 0
            && let Some(next) = given.get_mut(place + 1)
        {
            *next |= bits >> (64 - shift);
        }
        at += places;
    }
}

/// ORs the bits of a word of places into the pooled rows whose window holds them.
#[inline(always)]
fn put_rows(sizes: &Sizes, word: usize, bits: &[u64], given: &mut [u64]) {
    let Map { height, width, .. } = sizes.shape.convolved();
    let rows_left = sizes.shape.output().height;
    let map_words = given.len() / sizes.shape.filters;
    let row_words = map_words / rows_left;
    let (first, end) = (word * PLACES, (word + 1) * PLACES);
    for y in first / sizes.pitch..end.div_ceil(sizes.pitch).min(height) {
        // The part of the row that lies in the word.
        let (start, skipped) = (y * sizes.pitch, first.saturating_sub(y * sizes.pitch));
        if skipped >= width {
            continue;
        }
        let from = (start + skipped) - first;
        let kept = low_bits((width - skipped).min(PLACES - from));
        let (place, shift) = (skipped / 64, skipped % 64);
        let (top, bottom) = pooled_rows(sizes.shape.pool, y, rows_left);
        for (bits, map) in bits.iter().zip(given.chunks_exact_mut(map_words)) {
            let bits = bits >> from & kept;
            for row in map[top * row_words..bottom * row_words].chunks_exact_mut(row_words) {
                row[place] |= bits << shift;
                if shift != 0
                    && let Some(next) = row.get_mut(place + 1)
                {
                    *next |= bits >> (64 - shift);
                }
            }
        }
    }
}
