//! The leader's knowledge of a device's present run, by the device's birth and status messages. Each run has its own boot number.
//!
//! ```text
//!              birth             status up of the same boot      silent, and another device claims its slot
//!  WithoutBirth ────> Waiting ──────────────────────────────> Up ──────────────────────────────────────────> Replaced
//!                                                           ^ │ <──── accepted message, while its status is up ─────┘
//!                                                 status up │ │ status down
//!                                                           │ v
//!                                                          Ended
//! ```
//!
//! A birth of another boot begins again at `Waiting`. A status down does not end `Replaced`.
//!
//! The broker may deliver birth and status in either order, and may keep either from an earlier start.

use headwater_inference::leader::Generation;
use headwater_protocol::{Birth, Boot, Fault, Numbering, PolicyId, Slot};
use serde::{Deserialize, Serialize};

/// The present session of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DeviceSession {
    /// No birth came, or it was cleared.
    WithoutBirth(Option<LatestStatus>),
    /// No status came, or the latest status is of another boot than the birth.
    Waiting(CheckedBirth, Option<LatestStatus>),
    /// The status is up for the birth's boot.
    Up(CheckedBirth, Sign),
    /// The device was up and lost its slot because it was silent. It claims no slot until it sends a message while its latest status is up.
    /// There is a sign if the latest status is up.
    Replaced(CheckedBirth, Option<Sign>),
    /// The status is down for the birth's boot.
    Ended(CheckedBirth),
}

/// A birth certificate, checked against the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckedBirth {
    pub(super) claim: NetworkSlot,
    pub(super) boot: Boot,
    /// Session that messages of this boot name.
    pub(super) messages: headwater_protocol::Session,
    /// Numbering of the device's samples; `None` if its birth names none.
    pub(super) numbering: Option<Numbering>,
    /// True if the device sends batches when the leader reads batches.
    pub(super) sends_batches: bool,
    /// Policy under which the device decides by itself; `None` if it does not.
    pub(super) policy: Option<PolicyId>,
    /// Fault for which the birth is refused; `None` if it is accepted.
    pub(super) refusal: Option<Fault>,
}

/// A slot, and the network that a device in it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NetworkSlot {
    pub(super) slot: Slot,
    pub(super) generation: Generation,
}

/// The latest status of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LatestStatus {
    Up(Boot, Sign),
    Down(Boot),
}

/// Evidence by which the leader knows that a device is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Sign {
    /// A message that was sent while the leader was connected.
    Live,
    /// A message from before the leader's present connection, most often a status that the broker had kept.
    Kept,
    /// A status that the broker had kept, of a boot whose end the leader has seen: a broker that crashed may have kept an old status.
    KeptAfterEnd,
}

/// An event that changes a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionEvent {
    /// A birth; `has_ended` says whether the leader knows already that the birth's boot has ended.
    Birth { start: CheckedBirth, has_ended: bool },
    /// The birth was cleared.
    BirthCleared,
    /// A status: `up` for any boot; `down` for the boot of the birth, or for any boot if there is no birth.
    Status(LatestStatus),
    /// The birth was judged again: accepted, or refused by a fault.
    Judged(Option<Fault>),
    /// The device sent a message while the leader is connected.
    Message,
    /// The device sent an accepted message, so that it claims its slot again.
    Returned,
    /// The device was silent while another device claimed its slot.
    Silent,
    /// The leader has a new connection to the broker.
    LeaderConnected,
}

impl CheckedBirth {
    /// A birth of a device that runs this network, not refused yet.
    pub(super) fn new(birth: &Birth, generation: Generation) -> Self {
        Self {
            claim: NetworkSlot { slot: birth.slot, generation },
            boot: birth.boot,
            messages: headwater_protocol::Session::of_boot(birth.network, birth.boot),
            numbering: birth.numbering,
            sends_batches: birth.sends_batches(),
            policy: birth.policy,
            refusal: None,
        }
    }
}

