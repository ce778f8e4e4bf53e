//! The condition of each device of a group, for the status, the metrics and the log.
//!
//! The state machine knows which slots answer in time, the registry which devices are up. Both are looked at four times a second.
//!
//! | condition | when |
//! | --- | --- |
//! | `up` | the device fills its slot and answers |
//! | `late` | it answers, and missed the latest three windows |
//! | `silent` | it is up and gave no answer in the latest three windows, or, where no window opens, in the time of three samples |
//! | `flapping` | its connection ended three times within a minute |
//! | `wrong_network` | its birth is refused because it runs another network |
//! | `refused` | its birth is refused for another reason, or another device fills its slot |
//! | `clock_off` | its clock differs from its group's by more than a quarter of the period |
//! | `down` | its connection has ended |

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_inference::leader::{ClockOff, Generation, Leader};
use headwater_protocol::{DeviceId, Fault, Numbering, Slot};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::log_limit::LogLimit;
use crate::registry::{Known, Presence, Registry};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(250);

/// Log lines a minute.
const MAX_LINES: u32 = 64;

/// Samples without an answer of any device after which a silent device is named.
const SILENT_SAMPLES: u32 = 3;

/// The condition of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// It fills its slot and answers.
    Up,
    /// It answers after the window.
    Late,
    /// It is up and does not answer.
    Silent,
    /// It comes and goes.
    Flapping,
    /// It runs another network.
    WrongNetwork,
    /// Its birth is refused, or its slot is taken.
    Refused,
    /// Its clock differs from its group's.
    ClockOff,
    /// Its connection has ended.
    Down,
}

impl Condition {
    /// Name in the status and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Late => "late",
            Self::Silent => "silent",
            Self::Flapping => "flapping",
            Self::WrongNetwork => "wrong_network",
            Self::Refused => "refused",
            Self::ClockOff => "clock_off",
            Self::Down => "down",
        }
    }
}

/// A device with its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// The slot that it fills or claims.
    pub slot: Slot,
    /// Its condition.
    pub condition: Condition,
    /// When the condition began.
    pub since: Instant,
    /// Arrival of its latest accepted message.
    pub heard: Instant,
    /// Why it is not `up`; empty for a device that is.
    pub reason: String,
    /// Name and version of its software.
    pub software: String,
}

/// The conditions of a group's devices.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    devices: BTreeMap<DeviceId, DeviceStatus>,
    next: Option<Instant>,
    /// Triggered samples in a row that no device answered, and when the latest of them was dropped.
    unanswered: Option<(u32, Instant)>,
    log: LogLimit,
}

/// Inputs of a look at a group.
struct Look<'a> {
    now: Instant,
    clock: Clock,
    leader: &'a Leader,
    clocks_off: &'a [(Slot, ClockOff)],
    unanswered: Option<(u32, Instant)>,
}

impl DeviceWatch {
    pub(crate) fn new() -> Self {
        Self { devices: BTreeMap::new(), next: None, unanswered: None, log: LogLimit::new(MAX_LINES) }
    }

    /// Time of the next look.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.next
    }

    /// Notes that a triggered sample ended without an answer.
    pub(crate) fn sample_unanswered(&mut self, now: Instant) {
        let (count, _) = self.unanswered.unwrap_or((0, now));
        self.unanswered = Some((count.saturating_add(1), now));
    }

    /// Notes that a sample was decided.
    pub(crate) fn sample_decided(&mut self) {
        self.unanswered = None;
    }

    /// Looks at the devices, at most four times a second, and logs what has changed. `None` between two looks.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        clock: Clock,
        leader: &Leader,
        registry: &Registry,
    ) -> Option<&BTreeMap<DeviceId, DeviceStatus>> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = Some(now + EVERY);
        let clocks_off = leader.clocks_off();
        let look = Look { now, clock, leader, clocks_off: &clocks_off, unanswered: self.unanswered };
        let before = std::mem::take(&mut self.devices);
        for known in registry.known() {
            let (condition, reason) = look.condition(&known);
            let earlier = before.get(known.id);
            let since =
                earlier.filter(|earlier| earlier.condition == condition).map_or(now, |same| same.since);
            let status = DeviceStatus {
                slot: known.slot,
                condition,
                since,
                heard: known.heard,
                reason,
                software: known.software.to_owned(),
            };
            self.log_change(now, known.id, earlier, &status);
            self.devices.insert(known.id.clone(), status);
        }
        Some(&self.devices)
    }

    /// Logs a change. Devices that are down or refused at the first look were so before; refusals have a line of their own.
    fn log_change(
        &mut self,
        now: Instant,
        device: &DeviceId,
        before: Option<&DeviceStatus>,
        status: &DeviceStatus,
    ) {
        let Some(before) = before.filter(|before| before.condition != status.condition) else { return };
        let Some(not_logged) = self.log.take(now) else { return };
        let (slot, was, state) = (status.slot, before.condition.name(), status.condition.name());
        match status.condition {
            Condition::Up => info!(%device, %slot, was, not_logged, "the device is well again"),
            Condition::Late
            | Condition::Silent
            | Condition::Flapping
            | Condition::WrongNetwork
            | Condition::Refused
            | Condition::ClockOff
            | Condition::Down => {
                warn!(%device, %slot, was, state, reason = status.reason, not_logged, "a device is not well");
            }
        }
    }
}

