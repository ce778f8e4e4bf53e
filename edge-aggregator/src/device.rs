//! What the registry knows of one device.

use std::collections::BTreeMap;

use headwater_inference::leader::Generation;
use headwater_protocol::{Birth, Boot, DeviceId, DeviceState, Fault, MqttHandling, SampleId, Slot, Status};
use tracing::warn;

/// One device, from its first message on.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    life: Option<Life>,
    status: Option<Status>,
    /// A life whose end was told before its birth, or while another was current.
    ended: Option<Boot>,
    refused: BTreeMap<&'static str, u64>,
    /// Codes already named in this life.
    named: Vec<Fault>,
}

/// A slot under a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: Slot,
    pub(crate) generation: Generation,
}

/// What a birth certificate said, checked against the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) place: Place,
    pub(crate) boot: Boot,
    /// The id of its clock's samples at its start; 0 where triggers give the ids.
    pub(crate) sample: SampleId,
    /// Why this life is not let in.
    pub(crate) refusal: Option<Fault>,
}

impl Device {
    pub(crate) fn new(id: DeviceId) -> Self {
        Self { id, life: None, status: None, ended: None, refused: BTreeMap::new(), named: Vec::new() }
    }

    pub(crate) fn life(&self) -> Option<Life> {
        self.life
    }

    /// The slot it fills now: introduced, let in, and up in this very life.
    pub(crate) fn wanted_place(&self) -> Option<Place> {
        let life = self.life.filter(|life| life.refusal.is_none())?;
        let up = self.status.as_ref().is_some_and(|s| s.state == DeviceState::Up && s.boot == life.boot);
        up.then_some(life.place)
    }

    pub(crate) fn introduced(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.life.is_none_or(|life| life.boot != birth.boot) {
            self.named.clear();
        }
        let sample = birth.sample.unwrap_or_default();
        let place = Place { slot: birth.slot, generation };
        self.life = Some(Life { place, boot: birth.boot, sample, refusal });
        if self.ended == Some(birth.boot) {
            self.status = Some(Status { state: DeviceState::Down, boot: birth.boot });
        }
    }

    /// The broker no longer keeps its birth.
    pub(crate) fn forgotten(&mut self) {
        self.life = None;
    }

    pub(crate) fn says(&mut self, status: Status) {
        let is_current = self.life.is_none_or(|life| life.boot == status.boot);
        if status.state == DeviceState::Down && !is_current {
            // The will of another life: it must not end this one.
            self.ended = Some(status.boot);
            return;
        }
        if status.state == DeviceState::Up && self.ended == Some(status.boot) {
            self.ended = None;
        }
        self.status = Some(status);
    }

    /// Counts a refusal and, where the error table says so, names the device once per life.
    pub(crate) fn refuse(&mut self, fault: Fault, why: &str) {
        *self.refused.entry(fault.code()).or_default() += 1;
        if fault.mqtt() == MqttHandling::CountAndName && !self.named.contains(&fault) {
            self.named.push(fault);
            warn!(device = %self.id, fault = fault.code(), why, "a device was refused; further ones of this life are only counted");
        }
    }

    pub(crate) fn refusals(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }
}
