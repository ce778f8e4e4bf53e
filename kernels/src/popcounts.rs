//! Binary weights over bits, counted word by word: eight places at once, where an instruction counts the bits of eight words.
//!
//! 64 channels of a place lie in a word, so what a place sees of the map is a few words: nine for a 3x3 kernel over 64 channels.
//! Equal bits multiply to +1, different ones to -1, so a sum of products is what is seen less twice the bits that differ. What
//! eight places see stays in registers while all filters pass by: three instructions, an exclusive or, a count, an addition, for 64
//! taps of eight places, 512 products.
//!
//! A tap outside the map is masked, in the same instruction as the exclusive or: it is no +1 and no -1. Half of what is missing at a
//! place is counted from the start, so that a comparison with one number serves all places.
//!
//! Words that are half empty take as long as full ones, so few channels are left to [`lookups`](crate::lookups).

use crate::places::{self, PLACES, Places};
use crate::rows::{bits_at, low_bits};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;
use crate::vectors::{Popcounts, WORDS};

/// Most words of what a place sees that are counted before the next filters are: they stay in registers, and their masks too.
const WORDS_MAX: usize = 9;
/// Vectors of places in a word of their bits.
const VECTORS: usize = PLACES / WORDS;
/// Channels of a word.
const CHANNELS: usize = 64;
/// Words up to the next line of the cache.
const LINE_WORDS: usize = 8;

/// A word for each of eight places.
type Words = [u64; WORDS];

/// Fewest channels that are faster counted than looked up (docs/results/kernels.md).
const CHANNELS_MIN: usize = 48;

/// Whether this kernel runs the block.
pub(crate) const fn runs(shape: Convp) -> bool {
    places::runs(shape) && shape.input.channels >= CHANNELS_MIN
}

/// What a run asks for again and again, worked out once.
#[derive(Clone, Copy)]
struct Sizes {
    places: Places,
    /// Words of the channels of a place.
    deep: usize,
    /// Words of what a place sees, rounded up to `at_once`.
    seen: usize,
    /// As many of them as are counted before the next filters are.
    at_once: usize,
    /// Binary digits of what a place is missing.
    digits: usize,
    /// Words of bits before the first of the map.
    lead: usize,
    /// Words of bits of a channel, with what is seen before and after the map.
    run: usize,
}

impl Sizes {
    const fn of(shape: Convp) -> Self {
        let (places, kernel) = (Places::of(shape), shape.conv.kernel);
        let deep = shape.input.channels.div_ceil(CHANNELS);
        let seen = kernel * kernel * deep;
        let at_once = seen.div_ceil(seen.div_ceil(WORDS_MAX));
        let lead = places.before().div_ceil(PLACES);
        // Whole words of places see, whole vectors of them at a time.
        let read = (places.words + lead) * PLACES + (kernel - 1) * (places.pitch + 1);
        let written = lead * PLACES + shape.input.height * places.pitch;
        Self {
            places,
            deep,
            seen: seen.next_multiple_of(at_once),
            at_once,
            digits: (usize::BITS - shape.taps().leading_zeros()) as usize,
            lead,
            run: (if read > written { read } else { written }).div_ceil(PLACES),
        }
    }

    /// Places of the kernel.
    const fn window(&self) -> usize {
        self.places.shape.conv.kernel * self.places.shape.conv.kernel
    }

    /// Words of the weights of all filters.
    const fn weights(&self) -> usize {
        self.places.shape.filters * self.seen
    }

    /// Words that say what is outside.
    const fn outside(&self) -> usize {
        self.window() + self.places.words * (self.window() + self.digits + 1)
    }

    /// Words of all places turned.
    const fn turned(&self) -> usize {
        self.deep * self.run * PLACES
    }
}

/// Words that [`prepare`] and [`prepare_thresholds`] write: weights, what is outside, what counts are compared with.
pub(crate) const fn weights_words(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.weights() + sizes.outside() + 2 * shape.filters
}

/// Words of one run: places turned, what eight of them see and which of it is on the map, counts, bits.
pub(crate) const fn words(shape: Convp) -> usize {
    let sizes = Sizes::of(shape);
    sizes.turned() + (2 * sizes.seen + shape.filters) * WORDS + shape.filters + LINE_WORDS
}

/// Bytes of one run: bits of eight places, a word of them for each filter.
pub(crate) const fn bytes_len(shape: Convp) -> usize {
    shape.filters * VECTORS
}

