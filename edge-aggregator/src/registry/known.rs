//! The devices that the registry knows, each as it stands at the broker.

use headwater_inference::leader::Generation;
use headwater_protocol::{DeviceId, Fault, Slot};
use tokio::time::{Duration, Instant};

use super::{Device, DeviceIndex, Registry};

/// Lost slots within [`FLAPPING_TIME`] that make a device a flapping one.
pub(super) const FLAPPING_ENDS: usize = 3;

/// Time over which lost slots are counted.
const FLAPPING_TIME: Duration = Duration::from_secs(60);

/// Characters of a device's software that are kept.
pub(super) const MAX_SOFTWARE_CHARS: usize = 64;

/// A device with a birth.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    pub(crate) id: &'a DeviceId,
    /// The slot that it fills or claims.
    pub(crate) slot: Slot,
    pub(crate) presence: Presence,
    /// Whether it lost its slot three times in the last minute.
    pub(crate) is_flapping: bool,
    /// Arrival of its latest accepted message.
    pub(crate) heard: Instant,
    /// Arrival of its latest accepted answer, or when it took its slot; whichever is later.
    pub(crate) answered: Option<Instant>,
    /// Name and version of its software.
    pub(crate) software: &'a str,
}

/// A device as the broker and the registry see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Its connection has ended.
    Down,
    /// It is up and its birth is refused, or another device fills its slot.
    Refused(Fault, String),
    /// It is up and lost its slot because it was silent.
    Replaced,
    /// It fills its slot, under this network.
    InSlot(Generation),
}

impl Registry {
    /// Every device with a birth.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        self.devices.iter().filter_map(|device| self.known_device(device))
    }

    /// Refuses a device for its birth or its claim to a slot, and keeps the reason for the status.
    pub(super) fn refuse_birth(&mut self, index: DeviceIndex, fault: Fault, why: &str) {
        self.devices[index.at].note_refusal(fault, why);
        self.refuse(index, fault, why);
    }

    fn known_device<'a>(&self, device: &'a Device) -> Option<Known<'a>> {
        let session = device.session?;
        let slot = session.claim.slot;
        let holder = self.holders.get(slot.index()).copied().flatten();
        let presence = match (device.is_up(), session.refusal, holder) {
            (false, ..) => Presence::Down,
            (true, Some(fault), _) => Presence::Refused(fault, device.reason_of(fault)),
            (true, None, Some(holder)) if holder.device == device.index => {
                Presence::InSlot(holder.generation)
            }
            (true, None, _) if session.is_silent => Presence::Replaced,
            (true, None, _) => Presence::Refused(Fault::SlotTaken, device.reason_of(Fault::SlotTaken)),
        };
        Some(Known {
            id: &device.id,
            slot,
            presence,
            is_flapping: device.ends[0].is_some_and(|first| self.now < first + FLAPPING_TIME),
            heard: device.heard,
            answered: device.answered.max(device.up_since),
            software: &device.software,
        })
    }
}

impl Device {
    /// Notes that the device lost its slot.
    pub(super) fn note_end(&mut self, now: Instant) {
        self.ends.rotate_left(1);
        if let Some(last) = self.ends.last_mut() {
            *last = Some(now);
        }
    }

    /// Keeps the reason of a refusal; one allocation for refusals that repeat.
    pub(super) fn note_refusal(&mut self, fault: Fault, why: &str) {
        if self.refusal.as_ref().is_none_or(|(known, text)| *known != fault || text != why) {
            self.refusal = Some((fault, why.to_owned()));
        }
    }

    fn reason_of(&self, fault: Fault) -> String {
        let known = self.refusal.as_ref().filter(|(known, _)| *known == fault);
        known.map_or_else(|| fault.code().to_owned(), |(_, why)| why.clone())
    }
}
