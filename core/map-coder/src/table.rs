//! A table of probabilities, and the coding of maps with it.

use crate::arithmetic::{Decoder, Encoder, Probability};
use crate::check::check_byte;
use crate::contexts::NearRows;
use crate::rows::{read_row, write_row};
use crate::{CONTEXTS, DecodeError, MapError, MapShape, TableError};

/// Probability of a 1 in each context of each channel: [`CONTEXTS`] bytes a channel.
///
/// A byte `v` is the probability `(2 * v + 1) / 512`.
#[derive(Clone, Copy, Debug)]
pub struct ContextTable<'a> {
    shape: MapShape,
    channels: &'a [[u8; CONTEXTS]],
}

impl<'a> ContextTable<'a> {
    /// A table for maps of a shape; every value of a byte is allowed.
    ///
    /// # Errors
    /// [`TableError`] unless `bytes` has `channels * CONTEXTS` bytes.
    pub fn new(shape: MapShape, bytes: &'a [u8]) -> Result<Self, TableError> {
        let (channels, rest) = bytes.as_chunks();
        if channels.len() != shape.channels() || !rest.is_empty() {
            let expected = shape.channels() * CONTEXTS;
            return Err(TableError { expected, found: bytes.len() });
        }
        Ok(Self { shape, channels })
    }

    /// Shape of the maps.
    pub fn shape(&self) -> MapShape {
        self.shape
    }

    /// Writes the body of a map to the start of `body` and returns its length: 1 to [`MapShape::packed_bytes`].
    ///
    /// Bytes of `body` after that length are overwritten too.
    ///
    /// # Errors
    /// [`MapError`] unless `map` is a packed map of the shape with clear tail bits, and `body` is at least as long as `map`.
    pub fn encode(&self, map: &[u8], body: &mut [u8]) -> Result<usize, MapError> {
        self.shape.check_map(map)?;
        let found = body.len();
        let Some(body) = body.get_mut(..map.len()) else {
            return Err(MapError::BodyRoom { needed: map.len(), found });
        };
        if let Some(length) = self.encode_shorter(map, body) {
            return Ok(length);
        }
        body.copy_from_slice(map);
        Ok(map.len())
    }

    /// Writes a body that is shorter than the map and returns its length; `None` if the code is too long for such a body.
    fn encode_shorter(&self, map: &[u8], body: &mut [u8]) -> Option<usize> {
        let room = self.code_room()?;
        let (check, code) = body.split_first_mut()?;
        let code_bytes = self.encode_with(Encoder::new(&mut code[..room], room), map)?;
        *check = check_byte(map);
        Some(1 + code_bytes)
    }

    /// Encodes a map and returns the result of [`Encoder::finish`]; `None` if the code is longer than its room.
    fn encode_with(&self, mut encoder: Encoder<'_>, map: &[u8]) -> Option<usize> {
        for (channel, probabilities) in self.channels.iter().enumerate() {
            for row in 0..self.shape.height() {
                for word in self.shape.words_of_row(channel, row) {
                    let bits = read_row(map, word.start, word.width);
                    let near = NearRows::read(map, self.shape, [channel, row], word);
                    near.visit(word.width, |column, context| {
                        let bit = bits >> column & 1 == 1;
                        encoder.encode(Probability(probabilities[context]), bit);
                        bit
                    });
                }
                if encoder.is_full() {
                    return None;
                }
            }
        }
        encoder.finish()
    }

    /// Reads a body into `map`. After an error the content of `map` has no meaning.
    ///
    /// # Errors
    /// [`DecodeError`] if `body` is not what [`ContextTable::encode`] writes for a map, or `map` does not have
    /// [`MapShape::packed_bytes`] bytes.
    pub fn decode(&self, body: &[u8], map: &mut [u8]) -> Result<(), DecodeError> {
        let packed_bytes = self.shape.packed_bytes();
        if map.len() != packed_bytes {
            return Err(DecodeError::MapLength { expected: packed_bytes, found: map.len() });
        }
        if body.len() > packed_bytes {
            return Err(DecodeError::TooLong { max: packed_bytes, found: body.len() });
        }
        if body.len() == packed_bytes {
            map.copy_from_slice(body);
            if !self.shape.tail_is_clear(map) {
                return Err(DecodeError::TailBits);
            }
            let code = self.code_room().and_then(|room| self.encode_with(Encoder::new(&mut [], room), map));
            return if code.is_some() { Err(DecodeError::NotShortest) } else { Ok(()) };
        }
        let (&found, code) = body.split_first().ok_or(DecodeError::Empty)?;
        self.decode_code(code, map).ok_or(DecodeError::Code)?;
        let expected = check_byte(map);
        if found == expected { Ok(()) } else { Err(DecodeError::Check { expected, found }) }
    }

    /// Decodes a map; `None` if encoding the map does not give `code`.
    fn decode_code(&self, code: &[u8], map: &mut [u8]) -> Option<()> {
        let room = self.code_room()?;
        let mut decoder = Decoder::new(code)?;
        map.fill(0);
        for (channel, probabilities) in self.channels.iter().enumerate() {
            for row in 0..self.shape.height() {
                for word in self.shape.words_of_row(channel, row) {
                    let near = NearRows::read(map, self.shape, [channel, row], word);
                    let bits = near
                        .visit(word.width, |_, context| decoder.decode(Probability(probabilities[context])));
                    write_row(map, word.start, word.width, bits);
                }
                if decoder.shifted() > room {
                    return None;
                }
            }
        }
        decoder.is_ended().then_some(())
    }

    /// Bytes of the longest code that, with the check byte, is shorter than the map. `None` for maps of one byte: no body is shorter.
    ///
    /// Coding stops once more bytes are shifted out, even if the last of these bytes are zeros, which are not sent.
    fn code_room(&self) -> Option<usize> {
        self.shape.packed_bytes().checked_sub(2)
    }
}
