//! One device of the registry: its session, and what is remembered beyond it.

use headwater_inference::leader::{Generation, Micros};
use headwater_protocol::{Birth, Boot, DeviceId, DeviceState, Fault, Status};
use headwater_transport::LOG_WINDOW;
use serde::{Deserialize, Serialize};

use super::DeviceIndex;
use super::session::{CheckedBirth, DeviceSession, LatestStatus, SessionEvent, Sign};

/// Lost slots within a minute that make a device a flapping one.
const FLAPPING_ENDS: usize = 3;

/// Characters of a device's software that are kept.
const MAX_SOFTWARE_CHARS: usize = 64;

/// One device, from its first message on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) index: DeviceIndex,
    /// Arrival of the latest accepted message, birth or status; of the first message before any of them.
    pub(super) heard: Micros,
    pub(super) session: DeviceSession,
    /// Whether its connection ended shortly before the leader's own: a broker that stops ends all of them, and tells no fault of a device.
    pub(super) ended_with_broker: bool,
    /// A boot that ended before its birth arrived, or while another boot was current.
    pub(super) ended: Option<Boot>,
    /// Boot of the latest birth that was cleared at the broker, or is to be, because the setting `devices` does not name the device.
    pub(super) cleared_boot: Option<Boot>,
    /// Faults that were logged.
    #[serde(skip)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoggedFault {
    pub(super) fault: Fault,
    pub(super) at: Micros,
    /// Whether the line is of the present session.
    pub(super) is_current: bool,
    /// Refusals since, without a line.
    pub(super) not_logged: u64,
}

impl Device {
    pub(super) fn new(id: DeviceId, index: DeviceIndex, heard: Micros) -> Self {
        Self {
            id,
            index,
            heard,
            session: DeviceSession::WithoutBirth(None),
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

    pub(super) fn set_birth(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.session.start().is_none_or(|start| start.boot != birth.boot) {
            self.logged.iter_mut().for_each(|logged| logged.is_current = false);
        }
        let printable = birth.software.chars().filter(|character| !character.is_control());
        self.software = printable.take(MAX_SOFTWARE_CHARS).collect();
        let start = CheckedBirth { refusal, ..CheckedBirth::new(birth, generation) };
        self.session.on(SessionEvent::Birth { start, has_ended: self.ended == Some(birth.boot) });
    }

    /// Takes a status. `is_retained` says whether the broker had kept it from before the leader's connection.
    pub(super) fn set_status(&mut self, Status { state, boot, .. }: Status, is_retained: bool) {
        let heard = match state {
            DeviceState::Up => LatestStatus::Up(boot, self.sign_of(boot, is_retained)),
            // The last will of another boot must not end this session.
            DeviceState::Down if self.session.start().is_some_and(|start| start.boot != boot) => {
                self.ended = Some(boot);
                return;
            }
            DeviceState::Down => LatestStatus::Down(boot),
        };
        if state == DeviceState::Up && self.ended == Some(boot) {
            self.ended = None;
        }
        self.session.on(SessionEvent::Status(heard));
    }

    /// The sign of a status that says that the device is up.
    fn sign_of(&self, boot: Boot, is_retained: bool) -> Sign {
        let heard = self.session.heard();
        let stays_ended = heard == Some(LatestStatus::Up(boot, Sign::KeptAfterEnd));
        let is_end_known = self.ended == Some(boot) || heard == Some(LatestStatus::Down(boot));
        match is_retained {
            false => Sign::Live,
            true if stays_ended || is_end_known && !self.ended_with_broker => Sign::KeptAfterEnd,
            true => Sign::Kept,
        }
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
