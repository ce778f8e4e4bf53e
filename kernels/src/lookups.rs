//! Binary weights over bits: products are counted by looking them up.
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
//! does. A half that is left over of an odd number is rounded up or down, whichever leaves the comparison as it is: twice a count,
//! and an odd number, reaches an odd number only if it does with one more than half of that, and an even one only if it does with
//! one less.

use crate::rows::{bits_at, low_bits, or_into, pooled_rows};
use crate::shape::{Convp, Map, Window};
use crate::threshold::Threshold;
use crate::vectors::{BLOCK, Counts, HALF, LANES, Vectors};

/// Channels that one lookup counts.
const CHANNELS: usize = 4;
/// Filters whose counts one table holds.
const FILTERS: usize = 4;
/// Lookups until half a byte is full, `3 * 4 < 16`.
const TRIPLE: usize = 3;
/// Triples in one turn of the loop.
const UNROLLED: usize = 2;
/// Turns until a byte is full, `10 * 2 * 12 < 256`.
const TURNS_MAX: usize = 10;
/// Lookups of one turn.
const TURN: usize = TRIPLE * UNROLLED;
/// Vectors of places that are counted together, as many as registers hold the counts of.
const TOGETHER: usize = 4;
/// Places that are counted together: the bits of a word.
const PLACES: usize = TOGETHER * HALF;
/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;
/// Vectors that counts of four filters are compared with: for first and second ones of the halves, what they have to be above, and
/// whether what twice the count has to reach is odd.
const COMPARED: usize = 4;
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

/// Whether this kernel runs the block.
pub(crate) const fn runs(shape: Convp) -> bool {
    shape.conv.stride == 1 && shape.conv.kernel <= KERNEL_MAX && shape.taps() < i16::MAX as usize
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
    /// Turns of the loop for a filter at a place: its lookups are fours of channels times places of the kernel, and as many more as the
    /// last turn is full of.
    turns: usize,
    /// As many of them as are counted before bytes are full.
    at_once: usize,
    /// Fours of filters.
    groups: usize,
    /// Words of places.
    words: usize,
    /// Words at the top whose places may see rows above the map.
    top: usize,
    /// The first word whose places may see rows below it.
    bottom: usize,
    /// Words between them after which columns lie in words as before; none where words are too few to make a difference.
    patterns: usize,
    /// Places before the first of the map that windows see.
    before: usize,
    /// From the plane of four channels to the next: at least as many places as are read together.
    plane: usize,
}

impl Sizes {
    const fn of(shape: Convp) -> Self {
        let (pitch, kernel) = (pitch(shape), shape.conv.kernel);
        let fours = shape.input.channels.div_ceil(CHANNELS);
        let turns = (fours * kernel * kernel).div_ceil(TURN);
        let words = (shape.convolved().height * pitch).div_ceil(PLACES);
        let plane = shape.input.height * pitch;
        let top = (shape.conv.pad * pitch).div_ceil(PLACES);
        let bottom = shape.convolved().height.saturating_sub(shape.conv.pad) * pitch / PLACES;
        // The pitch over its greatest common divisor with 64.
        let shift = pitch.trailing_zeros();
        let patterns = pitch >> if shift < PLACES.trailing_zeros() { shift } else { PLACES.trailing_zeros() };
        Self {
            shape,
            pitch,
            fours,
            turns,
            // Prepared of one size: emptying the bytes takes as long after a short one.
            at_once: turns.div_ceil(turns.div_ceil(TURNS_MAX)),
            groups: shape.filters.div_ceil(FILTERS),
            words,
            top,
            bottom,
            patterns: if top + patterns < bottom { patterns } else { 0 },
            before: shape.conv.pad * (pitch + 1),
            plane: if plane > PLACES { plane } else { PLACES },
        }
    }

    /// Bytes of all planes: whole ones from wherever a window begins, and whole blocks are written.
    const fn planes(&self) -> usize {
        let begins = self.words * PLACES + (self.shape.conv.kernel - 1) * (self.pitch + 1);
        self.fours * self.plane + begins + self.before + BLOCK
    }

    /// Kinds of words: those of one kind see the same of what is outside.
    const fn kinds(&self) -> usize {
        if self.patterns == 0 { self.words } else { self.top + self.patterns + self.words - self.bottom }
    }

    /// The kind of a word.
    const fn kind(&self, word: usize) -> usize {
        if self.patterns == 0 || word < self.top {
            word
        } else if word < self.bottom {
            self.top + (word - self.top) % self.patterns
        } else {
            self.top + self.patterns + word - self.bottom
        }
    }

