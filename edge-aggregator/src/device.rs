//! State of one device in the registry.

use std::collections::BTreeMap;

use headwater_inference::leader::Generation;
use headwater_protocol::{Birth, Boot, DeviceId, DeviceState, Fault, MqttHandling, SampleId, Slot, Status};
use tracing::warn;

/// One device, from its first message on.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) id: DeviceId,
    session: Option<Session>,
    status: Option<Status>,
    /// A boot that ended before its birth arrived, or while another boot was current.
    ended: Option<Boot>,
    refused: BTreeMap<&'static str, u64>,
    /// Faults already logged in this session.
    logged: Vec<Fault>,
}

/// A slot under a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSlot {
    pub(crate) slot: Slot,
    pub(crate) generation: Generation,
}

/// Birth certificate of a boot, checked against the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) claim: NetworkSlot,
    pub(crate) boot: Boot,
    /// Id of the first sample by the device's clock; 0 where triggers give the ids.
    pub(crate) first_sample: SampleId,
    /// Reason why this session is refused.
    pub(crate) refusal: Option<Fault>,
}

impl Device {
    pub(crate) fn new(id: DeviceId) -> Self {
        Self { id, session: None, status: None, ended: None, refused: BTreeMap::new(), logged: Vec::new() }
    }

    pub(crate) fn session(&self) -> Option<Session> {
        self.session
    }

    /// The slot that the device claims now: its session is accepted, and its status is up for the same boot.
    pub(crate) fn claimed_slot(&self) -> Option<NetworkSlot> {
        let session = self.session.filter(|session| session.refusal.is_none())?;
        let status = self.status.as_ref()?;
        (status.state == DeviceState::Up && status.boot == session.boot).then_some(session.claim)
    }

    pub(crate) fn set_birth(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.session.is_none_or(|session| session.boot != birth.boot) {
            self.logged.clear();
        }
        let first_sample = birth.sample.unwrap_or_default();
        let claim = NetworkSlot { slot: birth.slot, generation };
        self.session = Some(Session { claim, boot: birth.boot, first_sample, refusal });
        if self.ended == Some(birth.boot) {
            self.status = Some(Status { state: DeviceState::Down, boot: birth.boot });
        }
    }

    /// The broker no longer keeps the birth.
    pub(crate) fn clear_birth(&mut self) {
        self.session = None;
    }

    pub(crate) fn set_status(&mut self, status: Status) {
        let is_current = self.session.is_none_or(|session| session.boot == status.boot);
        if status.state == DeviceState::Down && !is_current {
            // The last will of another boot must not end this session.
            self.ended = Some(status.boot);
            return;
        }
        if status.state == DeviceState::Up && self.ended == Some(status.boot) {
            self.ended = None;
        }
        self.status = Some(status);
    }

    /// Counts a refusal. Where the error table asks for it, the first refusal of a kind is logged in each session.
    pub(crate) fn refuse(&mut self, fault: Fault, why: &str) {
        *self.refused.entry(fault.code()).or_default() += 1;
        if fault.mqtt() == MqttHandling::CountAndName && !self.logged.contains(&fault) {
            self.logged.push(fault);
            warn!(device = %self.id, fault = fault.code(), why, "a device was refused; more refusals of this session are only counted");
        }
    }

    pub(crate) fn refusals(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }
}
