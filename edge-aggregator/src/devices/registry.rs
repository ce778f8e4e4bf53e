//! Devices of a group and the slots that they fill, from birth certificates and status messages.
//!
//! A device fills its slot while its birth and its status `up` name the same boot. A device whose slot is taken is refused, and fills the
//! slot when the slot becomes free. A broker may keep the birth of a device that died together with the broker. So a device that is silent
//! while another device claims its slot loses the slot:
//!
//! ```text
//!  claim of another ──── silent_after without a message of the holder ────> the slot goes to the other
//!                   ──── a message of the holder ────> the holder keeps its slot
//! ```

mod contests;
mod device;
mod names;
mod owners;
mod registered_device;
mod session;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use headwater_inference::bundle::PerNetwork;
use headwater_inference::leader::{Event, Generation, Micros};
use headwater_protocol::{
    Birth, DeviceId, DeviceState, Fault, MqttHandling, NetworkId, Numbering, Slot, SlotSet, Status, clipped,
};
use headwater_transport::LogLimit;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::devices::message_format::{Arrival, Change, InboxCounts, MessageFormat, Refusal};

use device::Device;
pub(crate) use device::Introduction;
use registered_device::CONNECTION_ENDED;
pub(crate) use registered_device::{ClaimState, RegisteredDevice};
use session::{DeviceSession, LatestStatus, NetworkSlot, SessionEvent, Sign};

/// Longest time from the end of a device's connection to the end of the leader's, if both end because the broker stops.
const BROKER_STOP: Duration = Duration::from_secs(10);

/// Most devices with an accepted birth that are remembered: more than a group has.
const MAX_DEVICES: usize = 896;

/// Most names without an accepted birth that are remembered, so that their refusals can be counted by name.
const MAX_STRANGERS: usize = 128;

/// Most log lines a minute about names without an accepted birth.
const MAX_STRANGER_LINES: u32 = 10;

/// Most log lines a minute about devices that come and go: twice the slots of the largest network.
const MAX_UP_DOWN_LINES: u32 = 128;

/// Most log lines a minute about refused devices with an accepted birth: twice the slots of the largest network.
const MAX_REFUSAL_LINES: u32 = 128;

/// Most characters of the reason why a birth or status cannot be read.
const MAX_UNREADABLE_CHARS: usize = 200;

/// Default of [`Registry::silent_after`].
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A device in the registry. A name that was forgotten and comes back is another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceIndex {
    at: usize,
    /// Number of the name among all names so far.
    number: u64,
}

/// All devices of the group.
#[derive(Debug)]
pub(crate) struct Registry {
    formats: Arc<PerNetwork<MessageFormat>>,
    /// Time without a message after which a device counts as silent, if another device claims its slot or its birth was cleared.
    pub(crate) silent_after: Duration,
    pub(crate) state: RegistryState,
    /// Locked for single updates.
    counts: Arc<Mutex<InboxCounts>>,
    stranger_log: LogLimit<Micros>,
    refusal_log: LogLimit<Micros>,
    up_down_log: LogLimit<Micros>,
    forgotten_log: LogLimit<Micros>,
    clear_limit: LogLimit<Micros>,
}

/// The registry's knowledge of the devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RegistryState {
    devices: Vec<Device>,
    by_id: HashMap<DeviceId, DeviceIndex>,
    /// Numbering of the group's samples, from the first device in a slot that tells its numbering; `None` before.
    pub(crate) numbering: Option<Numbering>,
    /// The device in each slot, with the network that the device runs. A slot has at most one device, whichever network that device runs.
    holders: Vec<Option<Holder>>,
    /// The device that fills each slot or filled it last.
    last_holders: Vec<Option<DeviceId>>,
    /// Device names by slot, as the leader was told last.
    told_names: Vec<Option<DeviceId>>,
    /// Filled slots that a second device claims, each with the time since which it does.
    contests: Vec<(Slot, Micros)>,
    /// Devices whose retained birth was cleared while they were up, each with the time of that.
    cleared: Vec<(DeviceIndex, Micros)>,
    /// Ids of the devices by slot; empty if any device may claim any slot.
    owners: Vec<DeviceId>,
    /// Devices that the setting `devices` does not name, and whose retained birth is to be cleared at the broker.
    births_to_clear: VecDeque<DeviceId>,
    /// Arrival of the latest accepted message of any device.
    last_accepted: Option<Micros>,
    /// Number of names that were remembered so far, forgotten ones included.
    names: u64,
}

