//! Header of a binary message: version and kind, flags, session, sample id, age.
//!
//! ```text
//!  0        1        2        3        4                   4 + n      5 + n
//! +----+----+--------+-----------------+-------------------+-----------------+
//! |ver |kind| flags  | session         | sample id, varint | age at sending  |
//! +----+----+--------+-----------------+-------------------+-----------------+
//! ```
//!
//! Numbers are little endian. The version is the high half of byte 0. The id has n bytes, 1 to 10. The age is in ms, at most 65,535.
//! Triggers and requests have neither flags nor age.

use crate::ids::{SampleId, Session};
use crate::kind::{Kind, VERSION};
use crate::message_error::DecodeError;
use crate::varint::{MAX_VARINT_BYTES, put_varint, take_varint};

/// Bytes of a header with the longest ids in use: milliseconds since 1970 (numbering by source), 6 bytes up to the year 2109.
pub const HEADER_BYTES: usize = MAX_HEADER_BYTES - MAX_VARINT_BYTES + 6;

/// Bytes of the shortest message, a trigger with an id below 128.
const MIN_HEADER_BYTES: usize = 1 + 2 + 1;

/// Bytes of the longest header.
pub(crate) const MAX_HEADER_BYTES: usize = 1 + 1 + 2 + MAX_VARINT_BYTES + 2;

/// Bit 0 of the flags: the message is late ([`Header::late`]).
const FLAG_LATE: u8 = 1;

/// Bit 1 of the flags: the message names its frame ([`frame_details`](crate::frame_details)).
pub(crate) const FLAG_FRAME: u8 = 2;

/// Header of a message, decoded, without version and kind: the version is always [`VERSION`], and the body tells the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True when the message is sent after the sample's time, from the spool or again from memory. False in triggers and requests.
    pub late: bool,
    /// Session of the sender's present start; in triggers and requests, session of the network.
    pub session: Session,
    /// The sample; in a batch, the first sample.
    pub sample: SampleId,
    /// Time from capture to sending, ms, saturating. 0 in triggers and requests, which do not carry it.
    pub age_ms: u16,
}

impl Header {
    /// The header of a trigger or a request.
    pub const fn to_group(session: Session, sample: SampleId) -> Self {
        Self { late: false, session, sample, age_ms: 0 }
    }
}

/// Reads the header of a message without the body. The session in the header tells under which network's limits the body is read.
///
/// # Errors
/// [`DecodeError`] for bytes that do not begin with a header of this version.
pub fn decode_header(payload: &[u8]) -> Result<Header, DecodeError> {
    take_header(payload).map(|(_, header, _)| header)
}

/// True if a message of this kind, whose header was read, names its frame.
pub(crate) fn names_frame(kind: Kind, message: &[u8]) -> bool {
    kind.may_name_frame() && message.get(1).is_some_and(|flags| flags & FLAG_FRAME != 0)
}

/// Appends the bytes before the body.
pub(crate) fn put_header(kind: Kind, header: &Header, out: &mut Vec<u8>) {
    out.push(VERSION << 4 | kind as u8);
    if !kind.is_to_group() {
        out.push(u8::from(header.late));
    }
    out.extend_from_slice(&header.session.0);
    put_varint(header.sample.0, out);
    if !kind.is_to_group() {
        out.extend_from_slice(&header.age_ms.to_le_bytes());
    }
}

/// Splits a payload into kind, header and body.
pub(crate) fn take_header(payload: &[u8]) -> Result<(Kind, Header, &[u8]), DecodeError> {
    let truncated = || DecodeError::Truncated(payload.len());
    let (&first, mut rest) =
        payload.split_first().filter(|_| payload.len() >= MIN_HEADER_BYTES).ok_or_else(truncated)?;
    if first >> 4 != VERSION {
        return Err(DecodeError::Version(first >> 4));
    }
    let kind = Kind::from_bits(first & 0x0f).ok_or(DecodeError::Kind(first & 0x0f))?;
    let flags =
        if kind.is_to_group() { 0 } else { take(&mut rest).map(|[flags]| flags).ok_or_else(truncated)? };
    let known = if kind.may_name_frame() { FLAG_LATE | FLAG_FRAME } else { FLAG_LATE };
    if flags & !known != 0 {
        return Err(DecodeError::Flags(flags));
    }
    let session = Session(take(&mut rest).ok_or_else(truncated)?);
    let is_cut_off = rest.len() < MAX_VARINT_BYTES && rest.iter().all(|byte| byte & 0x80 != 0);
    let sample = match take_varint(&mut rest) {
        Some(sample) => SampleId(sample),
        None if is_cut_off => return Err(truncated()),
        None => return Err(DecodeError::SampleId),
    };
    let age = if kind.is_to_group() { [0, 0] } else { take(&mut rest).ok_or_else(truncated)? };
    let header = Header { late: flags & FLAG_LATE != 0, session, sample, age_ms: u16::from_le_bytes(age) };
    Ok((kind, header, rest))
}

/// Takes `N` bytes from the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
