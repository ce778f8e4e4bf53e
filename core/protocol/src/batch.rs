//! Answers of several samples in one message: the body of the kind `batch`.
//!
//! The header of the message has the id and the age of the first sample. Each sample, the first one included, has an entry:
//!
//! ```text
//! | step, varint | younger, varint | scores, as in a summary; nothing for not_in_view |
//! ```
//!
//! | field | meaning |
//! | --- | --- |
//! | `step` | bit 0: 1 for `not_in_view`, 0 for `summary`; the bits above: the id less the id of the entry before |
//! | `younger` | age of the sample of the entry before less the age of this sample, ms |
//!
//! In the first entry `younger` and the bits of `step` above bit 0 are 0. From entry to entry ids rise, and ages fall or stay. Varints
//! are written like the sample ids in headers.
//!
//! A device sends batches while the leader's notices have [`SettledNotice::batch_ms`](crate::SettledNotice::batch_ms), the longest time for
//! which a device may collect answers. The leader states this time while the birth of at least one device names [`BATCHES`].

use crate::header::{Header, put_header};
use crate::ids::{SampleId, Session};
use crate::kind::{Kind, MAX_BATCH_SAMPLES};
use crate::limits::{Limits, check_scores};
use crate::message_error::{BatchMistake, DecodeError, EncodeError};
use crate::varint::{put_varint, take_varint};

/// The capability that the birth of a device names if the device sends batches.
pub const BATCHES: &str = "batches";

/// Bit of `step` that marks `not_in_view`.
const NOT_IN_VIEW: u32 = 1;

/// Entries of a batch, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch<'a> {
    bytes: &'a [u8],
    /// Bytes of the scores of one summary.
    summary_bytes: usize,
}

/// One sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchEntry<'a> {
    /// The sample.
    pub sample: SampleId,
    /// Time from capture to sending, ms, saturating.
    pub age_ms: u16,
    /// The answer.
    pub answer: BatchedAnswer<'a>,
}

/// An answer in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchedAnswer<'a> {
    /// Class scores in the encoding of the network.
    Summary(&'a [u8]),
    /// The device is up and has no view of the sample.
    NotInView,
}

impl<'a> Batch<'a> {
    /// Reads and checks the bytes after the header.
    ///
    /// # Errors
    /// [`DecodeError`] for the first wrong entry; [`DecodeError::Batch`] names the entry, errors of its scores do not.
    pub(crate) fn read(bytes: &'a [u8], header: &Header, limits: &Limits) -> Result<Self, DecodeError> {
        let summary_bytes = limits.summary_bytes();
        let mut raw = RawEntries { rest: bytes, summary_bytes };
        let (mut sample, mut age_ms) = (header.sample.0, header.age_ms);
        let mut entry = 0;
        let wrong = |entry, mistake| Err(DecodeError::Batch { entry, mistake });
        if header.late {
            return wrong(entry, BatchMistake::Late);
        }
        while !raw.rest.is_empty() {
            if entry == MAX_BATCH_SAMPLES {
                return wrong(entry, BatchMistake::TooMany);
            }
            let found = raw.read().map_err(|mistake| DecodeError::Batch { entry, mistake })?;
            match (entry, found.distance, found.younger_ms) {
                (0, 0, 0) => {}
                (0, ..) => return wrong(entry, BatchMistake::NotTheHeaders),
                (_, 0, _) => return wrong(entry, BatchMistake::NotRising),
                _ => {}
            }
            let Some(next) = sample.checked_add(found.distance.into()) else {
                return wrong(entry, BatchMistake::TooFar);
            };
            let Some(next_age_ms) = age_ms.checked_sub(found.younger_ms) else {
                return wrong(entry, BatchMistake::NegativeAge);
            };
            (sample, age_ms) = (next, next_age_ms);
            if let BatchedAnswer::Summary(scores) = found.answer {
                check_scores(scores, limits)?;
            }
            entry += 1;
        }
        if entry == 0 { wrong(entry, BatchMistake::Missing) } else { Ok(Self { bytes, summary_bytes }) }
    }

