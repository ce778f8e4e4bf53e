//! Binary messages: a [header](crate::header), then the body.
//!
//! | kind | body |
//! | --- | --- |
//! | `trigger` | nothing |
//! | `summary` | [scores](crate::scores) in the encoding of the network |
//! | `not_in_view` | nothing |
//! | `request` | slots that are asked, a [`SlotSet`] (u64) without the zero bytes at its end |
//! | `features` | packed map; in a network that codes maps, the coded map if it is shorter |
//! | `gone` | nothing: the sender has no features of the sample; on the topic `summary`, marked late: the sender gave the whole sample up |
//! | `input` | the view as pixels |
//! | `decided` | class (u16), confidence (f32), policy id (8 bytes) |
//! | `edge_features` | slots whose features the edge had, a [`SlotSet`] (u64); scores, one `f32` a class; packed map |
//! | `batch` | answers of several samples (`batch.rs`) |
//!
//! `summary`, `input` and `decided` may name their frame behind the body (`frame_name.rs`); [`decode`] checks the name and passes it over.
//!
//! Sender, session, kind and sample identify a message. Receivers must expect each message more than once.

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::bit_set::SlotSet;
use crate::bits;
use crate::frame_name;
use crate::header::{Header, MAX_HEADER_BYTES, put_header, take_header};
use crate::ids::PolicyId;
use crate::kind::Kind;
use crate::limits::{DECIDED_BYTES, Limits, check_scores, finite};
use crate::message_error::{DecodeError, EncodeError};

/// A decoded message, borrowing its body from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message<'a> {
    /// The decoded header.
    pub header: Header,
    /// The decoded body.
    pub body: Body<'a>,
}

/// An age in microseconds as a header carries it: milliseconds, rounded down, saturating.
pub fn age_ms(age_us: u64) -> u16 {
    u16::try_from(age_us / 1000).unwrap_or(u16::MAX)
}

