//! Answers to samples that no trigger has named yet, in a group that numbers by trigger.
//!
//! An answer may overtake its trigger. The answer is held for the length of a window:
//!
//! ```text
//!                 ┌── the trigger, or another device names the sample ──> taken
//! answer ──> held ┤
//!                 └── neither within the window ──> refused
//! ```
//!
//! So one faulty device cannot have samples decided before they exist. If only one device is up, its answers are
//! not held.

use headwater_protocol::{DeviceDecision, SampleId, Slot, SlotSet};
use serde::{Deserialize, Serialize};

use super::Leader;
use super::device_answers::{DeviceAnswer, DeviceMessage, NamedFrame};
use crate::leader::Micros;

/// Largest number of answers that are held for one slot.
const MAX_HELD: usize = 256;

/// Answers that are held, oldest first.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct EarlyAnswers(Vec<EarlyAnswer>);

#[derive(Clone, Serialize, Deserialize)]
struct EarlyAnswer {
    message: DeviceMessage,
    received: Micros,
    content: EarlyContent,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    frame: Option<NamedFrame>,
}

/// Content of a held message: a [`DeviceAnswer`] that owns its values, or features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EarlyContent {
    Summary(#[serde(with = "crate::leader::float_bits")] Vec<f32>),
    NotInView,
    Input(Vec<u8>),
    Decided(DeviceDecision),
    GivenUp,
    /// Packed bits of the map, and the number of bytes in which the map was sent.
    Features(Vec<u8>, u64),
}

impl From<DeviceAnswer<'_>> for EarlyContent {
    fn from(answer: DeviceAnswer<'_>) -> Self {
        match answer {
            DeviceAnswer::Summary(scores) => Self::Summary(scores.to_vec()),
            DeviceAnswer::NotInView => Self::NotInView,
            DeviceAnswer::Input(pixels) => Self::Input(pixels.to_vec()),
            DeviceAnswer::Decided(decision) => Self::Decided(decision),
            DeviceAnswer::GivenUp => Self::GivenUp,
        }
    }
}

impl EarlyContent {
    /// The answer. For features, which are no answer, `Err` with the packed bits and the number of bytes in which they were sent.
    fn as_answer(&self) -> Result<DeviceAnswer<'_>, (&[u8], u64)> {
        Ok(match self {
            Self::Summary(scores) => DeviceAnswer::Summary(scores),
            Self::NotInView => DeviceAnswer::NotInView,
            Self::Input(pixels) => DeviceAnswer::Input(pixels),
            Self::Decided(decision) => DeviceAnswer::Decided(*decision),
            Self::GivenUp => DeviceAnswer::GivenUp,
            Self::Features(bits, body_bytes) => return Err((bits, *body_bytes)),
        })
    }
}

impl EarlyAnswers {
    /// Takes out the answers for which `passes` holds.
    fn take(&mut self, passes: impl Fn(&EarlyAnswer) -> bool) -> Vec<EarlyAnswer> {
        self.0.extract_if(.., |held| passes(held)).collect()
    }
}

impl Leader {
    /// True when a message names a plausible sample ahead of all known triggers and of all ids that other devices have named; always false
    /// for the only device that is up.
    pub(super) fn is_early(&mut self, message: DeviceMessage) -> bool {
        let DeviceMessage { sample, .. } = message;
        let others = self.slots_up() - SlotSet::single(message.slot);
        !self.is_known(sample)
            && !others.is_empty()
            && self.state.plausible_ids.is_before_trigger(sample)
            && !self.state.plausible_ids.is_named_by(others, sample)
            && self.check_new(message).is_ok()
    }

    /// Holds an early message; refuses the message if its slot has [`MAX_HELD`] held messages.
    pub(super) fn hold(&mut self, message: DeviceMessage, content: EarlyContent, frame: Option<&NamedFrame>) {
        self.refuse_expired();
        let of_slot = self.state.early.0.iter().filter(|held| held.message.slot == message.slot);
        if of_slot.count() == MAX_HELD {
            return self.count_implausible(message.slot);
        }
        let frame = frame.cloned();
        self.state.early.0.push(EarlyAnswer { message, received: self.state.now, content, frame });
    }

    /// Takes the held answers to a sample that is known now.
    pub(super) fn take_early(&mut self, sample: SampleId) {
        if self.state.early.0.is_empty() {
            return;
        }
        self.refuse_expired();
        for EarlyAnswer { message, received, content, frame } in
            self.state.early.take(|held| held.message.sample == sample)
        {
            let held_ms = u16::try_from(self.state.now.since(received) / 1000).unwrap_or(u16::MAX);
            let message = DeviceMessage { age_ms: message.age_ms.saturating_add(held_ms), ..message };
            match content.as_answer() {
                Ok(answer) => self.take_answer(message, answer, frame.as_ref()),
                Err(features) => self.take_features(message, Some(features)),
            }
        }
    }

    /// The sample of the first held message that does not fit its network; `None` if all fit.
    pub(super) fn first_early_misfit(&self, early: &EarlyAnswers) -> Option<SampleId> {
        let fits = |EarlyAnswer { message, content, .. }: &EarlyAnswer| match content.as_answer() {
            Ok(answer) => self.fits(*message, answer),
            Err((bits, _)) => self.features_fit(*message, Some(bits)),
        };
        early.0.iter().find(|held| !fits(held)).map(|held| held.message.sample)
    }

    /// Refuses the answers that were held for longer than a window.
    fn refuse_expired(&mut self) {
        let (now, window_ms) = (self.state.now, self.state.networks.current.policy.window_ms);
        for expired in self.state.early.take(|held| held.received.plus_ms(window_ms) < now) {
            self.count_implausible(expired.message.slot);
        }
    }

    /// Counts a refused message of a device.
    pub(super) fn count_implausible(&mut self, slot: Slot) {
        self.state.counts.implausible += 1;
        self.state.counts.implausible_slots.insert(slot);
    }
}
