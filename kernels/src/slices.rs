//! Binary weights over bits, counted in slices: one word holds one bit of the count of many places.
//!
//! The products of a tap that are +1, over a tile of 256 places, are one row of bits, and a full adder of logical instructions counts three
//! such rows in two: their sum and their carry (carry-save adders, as in the population count of Harley and Seal). A count is then
//! as many rows as it has binary digits. Three taps with their three signs have only eight sums, so sum and carry of each three are
//! made once for all filters, and a filter adds up one of the eight per channel and kernel row: some 3.5 logical
//! instructions a tap for 256 places, where counting the bits of words takes three for each 64 products; every processor has them.
//!
//! Places lie one behind the other, row after row, and what a tap sees of them is the map itself, moved by so many bits. Where that
//! runs over the end of a row, or lies outside, it is masked: padding is no +1. It is no -1 either, so half of what is missing is
//! counted as +1 from the start, and a comparison with one number serves all places.

use crate::places::pitch;
use crate::rows::{bits_at, low_bits, or_into, pool_down, pooled_rows};
use crate::shape::{Convp, Map};
use crate::threshold::Threshold;

/// Places that are worked on at once.
const TILE: usize = 256;
/// Words of a tile.
const TILE_WORDS: usize = TILE / 64;
/// One bit for each place of a tile.
type Row = [u64; TILE_WORDS];
const NO_BITS: Row = [0; TILE_WORDS];
const ALL_BITS: Row = [u64::MAX; TILE_WORDS];

/// Taps that one table sums.
const GROUP: usize = 3;
/// Signs of a group.
const SIGNS: usize = 1 << GROUP;
/// Groups that are counted at once.
const TOGETHER: usize = 8;
/// Most binary digits of a count.
const DIGITS_MAX: usize = 15;
/// Digits that the adders of one round reach.
const DIGITS_MIN: usize = 5;
/// Words up to the next line of the cache.
const LINE_WORDS: usize = 8;

/// The sums of three taps with each of their signs: the row of ones, then the row of twos.
type Sums = [[Row; 2]; SIGNS];
const SUMS_WORDS: usize = SIGNS * 2 * TILE_WORDS;

/// Groups of a kernel row.
const fn groups(shape: Convp) -> usize {
    shape.conv.kernel.div_ceil(GROUP)
}

/// Groups of the kernel, rounded up to what is counted at once.
const fn all_groups(shape: Convp) -> usize {
    (shape.input.channels * shape.conv.kernel * groups(shape)).next_multiple_of(TOGETHER)
}

const fn tiles(shape: Convp) -> usize {
    (shape.convolved().height * pitch(shape)).div_ceil(TILE)
}

/// Binary digits of a count.
const fn digits(shape: Convp) -> usize {
    let digits = (usize::BITS - shape.taps().leading_zeros()) as usize;
    if digits > DIGITS_MIN { digits } else { DIGITS_MIN }
}

/// Words of one channel as one run of bits, with the padding before the first row, and as far as the last tile reads.
const fn run_words(shape: Convp) -> usize {
    let last = shape.conv.kernel - 1;
    let read = tiles(shape) * TILE + last * pitch(shape) + last;
    let written = shape.conv.pad * (pitch(shape) + 1) + shape.input.height * pitch(shape);
    (if read > written { read } else { written }).div_ceil(64) + 2
}

/// Words of the bits of one filter over all places, and one more so that a row may be read past its end.
const fn stream_words(shape: Convp) -> usize {
    tiles(shape) * TILE_WORDS + 1
}

/// Words that [`prepare`] writes, the same for all filters: which places see a kernel row, which see a kernel column, and the digits of
/// twice what a place is missing.
pub(crate) const fn masks_words(shape: Convp) -> usize {
    (2 * shape.conv.kernel + digits(shape) + 1) * tiles(shape) * TILE_WORDS
}

