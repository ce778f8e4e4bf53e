//! One device of the registry: birth, status and refusals.

use headwater_inference::leader::{Generation, Micros};
use headwater_protocol::{
    Birth, Boot, DeviceId, DeviceState, Fault, Numbering, PolicyId, Schema, Slot, Status,
};
use headwater_transport::LOG_WINDOW;

use super::DeviceIndex;

/// Lost slots within a minute that make a device a flapping one.
const FLAPPING_ENDS: usize = 3;

/// Characters of a device's software that are kept.
const MAX_SOFTWARE_CHARS: usize = 64;

/// One device, from its first message on.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) index: DeviceIndex,
    /// Arrival of the latest accepted message, birth or status; of the first message before any of them.
    pub(super) heard: Micros,
    pub(super) session: Option<Session>,
    pub(super) status: Option<Status>,
    /// How the present status came.
    pub(super) sign: Sign,
    /// Whether its connection ended shortly before the leader's own: a broker that stops ends all of them, and tells no fault of a device.
    pub(super) ended_with_broker: bool,
    /// A boot that ended before its birth arrived, or while another boot was current.
    pub(super) ended: Option<Boot>,
    /// Boot of the latest birth that was cleared at the broker, or is to be, because the setting `devices` does not name the device.
    pub(super) cleared_boot: Option<Boot>,
    /// Faults that were logged.
    pub(super) logged: Vec<LoggedFault>,
    /// Arrival of the latest accepted answer to a sample.
    pub(super) answered: Option<Micros>,
    /// When the device last took a slot.
    pub(super) up_since: Option<Micros>,
    /// Latest times at which it lost its slot, the oldest first.
    pub(super) ends: [Option<Micros>; FLAPPING_ENDS],
    /// The latest refusal with its reason.
    pub(super) refusal: Option<(Fault, String)>,
    /// Name and version of its software, by its birth.
    pub(super) software: String,
}

/// A fault of a device in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedFault {
    pub(super) fault: Fault,
    pub(super) at: Micros,
    /// Whether the line is of the present session.
    pub(super) is_current: bool,
    /// Refusals since, without a line.
    pub(super) not_logged: u64,
}

/// How the leader learned that a device is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// By a message that was sent while the leader was connected.
    Live,
    /// By a message from before the leader's present connection, most often a status that the broker had kept.
    Kept,
    /// By such a status of a boot whose end the leader has seen: a broker that crashed may have kept an old status.
    KeptAfterEnd,
}

/// A slot under a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NetworkSlot {
    pub(super) slot: Slot,
    pub(super) generation: Generation,
}

/// Birth certificate of a boot, checked against the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) claim: NetworkSlot,
    pub(super) boot: Boot,
    /// Session of the messages that are read under the birth.
    pub(super) messages: headwater_protocol::Session,
    /// Numbering of the device's samples; `None` where its birth names none.
    pub(super) numbering: Option<Numbering>,
    /// Whether the device sends batches where the leader reads them.
    pub(super) sends_batches: bool,
    /// Policy under which the device decides by itself.
    pub(super) policy: Option<PolicyId>,
    /// Reason why this session is refused.
    pub(super) refusal: Option<Fault>,
    /// Whether the device lost its slot because it was silent.
    pub(super) is_silent: bool,
}

impl Device {
    pub(super) fn new(id: DeviceId, index: DeviceIndex, heard: Micros) -> Self {
        Self {
            id,
            index,
            heard,
            session: None,
            status: None,
            sign: Sign::Live,
            ended_with_broker: false,
            ended: None,
            cleared_boot: None,
            logged: Vec::new(),
            answered: None,
            up_since: None,
            ends: Default::default(),
            refusal: None,
            software: String::new(),
        }
    }

    /// Whether the device has no accepted birth.
    pub(super) fn is_stranger(&self) -> bool {
        self.session.is_none_or(|session| session.refusal.is_some())
    }

    /// Whether the status is up for the boot of the birth.
    pub(super) fn is_up(&self) -> bool {
        let boot = self.session.map(|session| session.boot);
        let status = self.status.as_ref();
        status.is_some_and(|status| status.state == DeviceState::Up && Some(status.boot) == boot)
    }