/// The device in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Holder {
    device: DeviceIndex,
    generation: Generation,
    /// Arrival of the device's first accepted message in the slot; `None` before it.
    spoke: Option<Micros>,
}

impl Registry {
    pub(crate) fn new(formats: Arc<PerNetwork<MessageFormat>>, counts: Arc<Mutex<InboxCounts>>) -> Self {
        let slots = formats.iter().map(|(_, format)| format.slots).max().unwrap_or(0);
        let state = RegistryState {
            holders: vec![None; slots],
            last_holders: vec![None; slots],
            told_names: vec![None; slots],
            ..RegistryState::default()
        };
        Self {
            formats,
            silent_after: SILENT_AFTER,
            state,
            counts,
            stranger_log: LogLimit::new(MAX_STRANGER_LINES),
            refusal_log: LogLimit::new(MAX_REFUSAL_LINES),
            up_down_log: LogLimit::new(MAX_UP_DOWN_LINES),
            forgotten_log: LogLimit::new(1),
            clear_limit: LogLimit::new(owners::MAX_CLEARS),
        }
    }

    /// True if a state has as many slots as this registry, and names only devices that are in the state and networks that the group has.
    pub(crate) fn fits(&self, state: &RegistryState) -> bool {
        let by_slot = [state.holders.len(), state.last_holders.len(), state.told_names.len()];
        let is_known =
            |index: &DeviceIndex| state.devices.get(index.at).is_some_and(|device| device.index == *index);
        let holders = state.holders.iter().flatten().map(|holder| &holder.device);
        let mut starts = state.devices.iter().filter_map(|device| device.session.start());
        by_slot == [self.state.holders.len(); 3]
            && state.devices.iter().enumerate().all(|(at, device)| device.index.at == at)
            && starts.all(|start| self.formats.get(start.claim.generation).is_some())
            && state
                .by_id
                .values()
                .chain(holders)
                .chain(state.cleared.iter().map(|(index, _)| index))
                .all(is_known)
    }

    /// Notes a new connection to the broker: earlier messages say nothing about the present connections of devices.
    pub(crate) fn connected(&mut self) {
        self.state.devices.iter_mut().for_each(|device| device.session.on(SessionEvent::LeaderConnected));
    }

    /// Notes the end of the leader's own connection to the broker.
    pub(crate) fn disconnected(&mut self, now: Micros) {
        for device in &mut self.state.devices {
            let latest_end = device.ends.iter().flatten().max();
            device.ended_with_broker = latest_end.is_some_and(|end| now < *end + BROKER_STOP);
        }
    }

    /// Notes that a device has sent a message while the leader is connected.
    fn note_live(&mut self, index: DeviceIndex, now: Micros) {
        let session = &mut self.state.devices[index.at].session;
        let sign = session.sign();
        session.on(SessionEvent::Message);
        if sign == Some(Sign::KeptAfterEnd)
            && let Some(slot) = self.slot_of(index)
            && self.up_down_log.take(now).is_some()
        {
            info!(device = %self.state.devices[index.at].id, %slot, "device up");
        }
    }

    /// The device of that name, known or new. If [`MAX_STRANGERS`] names without an accepted birth are remembered, a new name replaces the
    /// name among these that was silent longest.
    pub(crate) fn device(&mut self, id: &DeviceId, now: Micros) -> DeviceIndex {
        if let Some(&index) = self.state.by_id.get(id) {
            return index;
        }
        let strangers =
            || self.state.devices.iter().enumerate().filter(|(_, device)| device.session.is_of_stranger());
        let place = if strangers().count() < MAX_STRANGERS {
            None
        } else {
            strangers().min_by_key(|(_, device)| device.heard).map(|(at, _)| at)
        };
        self.state.names += 1;
        let index = DeviceIndex { at: place.unwrap_or(self.state.devices.len()), number: self.state.names };
        let device = Device::new(id.clone(), index, now);
        match place {
            Some(at) => {
                let forgotten = std::mem::replace(&mut self.state.devices[at], device);
                self.forget(&forgotten, now);
            }
            None => self.state.devices.push(device),
        }
        self.state.by_id.insert(id.clone(), index);
        index
    }