/// Signs that [`prepare`] writes: one byte a group, `[filters, channel, kernel row, group]`.
pub(crate) const fn signs_len(shape: Convp) -> usize {
    shape.filters * all_groups(shape)
}

/// Words of one run: the channels as runs of bits, the bits of all filters, the sums of a tile.
pub(crate) const fn words(shape: Convp) -> usize {
    shape.input.channels * run_words(shape)
        + shape.filters * stream_words(shape)
        + all_groups(shape) * SUMS_WORDS
        + LINE_WORDS
}

/// Gathers the signs of each group from weights `[filters, channels, kernel, kernel]`, and finds out where the padding is.
pub(crate) fn prepare(
    shape: Convp,
    weight: impl Fn(usize, usize) -> bool,
    masks: &mut [u64],
    signs: &mut [u8],
) {
    let (kernel, channels) = (shape.conv.kernel, shape.input.channels);
    signs.fill(0);
    for (filter, signs) in signs.chunks_exact_mut(all_groups(shape)).enumerate() {
        for (at, signs) in signs.iter_mut().enumerate().take(channels * kernel * groups(shape)) {
            let (row, group) = (at / groups(shape), at % groups(shape));
            let taps = (group * GROUP..kernel).take(GROUP).enumerate();
            *signs = taps
                .fold(0, |signs, (place, kx)| signs | u8::from(weight(filter, row * kernel + kx)) << place);
        }
    }
    masks.fill(0);
    let Map { height, width, .. } = shape.convolved();
    let of_one = tiles(shape) * TILE_WORDS;
    let (seen, missing) = masks.split_at_mut(2 * kernel * of_one);
    let set = |mask: &mut [u64], place: usize| mask[place / 64] |= 1 << (place % 64);
    for y in 0..height {
        let (top, bottom) = shape.conv.inside(y, shape.input.height);
        for x in 0..width {
            let (left, right) = shape.conv.inside(x, shape.input.width);
            let place = y * pitch(shape) + x;
            for ky in top..bottom {
                set(&mut seen[ky * of_one..][..of_one], place);
            }
            for kx in left..right {
                set(&mut seen[(kernel + kx) * of_one..][..of_one], place);
            }
            let absent = shape.taps() - (bottom - top) * (right - left) * channels;
            for (digit, mask) in missing.chunks_exact_mut(of_one).enumerate() {
                if absent >> digit & 1 == 1 {
                    set(mask, place);
                }
            }
        }
    }
}

/// What a run asks for again and again, worked out once.
#[derive(Clone, Copy)]
struct Sizes {
    shape: Convp,
    /// Groups of a kernel row, and of the kernel, rounded up.
    groups: usize,
    all_groups: usize,
    pitch: usize,
    tiles: usize,
    digits: usize,
    run_words: usize,
    stream_words: usize,
    /// Words of one mask.
    mask_words: usize,
}

impl Sizes {
    fn of(shape: Convp) -> Self {
        Self {
            shape,
            groups: groups(shape),
            all_groups: all_groups(shape),
            pitch: pitch(shape),
            tiles: tiles(shape),
            digits: digits(shape),
            run_words: run_words(shape),
            stream_words: stream_words(shape),
            mask_words: tiles(shape) * TILE_WORDS,
        }
    }
}

/// Memory of one run.
pub(crate) struct Scratch<'a> {
    /// As many as [`words`] says.
    pub(crate) words: &'a mut [u64],
    /// One convolved row.
    pub(crate) row: &'a mut [u64],
}

