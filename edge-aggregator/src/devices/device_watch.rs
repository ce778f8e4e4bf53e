//! The state of each device of a group, for the status, the metrics and the log.
//!
//! The state machine knows which slots answer in time, the registry which devices are up. The states are checked four times a second.
//! Without a connection to the broker no message can come, and the states stay as they are.
//!
//! | state | when |
//! | --- | --- |
//! | `up` | the device fills its slot and answers |
//! | `late` | it answers, and missed the latest three windows |
//! | `silent` | it is up and gave no answer in the latest three windows, or, where no window opens, in the time of three samples |
//! | `frozen` | it is up, and says that its camera is frozen, dark or covered: it gives no answers |
//! | `wrong_network` | its birth is refused because it runs another network |
//! | `refused` | its birth is refused for another reason, or another device fills its slot |
//! | `flapping` | it lost its slot three times within a minute, and its birth is not refused while it is up |
//! | `clock_off` | its clock differs from its group's by more than a quarter of the period |
//! | `down` | its connection has ended, or no status of its latest start says that it is up |

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_inference::leader::{ClockOff, Generation, Leader, Micros};
use headwater_protocol::status::ReportedState;
use headwater_protocol::{DeviceId, Fault, Numbering, Slot};
use headwater_transport::LogLimit;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::devices::registry::{ClaimState, RegisteredDevice, Registry};

/// Time between two checks.
const EVERY: Duration = Duration::from_millis(250);

/// Most log lines a minute.
const MAX_LINES: u32 = 64;

/// Reason of a device that comes and goes.
const FLAPPING: &str = "it lost its slot three times within a minute";

/// Number of samples without an answer after which a device counts as silent.
const SILENT_SAMPLES: u32 = 3;

/// A device with its state, for the status, the metrics and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedDevice {
    /// Slot that the device fills or claims; `None` if its birth cannot be read.
    pub slot: Option<Slot>,
    /// State of the device.
    pub state: ReportedState,
    /// Time at which the state began.
    pub since: Instant,
    /// Arrival of the device's latest accepted message.
    pub heard: Instant,
    /// Cause of a state other than `up`. For a device that is up: the trigger that it does not answer yet, otherwise empty.
    pub reason: Cow<'static, str>,
    /// Name and version of the device's software.
    pub software: String,
}

/// State that the checks of a group's devices keep from one check to the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceWatch {
    next: Option<Micros>,
    /// Time at which the connection to the broker was made; `None` without a connection.
    connected: Option<Micros>,
    /// Number of triggered samples in a row that no device answered, and the time at which the latest of them was dropped; `None` after a
    /// decision.
    unanswered: Option<(u32, Micros)>,
    #[serde(skip, default = "log_limit")]
    log: LogLimit<Micros>,
}

fn log_limit() -> LogLimit<Micros> {
    LogLimit::new(MAX_LINES)
}

#[derive(Clone, Copy)]
pub(crate) struct CheckInputs<'a> {
    pub(crate) now: Micros,
    pub(crate) clock: Clock,
    pub(crate) leader: &'a Leader,
    pub(crate) registry: &'a Registry,
}

struct Check<'a> {
    inputs: CheckInputs<'a>,
    clocks_off: Vec<(Slot, ClockOff)>,
    connected: Micros,
    unanswered: Option<(u32, Micros)>,
}

impl DeviceWatch {
    pub(crate) fn new() -> Self {
        Self { next: None, connected: None, unanswered: None, log: log_limit() }
    }

    pub(crate) fn connected(&mut self, now: Micros) {
        self.connected = Some(now);
    }

    pub(crate) fn disconnected(&mut self) {
        self.connected = None;
    }

    /// Time of the next check; `None` before the first one.
    pub(crate) fn next_check(&self) -> Option<Micros> {
        self.next
    }

    pub(crate) fn is_due(&self, now: Micros) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Notes that a triggered sample ended without an answer.
    pub(crate) fn sample_unanswered(&mut self, now: Micros) {
        let (count, _) = self.unanswered.unwrap_or((0, now));
        self.unanswered = Some((count.saturating_add(1), now));
    }