    /// True if the device is still remembered.
    pub(crate) fn is_current(&self, index: DeviceIndex) -> bool {
        self.state.devices.get(index.at).is_some_and(|device| device.index == index)
    }

    fn forget(&mut self, device: &Device, now: Micros) {
        self.state.by_id.remove(&device.id);
        self.counts.lock().forget(&device.id);
        if !device.is_crowded_out {
            self.count_forgotten(
                &device.id,
                "too many names of devices without a valid birth: the oldest ones are forgotten",
                now,
            );
        }
    }

    fn count_forgotten(&mut self, device: &DeviceId, reason: &str, now: Micros) {
        let mut counts = self.counts.lock();
        counts.forgotten_devices += 1;
        if self.forgotten_log.take(now).is_some() {
            warn!(%device, forgotten = counts.forgotten_devices, most = MAX_DEVICES, "{reason}");
        }
    }

    /// If more than [`MAX_DEVICES`] devices have an accepted birth, treats the birth of one of them as cleared. Devices without an answer
    /// and without a sign of life go first, the latest of them before older ones; then devices with a sign of life, and last devices that
    /// have answered, in both cases the one that was silent longest. Devices in slots and `newest` stay.
    fn bound_accepted(&mut self, newest: DeviceIndex, now: Micros) {
        let accepted = || self.state.devices.iter().filter(|device| !device.session.is_of_stranger());
        if accepted().count() <= MAX_DEVICES {
            return;
        }
        let may_go = |device: &&Device| device.index != newest && self.slot_of(device.index).is_none();
        let weight = |device: &&Device| {
            let speaks = (device.answered.is_some(), device.session.sign_of_life());
            // Brokers send the oldest births first.
            let latest = (speaks == (false, 0)).then_some(Reverse(device.heard));
            (speaks, latest, device.heard)
        };
        let Some(least) = accepted().filter(may_go).min_by_key(weight) else { return };
        let (at, id) = (least.index.at, least.id.clone());
        self.state.devices[at].session.on(SessionEvent::BirthCleared);
        self.state.devices[at].is_crowded_out = true;
        let reason = "too many devices with a birth at the broker: those that do not answer are forgotten; clear births that nobody needs, and let the \
                     broker's access rules say who may publish one";
        self.count_forgotten(&id, reason, now);
    }

    /// Takes the birth certificate of a device.
    pub(crate) fn set_birth(
        &mut self,
        index: DeviceIndex,
        birth: &Birth,
        Arrival { now, is_retained }: Arrival,
        changes: &mut Vec<Change>,
    ) {
        let known = self.formats.iter().find(|(_, known)| known.network == birth.network);
        let generation = known.map_or(Generation::Current, |(generation, _)| generation);
        let refusal = self.refusal(index, birth, known.map(|(_, known)| known.slots));
        if !is_retained {
            self.note_live(index, now);
        }
        let device = &mut self.state.devices[index.at];
        device.set_birth(birth, generation, refusal.as_ref().map(|(fault, _)| *fault));
        match refusal {
            Some((fault, why)) => self.refuse_birth(index, fault, &why, now),
            None => {
                device.heard = now;
                self.bound_accepted(index, now);
            }
        }
        self.clear_if_foreign(index);
        self.state.cleared.retain(|(cleared, _)| *cleared != index);
        self.update_holders(index, now, changes);
        self.tell_names(changes);
    }

    /// The reason why a birth is refused; `None` if it is accepted. `slots` is the number of slots of the birth's network; `None` for a
    /// network that the group does not run.
    fn refusal(&self, index: DeviceIndex, birth: &Birth, slots: Option<usize>) -> Option<Refusal> {
        let id = &self.state.devices[index.at].id;
        if birth.device != *id {
            let why = format!("birth: the topic names {id}, the text {}", birth.device);
            return Some((Fault::Malformed, why));
        }
        let Some(slots) = slots else {
            return Some((Fault::WrongNetwork, wrong_network(&self.formats, birth.network)));
        };
        if birth.slot.index() >= slots {
            let why = format!("slot: expected 0 to {}, found {}", slots - 1, birth.slot);
            return Some((Fault::Malformed, why));
        }
        self.claim_refusal(id, birth.slot, birth.numbering)
    }

