//! One sample in a segment, as bytes.
//!
//! ```text
//!  0             4                    12                   20              24             28
//! +-------------+--------------------+--------------------+---------------+--------------+--------+----------+-------------+
//! | body length | sample id          | captured, unix ms  | answer length | crc of those | answer | features | crc of both |
//! +-------------+--------------------+--------------------+---------------+--------------+--------+----------+-------------+
//! ```
//!
//! All little endian. The head has a sum of its own, so that a body that is cut or altered still says whose it was.

use headwater_protocol::SampleId;

/// Bytes before the body.
pub(super) const HEAD_BYTES: usize = 28;
/// Bytes after it.
const TAIL_BYTES: usize = 4;

/// A sample as it is spooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) sample: SampleId,
    /// When it was captured, milliseconds since 1970.
    pub(crate) captured_unix_ms: u64,
    /// The answer: a whole message of the protocol.
    pub(crate) answer: &'a [u8],
    /// The features kept with it; empty where there are none.
    pub(crate) features: &'a [u8],
}

/// What stands at a place of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A record, and the bytes it takes.
    Whole(Record<'a>, usize),
    /// A record of this sample whose body is not what was written, and the bytes it takes.
    Altered(SampleId, usize),
    /// A record of this sample that is not there to its end.
    Torn(SampleId),
    /// Something that is no record: where the next one begins is not known.
    Unknown,
    /// Nothing.
    End,
}

/// A head that is as it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    sample: SampleId,
    captured_unix_ms: u64,
    body_bytes: usize,
    answer_bytes: usize,
}

impl<'a> Record<'a> {
    /// Bytes it takes in a segment.
    pub(super) fn bytes(&self) -> usize {
        HEAD_BYTES + self.answer.len() + self.features.len() + TAIL_BYTES
    }

    /// Appends it to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let body_bytes = self.answer.len() + self.features.len();
        out.reserve(self.bytes());
        out.extend_from_slice(&(body_bytes as u32).to_le_bytes());
        out.extend_from_slice(&self.sample.0.to_le_bytes());
        out.extend_from_slice(&self.captured_unix_ms.to_le_bytes());
        out.extend_from_slice(&(self.answer.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out[start..]).to_le_bytes());
        let body = out.len();
        out.extend_from_slice(self.answer);
        out.extend_from_slice(self.features);
        out.extend_from_slice(&crc32fast::hash(&out[body..]).to_le_bytes());
    }

    /// What stands at the beginning of `bytes`.
    pub(super) fn find(bytes: &'a [u8]) -> Found<'a> {
        if bytes.is_empty() {
            return Found::End;
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Found::Unknown };
        let Some(head) = Head::read(head) else { return Found::Unknown };
        if rest.len() < head.rest_bytes() {
            return Found::Torn(head.sample);
        }
        let whole = HEAD_BYTES + head.rest_bytes();
        let (body, crc) = rest[..head.rest_bytes()].split_at(head.body_bytes);
        if crc != crc32fast::hash(body).to_le_bytes() {
            return Found::Altered(head.sample, whole);
        }
        let (answer, features) = body.split_at(head.answer_bytes);
        let Head { sample, captured_unix_ms, .. } = head;
        Found::Whole(Self { sample, captured_unix_ms, answer, features }, whole)
    }
}

impl Head {
    /// The head of a record; `None` when it is none.
    pub(super) fn read(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (fields, crc) = bytes.split_at(HEAD_BYTES - 4);
        if crc != crc32fast::hash(fields).to_le_bytes() {
            return None;
        }
        let number = |from: usize, bytes: usize| {
            fields[from..from + bytes].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        let (body_bytes, answer_bytes) = (number(0, 4) as usize, number(20, 4) as usize);
        let head = Self {
            sample: SampleId(number(4, 8)),
            captured_unix_ms: number(12, 8),
            body_bytes,
            answer_bytes,
        };
        (answer_bytes <= body_bytes).then_some(head)
    }

    /// Bytes of the record behind its head.
    pub(super) fn rest_bytes(&self) -> usize {
        self.body_bytes + TAIL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record<'_> = Record {
        sample: SampleId(7 << 40),
        captured_unix_ms: 1 << 41,
        answer: b"answer",
        features: b"features",
    };

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        RECORD.write(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_written_is_found() {
        let bytes = bytes();
        assert_eq!(bytes.len(), RECORD.bytes());
        assert_eq!(Record::find(&bytes), Found::Whole(RECORD, bytes.len()));
        assert_eq!(Record::find(&[bytes.clone(), bytes.clone()].concat()), Found::Whole(RECORD, bytes.len()));
        assert_eq!(Record::find(&[]), Found::End);
    }

    #[test]
    fn a_record_cut_at_any_byte_is_not_taken_for_whole() {
        let bytes = bytes();
        for end in 1..bytes.len() {
            let expected = if end < HEAD_BYTES { Found::Unknown } else { Found::Torn(RECORD.sample) };
            assert_eq!(Record::find(&bytes[..end]), expected, "cut at {end}");
        }
    }

    #[test]
    fn a_byte_altered_anywhere_is_noticed() {
        for at in 0..bytes().len() {
            let mut bytes = bytes();
            bytes[at] ^= 0x10;
            let expected = match at {
                0..HEAD_BYTES => Found::Unknown,
                _ => Found::Altered(RECORD.sample, bytes.len()),
            };
            assert_eq!(Record::find(&bytes), expected, "altered at {at}");
        }
    }
}
