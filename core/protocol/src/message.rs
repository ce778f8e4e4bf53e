//! Binary messages of one sample: a [header](crate::header), then the body.
//!
//! | kind | body |
//! | --- | --- |
//! | `trigger` | nothing |
//! | `summary` | [scores](crate::scores) in the encoding of the network |
//! | `not_in_view` | nothing |
//! | `request` | slots asked, a [`SlotSet`] (u64), without the zero bytes at its end |
//! | `features` | packed map; where the network codes its maps, the coded map if that is shorter |
//! | `gone` | nothing; on the topic `summary`, marked late: the device gave the whole sample up |
//! | `input` | the view as pixels |
//! | `decided` | class (u16), confidence (f32), policy id (8 bytes) |
//! | `edge_features` | slots in it, a [`SlotSet`] (u64); scores, one `f32` a class; packed map |
//! | `batch` | answers of several samples (`batch.rs`) |
//!
//! Device, session, kind and sample identify a message; duplicates are normal.

use thiserror::Error;

use crate::batch::{self, Batch, BatchMistake};
use crate::bit_set::SlotSet;
use crate::bits;
use crate::fault::Fault;
use crate::header::{Header, MAX_HEADER_BYTES, VERSION, put_header, take_header};
use crate::ids::PolicyId;
use crate::scores::{self, ScoreEncoding};

/// A decoded message, borrowing its body from the payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message<'a> {
    /// The bytes before the body.
    pub header: Header,
    /// The bytes after the header.
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
    /// Class scores in the encoding of the network; see [`scores`].
    Summary(&'a [u8]),
    /// The device is up and has no view of the sample.
    NotInView,
    /// These slots are asked for their features.
    Request(SlotSet),
    /// Feature bits, see [`bits`]; shorter than these where the network codes its maps.
    Features(&'a [u8]),
    /// The device does not keep the features any more. Marked late on the topic `summary`: it gave the whole sample up.
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
    /// Summaries and `not_in_view` of several samples, in time; the header is that of the first one.
    Batch(Batch<'a>),
}

/// The decision of a device with an exit (configurations b and d).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceDecision {
    /// Index of the class in the network's labels.
    pub class: u16,
    /// One minus the uncertainty, in `[0, 1]`.
    pub confidence: f32,
    /// The policy under which the device decided.
    pub policy: PolicyId,
}

/// Kind of a message: the low half of byte 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// [`Body::Trigger`].
    Trigger = 1,
    /// [`Body::Summary`].
    Summary = 2,
    /// [`Body::NotInView`].
    NotInView = 3,
    /// [`Body::Request`].
    Request = 4,
    /// [`Body::Features`].
    Features = 5,
    /// [`Body::Gone`].
    Gone = 6,
    /// [`Body::Input`].
    Input = 7,
    /// [`Body::Decided`].
    Decided = 8,
    /// [`Body::EdgeFeatures`].
    EdgeFeatures = 9,
    /// [`Body::Batch`].
    Batch = 10,
}

/// Body lengths of the receiver's network; a message of another length is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Classes, each with a score.
    pub classes: usize,
    /// Encoding of the scores of a summary.
    pub scores: ScoreEncoding,
    /// Bits of one feature map.
    pub feature_bits: usize,
    /// Whether feature maps are coded: a body may then be shorter than the map.
    pub codes_features: bool,
    /// Bytes of a view.
    pub view_bytes: usize,
    /// Bits of the map of an edge; 0 where there are no edges.
    pub edge_bits: usize,
}

impl Limits {
    /// Bytes of the largest message under these limits.
    pub fn largest_payload(&self) -> usize {
        let bodies = Kind::NAMES.map(|(kind, _)| self.body_bytes(kind));
        MAX_HEADER_BYTES + bodies.into_iter().max().unwrap_or(0)
    }

    /// Bytes of the scores of a summary.
    pub(crate) fn summary_bytes(&self) -> usize {
        self.scores.bytes(self.classes)
    }

    /// Bytes of the scores of an edge, which are floats.
    fn edge_score_bytes(&self) -> usize {
        ScoreEncoding::F32.bytes(self.classes)
    }

    /// Whether a body has a length of its kind. The entries of a batch tell its length, and a request has no zero byte at its end.
    fn fits(&self, kind: Kind, bytes: usize) -> bool {
        let whole = self.body_bytes(kind);
        bytes == whole
            || kind == Kind::Batch
            || (kind == Kind::Request && bytes < whole)
            || (kind == Kind::Features && self.codes_features && (1..whole).contains(&bytes))
    }

    /// Bytes of a body; of one that may be coded, and of a batch, the most.
    fn body_bytes(&self, kind: Kind) -> usize {
        match kind {
            Kind::Request => 8,
            Kind::Summary => self.summary_bytes(),
            Kind::Features => bits::packed_len(self.feature_bits),
            Kind::Input => self.view_bytes,
            Kind::Trigger | Kind::NotInView | Kind::Gone => 0,
            Kind::Decided => DECIDED_BYTES,
            Kind::EdgeFeatures => 8 + self.edge_score_bytes() + bits::packed_len(self.edge_bits),
            Kind::Batch => batch::longest_body(self.summary_bytes()),
        }
    }
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

    /// Bytes after the header.
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