    /// The refusal of a device for its claim to this slot or its numbering; `None` if both are accepted.
    fn claim_refusal(&self, id: &DeviceId, slot: Slot, numbering: Option<Numbering>) -> Option<Refusal> {
        if let Some(refusal) = self.wrong_owner(id, slot) {
            return Some(refusal);
        }
        if numbering == Some(Numbering::Clock { period_ms: 0 }) {
            return Some((Fault::Malformed, "numbering: expected a period of at least 1 ms, found 0".into()));
        }
        self.wrong_numbering(numbering)
    }

    /// The refusal of a numbering other than the group's; `None` while either is unknown.
    fn wrong_numbering(&self, found: Option<Numbering>) -> Option<Refusal> {
        let (ours, found) = self.state.numbering.zip(found).filter(|(ours, found)| ours != found)?;
        let why = format!(
            "numbering: expected {ours}, found {found}: give it the group's, or begin a new numbering \
             (`headwater-aggregator --new-numbering GROUP`, or `headwater up --new-numbering`)"
        );
        Some((Fault::WrongNumbering, why))
    }

    /// Takes the numbering of a device in a slot, if the group has none, and refuses devices whose births name another numbering.
    fn learn_numbering(&mut self, index: DeviceIndex, now: Micros, changes: &mut Vec<Change>) {
        let Some(start) = self.state.devices[index.at].session.start() else { return };
        let Some(numbering) = start.numbering.filter(|_| self.state.numbering.is_none()) else { return };
        self.state.numbering = Some(numbering);
        changes.push((start.claim.generation, Event::Numbering(numbering)));
        for other in 0..self.state.devices.len() {
            let of_other = self.state.devices[other].session.start().filter(|start| start.refusal.is_none());
            if let Some((fault, why)) = of_other.and_then(|start| self.wrong_numbering(start.numbering)) {
                let device = &mut self.state.devices[other];
                device.session.on(SessionEvent::Judged(Some(fault)));
                let index = device.index;
                self.refuse_birth(index, fault, &why, now);
            }
        }
    }

    /// Takes the status of a device, sent by the device itself or by the broker as its last will.
    pub(crate) fn set_status(
        &mut self,
        index: DeviceIndex,
        status: Status,
        Arrival { now, is_retained }: Arrival,
        changes: &mut Vec<Change>,
    ) {
        if !is_retained && status.state == DeviceState::Up {
            self.note_live(index, now);
        }
        let held = self.slot_of(index);
        let device = &mut self.state.devices[index.at];
        let was_frozen = device.frozen.is_some();
        device.set_status(status, is_retained);
        device.heard = now;
        let is_frozen = device.frozen.is_some();
        if self.state.cleared.iter().any(|(cleared, _)| *cleared == index) && !device.session.is_up() {
            self.forget_session(index);
        }
        self.update_holders(index, now, changes);
        // A frozen device keeps its slot, and no window waits for it.
        if let Some(slot) = held.filter(|held| was_frozen != is_frozen && self.slot_of(index) == Some(*held))
        {
            let change = if is_frozen { Event::DeviceDown { slot } } else { Event::DeviceUp { slot } };
            changes.push((self.generation(index), change));
        }
    }

    /// Notes that the retained birth of a device was cleared. An accepted device that is up keeps its session while it sends; of any other
    /// device the birth is forgotten.
    pub(crate) fn clear_birth(&mut self, index: DeviceIndex, now: Micros, changes: &mut Vec<Change>) {
        let session = &self.state.devices[index.at].session;
        if session.is_up() && !session.is_of_stranger() {
            if !self.state.cleared.iter().any(|(cleared, _)| *cleared == index) {
                self.state.cleared.push((index, now));
            }
            return;
        }
        self.forget_session(index);
        self.update_holders(index, now, changes);
    }

    /// Notes a birth or status that cannot be read, so that the device learns of it and the status names it. A device that is up goes on under the
    /// birth that was read: whoever may publish there could otherwise end its session.
    pub(crate) fn note_unreadable(
        &mut self,
        index: DeviceIndex,
        (what, why): (Introduction, &str),
        now: Micros,
        changes: &mut Vec<Change>,
    ) {
        let device = &mut self.state.devices[index.at];
        if device.session.is_up() && !device.session.is_of_stranger() {
            return;
        }
        device.unreadable = Some((what, clipped(why, MAX_UNREADABLE_CHARS)));
        if what == Introduction::Birth {
            device.session.on(SessionEvent::BirthCleared);
            self.update_holders(index, now, changes);
        }
    }