impl Look<'_> {
    /// The condition of a device, and the reason where it is not up.
    fn condition(&self, known: &Known<'_>) -> (Condition, String) {
        if known.is_flapping {
            let reason = "its connection ended three times within a minute: look at its power, its network and its log";
            return (Condition::Flapping, reason.into());
        }
        match &known.presence {
            Presence::Down => (
                Condition::Down,
                "its connection to the broker has ended: look whether the device and its program run".into(),
            ),
            Presence::Refused(Fault::WrongNetwork, reason) => (Condition::WrongNetwork, reason.clone()),
            Presence::Refused(_, reason) => (Condition::Refused, reason.clone()),
            Presence::Replaced => {
                (Condition::Silent, "it was silent, and another device took its slot".into())
            }
            Presence::InSlot(generation) => self.condition_in_slot(known, *generation),
        }
    }

    fn condition_in_slot(&self, known: &Known<'_>, generation: Generation) -> (Condition, String) {
        let unanswered_since = self.leader.unanswered_since(generation, known.slot);
        let unanswered_since = unanswered_since.map(|since| self.clock.instant(since));
        let answered = known.answered.unwrap_or(known.heard);
        if unanswered_since.is_some_and(|since| answered < since) || self.group_is_silent(answered) {
            let silent_s = self.now.saturating_duration_since(answered).as_secs_f64();
            let reason = format!(
                "it is connected and has given no answer for {silent_s:.1} s: look at its source of frames, and whether its program is stopped"
            );
            return (Condition::Silent, reason);
        }
        if let Some((_, off)) = self.clocks_off.iter().find(|(slot, _)| *slot == known.slot) {
            return (Condition::ClockOff, clock_reason(*off));
        }
        match unanswered_since {
            Some(_) => {
                let reason =
                    "its answers come after the window: its capture, its section or its link is slow".into();
                (Condition::Late, reason)
            }
            None => (Condition::Up, String::new()),
        }
    }

    /// Whether no device has answered for the time of three samples, so that no window opened.
    fn group_is_silent(&self, answered: Instant) -> bool {
        match self.leader.numbering() {
            Some(Numbering::Clock { period_ms }) => {
                let samples = Duration::from_millis(u64::from(period_ms) * u64::from(SILENT_SAMPLES));
                let deadline = Duration::from_millis(self.leader.deadline_ms().into());
                self.now > answered + samples + deadline
            }
            Some(Numbering::Trigger) => {
                self.unanswered.is_some_and(|(count, latest)| count >= SILENT_SAMPLES && answered < latest)
            }
            // Nobody knows when a source has its next frame.
            Some(Numbering::Source) | None => false,
        }
    }
}

fn clock_reason(ClockOff { ahead_ms, max_ms }: ClockOff) -> String {
    if ahead_ms > 0 {
        format!(
            "its clock is {ahead_ms} ms ahead of its group, more than {max_ms} ms: it is left out until its clock is set"
        )
    } else {
        let behind_ms = -ahead_ms;
        format!(
            "its answers come {behind_ms} ms later than its group's, more than {max_ms} ms: its clock is behind (set it), or its link is slow"
        )
    }
}