    pub(crate) fn sample_decided(&mut self) {
        self.unanswered = None;
    }

    /// Brings `devices` up to date and logs changes of state. A device that stays `up` costs no allocation while no trigger waits.
    pub(crate) fn check(
        &mut self,
        inputs: CheckInputs<'_>,
        devices: &mut BTreeMap<DeviceId, ReportedDevice>,
    ) {
        let CheckInputs { now, clock, registry, .. } = inputs;
        self.next = Some(now + EVERY);
        let Some(connected) = self.connected else { return };
        let clocks_off = inputs.leader.clocks_off();
        let check = Check { clocks_off, inputs, connected, unanswered: self.unanswered };
        let mut registered = 0;
        for device in registry.registered(now) {
            registered += 1;
            let (state, reason) = check.state(&device);
            if let Some(reported) = devices.get_mut(device.id) {
                (reported.slot, reported.heard) = (device.slot, clock.instant(device.heard));
                if reported.software != device.software {
                    device.software.clone_into(&mut reported.software);
                }
                let was = std::mem::replace(&mut reported.state, state);
                reported.reason = reason;
                if was != state {
                    reported.since = clock.instant(now);
                    self.log_change(now, device.id, was, reported);
                }
            } else {
                let (slot, software) = (device.slot, device.software.to_owned());
                let [since, heard] = [now, device.heard].map(|at| clock.instant(at));
                let reported = ReportedDevice { slot, state, since, heard, reason, software };
                devices.insert(device.id.clone(), reported);
            }
        }
        if devices.len() > registered {
            let ids: BTreeSet<&DeviceId> = registry.registered(now).map(|device| device.id).collect();
            devices.retain(|id, _| ids.contains(id));
        }
    }

    /// Logs a change of state, unless the registry has a log line for the change.
    fn log_change(&mut self, now: Micros, device: &DeviceId, was: ReportedState, reported: &ReportedDevice) {
        if is_logged_by_registry(was, reported.state) {
            return;
        }
        let Some(not_logged) = self.log.take(now) else { return };
        let slot = reported.slot.map_or_else(|| "unknown".to_owned(), |slot| slot.to_string());
        let (was, state) = (was.name(), reported.state.name());
        if reported.state == ReportedState::Up {
            info!(%device, %slot, was, not_logged, "the device is well again");
        } else {
            let reason = &*reported.reason;
            warn!(%device, %slot, was, state, reason, not_logged, "a device is not well");
        }
    }
}