    /// Whether nothing follows the header.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Kind {
    /// Every kind, in the order of their numbers from 1 on, with its name in metrics.
    const NAMES: [(Self, &'static str); 10] = [
        (Self::Trigger, "trigger"),
        (Self::Summary, "summary"),
        (Self::NotInView, "not_in_view"),
        (Self::Request, "request"),
        (Self::Features, "features"),
        (Self::Gone, "gone"),
        (Self::Input, "input"),
        (Self::Decided, "decided"),
        (Self::EdgeFeatures, "edge_features"),
        (Self::Batch, "batch"),
    ];

    /// Name in metrics.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1].1
    }

    /// Whether the message goes to every device of the group: it has no age, and its session is that of the network.
    pub(crate) const fn is_to_group(self) -> bool {
        matches!(self, Self::Trigger | Self::Request)
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        Self::NAMES.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u8 == bits)
    }
}

/// Appends a message to `out`.
///
/// # Errors
/// [`EncodeError`] when the body has not the length of the limits; `out` is then as it was.
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

/// Reads one whole payload.
///
/// # Errors
/// [`DecodeError`] for bytes that are not exactly one message under these limits. Scores must be finite and tail bits zero.
pub fn decode<'a>(payload: &'a [u8], limits: &Limits) -> Result<Message<'a>, DecodeError> {
    if payload.len() > limits.largest_payload() {
        return Err(DecodeError::Oversize { limit: limits.largest_payload(), found: payload.len() });
    }
    let (kind, header, rest) = take_header(payload)?;
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

/// Refuses scores of a summary that are not finite, or with bits after the last one.
pub(crate) fn check_scores(scores: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    match limits.scores {
        ScoreEncoding::F32 => finite(scores),
        levels if bits::tail_is_clear(scores, limits.classes * levels.bits()) => Ok(()),
        _ => Err(DecodeError::ScoreTail),
    }
}

fn finite(scores: &[u8]) -> Result<(), DecodeError> {
    if scores::floats(scores).all(f32::is_finite) { Ok(()) } else { Err(DecodeError::NotFinite) }
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

/// Class, confidence, policy.
const DECIDED_BYTES: usize = 2 + 4 + 8;

fn whole_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// A body that does not fit the receiver's network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} message: expected a body of {expected} bytes, got {found}")]
pub struct EncodeError {
    /// Kind of the message.
    pub kind: &'static str,
    /// Bytes the network's shapes give.
    pub expected: usize,
    /// Bytes given.
    pub found: usize,
}

/// A payload that is not a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Shorter than a header.
    #[error("message: expected a whole header, found {0} bytes")]
    Truncated(usize),
    /// Longer than the longest message.
    #[error("message: expected at most {limit} bytes, found {found}")]
    Oversize {
        /// Longest payload under the limits.
        limit: usize,
        /// Bytes found.
        found: usize,
    },
    /// Another version of the protocol.
    #[error("message: expected version {VERSION}, found {0}: update the older side")]
    Version(u8),
    /// A kind this version does not have.
    #[error("message: unknown kind {0}")]
    Kind(u8),
    /// A flag this version does not have.
    #[error("message: unknown flags {0:#010b}")]
    Flags(u8),
    /// A body of another length than the network's shapes give.
    #[error("{kind} message: expected a body of {expected} bytes, found {found}")]
    Length {
        /// Kind of the message.
        kind: &'static str,
        /// Bytes expected.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// Coded features without a byte, or longer than the map.
    #[error("features message: expected a body of 1 to {limit} bytes, found {found}")]
    CodedLength {
        /// Bytes of the map that is not coded.
        limit: usize,
        /// Bytes found.
        found: usize,
    },
    /// A sample id that is longer than it need be, or above a `u64`.
    #[error("message: expected a sample id in as few bytes as it needs, at most 10, found other bytes")]
    SampleId,
    /// A request that is longer than it need be.
    #[error("request message: expected no zero byte at its end, found one")]
    ZeroAtEnd,
    /// A score that is NaN or infinite.
    #[error("message: expected finite scores, found NaN or infinity")]
    NotFinite,
    /// Bits set after the last score.
    #[error("summary message: expected zero bits after the last score, found ones")]
    ScoreTail,
    /// A confidence outside `[0, 1]`.
    #[error("decided message: expected a confidence in [0, 1], found another number")]
    Confidence,
    /// An edge message without any slot.
    #[error("edge_features message: expected at least one slot, found none")]
    NoSlots,
    /// A wrong entry of a batch.
    #[error("batch message, entry {entry}: {mistake}")]
    Batch {
        /// Number of the entry, from 0.
        entry: usize,
        /// The mistake.
        mistake: BatchMistake,
    },
    /// Bits set after the last feature.
    #[error("features message: expected zero bits after the last feature, found ones")]
    TailBits,
    /// A binary message of another kind on the topic of triggers.
    #[error("trigger: a {0} message does not belong here")]
    NotATrigger(&'static str),
    /// A trigger in JSON that cannot be read; the reason is clipped.
    #[error("trigger: expected JSON such as {{\"sample\": 17}}: {0}")]
    TriggerJson(String),
}

impl DecodeError {
    /// Row of the error table.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Version(_) => Fault::WrongVersion,
            Self::Oversize { .. } => Fault::Oversize,
            _ => Fault::Malformed,
        }
    }
}