    /// The first word of a kind.
    const fn first(&self, kind: usize) -> usize {
        if self.patterns == 0 || kind < self.top + self.patterns {
            kind
        } else {
            self.bottom + kind - self.top - self.patterns
        }
    }

    /// What is absent: for each kind of words and place of the kernel, the vectors of a word.
    const fn masks(&self) -> usize {
        self.kinds() * self.shape.conv.kernel * self.shape.conv.kernel * TOGETHER
    }

    /// What is missing, or half of it where that is whole: for each kind of words and vector, places of even lanes and of odd ones.
    const fn missing(&self) -> usize {
        self.kinds() * TOGETHER * 2
    }
}

/// Lanes of the weights that [`prepare`] and [`prepare_thresholds`] write: tables, masks, what is missing, what counts are compared with.
pub(crate) const fn lanes_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.groups * sizes.turns * TURN + sizes.masks() + sizes.missing() + sizes.groups * COMPARED
}

/// Bytes of one run: the map, a byte a place; what the taps see of a word of places.
pub(crate) const fn bytes_len(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.planes() + sizes.turns * TURN * TOGETHER * LANES + LINE
}

/// Numbers of 16 bits of one run: counts of a word of places.
pub(crate) const fn sums_len(shape: Convp) -> usize {
    (1 + Sizes::of(shape).groups) * TOGETHER * 4 * HALF + LINE / 2
}

/// Words of one run: bits of a word of places.
pub(crate) const fn words_len(shape: Convp) -> usize {
    Sizes::of(shape).groups * FILTERS
}

/// Weights as they are run.
struct Prepared<'a> {
    tables: &'a [Lanes],
    masks: &'a [Lanes],
    missing: &'a [Lanes],
    compared: &'a [Lanes],
}

