//! A binary arithmetic coder: a range coder whose carries run back into the bytes written.
//!
//! A map is an interval of fractions in `[0, 1)`. Each bit narrows the interval to one of two parts: a 1 to the lower, a 0 to the upper.
//! The coder holds a window of 32 bits of the fractions, below the bytes that were shifted out:
//!
//! ```text
//! low     0. b b b b b [ w w w w ] 0 0 ...     b: bytes shifted out, w: window
//! range                [ r r r r ]             at least 2^24 between bits
//! ```
//!
//! The map is sent as the fraction in the interval that has the fewest bytes. The decoder reads zeros after the last byte.

use core::hint::select_unpredictable;

/// Probability of a 1, as a table's byte: `(2 * byte + 1) / 512`.
#[derive(Clone, Copy)]
pub(crate) struct Probability(pub(crate) u8);

impl Probability {
    /// Size of the lower part of an interval of `range`.
    fn part(self, range: u32) -> u32 {
        (range >> 9) * (2 * u32::from(self.0) + 1)
    }
}

/// A byte is shifted out while the range is below this size.
const MIN_RANGE: u32 = 1 << 24;

/// Writes bits as one fraction.
pub(crate) struct Encoder<'a> {
    shifted: ShiftedBytes<'a>,
    /// Low end of the interval, in the window. Bit 32 is a carry.
    low: u64,
    range: u32,
}

impl<'a> Encoder<'a> {
    /// An encoder of a code of at most `room` bytes. `bytes` has that length, or is empty: then the encoder writes nothing and only finds
    /// out whether the code is short enough.
    pub(crate) fn new(bytes: &'a mut [u8], room: usize) -> Self {
        Self { shifted: ShiftedBytes { bytes, room, count: 0 }, low: 0, range: u32::MAX }
    }

    /// True if more bytes were shifted out than there is room for.
    pub(crate) fn is_full(&self) -> bool {
        self.shifted.is_full()
    }

    #[inline]
    pub(crate) fn encode(&mut self, probability: Probability, bit: bool) {
        let part = probability.part(self.range);
        // A branch on `bit` would often be mispredicted, so both values are computed and one is selected.
        self.low += u64::from(select_unpredictable(bit, 0, part));
        self.range = select_unpredictable(bit, part, self.range - part);
        while self.range < MIN_RANGE {
            self.shift();
            self.range <<= 8;
        }
    }

    /// Ends the code and returns its length in bytes, 0 for an encoder that writes nothing; `None` if more bytes were shifted out than
    /// there is room for.
    pub(crate) fn finish(mut self) -> Option<usize> {
        let window = self.low & u64::from(u32::MAX);
        let ending = Ending::of(window as u32, self.range);
        self.low += u64::from(ending.distance);
        if self.low >> 32 != 0 {
            self.shifted.carry();
            self.low &= u64::from(u32::MAX);
        }
        for _ in 0..ending.bytes {
            self.shift();
        }
        self.shifted.length()
    }

    /// Shifts the highest byte of the window out.
    #[inline]
    fn shift(&mut self) {
        if self.low >> 32 != 0 {
            self.shifted.carry();
        }
        self.shifted.push((self.low >> 24 & 0xff) as u8);
        self.low = (self.low & 0x00ff_ffff) << 8;
    }
}

/// Bytes above the encoder's window.
struct ShiftedBytes<'a> {
    /// Buffer of `room` bytes for the code; empty in an encoder that writes nothing.
    bytes: &'a mut [u8],
    /// Largest length of a code in bytes.
    room: usize,
    /// Number of bytes shifted out, including those that had no room.
    count: usize,
}

impl ShiftedBytes<'_> {
    fn is_full(&self) -> bool {
        self.count > self.room
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.count) {
            *place = byte;
        }
        self.count += 1;
    }

    /// Adds one to the number that the bytes form. The number does not overflow, because the fraction is below 1.
    fn carry(&mut self) {
        let written = self.count.min(self.bytes.len());
        for byte in self.bytes[..written].iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
    }

    /// Number of bytes written, up to the last that is not zero; `None` if a byte had no room.
    fn length(&self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let written = &self.bytes[..self.count.min(self.bytes.len())];
        Some(written.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1))
    }
}

/// Reads the bits of a fraction.
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    /// Number of bytes read, including zeros after the end of the code. The last four bytes read are the window.
    read: usize,
    /// Distance of the fraction from the low end of the interval, in the window; below `range`.
    distance: u32,
    range: u32,
}

impl<'a> Decoder<'a> {
    /// A decoder of a code; `None` if the fraction is not in the first interval: no encoder writes such a fraction.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut decoder = Self { bytes, read: 4, distance: 0, range: u32::MAX };
        decoder.distance = decoder.window();
        (decoder.distance < decoder.range).then_some(decoder)
    }

    /// Number of bytes that the encoder had shifted out after the bits decoded so far.
    pub(crate) fn shifted(&self) -> usize {
        self.read - 4
    }

    #[inline]
    pub(crate) fn decode(&mut self, probability: Probability) -> bool {
        let part = probability.part(self.range);
        let bit = self.distance < part;
        self.distance -= select_unpredictable(bit, 0, part);
        self.range = select_unpredictable(bit, part, self.range - part);
        while self.range < MIN_RANGE {
            self.distance = self.distance << 8 | u32::from(self.byte(self.read));
            self.read += 1;
            self.range <<= 8;
        }
        bit
    }

    /// True if an encoder of the bits decoded so far would end with exactly these bytes.
    pub(crate) fn is_ended(&self) -> bool {
        let low = self.window().wrapping_sub(self.distance);
        let is_shortest = self.bytes.last() != Some(&0) && self.bytes.len() <= self.read;
        is_shortest && Ending::of(low, self.range).distance == self.distance
    }

    fn window(&self) -> u32 {
        u32::from_be_bytes([4, 3, 2, 1].map(|back| self.byte(self.read - back)))
    }

    /// Byte `at` of the code; zero after the last byte.
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }
}

