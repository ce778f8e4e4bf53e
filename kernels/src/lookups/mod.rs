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

mod prepare;
mod run;

pub(crate) use prepare::{prepare, prepare_thresholds};
pub(crate) use run::{Scratch, convolve};

use crate::places::{PLACES, Places};
use crate::shape::Convp;
use crate::vectors::{BLOCK, HALF, LANES};

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
const _: () = assert!(TOGETHER * HALF == PLACES, "together they are a word");
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

/// What a run asks for again and again, worked out once.
#[derive(Clone, Copy)]
struct Sizes {
    places: Places,
    /// Fours of channels.
    fours: usize,
    /// Turns of the loop for a filter at a place: its lookups are fours of channels times places of the kernel, and as many more as the
    /// last turn is full of.
    turns: usize,
    /// As many of them as are counted before bytes are full.
    at_once: usize,
    /// Fours of filters.
    groups: usize,
    /// Words at the top whose places may see rows above the map.
    top: usize,
    /// The first word whose places may see rows below it.
    bottom: usize,
    /// Words between them after which columns lie in words as before; none where words are too few to make a difference.
    patterns: usize,
    /// From the plane of four channels to the next: at least as many places as are read together.
    plane: usize,
}

impl Sizes {
    const fn of(shape: Convp) -> Self {
        let (places, kernel) = (Places::of(shape), shape.conv.kernel);
        let Places { pitch, .. } = places;
        let fours = shape.input.channels.div_ceil(CHANNELS);
        let turns = (fours * kernel * kernel).div_ceil(TURN);
        let plane = shape.input.height * pitch;
        let top = (shape.conv.pad * pitch).div_ceil(PLACES);
        let bottom = shape.convolved().height.saturating_sub(shape.conv.pad) * pitch / PLACES;
        // The pitch over its greatest common divisor with 64.
        let shift = pitch.trailing_zeros();
        let patterns = pitch >> if shift < PLACES.trailing_zeros() { shift } else { PLACES.trailing_zeros() };
        Self {
            places,
            fours,
            turns,
            // Prepared of one size: emptying the bytes takes as long after a short one.
            at_once: turns.div_ceil(turns.div_ceil(TURNS_MAX)),
            groups: shape.filters.div_ceil(FILTERS),
            top,
            bottom,
            patterns: if top + patterns < bottom { patterns } else { 0 },
            plane: if plane > PLACES { plane } else { PLACES },
        }
    }

    /// Bytes of all planes: whole ones from wherever a window begins, and whole blocks are written.
    const fn planes(&self) -> usize {
        let begins =
            self.places.words * PLACES + (self.places.shape.conv.kernel - 1) * (self.places.pitch + 1);
        self.fours * self.plane + begins + self.places.before() + BLOCK
    }

    /// Kinds of words: those of one kind see the same of what is outside.
    const fn kinds(&self) -> usize {
        if self.patterns == 0 {
            self.places.words
        } else {
            self.top + self.patterns + self.places.words - self.bottom
        }
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
        self.kinds() * self.places.shape.conv.kernel * self.places.shape.conv.kernel * TOGETHER
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

/// Whether half of what is missing at a place is a whole number.
const fn halves_are_whole(shape: Convp) -> bool {
    shape.conv.pad == 0 || shape.input.channels.is_multiple_of(2)
}