/// Runs convolution, comparison and the pooling down. `map` is `[channels, height, row words]` with its row words; `pooled` is
/// `[filters, pooled rows, row words]`, zero at first.
#[inline(always)]
pub(crate) fn convolve(
    shape: Convp,
    map: (&[u64], usize),
    (masks, signs): (&[u64], &[u8]),
    thresholds: &[Threshold],
    scratch: &mut Scratch<'_>,
    pooled: &mut [u64],
) {
    let sizes = Sizes::of(shape);
    let (runs, rest) = scratch.words.split_at_mut(shape.input.channels * sizes.run_words);
    let (streams, sums) = rest.split_at_mut(shape.filters * sizes.stream_words);
    // No row of the sums lies in two lines of the cache.
    let unaligned = sums.as_ptr().align_offset(size_of::<[u64; LINE_WORDS]>()).min(LINE_WORDS);
    let (rows, _) = sums[unaligned..].as_chunks_mut::<TILE_WORDS>();
    let (rows, _) = rows.as_chunks_mut::<2>();
    let (sums, _) = rows.as_chunks_mut::<SIGNS>();
    let sums = &mut sums[..sizes.all_groups];

    lay_out(&sizes, map, runs);
    let (seen, missing) = masks.split_at(2 * shape.conv.kernel * sizes.mask_words);
    for tile in 0..sizes.tiles {
        add_groups(&sizes, runs, seen, tile, sums);
        // Twice the half of what is missing: its lowest digit is a half.
        let mut start = [NO_BITS; DIGITS_MAX + 1];
        for (start, missing) in start.iter_mut().zip(missing.chunks_exact(sizes.mask_words)) {
            *start = *row_at(missing, tile);
        }
        let of_filters = signs.chunks_exact(sizes.all_groups).zip(thresholds);
        for ((signs, threshold), stream) in of_filters.zip(streams.chunks_exact_mut(sizes.stream_words)) {
            // A sum is twice the products that are +1, less the taps on the map: with half of what is missing counted as +1, less
            // all taps.
            let [half, mut count @ ..] = start;
            count_up(sizes.digits, sums, signs, &mut count);
            let bits = reaches(threshold.from + shape.taps() as i32, half, &count[..sizes.digits]);
            if let Some(words) = stream[tile * TILE_WORDS..].first_chunk_mut() {
                *words = bits;
            }
        }
    }
    take_rows(&sizes, streams, scratch.row, pooled);
}

/// The row that begins so many bits after the first word, fewer than 64.
#[inline(always)]
fn moved(words: &[u64; TILE_WORDS + 1], by: u32) -> Row {
    let mut row = NO_BITS;
    for (place, row) in row.iter_mut().enumerate() {
        // A shift by 64 is none.
        *row = words[place] >> by | words[place + 1] << 1 << (63 - by);
    }
    row
}

#[inline(always)]
fn xor(mut a: Row, b: Row) -> Row {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
    a
}

#[inline(always)]
fn and(mut a: Row, b: Row) -> Row {
    a.iter_mut().zip(b).for_each(|(a, b)| *a &= b);
    a
}

#[inline(always)]
fn or(mut a: Row, b: Row) -> Row {
    a.iter_mut().zip(b).for_each(|(a, b)| *a |= b);
    a
}

/// `a & !b`.
#[inline(always)]
fn and_not(mut a: Row, b: Row) -> Row {
    a.iter_mut().zip(b).for_each(|(a, b)| *a &= !b);
    a
}

/// The words of a tile.
#[inline(always)]
fn row_at(words: &[u64], tile: usize) -> &Row {
    let (rows, _) = words.as_chunks();
    &rows[tile]
}

/// The sums of every group over one tile.
#[inline(always)]
fn add_groups(sizes: &Sizes, runs: &[u64], seen: &[u64], tile: usize, sums: &mut [Sums]) {
    let (kernel, of_one) = (sizes.shape.conv.kernel, sizes.mask_words);
    let (rows_seen, columns_seen) = seen.split_at(kernel * of_one);
    let mut sums = sums.iter_mut();
    for run in runs.chunks_exact(sizes.run_words) {
        for (ky, row_seen) in rows_seen.chunks_exact(of_one).enumerate() {
            let row_seen = *row_at(row_seen, tile);
            for group in 0..sizes.groups {
                let mut positive = [NO_BITS; GROUP];
                let mut negative = [NO_BITS; GROUP];
                for place in 0..GROUP.min(kernel - group * GROUP) {
                    let kx = group * GROUP + place;
                    let column_seen = *row_at(&columns_seen[kx * of_one..], tile);
                    let is_seen = and(row_seen, column_seen);
                    let from = tile * TILE + ky * sizes.pitch + kx;
                    let Some(words) = run[from / 64..].first_chunk() else { return };
                    let bits = moved(words, (from % 64) as u32);
                    positive[place] = and(is_seen, bits);
                    negative[place] = and_not(is_seen, bits);
                }
                let Some(sums) = sums.next() else { return };
                all_signs(positive, negative, sums);
            }
        }
    }
    // What rounds the groups up.
    for sums in sums {
        *sums = [[[0; TILE_WORDS]; 2]; SIGNS];
    }
}