/// Lays weights `[filters, channels, kernel, kernel]` out as they are run, `[words counted at once, filter, word]`, and finds out where the
/// padding is.
pub(crate) fn prepare(shape: Convp, weight: impl Fn(usize, usize) -> bool, words: &mut [u64]) {
    let sizes = Sizes::of(shape);
    let window = sizes.window();
    let (weights, rest) = words.split_at_mut(sizes.weights());
    weights.fill(0);
    for filter in 0..shape.filters {
        for of_kernel in 0..window {
            for channel in 0..shape.input.channels {
                let (word, bit) = (channel / CHANNELS * window + of_kernel, channel % CHANNELS);
                let (part, of_part) = (word / sizes.at_once, word % sizes.at_once);
                let place = (part * shape.filters + filter) * sizes.at_once + of_part;
                weights[place] |= u64::from(weight(filter, channel * window + of_kernel)) << bit;
            }
        }
    }
    let (offsets, rest) = rest.split_at_mut(window);
    for (of_kernel, offset) in offsets.iter_mut().enumerate() {
        let (ky, kx) = (of_kernel / shape.conv.kernel, of_kernel % shape.conv.kernel);
        *offset = (ky * sizes.places.pitch + kx) as u64;
    }
    let (kept, rest) = rest.split_at_mut(sizes.places.words * window);
    let missing = &mut rest[..sizes.places.words * (sizes.digits + 1)];
    sizes.places.find_outside(kept, missing);
}

/// Writes what may differ at most: for each filter where half of what is missing is a whole number, then where it is not.
pub(crate) fn prepare_thresholds(shape: Convp, thresholds: &[Threshold], words: &mut [u64]) {
    let at = words.len() - 2 * shape.filters;
    let (whole, halves) = words[at..].split_at_mut(shape.filters);
    for ((whole, halves), threshold) in whole.iter_mut().zip(halves).zip(thresholds) {
        // Twice what differs, and what is missing, is at most that. Without the half, it is one less.
        let most = i64::from(shape.taps() as i32 - threshold.from);
        *whole = (most >> 1).cast_unsigned();
        *halves = ((most - 1) >> 1).cast_unsigned();
    }
}

/// What is outside.
struct Outside<'a> {
    /// From the first place that a window sees to that which each place of the kernel does.
    offsets: &'a [u64],
    /// Which places of a word see something on the map there, `[word, place of the kernel]`.
    kept: &'a [u64],
    /// Digits of what each place is missing, `[word, digit]`.
    missing: &'a [u64],
}

impl<'a> Outside<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, words: &'a [u64]) -> Self {
        let (offsets, rest) = words.split_at(sizes.window());
        let (kept, missing) = rest.split_at(sizes.places.words * sizes.window());
        Self { offsets, kept, missing }
    }
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// As many as [`words`] says.
    pub(crate) words: &'a mut [u64],
    /// As many as [`bytes_len`] says.
    pub(crate) bytes: &'a mut [u8],
}

/// The same, cut up.
struct Memory<'a> {
    /// The channels of places, `[word of channels, place]`.
    turned: &'a mut [u64],
    /// What eight places see.
    seen: &'a mut [Words],
    /// Which of it lies on the map.
    kept: &'a mut [Words],
    /// What differs, for each filter.
    counts: &'a mut [Words],
    /// A word of places for each filter, eight at a time.
    bytes: &'a mut [[u8; VECTORS]],
    /// The same as words.
    bits: &'a mut [u64],
}

impl<'a> Memory<'a> {
    #[inline(always)]
    fn of(sizes: &Sizes, scratch: &'a mut Scratch<'_>) -> Self {
        let filters = sizes.places.shape.filters;
        let (turned, rest) = scratch.words.split_at_mut(sizes.turned());
        let (bits, rest) = rest.split_at_mut(filters);
        // No vector lies in two lines of the cache.
        let unaligned = rest.as_ptr().align_offset(size_of::<[u64; LINE_WORDS]>()).min(LINE_WORDS);
        let (rest, _) = rest[unaligned..].as_chunks_mut();
        let (seen, rest) = rest.split_at_mut(sizes.seen);
        let (bytes, _) = scratch.bytes[..filters * VECTORS].as_chunks_mut();
        let (kept, counts) = rest.split_at_mut(sizes.seen);
        Self { turned, seen, kept, counts: &mut counts[..filters], bytes, bits }
    }
}

