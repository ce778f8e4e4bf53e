//! Places one behind the other, 64 in a word: how rows lie in them, what of them lies outside the map, and where their bits go.

use crate::rows::{low_bits, or_into, pooled_rows};
use crate::shape::{Convp, Map, Window};
use crate::threshold::Threshold;

/// Places of a word.
pub(crate) const PLACES: usize = 64;

/// Longest side of a kernel that is run so.
const KERNEL_MAX: usize = 16;

/// Whether a block can be run over places that lie so: its step is 1, and its counts fit in 16 bits.
pub(crate) const fn runs(shape: Convp) -> bool {
    shape.conv.stride == 1 && shape.conv.kernel <= KERNEL_MAX && shape.taps() < i16::MAX as usize
}

/// Whether bits come out as one stream: where nothing is pooled, and places lie as they come out. Otherwise they come out in rows.
pub(crate) fn gives_stream(shape: Convp) -> bool {
    shape.pool == (Window { kernel: 1, stride: 1, pad: 0 }) && pitch(shape) == shape.convolved().width
}

/// Places from one row to the next.
pub(crate) const fn pitch(shape: Convp) -> usize {
    let (before, after) = (shape.input.width, shape.convolved().width);
    if before > after { before } else { after }
}

/// How the places of a block lie in words.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) shape: Convp,
    /// Places from one row to the next.
    pub(crate) pitch: usize,
    /// Words of places.
    pub(crate) words: usize,
}

impl Places {
    pub(crate) const fn of(shape: Convp) -> Self {
        let pitch = pitch(shape);
        Self { shape, pitch, words: (shape.convolved().height * pitch).div_ceil(PLACES) }
    }

    /// Places before the first of the map that windows see.
    pub(crate) const fn before(&self) -> usize {
        self.shape.conv.pad * (self.pitch + 1)
    }

    /// Finds, for each word of places, which of them see something on the map at each place of the kernel, `[word, place of the kernel]`,
    /// and the binary digits of how many taps each is missing, `[word, digit]`.
    pub(crate) fn find_outside(&self, kept: &mut [u64], missing: &mut [u64]) {
        let (kernel, Map { height, width, .. }) = (self.shape.conv.kernel, self.shape.convolved());
        kept.fill(0);
        missing.fill(0);
        let digits = missing.len() / self.words;
        for y in 0..height {
            let (top, bottom) = self.shape.conv.inside(y, self.shape.input.height);
            for x in 0..width {
                let (left, right) = self.shape.conv.inside(x, self.shape.input.width);
                let place = y * self.pitch + x;
                let (word, bit) = (place / PLACES, 1 << (place % PLACES));
                for ky in top..bottom {
                    for kx in left..right {
                        kept[(word * kernel + ky) * kernel + kx] |= bit;
                    }
                }
                let absent = self.shape.taps() - (bottom - top) * (right - left) * self.shape.input.channels;
                for (digit, mask) in missing[word * digits..][..digits].iter_mut().enumerate() {
                    *mask |= if absent >> digit & 1 == 1 { bit } else { 0 };
                }
            }
        }
    }

    /// Writes the bits of a word of places, a word a filter: to the stream where [`gives_stream`] says so, turned round where thresholds
    /// are, and otherwise to pooled rows.
    #[inline(always)]
    pub(crate) fn put(&self, word: usize, bits: &[u64], thresholds: &[Threshold], given: &mut [u64]) {
        if gives_stream(self.shape) {
            self.put_stream(word, bits, thresholds, given);
        } else {
            self.put_rows(word, bits, given);
        }
    }

    /// Writes the bits of a word of places to the stream that is given.
    #[inline(always)]
    fn put_stream(&self, word: usize, bits: &[u64], thresholds: &[Threshold], given: &mut [u64]) {
        let places = self.shape.convolved().height * self.pitch;
        let kept = low_bits(places - word * PLACES);
        let bits = bits.iter().zip(thresholds);
        let bits = bits.map(|(bits, threshold)| if threshold.flipped { !bits & kept } else { bits & kept });
        if places.is_multiple_of(PLACES) {
            // Each filter has words of its own.
            for (bits, map) in bits.zip(given.chunks_exact_mut(self.words)) {
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
    fn put_rows(&self, word: usize, bits: &[u64], given: &mut [u64]) {
        let Map { height, width, .. } = self.shape.convolved();
        let rows_left = self.shape.output().height;
        let map_words = given.len() / self.shape.filters;
        let row_words = map_words / rows_left;
        let (first, end) = (word * PLACES, (word + 1) * PLACES);
        for y in first / self.pitch..end.div_ceil(self.pitch).min(height) {
            // The part of the row that lies in the word.
            let (start, skipped) = (y * self.pitch, first.saturating_sub(y * self.pitch));
            if skipped >= width {
                continue;
            }
            let from = (start + skipped) - first;
            let kept = low_bits((width - skipped).min(PLACES - from));
            let (place, shift) = (skipped / 64, skipped % 64);
            let (top, bottom) = pooled_rows(self.shape.pool, y, rows_left);
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
}