impl<'a> Prepared<'a> {
    fn of(sizes: &Sizes, lanes: &'a [Lanes]) -> Self {
        let (tables, rest) = lanes.split_at(sizes.groups * sizes.turns * TURN);
        let (masks, rest) = rest.split_at(sizes.masks());
        let (missing, compared) = rest.split_at(sizes.missing());
        Self { tables, masks, missing, compared }
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
        let (place, first) = (step / sizes.fours, step % sizes.fours * CHANNELS);
        (0..CHANNELS).fold(0, |four, at| {
            let channel = first + at;
            let is_set = channel >= channels || weight(filter, channel * kernel * kernel + place);
            four | usize::from(is_set) << at
        })
    };
    let (tables, rest) = lanes.split_at_mut(sizes.groups * sizes.turns * TURN);
    let (masks, rest) = rest.split_at_mut(sizes.masks());
    let (missing, _) = rest.split_at_mut(sizes.missing());
    let mut tables = tables.iter_mut();
    for first in (0..sizes.turns).step_by(sizes.at_once) {
        let end = sizes.turns.min(first + sizes.at_once);
        for group in 0..sizes.groups {
            for step in first * TURN..end * TURN {
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
    let Map { height, width, .. } = shape.input;
    for (at, lanes) in masks.iter_mut().enumerate() {
        let mut mask = [0; LANES];
        let (kind, of_kernel) = (at / TOGETHER / (kernel * kernel), at / TOGETHER % (kernel * kernel));
        let vector = sizes.first(kind) * TOGETHER + at % TOGETHER;
        for (lane, byte) in mask.iter_mut().enumerate() {
            let place = vector * HALF + lane % HALF;
            let (x, y) = (place % sizes.pitch + of_kernel % kernel, place / sizes.pitch + of_kernel / kernel);
            let pad = shape.conv.pad;
            let is_there = (pad..pad + width).contains(&x) && (pad..pad + height).contains(&y);
            *byte = if is_there { 0 } else { ABSENT };
        }
        *lanes = Lanes::of_bytes(&mask);
    }
    // Column and row of a place; none where rows have ended.
    let column = |place: usize| Some(place % sizes.pitch).filter(|&x| x < shape.convolved().width);
    let row = |place: usize| Some(place / sizes.pitch).filter(|&y| y < shape.convolved().height);
    let unit = if halves_are_whole(shape) { 2 } else { 1 };
    for (at, lanes) in missing.iter_mut().enumerate() {
        let (vector, parity) = (sizes.first(at / 2 / TOGETHER) * TOGETHER + at / 2 % TOGETHER, at % 2);
        let missing = |lane: usize| {
            let place = vector * HALF + 2 * (lane % (HALF / 2)) + parity;
            let (x, y) = (column(place)?, row(place)?);
            let seen = seen(x, shape.input.width) * seen(y, shape.input.height);
            Some(((shape.taps() - seen * channels) / unit) as i16)
        };
        *lanes = Lanes(core::array::from_fn(|lane| missing(lane).unwrap_or(0)));
    }
}

/// Writes what counts are compared with.
pub(crate) fn prepare_thresholds(shape: Convp, thresholds: &[Threshold], lanes: &mut [Lanes]) {
    let sizes = Sizes::of(shape);
    let at = lanes.len() - sizes.groups * COMPARED;
    // Twice a count, and what is missing, less all taps, is the sum.
    let least =
        |filter: usize| thresholds.get(filter).map_or(0, |threshold| threshold.from + shape.taps() as i32);
    let (groups, _) = lanes[at..].as_chunks_mut::<COMPARED>();
    for (group, lanes) in groups.iter_mut().enumerate() {
        for (at, lanes) in lanes.iter_mut().enumerate() {
            let (slot, is_parity) = (at % 2, at / 2 == 1);
            let number = |lane: usize| {
                let least = least(group * FILTERS + lane / (HALF / 2) * 2 + slot);
                // A count is too small when it is below half of that.
                (if is_parity { least & 1 } else { (least + 1).div_euclid(2) - 1 }) as i16
            };
            *lanes = Lanes(core::array::from_fn(number));
        }
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

/// The same, cut up.
struct Memory<'a> {
    /// The map, a byte for four channels of each place.
    planes: &'a mut [u8],
    /// What the taps see of a word of places.
    patches: &'a mut [[u8; LANES]],
    /// What is counted from the start, then the counts of each four filters.
    counts: &'a mut [Counts],
    /// A word of places for each filter.
    bits: &'a mut [u64],
}

impl<'a> Memory<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, scratch: &'a mut Scratch<'_>) -> Self {
        let (planes, rest) = scratch.bytes.split_at_mut(sizes.planes());
        // No vector lies in two lines of the cache.
        let unaligned = rest.as_ptr().align_offset(LINE).min(LINE);
        let (patches, _) = rest[unaligned..].as_chunks_mut();
        let unaligned = scratch.sums.as_ptr().align_offset(LINE).min(LINE / 2);
        let (counts, _) = scratch.sums[unaligned..].as_chunks_mut();
        let (counts, _) = counts.as_chunks_mut();
        Self {
            planes,
            patches: &mut patches[..sizes.turns * TURN * TOGETHER],
            counts: &mut counts[..(1 + sizes.groups) * TOGETHER],
            bits: &mut scratch.words[..sizes.groups * FILTERS],
        }
    }
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
    let prepared = Prepared::of(&sizes, lanes);
    let mut memory = Memory::of(&sizes, scratch);
    number_places(v, &sizes, stream, memory.planes);
    let (places, is_stream) = (shape.convolved().height * sizes.pitch, gives_stream(shape));
    for word in 0..sizes.words {
        match (places - word * PLACES).div_ceil(HALF) {
            1 => of_word::<V, 1>(v, &sizes, word, &prepared, &mut memory),
            2 => of_word::<V, 2>(v, &sizes, word, &prepared, &mut memory),
            3 => of_word::<V, 3>(v, &sizes, word, &prepared, &mut memory),
            _ => of_word::<V, TOGETHER>(v, &sizes, word, &prepared, &mut memory),
        }
        if is_stream {
            put_stream(&sizes, word, memory.bits, thresholds, given);
        } else {
            put_rows(&sizes, word, memory.bits, given);
        }
    }
}

/// A byte for four channels of each place, `[four, row, column]`. What lies before, between and after the rows is not looked at.
#[inline(always)]
fn number_places<V: Vectors>(v: V, sizes: &Sizes, stream: &[u64], planes: &mut [u8]) {
    let Map { channels, height, width } = sizes.shape.input;
    let map = height * width;
    // Whole blocks are written: what is too much is written over by what follows.
    let mut at = sizes.before;
    if sizes.pitch == width && map.is_multiple_of(BLOCK) && channels.is_multiple_of(CHANNELS) {
        // Channels have words of their own, and rows lie there as they do here.
        let words = map / BLOCK;
        for maps in stream[..channels * words].chunks_exact(CHANNELS * words) {
            let ((ab, cd), (blocks, _)) = (maps.split_at(2 * words), planes[at..].as_chunks_mut());
            let ((a, b), (c, d)) = (ab.split_at(words), cd.split_at(words));
            for ((((block, a), b), c), d) in blocks.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                v.number([*a, *b, *c, *d], block);
            }
            at += sizes.plane;
        }
        return;
    }
    // Without gaps between rows the map is one long row.
    let (rows, length) = if sizes.pitch == width { (1, map) } else { (height, width) };
    for first in (0..channels).step_by(CHANNELS) {
        for row in 0..rows {
            let (blocks, _) = planes[at + row * sizes.pitch..].as_chunks_mut();
            for (from, block) in (0..length).step_by(BLOCK).zip(blocks) {
                let mut bits = [0; CHANNELS];
                for (bits, channel) in bits.iter_mut().zip(first..channels) {
                    *bits = bits_at(stream, channel * map + row * width + from);
                }
                v.number(bits, block);
            }
        }
        at += sizes.plane;
    }
}

/// What each place of the kernel sees of one word of places, `X` vectors of them.
#[inline(always)]
fn see<V: Vectors, const X: usize>(
    v: V,
    sizes: &Sizes,
    (word, kind): (usize, usize),
    masks: &[Lanes],
    planes: &[u8],
    patches: &mut [[[u8; LANES]; X]],
) {
    let kernel = sizes.shape.conv.kernel;
    let (masks, _) = masks.as_chunks::<TOGETHER>();
    let masks = &masks[kind * kernel * kernel..][..kernel * kernel];
    // As it is; the compiler does not know.
    let stride = sizes.plane.max(PLACES);
    for ((place, masks), patches) in masks.iter().enumerate().zip(patches.chunks_exact_mut(sizes.fours)) {
        let (ky, kx) = (place / kernel, place % kernel);
        let mut planes = &planes[word * PLACES + ky * sizes.pitch + kx..];
        for places in patches {
            let (plane, rest) = planes.split_at(stride);
            let (seen, _) = plane[..PLACES].as_chunks();
            planes = rest;
            for ((places, seen), Lanes(mask)) in places.iter_mut().zip(seen).zip(masks) {
                v.put_twice(seen, mask, places);
            }
        }
    }
}

/// The bits of one word of places, `X` vectors of them, for all filters.
#[inline(always)]
fn of_word<V: Vectors, const X: usize>(
    v: V,
    sizes: &Sizes,
    word: usize,
    prepared: &Prepared<'_>,
    memory: &mut Memory<'_>,
) {
    let (patches, _) = memory.patches[..sizes.turns * TURN * X].as_chunks_mut::<X>();
    let kind = sizes.kind(word);
    see(v, sizes, (word, kind), prepared.masks, memory.planes, patches);

    // What is counted from the start.
    let (counts, _) = memory.counts[..(1 + sizes.groups) * X].as_chunks_mut::<X>();
    let Some((starts, counts)) = counts.split_first_mut() else { return };
    let (compared, _) = prepared.compared.as_chunks::<COMPARED>();
    let (missing, _) = prepared.missing[kind * TOGETHER * 2..].as_chunks();
    let is_even = halves_are_whole(sizes.shape);
    for (start, [Lanes(even), Lanes(odd)]) in starts.iter_mut().zip(missing) {
        *start = [*even, *odd, *even, *odd];
    }
    if !is_even {
        for (counts, [_, _, Lanes(first), Lanes(second)]) in counts.iter_mut().zip(compared) {
            for (counts, start) in counts.iter_mut().zip(&*starts) {
                *counts = half(start, [first, second]);
            }
        }
    }

    let (bits, _) = memory.bits.as_chunks_mut();
    let ((patches, _), (tables, _)) = (patches.as_chunks::<TRIPLE>(), prepared.tables.as_chunks::<TRIPLE>());
    let ((patches, _), mut turns) = (patches.as_chunks::<UNROLLED>(), tables.as_chunks::<UNROLLED>().0);
    let (parts, low) = (sizes.turns.div_ceil(sizes.at_once), v.low_halves());
    for (part, patches) in patches.chunks(sizes.at_once).enumerate() {
        let begins = part == 0 && is_even;
        let (of_part, rest) = turns.split_at(patches.len() * sizes.groups);
        turns = rest;
        let groups = of_part.chunks_exact(patches.len()).zip(&mut *counts);
        if part + 1 < parts {
            for (tables, counts) in groups {
                let (both, second) = count(v, low, patches, tables);
                for x in 0..X {
                    let before = if begins { &starts[x] } else { &counts[x] };
                    let sums = v.counts(both[x], second[x], before);
                    v.put_counts(sums, &mut counts[x]);
                }
            }
            continue;
        }
        for (((tables, counts), [Lanes(below_first), Lanes(below_second), ..]), bits) in
            groups.zip(compared).zip(&mut *bits)
        {
            let (both, second) = count(v, low, patches, tables);
            let before = if begins { &*starts } else { &*counts };
            let mut above = [[v.no_bytes(); X]; 2];
            for x in 0..X {
                let counts = v.counts(both[x], second[x], &before[x]);
                [above[0][x], above[1][x]] = v.above(counts, [below_first, below_second]);
            }
            let [[a, c], [b, d]] = [v.bits(&above[0]), v.bits(&above[1])];
            *bits = [a, b, c, d];
        }
    }
}

/// Whether half of what is missing at a place is a whole number.
const fn halves_are_whole(shape: Convp) -> bool {
    shape.conv.pad == 0 || shape.input.channels.is_multiple_of(2)
}

/// Half of what is missing, one more than that where what twice the count has to reach is odd.
#[inline(always)]
fn half(missing: &Counts, is_odd: [&[i16; HALF]; 2]) -> Counts {
    let mut half = *missing;
    for (at, half) in half.iter_mut().enumerate() {
        for (half, is_odd) in half.iter_mut().zip(is_odd[at / 2]) {
            *half = (*half + is_odd) >> 1;
        }
    }
    half
}

/// What three lookups see of vectors of places.
type Seen<const X: usize> = [[[u8; LANES]; X]; TRIPLE];

/// Sums of both filters of a half, and of the second one, over some turns.
#[inline(always)]
fn count<V: Vectors, const X: usize>(
    v: V,
    low: V::Bytes,
    patches: &[[Seen<X>; UNROLLED]],
    tables: &[[[Lanes; TRIPLE]; UNROLLED]],
) -> ([V::Bytes; X], [V::Bytes; X]) {
    let (mut both, mut second) = ([v.no_bytes(); X], [v.no_bytes(); X]);
    let mut turns = patches.iter().zip(tables);
    // Nothing is added in the first turn but its own sums.
    let Some(([first, next], [table, next_table])) = turns.next() else { return (both, second) };
    let (first, next) = (triple(v, first, table), triple(v, next, next_table));
    for x in 0..X {
        both[x] = v.add_pairs(first[x], next[x]);
        second[x] = v.add_bytes(v.high_halves(first[x], low), v.high_halves(next[x], low));
    }
    for (patches, tables) in turns {
        for (patches, tables) in patches.iter().zip(tables) {
            let sums = triple(v, patches, tables);
            for x in 0..X {
                both[x] = v.add_pairs(both[x], sums[x]);
                second[x] = v.add_bytes(second[x], v.high_halves(sums[x], low));
            }
        }
    }
    (both, second)
}

/// Sums of three lookups.
#[inline(always)]
fn triple<V: Vectors, const X: usize>(v: V, [a, b, c]: &Seen<X>, tables: &[Lanes; TRIPLE]) -> [V::Bytes; X] {
    let mut sums = [v.no_bytes(); X];
    let table = v.table(&tables[0].0);
    for (sum, places) in sums.iter_mut().zip(a) {
        *sum = v.look_up(table, places);
    }
    for (table, places) in [(&tables[1], b), (&tables[2], c)] {
        let table = v.table(&table.0);
        for (sum, places) in sums.iter_mut().zip(places) {
            *sum = v.add_bytes(*sum, v.look_up(table, places));
        }
    }
    sums
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
        let of_filters = bits.iter().zip(given.chunks_exact_mut(map_words));
        if row_words == 1 {
            let of_filters = of_filters.map(|(bits, map)| ((bits >> from & kept) << skipped, map));
            // Written out for the one and two that a pooling has.
            match bottom - top {
                1 => of_filters.for_each(|(bits, map)| map[top] |= bits),
                2 => of_filters.for_each(|(bits, map)| or_into(bits, &mut map[top..top + 2])),
                _ => of_filters.for_each(|(bits, map)| or_into(bits, &mut map[top..bottom])),
            }
            continue;
        }
        for (bits, map) in of_filters {
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
