//! One device of the registry: its session, and what is remembered for longer than a session.

use headwater_inference::leader::{Generation, Micros};
use headwater_protocol::{Birth, Boot, DeviceId, DeviceState, Fault, Status, clipped};
use headwater_transport::LOG_WINDOW;
use serde::{Deserialize, Serialize};

use super::DeviceIndex;
use super::session::{CheckedBirth, DeviceSession, LatestStatus, SessionEvent, Sign};

/// Number of times that a device must lose its slot within a minute to count as flapping.
const FLAPPING_ENDS: usize = 3;

/// Most characters of a device's software that are kept.
const MAX_SOFTWARE_CHARS: usize = 64;

/// Most characters that are kept of the reason why a device is frozen.
const MAX_FROZEN_CHARS: usize = 160;

/// One device, from its first message on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) index: DeviceIndex,
    /// Arrival of the latest status, accepted birth or accepted message of the session; before any of these, of the device's first message.
    pub(super) heard: Micros,
    pub(super) session: DeviceSession,
    /// True if the device lost its slot shortly before the leader's own connection ended. A broker that stops ends all connections, so such
    /// a loss says nothing about the device.
    pub(super) ended_with_broker: bool,
    /// Boot in the latest status `down` that named another boot than the birth did.
    pub(super) ended: Option<Boot>,
    /// Boot of the latest birth that was cleared at the broker, or is to be, because the setting `devices` does not name the device.
    pub(super) cleared_boot: Option<Boot>,
    /// The latest log line about each fault.
    #[serde(skip)]
    pub(super) logged: Vec<LoggedFault>,
    /// Arrival of the latest accepted answer to a sample.
    pub(super) answered: Option<Micros>,
    /// Time at which the device last took a slot.
    pub(super) up_since: Option<Micros>,
    /// Latest times at which the device lost its slot, the oldest first.
    pub(super) ends: [Option<Micros>; FLAPPING_ENDS],
    /// The latest refusal with its reason.
    pub(super) refusal: Option<(Fault, String)>,
    /// The latest birth or status, if it cannot be read, and why.
    #[serde(default)]
    pub(super) unreadable: Option<(Introduction, String)>,
    /// Name and version of the device's software, from its birth.
    pub(super) software: String,
    /// Reason why the device is up and gives no answers, by its latest status.
    #[serde(default)]
    pub(super) frozen: Option<String>,
    /// True if too many other devices had a birth, so that this device was counted as forgotten; false again after its next birth.
    #[serde(default)]
    pub(super) is_crowded_out: bool,
}

/// A retained message by which a device tells the leader of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Introduction {
    Birth,
    Status,
}

/// The latest log line about one fault of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoggedFault {
    pub(super) fault: Fault,
    pub(super) at: Micros,
    /// True if the line is of the present session.
    pub(super) is_current: bool,
    /// Refusals by this fault since the line, which were not logged.
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
            unreadable: None,
            software: String::new(),
            frozen: None,
            is_crowded_out: false,
        }
    }

    pub(super) fn set_birth(&mut self, birth: &Birth, generation: Generation, refusal: Option<Fault>) {
        if self.session.start().is_none_or(|start| start.boot != birth.boot) {
            self.logged.iter_mut().for_each(|logged| logged.is_current = false);
        }
        self.is_crowded_out = false;
        self.read(Introduction::Birth);
        self.software = clipped(&birth.software, MAX_SOFTWARE_CHARS);
        let start = CheckedBirth { refusal, ..CheckedBirth::new(birth, generation) };
        self.session.on(SessionEvent::Birth { start, has_ended: self.ended == Some(birth.boot) });
    }

    /// Notes that a message of this kind was read.
    fn read(&mut self, what: Introduction) {
        self.unreadable.take_if(|(unreadable, _)| *unreadable == what);
    }

    /// Takes a status. `is_retained` is true if the broker had kept the status from before the leader's connection.
    pub(super) fn set_status(&mut self, status: Status, is_retained: bool) {
        let Status { state, boot, frozen, .. } = status;
        self.read(Introduction::Status);
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
        self.frozen = frozen.map(|why| clipped(&why, MAX_FROZEN_CHARS));
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

    /// If a fault may be logged now, the number of refusals without a line since its last line; otherwise `None`, and counts one more.
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

    /// Keeps the reason of a refusal; a repeated refusal allocates nothing.
    pub(super) fn note_refusal(&mut self, fault: Fault, why: &str) {
        if self.refusal.as_ref().is_none_or(|(known, text)| *known != fault || text != why) {
            self.refusal = Some((fault, why.to_owned()));
        }
    }

    /// Reason of the latest refusal if it was by this fault, otherwise the fault's code.
    pub(super) fn reason_of(&self, fault: Fault) -> &str {
        let known = self.refusal.as_ref().filter(|(known, _)| *known == fault);
        known.map_or(fault.code(), |(_, why)| why)
    }
}