/// Ones and twos of three taps; bit `i` of the index is the sign of tap `i`.
#[inline(always)]
fn all_signs(positive: [Row; GROUP], negative: [Row; GROUP], sums: &mut Sums) {
    for signs in 0..SIGNS / 2 {
        let a = if signs & 1 == 1 { positive[0] } else { negative[0] };
        let b = if signs & 2 == 2 { positive[1] } else { negative[1] };
        let (either, both) = (xor(a, b), and(a, b));
        for (signs, c) in [(signs, negative[2]), (signs | 4, positive[2])] {
            sums[signs][0] = xor(either, c);
            sums[signs][1] = or(both, and(either, c));
        }
    }
}

/// Sum and carry of three rows.
#[inline(always)]
fn add(a: Row, b: Row, c: Row) -> (Row, Row) {
    let either = xor(a, b);
    (xor(either, c), or(and(a, b), and(either, c)))
}

/// Sum and carry of two rows.
#[inline(always)]
fn add_two(a: Row, b: Row) -> (Row, Row) {
    (xor(a, b), and(a, b))
}

/// Ones and twos of a group with its signs.
#[inline(always)]
fn entry(sums: &Sums, signs: u8) -> (Row, Row) {
    let [ones, twos] = &sums[usize::from(signs) % SIGNS];
    (*ones, *twos)
}

/// Counts, for one filter over a tile, the products that are +1 on top of `count`, digit by digit.
#[inline(always)]
fn count_up(digits: usize, sums: &[Sums], signs: &[u8], count: &mut [Row; DIGITS_MAX]) {
    let [mut ones, mut twos, mut fours, mut eights, mut sixteens, ..] = *count;
    // Carries out of the sixteens and above wait here for a second one, so that two are added at once: as in a binary counter, the
    // one of digit `d` waits while bit `d` of the number of rounds is set.
    let mut waiting = [NO_BITS; DIGITS_MAX];
    let (sums, _) = sums.as_chunks::<TOGETHER>();
    let (signs, _) = signs.as_chunks::<TOGETHER>();
    let mut rounds = 0usize;
    for (sums, signs) in sums.iter().zip(signs) {
        // Carries are used up as soon as there are two of them: few rows are in use at any time.
        let mut over = [NO_BITS; 2];
        let mut eight = [NO_BITS; 2];
        for half in 0..2 {
            let mut of_twos = [NO_BITS; 2];
            let mut of_fours = [NO_BITS; 2];
            for pair in 0..2 {
                let at = 4 * half + 2 * pair;
                let (one_a, two_a) = entry(&sums[at], signs[at]);
                let (one_b, two_b) = entry(&sums[at + 1], signs[at + 1]);
                (ones, of_twos[pair]) = add(ones, one_a, one_b);
                (twos, of_fours[pair]) = add(twos, two_a, two_b);
            }
            (twos, over[half]) = add(twos, of_twos[0], of_twos[1]);
            (fours, eight[half]) = add(fours, of_fours[0], of_fours[1]);
        }
        let (sum, eight_c) = add(fours, over[0], over[1]);
        fours = sum;
        let (sum, sixteen_a) = add(eights, eight[0], eight[1]);
        let (sum, sixteen_b) = add_two(sum, eight_c);
        eights = sum;
        let (sum, mut carry) = add(sixteens, sixteen_a, sixteen_b);
        sixteens = sum;
        let mut digit = DIGITS_MIN;
        while digit < digits && rounds >> (digit - DIGITS_MIN) & 1 == 1 {
            (count[digit], carry) = add(count[digit], waiting[digit], carry);
            digit += 1;
        }
        if digit < digits {
            waiting[digit] = carry;
        }
        rounds += 1;
    }
    [count[0], count[1], count[2], count[3], count[4]] = [ones, twos, fours, eights, sixteens];
    let mut carry = NO_BITS;
    for digit in DIGITS_MIN..digits {
        let waits = if rounds >> (digit - DIGITS_MIN) & 1 == 1 { waiting[digit] } else { NO_BITS };
        (count[digit], carry) = add(count[digit], waits, carry);
    }
}