/// The content of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body<'a> {
    /// Every device captures now, under the id of the header.
    Trigger,
    /// Class scores in the encoding of the network; see [`scores`](crate::scores).
    Summary(&'a [u8]),
    /// The device is up and has no view of the sample.
    NotInView,
    /// These slots are asked for their features.
    Request(SlotSet),
    /// Feature bits, see [`bits`]; in a network that codes maps, a body that is shorter than the packed map is the coded map.
    Features(&'a [u8]),
    /// The device or edge has no features of the sample. Marked late on the topic `summary`: the device gave the whole sample up.
    Gone,
    /// The view itself, `u8` CHW (configuration a).
    Input(&'a [u8]),
    /// A device with an exit decided by itself (configurations b and d).
    Decided(DeviceDecision),
    /// Output of an edge's section, for the leader (configuration f).
    EdgeFeatures {
        /// Slots whose features reached the edge in time; never empty.
        slots: SlotSet,
        /// Class scores, little-endian `f32`.
        scores: &'a [u8],
        /// The edge's map, packed.
        map: &'a [u8],
    },
    /// Summaries and `not_in_view` of several samples, none of them late; the header has the first sample.
    Batch(Batch<'a>),
}

/// The decision of a device with an exit (configurations b and d).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceDecision {
    /// Index of the class in the network's labels.
    pub class: u16,
    /// One minus the uncertainty, in `[0, 1]`.
    pub confidence: f32,
    /// The policy under which the device decided.
    pub policy: PolicyId,
}

impl<'a> Body<'a> {
    /// Kind of the message.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Trigger => Kind::Trigger,
            Self::Summary(_) => Kind::Summary,
            Self::NotInView => Kind::NotInView,
            Self::Request(_) => Kind::Request,
            Self::Features(_) => Kind::Features,
            Self::Gone => Kind::Gone,
            Self::Input(_) => Kind::Input,
            Self::Decided(_) => Kind::Decided,
            Self::EdgeFeatures { .. } => Kind::EdgeFeatures,
            Self::Batch(_) => Kind::Batch,
        }
    }

    /// Bytes of the body, without the name of a frame after the body.
    pub fn len(&self) -> usize {
        match self {
            Self::Request(slots) => slot_bytes(*slots),
            Self::Trigger | Self::NotInView | Self::Gone => 0,
            Self::Summary(bytes) | Self::Features(bytes) | Self::Input(bytes) => bytes.len(),
            Self::Decided(_) => DECIDED_BYTES,
            Self::EdgeFeatures { scores, map, .. } => 8 + scores.len() + map.len(),
            Self::Batch(batch) => batch.bytes().len(),
        }
    }

    /// True if the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Appends a message to `out`.
///
/// # Errors
/// [`EncodeError`] if the body does not have the length that the limits give; `out` is then unchanged.
pub fn encode(message: &Message<'_>, limits: &Limits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Message { header, body } = message;
    let kind = body.kind();
    let (expected, found) = (limits.body_bytes(kind), body.len());
    let is_cut_right = match body {
        Body::EdgeFeatures { scores, .. } => scores.len() == limits.edge_score_bytes(),
        Body::Batch(batch) => batch.fits(limits),
        _ => true,
    };
    if !limits.fits(kind, found) || !is_cut_right {
        return Err(EncodeError { kind: kind.name(), expected, found });
    }
    out.reserve(MAX_HEADER_BYTES + found);
    put_header(kind, header, out);
    match *body {
        Body::Request(slots) => put_slots(slots, out),
        Body::Summary(bytes) | Body::Features(bytes) | Body::Input(bytes) => out.extend_from_slice(bytes),
        Body::Decided(DeviceDecision { class, confidence, policy }) => {
            out.extend_from_slice(&class.to_le_bytes());
            out.extend_from_slice(&confidence.to_le_bytes());
            out.extend_from_slice(&policy.0);
        }
        Body::EdgeFeatures { slots, scores, map } => {
            out.extend_from_slice(&slots.bits().to_le_bytes());
            out.extend_from_slice(scores);
            out.extend_from_slice(map);
        }
        Body::Batch(batch) => out.extend_from_slice(batch.bytes()),
        Body::Trigger | Body::NotInView | Body::Gone => {}
    }
    Ok(())
}

/// Appends a slot set without the zero bytes at its end.
pub(crate) fn put_slots(slots: SlotSet, out: &mut Vec<u8>) {
    out.extend_from_slice(&slots.bits().to_le_bytes()[..slot_bytes(slots)]);
}

/// Bytes of a slot set without the zero bytes at its end.
fn slot_bytes(slots: SlotSet) -> usize {
    8 - slots.bits().leading_zeros() as usize / 8
}

/// Reads a payload that is exactly one message.
///
/// # Errors
/// [`DecodeError`] for bytes that are not exactly one message under these limits. Scores must be finite and tail bits zero.
pub fn decode<'a>(payload: &'a [u8], limits: &Limits) -> Result<Message<'a>, DecodeError> {
    if payload.len() > limits.largest_payload() {
        return Err(DecodeError::Oversize { limit: limits.largest_payload(), found: payload.len() });
    }
    let (kind, header, rest) = take_header(payload)?;
    let (rest, _) = frame_name::split(payload, (kind, rest), limits)?;
    let expected = limits.body_bytes(kind);
    if !limits.fits(kind, rest.len()) {
        if kind == Kind::Features && limits.codes_features {
            return Err(DecodeError::CodedLength { limit: expected, found: rest.len() });
        }
        return Err(DecodeError::Length { kind: kind.name(), expected, found: rest.len() });
    }
    let body = match kind {
        Kind::Trigger => Body::Trigger,
        Kind::Summary => {
            check_scores(rest, limits)?;
            Body::Summary(rest)
        }
        Kind::NotInView => Body::NotInView,
        Kind::Request if rest.last() == Some(&0) => return Err(DecodeError::ZeroAtEnd),
        Kind::Request => Body::Request(SlotSet::from_bits(whole_u64(rest))),
        Kind::Features => {
            if rest.len() == expected && !bits::tail_is_clear(rest, limits.feature_bits) {
                return Err(DecodeError::TailBits);
            }
            Body::Features(rest)
        }
        Kind::Gone => Body::Gone,
        Kind::Input => Body::Input(rest),
        Kind::Decided => decided(rest)?,
        Kind::EdgeFeatures => {
            let (slots, rest) = rest.split_at(8);
            let (scores, map) = rest.split_at(limits.edge_score_bytes());
            if !bits::tail_is_clear(map, limits.edge_bits) {
                return Err(DecodeError::TailBits);
            }
            let slots = SlotSet::from_bits(whole_u64(slots));
            if slots.is_empty() {
                return Err(DecodeError::NoSlots);
            }
            finite(scores)?;
            Body::EdgeFeatures { slots, scores, map }
        }
        Kind::Batch => Body::Batch(Batch::read(rest, &header, limits)?),
    };
    Ok(Message { header, body })
}

fn decided(body: &[u8]) -> Result<Body<'_>, DecodeError> {
    let length = DecodeError::Length { kind: "decided", expected: DECIDED_BYTES, found: body.len() };
    let &[a, b, c, d, e, f, ref policy @ ..] = body else { return Err(length) };
    let confidence = f32::from_le_bytes([c, d, e, f]);
    if !(0.0..=1.0).contains(&confidence) {
        return Err(DecodeError::Confidence);
    }
    let policy = PolicyId(policy.try_into().map_err(|_| length)?);
    Ok(Body::Decided(DeviceDecision { class: u16::from_le_bytes([a, b]), confidence, policy }))
}

fn whole_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}
