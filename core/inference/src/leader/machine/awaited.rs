//! Samples that are known but not open: samples that were triggered, and samples that were open when the leader stopped.
//!
//! ```text
//! trigger ──┐                ┌── an answer ──> open
//!           ├──> awaited ────┤
//! restart ──┘                └── none in time ──> dropped with its reason
//! ```

use std::collections::BTreeMap;

use headwater_protocol::{Dropped, SampleId};
use serde::{Deserialize, Serialize};

use super::Leader;
use crate::leader::{Action, Micros};

/// Largest number of awaited samples; beyond it the lowest id is dropped.
const MAX_AWAITED: usize = 65_536;

/// Time after [`Policy::late_ms`](crate::policy::Policy::late_ms) in which devices may still answer. A device whose answer was lost sees that
/// the sample is not settled, and sends the answer again after some seconds.
const SEND_AGAIN_MS: u32 = 10_000;

#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct AwaitedSamples {
    pub(super) samples: BTreeMap<SampleId, Awaited>,
    /// True while the connection to the broker is lost. No answer can come then, so no sample is dropped for its time.
    is_disconnected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Awaited {
    /// Time at which the sample is dropped.
    due: Micros,
    reason: Dropped,
}

impl AwaitedSamples {
    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.samples.contains_key(&sample)
    }

    /// Adds a sample. If there are too many, takes out the sample with the lowest id and returns it with the reason of its drop.
    fn insert(&mut self, sample: SampleId, awaited: Awaited) -> Option<(SampleId, Dropped)> {
        self.samples.insert(sample, awaited);
        if self.samples.len() <= MAX_AWAITED {
            return None;
        }
        self.samples.pop_first().map(|(sample, awaited)| (sample, awaited.reason))
    }

    /// Takes out a sample whose time is over and returns the reason of its drop; `None` if the sample is not due or
    /// the connection is lost.
    fn take_due(&mut self, sample: SampleId, now: Micros) -> Option<Dropped> {
        if self.is_disconnected {
            return None;
        }
        self.samples.get(&sample).filter(|awaited| awaited.due <= now)?;
        self.samples.remove(&sample).map(|awaited| awaited.reason)
    }
}

impl Leader {
    /// Takes a trigger, which asks the devices for this sample.
    pub(super) fn trigger(&mut self, sample: SampleId) {
        let waiting = self.state.plausible_ids.believed.unconfirmed();
        let judged = self.state.plausible_ids.check_trigger(sample, self.wall_ms);
        if waiting != self.state.plausible_ids.believed.unconfirmed() && judged != Ok(waiting) {
            waiting.into_iter().for_each(|waiting| self.drop_unconfirmed(waiting));
        }
        match judged {
            Ok(confirmed) => {
                confirmed.into_iter().chain([sample]).for_each(|sample| self.await_triggered(sample));
            }
            Err(_) if self.is_known(sample) => {}
            Err(implausible) => {
                self.state.counts.implausible += 1;
                self.refusal = Some(implausible);
                match implausible.is_final {
                    true => self.drop_refused(sample, Dropped::Implausible),
                    false => self.state.timers.push(self.send_again_until(), sample),
                }
            }
        }
    }

    /// Awaits a sample whose trigger is believed.
    fn await_triggered(&mut self, sample: SampleId) {
        self.state.plausible_ids.believed.believe(sample);
        if self.is_known(sample) {
            return;
        }
        if self.state.closed.is_too_old(sample) {
            return self.drop_refused(sample, Dropped::TooOld);
        }
        self.actions.push(Action::Await(sample));
        self.await_answer(sample, Dropped::Unanswered);
        self.take_early(sample);
    }

    /// Drops a sample whose trigger no second trigger has confirmed.
    fn drop_unconfirmed(&mut self, sample: SampleId) {
        if !self.is_known(sample) {
            self.drop_refused(sample, Dropped::Implausible);
        }
    }

    /// True when the sample is open, awaited or closed.
    pub(super) fn is_known(&self, sample: SampleId) -> bool {
        self.state.open.contains_key(&sample)
            || self.state.awaited.contains(sample)
            || self.state.closed.contains(sample)
    }

    /// The connection is new: devices send unsettled answers again, so the time for answers to awaited samples begins anew.
    pub(super) fn connected(&mut self) {
        self.state.plausible_ids.believed.connected();
        self.state.awaited.is_disconnected = false;
        let due = self.send_again_until();
        for (sample, awaited) in &mut self.state.awaited.samples {
            awaited.due = due;
            self.state.timers.push(due, *sample);
        }
    }

    /// The connection was lost: awaited samples stay until the next connection.
    pub(super) fn disconnected(&mut self) {
        self.state.awaited.is_disconnected = true;
    }

    /// Drops a sample whose time is over, if it is awaited, or if its trigger still waits for a second trigger.
    pub(super) fn end_awaited(&mut self, sample: SampleId) {
        if let Some(reason) = self.state.awaited.take_due(sample, self.state.now) {
            self.drop_awaited(sample, reason);
        } else if self.state.plausible_ids.believed.unconfirmed() == Some(sample) {
            self.drop_unconfirmed(sample);
        }
    }

    pub(super) fn drop_all_awaited(&mut self) {
        for (sample, awaited) in std::mem::take(&mut self.state.awaited.samples) {
            self.drop_awaited(sample, awaited.reason);
        }
    }

    /// Awaits an answer to a sample, which is dropped for `reason` if none comes in time.
    pub(super) fn await_answer(&mut self, sample: SampleId, reason: Dropped) {
        let due = self.send_again_until();
        self.state.timers.push(due, sample);
        if let Some((lowest, reason)) = self.state.awaited.insert(sample, Awaited { due, reason }) {
            self.drop_awaited(lowest, reason);
        }
    }

    fn drop_awaited(&mut self, sample: SampleId, reason: Dropped) {
        self.state.closed.dropped(sample, reason, self.state.now);
        self.actions.push(Action::Drop { sample, reason });
        self.settle(self.state.newest.max(sample));
    }

    /// The time until which devices may send unsettled answers again.
    fn send_again_until(&self) -> Micros {
        let late_ms = self.state.networks.current.policy.late_ms;
        self.state.now.plus_ms(late_ms).plus_ms(SEND_AGAIN_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(due: u64) -> Awaited {
        Awaited { due: Micros(due), reason: Dropped::Unanswered }
    }

    #[test]
    fn the_lowest_sample_goes_when_too_many_are_awaited() {
        let mut samples = AwaitedSamples::default();
        let last = MAX_AWAITED as u64;
        assert!((1..=last).all(|sample| samples.insert(SampleId(sample), awaited(9)).is_none()));
        assert_eq!(samples.insert(SampleId(last), awaited(9)), None, "it is there already");
        let lowest = samples.insert(SampleId(last + 1), awaited(9));
        assert_eq!((lowest, samples.samples.len()), (Some((SampleId(1), Dropped::Unanswered)), MAX_AWAITED));
    }

    #[test]
    fn a_sample_is_due_at_its_time_and_only_with_a_connection() {
        let mut samples = AwaitedSamples::default();
        samples.insert(SampleId(1), awaited(9));
        assert_eq!(samples.take_due(SampleId(1), Micros(8)), None);
        samples.is_disconnected = true;
        assert_eq!(samples.take_due(SampleId(1), Micros(9)), None);
        samples.is_disconnected = false;
        assert_eq!(samples.take_due(SampleId(1), Micros(9)), Some(Dropped::Unanswered));
        assert_eq!((samples.take_due(SampleId(1), Micros(9)), samples.samples.len()), (None, 0));
    }
}