    /// The samples in order.
    pub fn entries(&self, header: &Header) -> impl Iterator<Item = BatchEntry<'a>> + use<'a> {
        let mut raw = RawEntries { rest: self.bytes, summary_bytes: self.summary_bytes };
        let (mut sample, mut age_ms) = (header.sample, header.age_ms);
        std::iter::from_fn(move || {
            if raw.rest.is_empty() {
                return None;
            }
            // `read` has checked the bytes, so reading an entry does not fail.
            let RawEntry { distance, younger_ms, answer } = raw.read().ok()?;
            sample = SampleId(sample.0.wrapping_add(distance.into()));
            age_ms = age_ms.saturating_sub(younger_ms);
            Some(BatchEntry { sample, age_ms, answer })
        })
    }

    /// The bytes after the header.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True if the summaries have the length that these limits give.
    pub(crate) fn fits(&self, limits: &Limits) -> bool {
        self.summary_bytes == limits.summary_bytes()
    }
}

impl BatchedAnswer<'_> {
    /// Kind of a message that carries this answer alone.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Summary(_) => Kind::Summary,
            Self::NotInView => Kind::NotInView,
        }
    }

    /// Bytes of the body of a message that carries this answer alone.
    pub fn body_bytes(&self) -> usize {
        match self {
            Self::Summary(scores) => scores.len(),
            Self::NotInView => 0,
        }
    }
}

/// Appends one message with as many entries from the start of `entries` as it can hold, and returns their number. `entries` are in the
/// order of their ids. The message ends after [`MAX_BATCH_SAMPLES`] entries, or before an entry that cannot follow: its sample is older
/// than the sample before, or its id is not above the id before, or is 2^31 or more above the id before. Without entries nothing is
/// appended, and the number is 0.
///
/// # Errors
/// [`EncodeError`] for scores of another length than the limits give; `out` is then unchanged.
pub fn encode_batch(
    session: Session,
    entries: &[BatchEntry<'_>],
    limits: &Limits,
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    let Some(first) = entries.first() else { return Ok(0) };
    let expected = limits.summary_bytes();
    let wrong = entries.iter().find_map(|entry| match entry.answer {
        BatchedAnswer::Summary(scores) => Some(scores.len()).filter(|found| *found != expected),
        BatchedAnswer::NotInView => None,
    });
    if let Some(found) = wrong {
        return Err(EncodeError { kind: Kind::Batch.name(), expected, found });
    }
    let header = Header { late: false, session, sample: first.sample, age_ms: first.age_ms };
    put_header(Kind::Batch, &header, out);
    let (mut before, mut taken) = (first, 0);
    for entry in entries.iter().take(MAX_BATCH_SAMPLES) {
        let is_first = taken == 0;
        let distance = entry.sample.0.checked_sub(before.sample.0).filter(|far| is_first || *far > 0);
        let step = distance.and_then(|distance| u32::try_from(distance.checked_mul(2)?).ok());
        let younger_ms = before.age_ms.checked_sub(entry.age_ms);
        let (Some(step), Some(younger_ms)) = (step, younger_ms) else { break };
        match entry.answer {
            BatchedAnswer::Summary(scores) => {
                put_varint(step.into(), out);
                put_varint(younger_ms.into(), out);
                out.extend_from_slice(scores);
            }
            BatchedAnswer::NotInView => {
                put_varint((step | NOT_IN_VIEW).into(), out);
                put_varint(younger_ms.into(), out);
            }
        }
        (before, taken) = (entry, taken + 1);
    }
    Ok(taken)
}

/// Entries whose ids, ages and scores are not checked yet.
struct RawEntries<'a> {
    rest: &'a [u8],
    summary_bytes: usize,
}

/// An entry as it stands in the message.
struct RawEntry<'a> {
    distance: u32,
    younger_ms: u16,
    answer: BatchedAnswer<'a>,
}

impl<'a> RawEntries<'a> {
    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, BatchMistake> {
        take_varint(&mut self.rest).and_then(|number| number.try_into().ok()).ok_or(BatchMistake::Number)
    }

    /// Reads the next entry from bytes that are not empty.
    fn read(&mut self) -> Result<RawEntry<'a>, BatchMistake> {
        let step: u32 = self.number()?;
        let younger_ms: u16 = self.number()?;
        let answer = if step & NOT_IN_VIEW == 0 {
            let (expected, found) = (self.summary_bytes, self.rest.len());
            let cut = self.rest.split_at_checked(expected);
            let (scores, rest) = cut.ok_or(BatchMistake::CutOff { expected, found })?;
            self.rest = rest;
            BatchedAnswer::Summary(scores)
        } else {
            BatchedAnswer::NotInView
        };
        Ok(RawEntry { distance: step >> 1, younger_ms, answer })
    }
}