/// Runs convolution, comparison and the pooling down. `stream` is `[channels, height, width]` without gaps; so is what is `given` where
/// [`gives_stream`](crate::places::gives_stream) says so, and otherwise `[filters, pooled rows, row words]`, not yet turned round where
/// thresholds are. It is zero at first.
#[inline(always)]
pub(crate) fn convolve<P: Popcounts>(
    p: P,
    shape: Convp,
    stream: &[u64],
    weights: &[u64],
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    given: &mut [u64],
) {
    let sizes = Sizes::of(shape);
    let mut memory = Memory::of(&sizes, scratch);
    turn(p, &sizes, stream, memory.turned);
    // What rounds the words up is nowhere on the map.
    memory.kept[sizes.window() * sizes.deep..].fill([0; WORDS]);
    let (weights, rest) = weights.split_at(sizes.weights());
    let (outside, most) = rest.split_at(sizes.outside());
    let (outside, filters) =
        (Outside::of(&sizes, outside), Filters { weights, most: most.split_at(shape.filters) });
    let places = shape.convolved().height * sizes.places.pitch;
    for word in 0..sizes.places.words {
        // What lies after the last place is left as it was; it is not looked at.
        for vector in 0..(places - word * PLACES).div_ceil(WORDS).min(VECTORS) {
            see(p, &sizes, (word, vector), &outside, &mut memory);
            let missing = missing(p, &sizes, (word, vector), &outside);
            match sizes.at_once {
                1 => count::<P, 1>(p, &filters, vector, missing, &mut memory),
                2 => count::<P, 2>(p, &filters, vector, missing, &mut memory),
                3 => count::<P, 3>(p, &filters, vector, missing, &mut memory),
                4 => count::<P, 4>(p, &filters, vector, missing, &mut memory),
                5 => count::<P, 5>(p, &filters, vector, missing, &mut memory),
                6 => count::<P, 6>(p, &filters, vector, missing, &mut memory),
                7 => count::<P, 7>(p, &filters, vector, missing, &mut memory),
                8 => count::<P, 8>(p, &filters, vector, missing, &mut memory),
                _ => count::<P, WORDS_MAX>(p, &filters, vector, missing, &mut memory),
            }
        }
        for (bits, bytes) in memory.bits.iter_mut().zip(&*memory.bytes) {
            *bits = u64::from_le_bytes(*bytes);
        }
        sizes.places.put(word, memory.bits, thresholds, given);
    }
}

/// Turns bits `[channel, place]` to `[place, channel]`. What lies before, between and after the rows is not looked at.
#[inline(always)]
fn turn<P: Popcounts>(p: P, sizes: &Sizes, stream: &[u64], turned: &mut [u64]) {
    let Map { channels, height, width } = sizes.places.shape.input;
    let (map, pitch) = (height * width, sizes.places.pitch);
    for (deep, turned) in turned.chunks_exact_mut(sizes.run * PLACES).enumerate() {
        let (blocks, _) = turned[sizes.lead * PLACES..].as_chunks_mut::<PLACES>();
        let channels = deep * CHANNELS..channels.min((deep + 1) * CHANNELS);
        for (word, block) in blocks.iter_mut().take((height * pitch).div_ceil(PLACES)).enumerate() {
            let rows = block.iter_mut();
            if pitch != width {
                let spread = |channel| spread(sizes, stream, channel, word * PLACES);
                rows.zip(channels.clone()).for_each(|(row, channel)| *row = spread(channel));
            } else if map.is_multiple_of(PLACES) {
                // Channels have words of their own, and rows lie there as they do here.
                let words = map / PLACES;
                let of_word = stream[channels.start * words + word..].iter().step_by(words);
                rows.zip(of_word.take(channels.len())).for_each(|(row, word)| *row = *word);
            } else {
                // Without gaps between rows the map is one long row.
                let bits = |channel: usize| bits_at(stream, channel * map + word * PLACES);
                rows.zip(channels.clone()).for_each(|(row, channel)| *row = bits(channel));
            }
            block[channels.len()..].fill(0);
            transpose(p, block);
        }
    }
}

/// The 64 places of a channel from one on, with gaps between rows.
fn spread(sizes: &Sizes, stream: &[u64], channel: usize, from: usize) -> u64 {
    let (Map { height, width, .. }, pitch) = (sizes.places.shape.input, sizes.places.pitch);
    let mut bits = 0;
    for row in from / pitch..(from + PLACES).div_ceil(pitch).min(height) {
        let (start, skipped) = (row * pitch, from.saturating_sub(row * pitch));
        if skipped < width {
            let at = (channel * height + row) * width + skipped;
            bits |= (bits_at(stream, at) & low_bits(width - skipped)) << (start + skipped - from);
        }
    }
    bits
}

/// A square of bits, rows to columns: squares beside the diagonal change places, smaller ones each time (Hacker's Delight, 7-3).
#[inline(always)]
fn transpose<P: Popcounts>(p: P, square: &mut [u64; 64]) {
    swap::<32>(square, 0x0000_0000_ffff_ffff);
    swap::<16>(square, 0x0000_ffff_0000_ffff);
    swap::<8>(square, 0x00ff_00ff_00ff_00ff);
    for rows in square.as_chunks_mut().0 {
        p.put(p.transposed(p.words(rows)), rows);
    }
}