impl DeviceSession {
    /// Changes the session by an event. An event that means nothing in the present state is ignored.
    pub(super) fn on(&mut self, event: SessionEvent) {
        match (*self, event) {
            (_, SessionEvent::Birth { start, has_ended }) => self.take_birth(start, has_ended),
            (_, SessionEvent::BirthCleared) => *self = Self::WithoutBirth(self.heard()),
            (Self::Replaced(start, _), SessionEvent::Status(LatestStatus::Up(boot, sign)))
                if boot == start.boot =>
            {
                *self = Self::Replaced(start, Some(sign));
            }
            (Self::Replaced(start, _), SessionEvent::Status(LatestStatus::Down(boot)))
                if boot == start.boot =>
            {
                *self = Self::Replaced(start, None);
            }
            (_, SessionEvent::Status(heard)) => *self = Self::of(self.start(), Some(heard)),
            (_, SessionEvent::Judged(refusal)) => {
                if let Some(start) = self.start_mut() {
                    start.refusal = refusal;
                }
            }
            (_, SessionEvent::Message) => {
                if let Some(sign) = self.sign_mut() {
                    *sign = Sign::Live;
                }
            }
            (Self::Replaced(start, Some(sign)), SessionEvent::Returned) => *self = Self::Up(start, sign),
            (Self::Up(start, sign), SessionEvent::Silent) => *self = Self::Replaced(start, Some(sign)),
            (
                Self::Up(_, Sign::Live) | Self::Replaced(_, Some(Sign::Live)),
                SessionEvent::LeaderConnected,
            ) => {
                if let Some(sign) = self.sign_mut() {
                    *sign = Sign::Kept;
                }
            }
            (_, SessionEvent::Returned | SessionEvent::Silent | SessionEvent::LeaderConnected) => {}
        }
    }

    fn of(start: Option<CheckedBirth>, heard: Option<LatestStatus>) -> Self {
        match (start, heard) {
            (None, heard) => Self::WithoutBirth(heard),
            (Some(start), Some(LatestStatus::Up(boot, sign))) if boot == start.boot => Self::Up(start, sign),
            (Some(start), Some(LatestStatus::Down(boot))) if boot == start.boot => Self::Ended(start),
            (Some(start), heard) => Self::Waiting(start, heard),
        }
    }

    fn take_birth(&mut self, start: CheckedBirth, has_ended: bool) {
        let heard = if has_ended { Some(LatestStatus::Down(start.boot)) } else { self.heard() };
        *self = match (*self, Self::of(Some(start), heard)) {
            // The known birth came again: the device stays replaced.
            (Self::Replaced(known, sign), Self::Up(start, _) | Self::Ended(start))
                if known.boot == start.boot && known.claim.slot == start.claim.slot =>
            {
                Self::Replaced(start, sign.filter(|_| !has_ended))
            }
            (_, session) => session,
        };
    }

    fn start_mut(&mut self) -> Option<&mut CheckedBirth> {
        match self {
            Self::WithoutBirth(_) => None,
            Self::Waiting(start, _) | Self::Up(start, _) | Self::Replaced(start, _) | Self::Ended(start) => {
                Some(start)
            }
        }
    }

    fn sign_mut(&mut self) -> Option<&mut Sign> {
        match self {
            Self::Up(_, sign) | Self::Replaced(_, Some(sign)) => Some(sign),
            Self::WithoutBirth(Some(LatestStatus::Up(_, sign)))
            | Self::Waiting(_, Some(LatestStatus::Up(_, sign))) => Some(sign),
            Self::WithoutBirth(_) | Self::Waiting(..) | Self::Replaced(_, None) | Self::Ended(_) => None,
        }
    }

    /// The birth of the session; `None` if none came or it was cleared.
    pub(super) fn start(&self) -> Option<CheckedBirth> {
        { *self }.start_mut().copied()
    }

    /// The latest status.
    pub(super) fn heard(&self) -> Option<LatestStatus> {
        match *self {
            Self::WithoutBirth(heard) | Self::Waiting(_, heard) => heard,
            Self::Up(start, sign) | Self::Replaced(start, Some(sign)) => {
                Some(LatestStatus::Up(start.boot, sign))
            }
            Self::Replaced(start, None) | Self::Ended(start) => Some(LatestStatus::Down(start.boot)),
        }
    }

    /// Evidence that the device is up; `None` while no status says so.
    pub(super) fn sign(&self) -> Option<Sign> {
        match self.heard()? {
            LatestStatus::Up(_, sign) => Some(sign),
            LatestStatus::Down(_) => None,
        }
    }

    /// Strength of the evidence that the device lives: 0 for none, 1 for a status from before the leader's connection, 2 for a live message.
    pub(super) fn sign_of_life(&self) -> u8 {
        match self.sign() {
            None | Some(Sign::KeptAfterEnd) => 0,
            Some(Sign::Kept) => 1,
            Some(Sign::Live) => 2,
        }
    }

    /// True if the status is up for the boot of the birth.
    pub(super) fn is_up(&self) -> bool {
        matches!(self, Self::Up(..) | Self::Replaced(_, Some(_)))
    }