    /// The slot that the device claims now: its session is accepted, and its status is up for the same boot.
    pub(super) fn claimed_slot(&self) -> Option<NetworkSlot> {
        let session = self.session.filter(|session| session.refusal.is_none() && !session.is_silent)?;
        self.is_up().then_some(session.claim)
    }

    pub(super) fn set_birth(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.session.is_none_or(|session| session.boot != birth.boot) {
            self.logged.iter_mut().for_each(|logged| logged.is_current = false);
        }
        let is_same = |session: &Session| session.boot == birth.boot && session.claim.slot == birth.slot;
        let is_silent = self.session.is_some_and(|session| is_same(&session) && session.is_silent);
        let printable = birth.software.chars().filter(|character| !character.is_control());
        self.software = printable.take(MAX_SOFTWARE_CHARS).collect();
        let claim = NetworkSlot { slot: birth.slot, generation };
        let (boot, numbering) = (birth.boot, birth.numbering);
        let messages = headwater_protocol::Session::of_boot(birth.network, birth.boot);
        let (sends_batches, policy) = (birth.sends_batches(), birth.policy);
        self.session =
            Some(Session { claim, boot, messages, numbering, sends_batches, policy, refusal, is_silent });
        if self.ended == Some(birth.boot) {
            self.status = Some(Status { schema: Schema, state: DeviceState::Down, boot: birth.boot });
        }
    }

    /// Whether the end of a boot is known.
    fn knows_end_of(&self, boot: Boot) -> bool {
        let is_end = |status: &Status| status.state == DeviceState::Down && status.boot == boot;
        self.ended == Some(boot) || self.status.as_ref().is_some_and(is_end)
    }

    /// Notes how a status comes, before the status is taken.
    fn note_sign(&mut self, status: &Status, is_retained: bool) {
        let is_same_boot = self.status.as_ref().is_some_and(|known| known.boot == status.boot);
        let stays_ended = self.sign == Sign::KeptAfterEnd && is_same_boot;
        let is_end_known = !self.ended_with_broker && self.knows_end_of(status.boot);
        self.sign = match status.state {
            DeviceState::Up if is_retained && (stays_ended || is_end_known) => Sign::KeptAfterEnd,
            DeviceState::Up if is_retained => Sign::Kept,
            DeviceState::Up | DeviceState::Down => Sign::Live,
        };
    }

    /// Takes a status. `is_retained` says whether the broker had kept it from before the leader's connection.
    pub(super) fn set_status(&mut self, status: Status, is_retained: bool) {
        let is_current = self.session.is_none_or(|session| session.boot == status.boot);
        if status.state == DeviceState::Down && !is_current {
            // The last will of another boot must not end this session.
            self.ended = Some(status.boot);
            return;
        }
        self.note_sign(&status, is_retained);
        if status.state == DeviceState::Up && self.ended == Some(status.boot) {
            self.ended = None;
        }
        self.status = Some(status);
    }

    /// Whether a fault may be logged now: the number of refusals without a line since the last one, or `None`.
    pub(super) fn take_line(&mut self, fault: Fault, now: Micros) -> Option<u64> {
        let Some(logged) = self.logged.iter_mut().find(|logged| logged.fault == fault) else {
            return Some(0);
        };
        if logged.is_current || now < logged.at + LOG_WINDOW {
            logged.not_logged += 1;
            return None;
        }
        Some(logged.not_logged)
    }

    /// Notes a line of the log.
    pub(super) fn logged(&mut self, fault: Fault, at: Micros) {
        self.logged.retain(|logged| logged.fault != fault);
        self.logged.push(LoggedFault { fault, at, is_current: true, not_logged: 0 });
    }

    /// Notes that the device lost its slot.
    pub(super) fn note_end(&mut self, now: Micros) {
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

    /// Reason of a refusal by this fault.
    pub(super) fn reason_of(&self, fault: Fault) -> &str {
        let known = self.refusal.as_ref().filter(|(known, _)| *known == fault);
        known.map_or(fault.code(), |(_, why)| why)
    }
}
