//! One sample in a segment, as bytes.
//!
//! ```text
//!  0             4                    12                   20              24             28
//! +-------------+--------------------+--------------------+---------------+--------------+--------+----------+-------------+
//! | body length | sample id          | captured, unix ms  | answer length | header crc   | answer | features | body crc    |
//! +-------------+--------------------+--------------------+---------------+--------------+--------+----------+-------------+
//! |<------------------------------ header ----------------------------------------------->|<----- body ----->|
//! ```
//!
//! All numbers are little endian. The header has a separate check sum, so that the sample of a cut or altered body is still known.

use headwater_protocol::SampleId;

/// Bytes of the header.
pub(super) const RECORD_HEADER_BYTES: usize = 28;
/// Bytes of a check sum.
const CRC_BYTES: usize = 4;

/// A spooled sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) sample: SampleId,
    /// Time of the capture, milliseconds since 1970.
    pub(crate) captured_unix_ms: u64,
    /// The answer: a whole message of the protocol.
    pub(crate) answer: &'a [u8],
    /// The features that belong to the answer; empty if there are none.
    pub(crate) features: &'a [u8],
}

/// Result of parsing the first record of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedRecord<'a> {
    /// A record, and its length in bytes.
    Whole(Record<'a>, usize),
    /// A record of this sample whose body was altered or cut, and the number of its bytes that are there.
    Altered(SampleId, usize),
    /// Bytes that are no record, so that the start of the next record is unknown.
    Unknown,
    /// No bytes.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordHeader {
    sample: SampleId,
    captured_unix_ms: u64,
    body_bytes: usize,
    answer_bytes: usize,
}

impl<'a> Record<'a> {
    /// Bytes of the record in a segment: header, answer, features and check sum.
    pub(super) fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.answer.len() + self.features.len() + CRC_BYTES
    }

    /// Appends the record to `out`.
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

    /// Parses the first record of `bytes`.
    pub(super) fn parse(bytes: &'a [u8]) -> ParsedRecord<'a> {
        if bytes.is_empty() {
            return ParsedRecord::End;
        }
        let Some((header, rest)) = bytes.split_first_chunk() else { return ParsedRecord::Unknown };
        let Some(header) = RecordHeader::parse(header) else { return ParsedRecord::Unknown };
        if rest.len() < header.rest_bytes() {
            return ParsedRecord::Altered(header.sample, bytes.len());
        }
        let length = RECORD_HEADER_BYTES + header.rest_bytes();
        let (body, crc) = rest[..header.rest_bytes()].split_at(header.body_bytes);
        if crc != crc32fast::hash(body).to_le_bytes() {
            return ParsedRecord::Altered(header.sample, length);
        }
        let (answer, features) = body.split_at(header.answer_bytes);
        let RecordHeader { sample, captured_unix_ms, .. } = header;
        ParsedRecord::Whole(Self { sample, captured_unix_ms, answer, features }, length)
    }
}

impl RecordHeader {
    /// Parses a header; `None` when the check sum does not match or the lengths contradict each other.
    pub(super) fn parse(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<Self> {
        let (fields, crc) = bytes.split_at(RECORD_HEADER_BYTES - CRC_BYTES);
        if crc != crc32fast::hash(fields).to_le_bytes() {
            return None;
        }
        let number = |from: usize, bytes: usize| {
            fields[from..from + bytes].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        let (body_bytes, answer_bytes) = (number(0, 4) as usize, number(20, 4) as usize);
        let (sample, captured_unix_ms) = (SampleId(number(4, 8)), number(12, 8));
        (answer_bytes <= body_bytes).then_some(Self { sample, captured_unix_ms, body_bytes, answer_bytes })
    }

    /// Bytes of the record after its header.
    pub(super) fn rest_bytes(&self) -> usize {
        self.body_bytes + CRC_BYTES
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
    fn a_written_record_is_parsed() {
        let bytes = bytes();
        assert_eq!(bytes.len(), RECORD.bytes());
        assert_eq!(Record::parse(&bytes), ParsedRecord::Whole(RECORD, bytes.len()));
        assert_eq!(
            Record::parse(&[bytes.clone(), bytes.clone()].concat()),
            ParsedRecord::Whole(RECORD, bytes.len())
        );
        assert_eq!(Record::parse(&[]), ParsedRecord::End);
    }

    #[test]
    fn a_record_cut_at_any_byte_is_not_taken_for_whole() {
        let bytes = bytes();
        for end in 1..bytes.len() {
            let expected = if end < RECORD_HEADER_BYTES {
                ParsedRecord::Unknown
            } else {
                ParsedRecord::Altered(RECORD.sample, end)
            };
            assert_eq!(Record::parse(&bytes[..end]), expected, "cut at {end}");
        }
    }

    #[test]
    fn a_byte_altered_anywhere_is_noticed() {
        for at in 0..bytes().len() {
            let mut bytes = bytes();
            bytes[at] ^= 0x10;
            let expected = match at {
                0..RECORD_HEADER_BYTES => ParsedRecord::Unknown,
                _ => ParsedRecord::Altered(RECORD.sample, bytes.len()),
            };
            assert_eq!(Record::parse(&bytes), expected, "altered at {at}");
        }
    }
}