/// Swaps squares of so many rows.
#[inline(always)]
fn swap<const SIDE: usize>(rows: &mut [u64; 64], low: u64) {
    for rows in rows.chunks_exact_mut(2 * SIDE) {
        let (upper, lower) = rows.split_at_mut(SIDE);
        for (upper, lower) in upper.iter_mut().zip(lower) {
            let up = *upper & low | (*lower & low) << SIDE;
            *lower = *lower & !low | *upper >> SIDE & low;
            *upper = up;
        }
    }
}

/// What eight places see, and which of it lies on the map.
#[inline(always)]
fn see<P: Popcounts>(
    p: P,
    sizes: &Sizes,
    (word, vector): (usize, usize),
    outside: &Outside<'_>,
    memory: &mut Memory<'_>,
) {
    let first = (word + sizes.lead) * PLACES - sizes.places.before() + vector * WORDS;
    let kept = &outside.kept[word * outside.offsets.len()..][..outside.offsets.len()];
    let mut to = memory.seen.iter_mut().zip(&mut *memory.kept);
    for deep in 0..sizes.deep {
        let turned = &memory.turned[deep * sizes.run * PLACES + first..];
        for ((offset, kept), (to_seen, to_kept)) in outside.offsets.iter().zip(kept).zip(&mut to) {
            if let Some(seen) = turned[*offset as usize..].first_chunk() {
                *to_seen = *seen;
            }
            p.put(p.where_set((kept >> (vector * WORDS)) as u8, u64::MAX), to_kept);
        }
    }
}

/// Half of what each of eight places is missing, and at which of them a half is left over.
#[inline(always)]
fn missing<P: Popcounts>(
    p: P,
    sizes: &Sizes,
    (word, vector): (usize, usize),
    outside: &Outside<'_>,
) -> (P::Words, u8) {
    let digits = outside.missing[word * (sizes.digits + 1)..][..sizes.digits + 1].iter();
    let mut digits = digits.map(|digit| (digit >> (vector * WORDS)) as u8);
    let odd = digits.next().unwrap_or(0);
    let mut half = p.where_set(0, 0);
    for (digit, places) in digits.enumerate() {
        half = p.or(half, p.where_set(places, 1 << digit));
    }
    (half, odd)
}

/// Filters as they are run.
struct Filters<'a> {
    weights: &'a [u64],
    /// What may differ at most, where half of what is missing is a whole number and where it is not.
    most: (&'a [u64], &'a [u64]),
}

/// The bits of eight places for all filters, `N` words of what they see at a time.
#[inline(always)]
fn count<P: Popcounts, const N: usize>(
    p: P,
    filters: &Filters<'_>,
    vector: usize,
    (missing, odd): (P::Words, u8),
    memory: &mut Memory<'_>,
) {
    let (of_seen, _) = memory.seen.as_chunks::<N>();
    let (of_kept, _) = memory.kept.as_chunks::<N>();
    let (weights, _) = filters.weights.as_chunks::<N>();
    let (parts, vector) = (of_seen.len(), vector % VECTORS);
    let of_parts = of_seen.iter().zip(of_kept).zip(weights.chunks_exact(memory.bytes.len()));
    for (part, ((of_seen, of_kept), weights)) in of_parts.enumerate() {
        let (mut seen, mut kept) = ([missing; N], [missing; N]);
        for word in 0..N {
            seen[word] = p.words(&of_seen[word]);
            kept[word] = p.words(&of_kept[word]);
        }
        let of_filters = weights.iter().zip(&mut *memory.counts);
        if part + 1 < parts {
            for (weights, counts) in of_filters {
                let start = if part == 0 { missing } else { p.words(counts) };
                p.put(add_different(p, start, &seen, weights, &kept), counts);
            }
            continue;
        }
        let (whole, halves) = filters.most;
        let of_filters = of_filters.zip(&mut *memory.bytes);
        if odd == 0 {
            for (((weights, counts), bytes), most) in of_filters.zip(whole) {
                let start = if part == 0 { missing } else { p.words(counts) };
                let count = add_different(p, start, &seen, weights, &kept);
                bytes[vector] = p.at_most(count, most.cast_signed());
            }
            continue;
        }
        for (((weights, counts), bytes), (most, less)) in of_filters.zip(whole.iter().zip(halves)) {
            let start = if part == 0 { missing } else { p.words(counts) };
            let count = add_different(p, start, &seen, weights, &kept);
            let (most, less) = (p.at_most(count, most.cast_signed()), p.at_most(count, less.cast_signed()));
            bytes[vector] = most & !odd | less & odd;
        }
    }
}

/// Adds what differs in `N` words.
#[inline(always)]
fn add_different<P: Popcounts, const N: usize>(
    p: P,
    mut sum: P::Words,
    seen: &[P::Words; N],
    weights: &[u64; N],
    kept: &[P::Words; N],
) -> P::Words {
    for word in 0..N {
        sum = p.add_different(sum, seen[word], weights[word], kept[word]);
    }
    sum
}