    /// True if no accepted birth is known.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.start().is_none_or(|start| start.refusal.is_some())
    }

    /// The slot that the device claims now: its birth is accepted, and its status is up for the same boot.
    pub(super) fn claimed_slot(&self) -> Option<NetworkSlot> {
        match self {
            Self::Up(start, _) if start.refusal.is_none() => Some(start.claim),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::NetworkId;

    use super::*;
    use crate::devices::inbox::tests::birth;

    fn start(boot: u16) -> CheckedBirth {
        let birth = Birth { boot: Boot(boot), ..birth("a", 1, NetworkId([7; 32])) };
        CheckedBirth::new(&birth, Generation::Current)
    }

    fn born(boot: u16, has_ended: bool) -> SessionEvent {
        SessionEvent::Birth { start: start(boot), has_ended }
    }

    fn up(boot: u16, sign: Sign) -> SessionEvent {
        SessionEvent::Status(LatestStatus::Up(Boot(boot), sign))
    }

    fn down(boot: u16) -> SessionEvent {
        SessionEvent::Status(LatestStatus::Down(Boot(boot)))
    }

    #[test]
    fn each_event_leads_to_its_state() {
        use DeviceSession::{Ended, Replaced, Up, Waiting, WithoutBirth};
        use SessionEvent::{BirthCleared, Judged, LeaderConnected, Message, Returned, Silent};
        use Sign::{Kept, KeptAfterEnd, Live};
        let (one, two) = (start(1), start(2));
        let refused = CheckedBirth { refusal: Some(Fault::UnknownDevice), ..one };
        let (up_one, down_one) = (Some(LatestStatus::Up(Boot(1), Live)), Some(LatestStatus::Down(Boot(1))));
        let rows = [
            (WithoutBirth(None), born(1, false), Waiting(one, None)),
            (WithoutBirth(None), up(1, Live), WithoutBirth(up_one)),
            (WithoutBirth(up_one), born(1, false), Up(one, Live)),
            (WithoutBirth(down_one), born(1, false), Ended(one)),
            (WithoutBirth(down_one), born(2, false), Waiting(two, down_one)),
            (WithoutBirth(up_one), born(1, true), Ended(one)),
            (Waiting(one, None), up(1, Kept), Up(one, Kept)),
            (Waiting(one, None), up(2, Live), Waiting(one, Some(LatestStatus::Up(Boot(2), Live)))),
            (Up(one, Live), born(2, false), Waiting(two, up_one)),
            (Up(one, Live), down(1), Ended(one)),
            (Up(one, Live), BirthCleared, WithoutBirth(up_one)),
            (Up(one, Live), Silent, Replaced(one, Some(Live))),
            (Up(one, Live), LeaderConnected, Up(one, Kept)),
            (Up(one, KeptAfterEnd), LeaderConnected, Up(one, KeptAfterEnd)),
            (Up(one, KeptAfterEnd), Message, Up(one, Live)),
            (Up(one, Live), Judged(refused.refusal), Up(refused, Live)),
            (Up(refused, Live), Judged(None), Up(one, Live)),
            (Replaced(one, Some(Live)), Returned, Up(one, Live)),
            (Replaced(one, None), Returned, Replaced(one, None)),
            (Replaced(one, Some(Live)), up(1, Kept), Replaced(one, Some(Kept))),
            (Replaced(one, None), up(1, Live), Replaced(one, Some(Live))),
            (Replaced(one, Some(Live)), born(1, false), Replaced(one, Some(Live))),
            (Replaced(one, None), born(1, false), Replaced(one, None)),
            (Replaced(one, Some(Live)), born(1, true), Replaced(one, None)),
            (Replaced(one, Some(Live)), down(1), Replaced(one, None)),
            (Replaced(one, Some(Live)), born(2, false), Waiting(two, up_one)),
            (Ended(one), up(1, Live), Up(one, Live)),
            (Ended(one), Silent, Ended(one)),
            (Ended(one), BirthCleared, WithoutBirth(down_one)),
        ];
        for (before, event, after) in rows {
            let mut session = before;
            session.on(event);
            assert_eq!(session, after, "{before:?} on {event:?}");
        }
        assert_eq!(Up(one, Live).claimed_slot(), Some(one.claim));
        for session in [
            WithoutBirth(up_one),
            Waiting(one, None),
            Up(refused, Live),
            Replaced(one, Some(Live)),
            Ended(one),
        ] {
            assert_eq!(session.claimed_slot(), None, "{session:?}");
        }
    }
}
