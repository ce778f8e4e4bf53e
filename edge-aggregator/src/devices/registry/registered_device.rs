//! The devices with a birth, and those whose birth cannot be read, as the check of the devices' states needs them.

use std::time::Duration;

use headwater_inference::leader::{Generation, Micros};
use headwater_protocol::{DeviceId, Fault, PolicyId, Slot};

use super::session::{CheckedBirth, DeviceSession, NetworkSlot, Sign};
use super::{Device, DeviceIndex, Registry};

/// Reason of a device that is down by its last will or by its own status.
pub(super) const CONNECTION_ENDED: &str = "its connection to the broker has ended";

/// Reason of a device that has a birth and no status.
const NO_STATUS: &str = "it has introduced itself and no status of it is at the broker";

/// Reason of a device whose birth and status name different boots.
const OTHER_START: &str = "its birth and its status at the broker are of different starts";

/// Time over which lost slots are counted for the state `flapping`.
const FLAPPING_TIME: Duration = Duration::from_secs(60);

/// A device with a birth.
#[derive(Clone, Debug)]
pub(crate) struct RegisteredDevice<'a> {
    pub(crate) id: &'a DeviceId,
    /// Slot that the device fills or claims; `None` if its birth cannot be read.
    pub(crate) slot: Option<Slot>,
    pub(crate) claim: ClaimState<'a>,
    /// True if the device lost its slot three times in the last minute.
    pub(crate) is_flapping: bool,
    /// Arrival of the device's latest accepted message.
    pub(crate) heard: Micros,
    /// Arrival of the device's latest accepted answer, or the time at which the device took its slot, whichever is later; `None` before
    /// both.
    pub(crate) answered: Option<Micros>,
    /// False if the device is up only by a message from before the leader's present connection: the broker may keep the status `up` of a
    /// device that is gone.
    pub(crate) is_live: bool,
    /// Name and version of the device's software.
    pub(crate) software: &'a str,
    /// Reason that the device names for giving no answers while it is up; `None` if it names none.
    pub(crate) frozen: Option<&'a str>,
    /// Reason why the latest birth is refused; `None` if it is accepted.
    pub(crate) refusal: Option<&'a str>,
}

/// State of a device's claim to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimState<'a> {
    /// The device is not up, for this cause.
    Down(&'static str),
    /// The birth is refused while the device is up or has no status; or the device is up and another device fills its slot.
    Refused(Fault, &'a str),
    /// The device is up and lost its slot because it was silent.
    Replaced,
    /// The device fills its slot and runs this network.
    InSlot(Generation),
}

impl Registry {
    /// Every device with a birth, also one that cannot be read.
    pub(crate) fn registered(&self, now: Micros) -> impl Iterator<Item = RegisteredDevice<'_>> {
        self.state.devices.iter().filter_map(move |device| self.registered_device(device, now))
    }

    /// The devices in slots that decide by themselves, with the policies that their births name.
    pub(crate) fn deciding(&self) -> impl Iterator<Item = (&DeviceId, PolicyId)> {
        self.state.holders.iter().flatten().filter_map(|holder| {
            let device = &self.state.devices[holder.device.at];
            Some((&device.id, device.session.start()?.policy?))
        })
    }

    /// Refuses a device for its birth or its claim to a slot, and keeps the reason for the status.
    pub(super) fn refuse_birth(&mut self, index: DeviceIndex, fault: Fault, why: &str, now: Micros) {
        self.state.devices[index.at].note_refusal(fault, why);
        self.refuse(index, fault, why, now);
    }

    fn registered_device<'a>(&self, device: &'a Device, now: Micros) -> Option<RegisteredDevice<'a>> {
        let Some(CheckedBirth { claim: NetworkSlot { slot, .. }, refusal, .. }) = device.session.start()
        else {
            let (_, why) = device.unreadable.as_ref()?;
            return Some(RegisteredDevice {
                id: &device.id,
                slot: None,
                claim: ClaimState::Refused(Fault::Malformed, why),
                is_flapping: false,
                heard: device.heard,
                answered: None,
                is_live: true,
                software: "",
                frozen: None,
                refusal: Some(why),
            });
        };
        let refused = |fault| ClaimState::Refused(fault, device.reason_of(fault));
        let claim = match (device.session, refusal) {
            (DeviceSession::Waiting(_, None), Some(fault)) => refused(fault),
            (DeviceSession::Waiting(_, None), None) if let Some((_, why)) = &device.unreadable => {
                ClaimState::Refused(Fault::Malformed, why)
            }
            (
                DeviceSession::WithoutBirth(_)
                | DeviceSession::Waiting(..)
                | DeviceSession::Replaced(_, None)
                | DeviceSession::Ended(_),
                _,
            ) => ClaimState::Down(down_reason(device)),
            (
                DeviceSession::Up(_, Sign::KeptAfterEnd)
                | DeviceSession::Replaced(_, Some(Sign::KeptAfterEnd)),
                _,
            ) => ClaimState::Down(CONNECTION_ENDED),
            (DeviceSession::Up(..) | DeviceSession::Replaced(_, Some(_)), Some(fault)) => refused(fault),
            (DeviceSession::Replaced(_, Some(_)), None) => ClaimState::Replaced,
            (DeviceSession::Up(..), None) => match self.state.holders.get(slot.index()).copied().flatten() {
                Some(holder) if holder.device == device.index => ClaimState::InSlot(holder.generation),
                _ => refused(Fault::SlotTaken),
            },
        };
        Some(RegisteredDevice {
            id: &device.id,
            slot: Some(slot),
            claim,
            is_flapping: device.ends[0].is_some_and(|first| now < first + FLAPPING_TIME),
            heard: device.heard,
            answered: device.answered.max(device.up_since),
            is_live: device.session.sign().is_none_or(|sign| sign == Sign::Live),
            software: &device.software,
            frozen: device.frozen.as_deref(),
            refusal: refusal.map(|fault| device.reason_of(fault)),
        })
    }
}

/// Reason why a device with a birth is not up.
fn down_reason(device: &Device) -> &'static str {
    match device.session {
        DeviceSession::Replaced(_, None) | DeviceSession::Ended(_) => CONNECTION_ENDED,
        DeviceSession::Waiting(_, None) if device.ended.is_none() => NO_STATUS,
        _ => OTHER_START,
    }
}
