//! Names of frames: at the end of a message a device may name the frame that the message is about (bit 1 of the flags).
//!
//! ```text
//! | header | body | scores as in a summary, of `decided` alone | frame, varint | file, UTF-8, to the end of the message |
//! ```
//!
//! The kinds `summary`, `input` and `decided` may name their frame. The bodies of these kinds have a fixed length, so a reader knows where
//! the name begins.

use serde::{Deserialize, Serialize};

use crate::header::{FLAG_FRAME, names_frame, take_header};
use crate::kind::Kind;
use crate::limits::{Limits, MAX_FILE_NAME_BYTES, check_scores};
use crate::message_error::DecodeError;
use crate::varint::{put_varint, take_varint};

/// Name of the frame that a view came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameName {
    /// Number of the frame in its source, from 0; broken frames count too.
    pub frame: u64,
    /// File of the frame; empty where the frame is no file.
    pub file: String,
}

/// Name of a frame in a message, and the scores of a device that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameDetails<'a> {
    /// Number of the frame in its source, from 0.
    pub frame: u64,
    /// File of the frame, of at most [`MAX_FILE_NAME_BYTES`] bytes and without control characters; empty where the frame is no file.
    pub file: &'a str,
    /// Scores in the encoding of the network, of a `decided` message alone; otherwise empty.
    pub scores: &'a [u8],
}

impl FrameName {
    /// A name that fits a message: control characters become `?`, and of a file name that is too long the end is kept, in whole characters.
    pub fn new(frame: u64, file: &str) -> Self {
        let mut file: String = file.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let least = file.len().saturating_sub(MAX_FILE_NAME_BYTES);
        let start = (least..=file.len()).find(|at| file.is_char_boundary(*at)).unwrap_or(file.len());
        file.drain(..start);
        Self { frame, file }
    }

    /// The name with the scores of an answer.
    pub fn with_scores<'a>(&'a self, scores: &'a [u8]) -> FrameDetails<'a> {
        FrameDetails { frame: self.frame, file: &self.file, scores }
    }
}

/// Names the frame in a message of the kinds `summary`, `input` or `decided` that has just been encoded.
pub fn put_frame_details(details: &FrameDetails<'_>, message: &mut Vec<u8>) {
    if let Some(flags) = message.get_mut(1) {
        *flags |= FLAG_FRAME;
    }
    message.extend_from_slice(details.scores);
    put_varint(details.frame, message);
    message.extend_from_slice(details.file.as_bytes());
}

/// The name in a message that [`decode`](crate::decode) reads; `None` if the message names no frame, or if its name cannot be read.
pub fn frame_details<'a>(message: &'a [u8], limits: &Limits) -> Option<FrameDetails<'a>> {
    if message.get(1)? & FLAG_FRAME == 0 {
        return None;
    }
    let (kind, _, rest) = take_header(message).ok()?;
    split(message, (kind, rest), limits).ok()?.1
}