/// The end of a code: the fraction in the last interval that has the fewest bytes.
struct Ending {
    /// Distance of the fraction from the low end of the interval.
    distance: u32,
    /// Number of bytes of the window that the fraction needs: 0 or 1.
    bytes: usize,
}

impl Ending {
    /// The ending of an interval whose low end is `low` in the window; a carry above the window makes no difference.
    ///
    /// The interval is not larger than the window. So at most one fraction in the interval has only zeros in the window, and no other
    /// fraction needs fewer bytes.
    fn of(low: u32, range: u32) -> Self {
        let to_empty_window = low.wrapping_neg();
        if to_empty_window < range {
            return Self { distance: to_empty_window, bytes: 0 };
        }
        // The next fraction with zeros in the lower three bytes of the window is less than `MIN_RANGE` away, so it is in the interval.
        Self { distance: to_empty_window & (MIN_RANGE - 1), bytes: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn encode(bits: &[(u8, bool)], room: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xaa; room];
        let mut encoder = Encoder::new(&mut bytes, room);
        bits.iter().for_each(|&(probability, bit)| encoder.encode(Probability(probability), bit));
        let length = encoder.finish()?;
        bytes.truncate(length);
        Some(bytes)
    }

    /// Two results: `code` decodes to `bits`; encoding the decoded bits gives `code`.
    fn decodes(code: &[u8], bits: &[(u8, bool)]) -> (bool, bool) {
        let Some(mut decoder) = Decoder::new(code) else { return (false, false) };
        let equal =
            bits.iter().filter(|&&(p, bit)| decoder.decode(Probability(p)) == bit).count() == bits.len();
        (equal, decoder.is_ended())
    }

    /// The codes of the same length with the next and the previous fraction.
    fn neighbours(code: &[u8]) -> [Vec<u8>; 2] {
        let (mut next, mut previous) = (code.to_vec(), code.to_vec());
        next.iter_mut().rev().find_map(|byte| {
            *byte = byte.wrapping_add(1);
            (*byte != 0).then_some(())
        });
        previous.iter_mut().rev().find_map(|byte| {
            *byte = byte.wrapping_sub(1);
            (*byte != 0xff).then_some(())
        });
        [next, previous]
    }

    #[test]
    fn ones_alone_need_no_byte() {
        assert_eq!(encode(&[(0, true); 20], 64), Some(vec![]));
        assert_eq!(encode(&[], 0), Some(vec![]));
    }

    #[test]
    fn a_code_that_outgrows_its_room_is_refused() {
        let bits = [(128, false), (128, true), (100, false)].repeat(40);
        let code = encode(&bits, 64).unwrap();
        assert!(code.len() > 10);
        assert_eq!(encode(&bits, code.len()), Some(code.clone()));
        assert_eq!(encode(&bits, code.len() - 1), None);
    }

    /// The first bits are zeros with the probability 1/512: these bits leave the upper end of the interval, close to a carry at every byte.
    #[test]
    fn carries_run_over_bytes_of_ones() {
        let mut carries = 0;
        for tail in 0..=255u8 {
            let bits: Vec<_> = [(255, false); 5].into_iter().chain([(tail, false); 24]).collect();
            let code = encode(&bits, 64).unwrap();
            assert_eq!(decodes(&code, &bits), (true, true));
            carries += usize::from(code.windows(2).any(|pair| pair == [0, 0]) || code.contains(&0xff));
        }
        assert!(carries > 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_encoded_decodes_and_no_shorter_code_does(bits in vec(any::<(u8, bool)>(), 0..200)) {
            let code = encode(&bits, 300).unwrap();
            prop_assert_eq!(decodes(&code, &bits), (true, true));
            if let Some((_, shorter)) = code.split_last() {
                prop_assert!(!decodes(shorter, &bits).0);
                for neighbour in neighbours(shorter) {
                    prop_assert!(!decodes(&neighbour, &bits).0);
                }
            }
        }

        #[test]
        fn a_code_is_canonical_only_if_encoding_gives_it(
            probabilities in vec(any::<u8>(), 0..60), code in vec(prop_oneof![any::<u8>(), Just(0), Just(0xff)], 0..40)
        ) {
            if let Some(mut decoder) = Decoder::new(&code) {
                let bits: Vec<_> = probabilities.iter().map(|&p| (p, decoder.decode(Probability(p)))).collect();
                prop_assert_eq!(decoder.is_ended(), encode(&bits, 100).unwrap() == code);
            }
        }
    }
}