/// Where `2 * count + half >= number`. From the lowest digit on: whether what has been seen of the count reaches what has been seen of
/// the number.
#[inline(always)]
fn reaches(number: i32, half: Row, count: &[Row]) -> Row {
    let mut reaches = if number & 1 == 1 { half } else { ALL_BITS };
    for (place, &digit) in count.iter().enumerate() {
        let is_zero = if number >> (place + 1) & 1 == 0 { ALL_BITS } else { NO_BITS };
        reaches = or(and(digit, reaches), and(or(digit, reaches), is_zero));
    }
    reaches
}

/// Channels as runs of bits: rows one behind the other, after the padding.
#[inline(always)]
fn lay_out(sizes: &Sizes, (map, row_words): (&[u64], usize), runs: &mut [u64]) {
    let Map { channels, height, width } = sizes.shape.input;
    runs.fill(0);
    let rows = map.chunks_exact(height * row_words).take(channels);
    let first = sizes.shape.conv.pad * (sizes.pitch + 1);
    for (rows, run) in rows.zip(runs.chunks_exact_mut(sizes.run_words)) {
        let mut at = first;
        if row_words == 1 {
            for &word in rows {
                put(run, at, word);
                at += sizes.pitch;
            }
            continue;
        }
        for row in rows.chunks_exact(row_words) {
            for (place, &word) in row.iter().enumerate().take(width.div_ceil(64)) {
                put(run, at + place * 64, word);
            }
            at += sizes.pitch;
        }
    }
}

/// ORs a word into a run of bits.
#[inline(always)]
fn put(run: &mut [u64], at: usize, word: u64) {
    let (place, shift) = (at / 64, at % 64);
    if let Some([low, high]) = run[place..].first_chunk_mut() {
        *low |= word << shift;
        // A shift by 64 is none.
        *high |= word >> 1 >> (63 - shift);
    }
}

/// Cuts the bits of all filters into rows, and pools those down.
#[inline(always)]
fn take_rows(sizes: &Sizes, streams: &[u64], row: &mut [u64], pooled: &mut [u64]) {
    let shape = sizes.shape;
    let (convolved, rows_left) = (shape.convolved(), shape.output().height);
    let map_words = pooled.len() / shape.filters;
    let row_words = map_words / rows_left;
    for y in 0..convolved.height {
        let (from, into) = (y * sizes.pitch, pooled_rows(shape.pool, y, rows_left));
        let streams = streams.chunks_exact(sizes.stream_words);
        for (stream, pooled) in streams.zip(pooled.chunks_exact_mut(map_words)) {
            if row_words == 1 {
                or_into(bits_at(stream, from) & low_bits(convolved.width), &mut pooled[into.0..into.1]);
                continue;
            }
            let bits = &mut row[..row_words];
            for (place, word) in bits.iter_mut().enumerate() {
                let left = convolved.width.saturating_sub(place * 64);
                *word = bits_at(stream, from + place * 64) & low_bits(left);
            }
            pool_down(bits, into, pooled);
        }
    }
}