    fn forget_session(&mut self, index: DeviceIndex) {
        self.state.devices[index.at].unreadable = None;
        self.state.devices[index.at].session.on(SessionEvent::BirthCleared);
        self.state.cleared.retain(|(cleared, _)| *cleared != index);
    }

    fn slot_of(&self, index: DeviceIndex) -> Option<Slot> {
        let mut slots = Slot::first(self.state.holders.len()).zip(&self.state.holders);
        slots.find(|(_, holder)| holder.is_some_and(|holder| holder.device == index)).map(|(slot, _)| slot)
    }

    /// The network that the device runs by its birth, under which its messages are read; the current network before a birth.
    pub(crate) fn generation(&self, index: DeviceIndex) -> Generation {
        self.state.devices[index.at]
            .session
            .start()
            .map_or(Generation::Current, |start| start.claim.generation)
    }

    /// The session that the device's messages must name, by its birth.
    ///
    /// # Errors
    /// [`Fault::UnknownDevice`] before a birth, or the fault for which the birth was refused.
    pub(crate) fn session(&self, index: DeviceIndex) -> Result<headwater_protocol::Session, Fault> {
        let start = self.state.devices[index.at].session.start().ok_or(Fault::UnknownDevice)?;
        start.refusal.map_or(Ok(start.messages), Err)
    }

    /// Accepts a message of the present session, and returns the device's slot. A device that lost its slot by silence may get the slot
    /// back.
    ///
    /// # Errors
    /// [`Fault::SlotTaken`] while another device fills the slot; otherwise as [`Registry::session`].
    pub(crate) fn admit(
        &mut self,
        index: DeviceIndex,
        now: Micros,
        changes: &mut Vec<Change>,
    ) -> Result<Slot, Fault> {
        self.session(index)?;
        let session = self.state.devices[index.at].session;
        let slot = session.start().ok_or(Fault::UnknownDevice)?.claim.slot;
        if matches!(session, DeviceSession::Replaced(_, Some(_))) {
            self.return_to_slot(index, slot, now, changes);
        }
        match self.state.holders.get_mut(slot.index()).and_then(Option::as_mut) {
            // The slot is empty: this device's status is still on the way, or this is a last message of a session that has ended.
            None => {}
            Some(holder) if holder.device == index => _ = holder.spoke.get_or_insert(now),
            Some(_) => return Err(Fault::SlotTaken),
        }
        if session.sign() != Some(Sign::Live) {
            self.note_live(index, now);
        }
        let device = &mut self.state.devices[index.at];
        (device.heard, device.answered) = (now, Some(now));
        self.state.last_accepted = Some(now);
        if !self.state.cleared.is_empty() {
            self.state.cleared.retain(|(cleared, _)| *cleared != index);
        }
        Ok(slot)
    }

    /// Counts a refusal of a device. If the error table wants devices with this fault named, the first refusal of a kind in each session is
    /// logged, at most once a minute. Lines about all devices together are limited too, more strictly for names without an accepted birth.
    pub(crate) fn refuse(&mut self, index: DeviceIndex, fault: Fault, why: &str, now: Micros) {
        let device = &mut self.state.devices[index.at];
        self.counts.lock().refuse(&device.id, fault);
        if fault.mqtt() != MqttHandling::CountAndName {
            return;
        }
        let Some(not_logged) = device.take_line(fault, now) else { return };
        let log =
            if device.session.is_of_stranger() { &mut self.stranger_log } else { &mut self.refusal_log };
        let Some(others) = log.take(now) else { return };
        device.logged(fault, now);
        warn!(
            device = %device.id, fault = fault.code(), why, not_logged, of_other_names = others,
            "a device was refused; more refusals of this session are only counted"
        );
    }

    /// Slots that a device fills.
    pub(crate) fn filled(&self) -> SlotSet {
        let slots = Slot::first(self.state.holders.len()).zip(&self.state.holders);
        slots.filter(|(_, holder)| holder.is_some()).map(|(slot, _)| slot).collect()
    }