impl Check<'_> {
    /// The state of a device, and the reason for the state. Only a device that is `up` may have an empty reason.
    fn state(&self, device: &RegisteredDevice<'_>) -> (ReportedState, Cow<'static, str>) {
        // A refusal comes first: it says what to change, and a refused device may come and go because of the refusal.
        let beside = |reason: &'static str| -> Cow<'static, str> {
            match device.refusal {
                Some(refusal) => format!("{reason}; it is refused: {refusal}").into(),
                None => reason.into(),
            }
        };
        match device.claim {
            ClaimState::Refused(fault, reason) => {
                let is_of_other = fault == Fault::WrongNetwork;
                let state = if is_of_other { ReportedState::WrongNetwork } else { ReportedState::Refused };
                let flapping = if device.is_flapping { format!("; {FLAPPING}") } else { String::new() };
                (state, format!("{reason}{flapping}").into())
            }
            ClaimState::Down(_) | ClaimState::Replaced | ClaimState::InSlot(_) if device.is_flapping => {
                (ReportedState::Flapping, beside(FLAPPING))
            }
            ClaimState::Down(reason) => (ReportedState::Down, beside(reason)),
            ClaimState::Replaced => {
                (ReportedState::Silent, "it was silent, and another device took its slot".into())
            }
            ClaimState::InSlot(generation) => self.state_in_slot(device, generation),
        }
    }

    fn state_in_slot(
        &self,
        device: &RegisteredDevice<'_>,
        generation: Generation,
    ) -> (ReportedState, Cow<'static, str>) {
        if let Some(why) = device.frozen {
            return (ReportedState::Frozen, why.to_owned().into());
        }
        let CheckInputs { now, leader, .. } = self.inputs;
        let unanswered_since = device.slot.and_then(|slot| leader.unanswered_since(generation, slot));
        let answered = device.answered.unwrap_or(device.heard);
        if unanswered_since.is_some_and(|since| answered < since) || self.group_is_silent(answered) {
            let silent_s = now.since(answered) as f64 / 1e6;
            let reason = if device.is_live {
                format!("it is connected and has given no answer for {silent_s:.1} s")
            } else {
                format!("no answer for {silent_s:.1} s; the broker has an earlier message that it is up")
            };
            return (ReportedState::Silent, reason.into());
        }
        if let Some((_, off)) = self.clocks_off.iter().find(|(slot, _)| Some(*slot) == device.slot) {
            return (ReportedState::ClockOff, clock_reason(*off).into());
        }
        match unanswered_since {
            Some(_) => (ReportedState::Late, "its answers come after the window".into()),
            None => (ReportedState::Up, self.unconfirmed_trigger()),
        }
    }

    /// The trigger that devices capture and do not answer yet, as a reason; empty without one. Leader and devices judge triggers alike.
    fn unconfirmed_trigger(&self) -> Cow<'static, str> {
        match self.inputs.leader.unconfirmed_trigger() {
            Some(sample) => {
                format!("its answer to sample {sample} waits for a second trigger near it").into()
            }
            None => "".into(),
        }
    }

    /// True if a device that answered last at `answered` is silent although no window shows it: without an answer for the time of three
    /// samples and the deadline, or over three triggered samples in a row that no device answered.
    fn group_is_silent(&self, answered: Micros) -> bool {
        // No answer could come before the connection.
        let answered = answered.max(self.connected);
        match self.inputs.leader.numbering() {
            Some(Numbering::Clock { period_ms }) => {
                let samples = Duration::from_millis(u64::from(period_ms) * u64::from(SILENT_SAMPLES));
                let deadline = Duration::from_millis(self.inputs.leader.deadline_ms().into());
                self.inputs.now > answered + samples + deadline
            }
            Some(Numbering::Trigger) => {
                self.unanswered.is_some_and(|(count, latest)| count >= SILENT_SAMPLES && answered < latest)
            }
            // Nobody knows when a source has its next frame.
            Some(Numbering::Source) | None => false,
        }
    }
}

/// True if the registry has a log line for a change: the start and the end of a connection, and refusals.
fn is_logged_by_registry(was: ReportedState, state: ReportedState) -> bool {
    use ReportedState::{Down, Refused, Up, WrongNetwork};
    let changed_to = if state == Up { was } else { state };
    matches!(changed_to, Down | Refused | WrongNetwork)
}