/// Splits `rest`, the bytes after the header of a message, into the body and the name.
pub(crate) fn split<'a>(
    message: &[u8],
    (kind, rest): (Kind, &'a [u8]),
    limits: &Limits,
) -> Result<(&'a [u8], Option<FrameDetails<'a>>), DecodeError> {
    if !names_frame(kind, message) {
        return Ok((rest, None));
    }
    let expected = limits.body_bytes(kind);
    let cut = DecodeError::Length { kind: kind.name(), expected, found: rest.len() };
    let (body, rest) = rest.split_at_checked(expected).ok_or(cut)?;
    let decides = kind == Kind::Decided;
    let score_bytes = if decides { limits.summary_bytes() } else { 0 };
    let (scores, mut rest) = rest.split_at_checked(score_bytes).ok_or(DecodeError::FrameName)?;
    if decides {
        check_scores(scores, limits)?;
    }
    let frame = take_varint(&mut rest).ok_or(DecodeError::FrameName)?;
    let file = std::str::from_utf8(rest).ok();
    let file = file.filter(|file| file.len() <= MAX_FILE_NAME_BYTES && !file.chars().any(char::is_control));
    let file = file.ok_or(DecodeError::FrameName)?;
    Ok((body, Some(FrameDetails { frame, file, scores })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Header;
    use crate::ids::{PolicyId, SampleId, Session};
    use crate::message::{Body, DeviceDecision, Message, decode, encode};
    use crate::scores::ScoreEncoding;

    const LIMITS: Limits = Limits {
        classes: 2,
        scores: ScoreEncoding::Bits4,
        feature_bits: 8,
        codes_features: false,
        view_bytes: 3,
        edge_bits: 0,
    };

    fn message(body: Body<'_>) -> Vec<u8> {
        let header = Header { late: true, session: Session([1, 2]), sample: SampleId(9), age_ms: 3 };
        let mut bytes = Vec::new();
        encode(&Message { header, body }, &LIMITS, &mut bytes).unwrap();
        bytes
    }

    fn decided() -> Body<'static> {
        Body::Decided(DeviceDecision { class: 1, confidence: 0.5, policy: PolicyId([4; 8]) })
    }

    #[test]
    fn a_named_message_is_the_message_and_its_name() {
        for (body, scores) in
            [(Body::Summary(&[0x21]), &[][..]), (Body::Input(&[1, 2, 3]), &[]), (decided(), &[0x43])]
        {
            for file in ["", "belt/Größe 7.jpg"] {
                let details = FrameDetails { frame: 300, file, scores };
                let mut bytes = message(body);
                put_frame_details(&details, &mut bytes);
                let found = decode(&bytes, &LIMITS).unwrap();
                assert!(found.body == body && found.header.late, "{found:?}");
                assert_eq!(frame_details(&bytes, &LIMITS), Some(details));
                assert_eq!(frame_details(&message(body), &LIMITS), None, "without the flag");
            }
        }
    }

    #[test]
    fn bytes_of_a_name_are_fixed() {
        let mut bytes = message(Body::Summary(&[0x21]));
        put_frame_details(&FrameName::new(300, "a.jpg").with_scores(&[]), &mut bytes);
        assert_eq!(bytes, b"\x22\x03\x01\x02\x09\x03\x00\x21\xac\x02a.jpg");
    }

    #[track_caller]
    fn check_refused(body: Body<'_>, after: &[u8], expected: &DecodeError) {
        let mut bytes = message(body);
        bytes[1] |= FLAG_FRAME;
        bytes.extend_from_slice(after);
        assert_eq!(decode(&bytes, &LIMITS).as_ref(), Err(expected), "{after:02x?}");
    }

    #[test]
    fn a_wrong_name_and_a_name_on_another_kind_are_refused() {
        let longest = [&[0][..], &[b'x'; MAX_FILE_NAME_BYTES]].concat();
        let mut named = message(Body::Summary(&[0x21]));
        named[1] |= FLAG_FRAME;
        assert!(decode(&[&named[..], &longest].concat(), &LIMITS).is_ok());
        let too_long = [&longest[..], b"x"].concat();
        for wrong in [&[0x80][..], &[], &[0x80, 0], &[0, 0xff], b"\0a\nb", &too_long[..]] {
            check_refused(Body::Summary(&[0x21]), wrong, &DecodeError::FrameName);
        }
        check_refused(decided(), &[], &DecodeError::FrameName);
        for other in [Body::NotInView, Body::Gone, Body::Features(&[7])] {
            check_refused(other, &[0], &DecodeError::Flags(3));
        }
        let expected = DecodeError::Length { kind: "summary", expected: 1, found: 0 };
        assert_eq!(decode(&named[..named.len() - 1], &LIMITS), Err(expected));
    }

    #[test]
    fn a_name_that_is_too_long_keeps_its_end_in_whole_characters() {
        let long = format!("{}/7.jpg", "ö".repeat(200));
        let name = FrameName::new(0, &long);
        assert!(long.ends_with(&name.file) && name.file.ends_with("ö/7.jpg"));
        assert!(
            (MAX_FILE_NAME_BYTES - 1..=MAX_FILE_NAME_BYTES).contains(&name.file.len()),
            "{}",
            name.file.len()
        );
        assert_eq!(FrameName::new(0, "a\nb.jpg").file, "a?b.jpg");
    }
}