    /// True if a device in a slot sends batches when the leader reads batches.
    pub(crate) fn any_sends_batches(&self) -> bool {
        let in_slots =
            self.state.holders.iter().flatten().map(|holder| &self.state.devices[holder.device.at]);
        in_slots.filter_map(|device| device.session.start()).any(|start| start.sends_batches)
    }

    /// Updates the holders of slots after a change of one device.
    fn update_holders(&mut self, index: DeviceIndex, now: Micros, changes: &mut Vec<Change>) {
        let claim = self.state.devices[index.at].session.claimed_slot();
        let holds = self.slot_of(index).and_then(|slot| {
            let holder = self.state.holders[slot.index()]?;
            Some(NetworkSlot { slot, generation: holder.generation })
        });
        if let Some(left) = holds.filter(|holds| claim != Some(*holds)) {
            self.state.holders[left.slot.index()] = None;
            self.state.devices[index.at].note_end(now);
            self.log_end(index, left.slot, now);
            changes.push((left.generation, Event::DeviceDown { slot: left.slot }));
            if claim.map(|claim| claim.slot) != Some(left.slot)
                && let Some(successor) = self.successor(left.slot, index)
            {
                self.fill(successor, now, changes);
            }
        }
        self.fill(index, now, changes);
    }

    /// Logs that a device lost its slot. A refusal, and a slot lost by silence, have lines of their own.
    fn log_end(&mut self, index: DeviceIndex, slot: Slot, now: Micros) {
        let device = &self.state.devices[index.at];
        let reason = match device.session {
            DeviceSession::WithoutBirth(_) => "its birth was cleared",
            session if session.is_of_stranger() => return,
            DeviceSession::Replaced(..) => return,
            DeviceSession::Up(..) | DeviceSession::Waiting(_, Some(LatestStatus::Up(..))) => {
                "it has started again, or claims another slot"
            }
            DeviceSession::Ended(_) | DeviceSession::Waiting(..) => CONNECTION_ENDED,
        };
        if self.up_down_log.take(now).is_some() {
            warn!(device = %device.id, %slot, state = "down", reason, "device down");
        }
    }

    /// Puts a device into the slot that it claims, or refuses the device while another device fills the slot.
    fn fill(&mut self, index: DeviceIndex, now: Micros, changes: &mut Vec<Change>) {
        let Some(claim) = self.state.devices[index.at].session.claimed_slot() else { return };
        let Some(place) = self.state.holders.get_mut(claim.slot.index()) else { return };
        match *place {
            None => {
                *place = Some(Holder { device: index, generation: claim.generation, spoke: None });
                self.state.devices[index.at].up_since = Some(now);
                self.state.last_holders[claim.slot.index()] = Some(self.state.devices[index.at].id.clone());
                let is_up = self.state.devices[index.at].session.sign() != Some(Sign::KeptAfterEnd);
                if is_up && self.up_down_log.take(now).is_some() {
                    info!(device = %self.state.devices[index.at].id, slot = %claim.slot, "device up");
                }
                self.learn_numbering(index, now, changes);
                self.tell_name(claim.slot, changes);
                if self.state.devices[index.at].frozen.is_none() {
                    changes.push((claim.generation, Event::DeviceUp { slot: claim.slot }));
                }
                // Other devices that claim the slot wait for this device now.
                self.state.contests.retain(|(contested, _)| *contested != claim.slot);
                if self.successor(claim.slot, index).is_some() {
                    self.contest(claim.slot, now);
                }
            }
            Some(holder) if holder.device == index => {}
            Some(holder) => {
                let holder = &self.state.devices[holder.device.at].id;
                let why = format!("slot {} is filled by {holder}: give one of them another slot", claim.slot);
                self.refuse_birth(index, Fault::SlotTaken, &why, now);
                self.contest(claim.slot, now);
            }
        }
    }
}

/// The reason for refusing a device or an edge that runs no network of this group.
pub(crate) fn wrong_network(ours: &PerNetwork<MessageFormat>, found: NetworkId) -> String {
    let ours: Vec<String> = ours.iter().map(|(_, format)| format.network.short()).collect();
    let (ours, found) = (ours.join(" or "), found.short());
    format!("network: expected {ours}, found {found}: give it this group's bundle")
}

#[cfg(test)]
mod tests;