fn clock_reason(ClockOff { ahead_ms, max_ms }: ClockOff) -> String {
    if ahead_ms > 0 {
        format!(
            "its clock is {ahead_ms} ms ahead of its group, more than {max_ms} ms: its answers are left out"
        )
    } else {
        let behind_ms = -ahead_ms;
        format!(
            "its answers come {behind_ms} ms later than its group's, more than {max_ms} ms: its clock is behind, or its link is slow"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headwater_inference::bundle::{Bundle, PerNetwork};
    use headwater_inference::leader::{Event, Exits, LeaderConfig, Now};
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::{Birth, Boot, DeviceState, NetworkId, SampleId, Status};

    use super::ReportedState::{ClockOff, Down, Flapping, Frozen, Late, Refused, Silent, Up, WrongNetwork};
    use super::*;
    use crate::devices::inbox::tests::{birth, format, status};
    use crate::devices::message_format::Arrival;
    use crate::devices::registry::DeviceIndex;

    const LIVE: Arrival = Arrival { now: Micros(0), is_retained: false };

    /// A group of two slots whose only device has started, with a connection to the broker.
    struct Group {
        watch: DeviceWatch,
        registry: Registry,
        leader: Leader,
        index: DeviceIndex,
        devices: BTreeMap<DeviceId, ReportedDevice>,
    }

    impl Group {
        fn new() -> Self {
            let network = NetworkId([7; 32]);
            let mut registry = Registry::new(Arc::new(PerNetwork::new(format(network))), Arc::default());
            let mut leader = leader();
            let now = Now { since_start: Micros(0), wall_ms: 1_782_864_000_000 };
            let numbering = Numbering::Clock { period_ms: 100 };
            leader.handle(now, Generation::Current, Event::Numbering(numbering), &mut Vec::new());
            let index = registry.device(&DeviceId::new("a").unwrap(), Micros(0));
            let birth = Birth { numbering: Some(numbering), ..birth("a", 0, network) };
            registry.set_birth(index, &birth, LIVE, &mut Vec::new());
            registry.set_status(index, status(DeviceState::Up, Boot(1)), LIVE, &mut Vec::new());
            let mut watch = DeviceWatch::new();
            watch.connected(Micros(0));
            Self { watch, registry, leader, index, devices: BTreeMap::new() }
        }

        /// State and reason of the device after a check at `seconds` of the group's time.
        fn checks(&mut self, seconds: u64) -> (ReportedState, String) {
            let now = Micros::from_ms(1000 * seconds);
            let (clock, leader, registry) =
                (Clock::starting_at(Instant::now()), &self.leader, &self.registry);
            self.watch.check(CheckInputs { now, clock, leader, registry }, &mut self.devices);
            let device = self.devices.values().next().expect("a device");
            (device.state, device.reason.to_string())
        }
    }

    /// A leader that does not know the numbering of its group.
    fn leader() -> Leader {
        let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        Leader::new(LeaderConfig::of(&bundle, 4), Exits { local: None, edge: None })
    }

    #[test]
    fn a_device_that_is_up_names_the_far_trigger_that_it_does_not_answer_yet() {
        let mut group = Group { leader: leader(), ..Group::new() };
        let waits = "its answer to sample 2000 waits for a second trigger near it";
        for (sample, reason) in [(1, ""), (2000, waits), (2001, "")] {
            let trigger = Event::Trigger { sample: SampleId(sample) };
            group.leader.handle(Now::default(), Generation::Current, trigger, &mut Vec::new());
            assert_eq!(group.checks(0), (Up, reason.to_owned()));
        }
    }

    #[test]
    fn without_a_connection_to_the_broker_the_states_stay() {
        let mut group = Group::new();
        assert_eq!(group.checks(0).0, Up);
        group.watch.disconnected();
        assert_eq!(group.checks(60), (Up, String::new()), "no answer can come");
        group.watch.connected(Micros::from_ms(100_000));
        assert_eq!(group.checks(100).0, Up, "the time without a broker is not the device's");
        let (state, reason) = group.checks(160);
        assert_eq!(state, Silent);
        assert!(reason.starts_with("it is connected and has given no answer for "), "{reason}");
    }

    #[test]
    fn a_device_of_which_the_broker_kept_a_status_is_not_called_connected() {
        let mut group = Group::new();
        let up = status(DeviceState::Up, Boot(1));
        let kept = Arrival { is_retained: true, ..LIVE };
        group.registry.set_status(group.index, up, kept, &mut Vec::new());
        let (state, reason) = group.checks(60);
        assert_eq!(state, Silent);
        assert!(reason.ends_with("s; the broker has an earlier message that it is up"), "{reason}");
    }

    #[test]
    fn a_device_that_says_that_it_is_frozen_is_named_with_its_reason_and_not_waited_for() {
        let mut group = Group::new();
        let up = status(DeviceState::Up, Boot(1));
        let why = "100 equal frames";
        let frozen = Status { frozen: Some(format!("\u{7}{why}")), ..up.clone() };
        let mut changes = Vec::new();
        let slot = Slot::new(0).unwrap();
        for (status, change) in [
            (&frozen, Some(Event::DeviceDown { slot })),
            (&frozen, None),
            (&up, Some(Event::DeviceUp { slot })),
            (&frozen, Some(Event::DeviceDown { slot })),
        ] {
            group.registry.set_status(group.index, status.clone(), LIVE, &mut changes);
            let expected: Vec<_> = change.into_iter().map(|change| (Generation::Current, change)).collect();
            assert_eq!(std::mem::take(&mut changes), expected);
        }
        assert_eq!(group.checks(60), (Frozen, why.to_owned()));
        assert_eq!(group.registry.filled().len(), 1, "it keeps its slot");
        // The device starts again, and its status comes before its birth.
        let again = Status { boot: Boot(2), ..frozen };
        group.registry.set_status(group.index, again, LIVE, &mut changes);
        let birth = Birth { boot: Boot(2), ..birth("a", 0, NetworkId([7; 32])) };
        group.registry.set_birth(group.index, &birth, LIVE, &mut changes);
        let ups = changes.iter().filter(|(_, change)| matches!(change, Event::DeviceUp { .. }));
        assert_eq!((ups.count(), group.checks(60).0), (0, Frozen));
    }

    #[test]
    fn a_refusal_is_never_hidden_behind_flapping_or_the_end_of_a_connection() {
        let mut group = Group::new();
        let runs = |group: &mut Group, boot: u16, numbering| {
            let (boot, numbering) = (Boot(boot), Some(numbering));
            let birth = Birth { boot, numbering, ..birth("a", 0, NetworkId([7; 32])) };
            group.registry.set_birth(group.index, &birth, LIVE, &mut Vec::new());
            group.registry.set_status(group.index, status(DeviceState::Up, boot), LIVE, &mut Vec::new());
        };
        let own = Numbering::Clock { period_ms: 100 };
        (2..=4).for_each(|boot| runs(&mut group, boot, own));
        assert_eq!(group.checks(1), (Flapping, FLAPPING.to_owned()));
        runs(&mut group, 5, Numbering::Trigger);
        let (state, reason) = group.checks(1);
        assert!(state == Refused && reason.starts_with("numbering: expected clock"), "{state:?} {reason}");
        assert!(reason.ends_with(FLAPPING), "{reason}");
        group.registry.set_status(group.index, status(DeviceState::Down, Boot(5)), LIVE, &mut Vec::new());
        for (seconds, expected) in [(1, Flapping), (120, Down)] {
            let (state, reason) = group.checks(seconds);
            assert!(
                state == expected && reason.contains("; it is refused: numbering: "),
                "{state:?} {reason}"
            );
        }
    }

    #[test]
    fn a_death_a_return_and_a_refusal_have_the_line_of_the_registry_alone() {
        for was in [Up, Late, Silent, Frozen, Flapping, ClockOff] {
            for state in [Down, Refused, WrongNetwork] {
                assert!(is_logged_by_registry(was, state), "{was:?} {state:?}");
                assert!(is_logged_by_registry(state, Up), "{state:?}");
            }
            assert!(was == Up || !is_logged_by_registry(was, Up), "{was:?} ends");
        }
        for state in [Late, Silent, Frozen, Flapping, ClockOff] {
            assert!(!is_logged_by_registry(Up, state), "{state:?}");
            assert!(!is_logged_by_registry(Down, state), "{state:?}");
        }
    }

    #[test]
    fn the_reason_of_a_wrong_clock_is_its_cause_and_no_advice() {
        let ahead = clock_reason(super::ClockOff { ahead_ms: 40, max_ms: 25 });
        assert_eq!(ahead, "its clock is 40 ms ahead of its group, more than 25 ms: its answers are left out");
        let behind = clock_reason(super::ClockOff { ahead_ms: -40, max_ms: 25 });
        assert!(behind.starts_with("its answers come 40 ms later than its group's"), "{behind}");
    }
}
