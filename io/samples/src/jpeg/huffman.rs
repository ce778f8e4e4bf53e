//! Huffman codes of a JPEG (ITU-T T.81, annexes C and F), and the bits that they are read from.

use super::Fault;

/// Codes up to this length are looked up at once.
const SHORT_BITS: u32 = 8;

/// Table of codes.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Length and symbol of the code at the start of the bits; length 0 for a longer code.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// For each length of a code: the code after the last code of this length, and the difference between a symbol's index and its code.
    lengths: [(u32, i32); 17],
    symbols: Vec<u8>,
}

impl Table {
    /// Splits the first table off a segment. Returns its class and number, the table, and the rest of the segment.
    pub(super) fn split_first(body: &[u8]) -> Result<([usize; 2], Self, &[u8]), Fault> {
        let broken = || Fault::Broken("an unsound Huffman table".into());
        let (&[which, ref counts @ ..], rest) = body.split_first_chunk::<17>().ok_or_else(broken)?;
        let count = counts.iter().map(|count| usize::from(*count)).sum();
        let (symbols, rest) = rest.split_at_checked(count).ok_or_else(broken)?;
        let (mut short, mut lengths) = ([(0, 0); 1 << SHORT_BITS], [(0, 0); 17]);
        let (mut code, mut index) = (0_u32, 0_usize);
        for (length, count) in (1_u32..).zip(counts) {
            let first = code;
            for symbol in &symbols[index..index + usize::from(*count)] {
                if code >> length != 0 {
                    return Err(broken());
                }
                if length <= SHORT_BITS {
                    let unused = SHORT_BITS - length;
                    let start = (code << unused) as usize;
                    short[start..start + (1 << unused)].fill((length as u8, *symbol));
                }
                code += 1;
            }
            lengths[length as usize] = (code, index as i32 - first as i32);
            index += usize::from(*count);
            code <<= 1;
        }
        let which = [usize::from(which >> 4), usize::from(which & 15)];
        Ok((which, Self { short, lengths, symbols: symbols.to_vec() }, rest))
    }

    /// Reads the next symbol.
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8, Fault> {
        bits.fill();
        let next = bits.peek(16);
        let (length, symbol) = self.short[(next >> (16 - SHORT_BITS)) as usize];
        if length > 0 {
            bits.skip(length.into())?;
            return Ok(symbol);
        }
        for length in SHORT_BITS + 1..=16 {
            let (end, offset) = self.lengths[length as usize];
            let code = next >> (16 - length);
            if code < end {
                bits.skip(length)?;
                let symbol = self.symbols.get((code as i32 + offset) as usize);
                return symbol.copied().ok_or_else(|| Fault::Broken("a code of no symbol".into()));
            }
        }
        // Past the end of the data the bits are zeros, which may be no code; `skip` then returns `Fault::Cut`.
        bits.skip(16)?;
        Err(Fault::Broken("a code that no table has".into()))
    }
}

/// Bits of entropy-coded data, up to the next marker.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, from the highest on; zeros follow.
    bits: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) const fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, bits: 0, count: 0 }
    }

    /// Takes whole bytes in, as long as there are some and they fit.
    fn fill(&mut self) {
        while self.count <= 56 {
            let (byte, length) = match &self.data[self.at..] {
                // A last FF may have lost the zero that follows it.
                [0xff, 0, ..] => (0xff, 2),
                [0xff] => (0xff, 1),
                [] | [0xff, ..] => return,
                [byte, ..] => (*byte, 1),
            };
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
            self.at += length;
        }
    }

    fn peek(&self, count: u32) -> u32 {
        (self.bits >> 32) as u32 >> (32 - count)
    }

    fn skip(&mut self, count: u32) -> Result<(), Fault> {
        self.count = self.count.checked_sub(count).ok_or(Fault::Cut)?;
        self.bits <<= count;
        Ok(())
    }

    /// Reads a number of `size` bits, whose first bit says whether it is positive (T.81, F.2.2.1).
    pub(super) fn number(&mut self, size: u8) -> Result<i32, Fault> {
        if size == 0 {
            return Ok(0);
        }
        self.fill();
        let size = u32::from(size);
        let value = self.peek(size) as i32;
        self.skip(size)?;
        Ok(if value >> (size - 1) == 0 { value - (1 << size) + 1 } else { value })
    }

    /// Passes over a restart marker, and over the bits that fill the byte before it.
    pub(super) fn restart(&mut self) -> Result<(), Fault> {
        self.fill();
        match &self.data[self.at..] {
            [] => Err(Fault::Cut),
            [0xff, 0xd0..=0xd7, ..] if self.count < 8 => {
                *self = Self { at: self.at + 2, ..Self::new(self.data) };
                Ok(())
            }
            _ => Err(Fault::Broken("no restart marker where one is due".into())),
        }
    }

    /// Number of bytes of which at least one bit was read.
    pub(super) const fn used_bytes(&self) -> usize {
        self.at - (self.count / 8) as usize
    }
}

/// Body of a segment with the standard tables (T.81, K.3), for cameras that send none.
///
/// A table is its class and number, the number of codes of each length, and the symbols in the order of their codes.
pub(super) const STANDARD_TABLES: &[u8; 416] = b"\
    \x00\x00\x01\x05\x01\x01\x01\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\
    \x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\
    \x01\x00\x03\x01\x01\x01\x01\x01\x01\x01\x01\x01\x00\x00\x00\x00\x00\
    \x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\
    \x10\x00\x02\x01\x03\x03\x02\x04\x03\x05\x05\x04\x04\x00\x00\x01\x7d\
    \x01\x02\x03\x00\x04\x11\x05\x12\x21\x31\x41\x06\x13\x51\x61\x07\x22\x71\x14\x32\x81\x91\xa1\x08\x23\x42\xb1\xc1\x15\x52\xd1\xf0\
    \x24\x33\x62\x72\x82\x09\x0a\x16\x17\x18\x19\x1a\x25\x26\x27\x28\x29\x2a\x34\x35\x36\x37\x38\x39\x3a\x43\x44\x45\x46\x47\x48\x49\
    \x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68\x69\x6a\x73\x74\x75\x76\x77\x78\x79\x7a\x83\x84\x85\x86\x87\x88\x89\
    \x8a\x92\x93\x94\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xc2\xc3\xc4\xc5\
    \xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\
    \xf9\xfa\
    \x11\x00\x02\x01\x02\x04\x04\x03\x04\x07\x05\x04\x04\x00\x01\x02\x77\
    \x00\x01\x02\x03\x11\x04\x05\x21\x31\x06\x12\x41\x51\x07\x61\x71\x13\x22\x32\x81\x08\x14\x42\x91\xa1\xb1\xc1\x09\x23\x33\x52\xf0\
    \x15\x62\x72\xd1\x0a\x16\x24\x34\xe1\x25\xf1\x17\x18\x19\x1a\x26\x27\x28\x29\x2a\x35\x36\x37\x38\x39\x3a\x43\x44\x45\x46\x47\x48\
    \x49\x4a\x53\x54\x55\x56\x57\x58\x59\x5a\x63\x64\x65\x66\x67\x68\x69\x6a\x73\x74\x75\x76\x77\x78\x79\x7a\x82\x83\x84\x85\x86\x87\
    \x88\x89\x8a\x92\x93\x94\x95\x96\x97\x98\x99\x9a\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9\xba\xc2\xc3\
    \xc4\xc5\xc6\xc7\xc8\xc9\xca\xd2\xd3\xd4\xd5\xd6\xd7\xd8\xd9\xda\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xf2\xf3\xf4\xf5\xf6\xf7\xf8\
    \xf9\xfa";
