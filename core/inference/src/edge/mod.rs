//! The collector of an edge: it gathers the features of the edge's slots, without sockets, threads or a clock.
//!
//! An edge runs in the leader's process or in its own. Either way the edge learns which slots have a view (from the leader, or from the
//! request on the wire) and receives features, in any order. The edge answers each sample once: when all
//! features came, or time is over.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use headwater_protocol::{SampleId, Slot, SlotSet};

use crate::leader::Micros;
use crate::leader::timers::Timers;

/// Largest number of answered samples that are remembered, so that late features do not open them again.
const MAX_ANSWERED: usize = 1024;

/// Configuration of a collector.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Slots of the edge, in the order in which the section takes their maps.
    pub slots: Vec<Slot>,
    /// Bytes of a device's map.
    pub packed_bytes: usize,
    /// Time from the request until the edge answers with the features that came, ms.
    pub features_ms: u32,
    /// Largest number of open samples; beyond it the open sample with the lowest id is answered with the features that came.
    pub max_open_samples: usize,
}

/// An event that the collector reacts to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EdgeEvent<'a> {
    /// These slots have a view of the sample and send their features; some may belong to other edges.
    Collect {
        /// The sample.
        sample: SampleId,
        /// The slots.
        slots: SlotSet,
    },
    /// Features of a slot.
    Features {
        /// Slot of the device.
        slot: Slot,
        /// The sample.
        sample: SampleId,
        /// The map, [`CollectorConfig::packed_bytes`] long.
        bits: &'a [u8],
    },
    /// The device has no features of the sample any more.
    Gone {
        /// Slot of the device.
        slot: Slot,
        /// The sample.
        sample: SampleId,
    },
    /// A device left.
    DeviceDown {
        /// Slot of the device.
        slot: Slot,
    },
    /// Nothing came but time passed: samples whose time is over are answered.
    Tick,
}

/// An action that the collector asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum EdgeAction {
    /// Run the section and answer with its output.
    Run(EdgeJob),
    /// Answer that there are no features.
    Gone(SampleId),
}

/// One run of the section of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeJob {
    /// The sample.
    pub sample: SampleId,
    /// Slots whose features came; never empty.
    pub slots: SlotSet,
    /// Maps, `[slots of this edge, packed_bytes]`; the section ignores the maps of absent slots.
    pub features: Vec<u8>,
    /// True for each slot whose features came, `[slots of this edge]`.
    pub presence: Vec<bool>,
}

/// Collects the features of the slots of one edge.
pub struct Collector {
    config: CollectorConfig,
    slots: SlotSet,
    open: BTreeMap<SampleId, CollectingSample>,
    answered: VecDeque<SampleId>,
    timers: Timers,
}

/// A sample for which a request or features came.
struct CollectingSample {
    /// Slots whose features the leader requested; `None` until the request comes.
    wanted: Option<SlotSet>,
    delivered: SlotSet,
    gone: SlotSet,
    features: Vec<u8>,
    due: Micros,
}

impl Collector {
    /// Sets [`CollectorConfig::features_ms`] for samples that are requested from now on.
    pub fn set_features_ms(&mut self, features_ms: u32) {
        self.config.features_ms = features_ms;
    }

    /// A collector without samples.
    pub fn new(config: CollectorConfig) -> Self {
        let slots = config.slots.iter().copied().collect();
        Self { config, slots, open: BTreeMap::new(), answered: VecDeque::new(), timers: Timers::default() }
    }

    /// Time at which [`EdgeEvent::Tick`] is needed next; `None` if no tick is needed. The time may be too early, never too late.
    pub fn next_timer(&self) -> Option<Micros> {
        self.timers.earliest()
    }

    /// Takes one event and appends the actions that it asks for. `now` must not go backwards.
    pub fn handle(&mut self, now: Micros, event: EdgeEvent<'_>, actions: &mut Vec<EdgeAction>) {
        match event {
            EdgeEvent::Collect { sample, slots } => {
                if !(slots & self.slots).is_empty() && self.ensure_open(now, sample, actions) {
                    let due = now.plus_ms(self.config.features_ms);
                    if let Some(open) = self.open.get_mut(&sample).filter(|open| open.wanted.is_none()) {
                        (open.wanted, open.due) = (Some(slots & self.slots), due);
                        self.timers.push(due, sample);
                    }
                    self.answer_if_complete(sample, actions);
                }
            }
            EdgeEvent::Features { slot, sample, bits } => {
                let at = self.config.slots.iter().position(|member| *member == slot);
                if let Some(at) = at.filter(|_| bits.len() == self.config.packed_bytes)
                    && self.ensure_open(now, sample, actions)
                    && let Some(open) = self.open.get_mut(&sample)
                {
                    open.features[at * bits.len()..][..bits.len()].copy_from_slice(bits);
                    open.delivered.insert(slot);
                    self.answer_if_complete(sample, actions);
                }
            }
            EdgeEvent::Gone { slot, sample } => {
                if let Some(open) = self.open.get_mut(&sample) {
                    open.gone.insert(slot);
                    self.answer_if_complete(sample, actions);
                }
            }
            EdgeEvent::DeviceDown { slot } => {
                let samples: Vec<SampleId> = self.open.keys().copied().collect();
                for sample in samples {
                    self.handle(now, EdgeEvent::Gone { slot, sample }, actions);
                }
            }
            EdgeEvent::Tick => {}
        }
        while let Some(sample) = self.timers.pop_due(now) {
            if self.open.get(&sample).is_some_and(|open| open.due <= now) {
                self.answer(sample, actions);
            }
        }
    }

    /// Opens the sample unless it is open; false for a sample that was answered already.
    fn ensure_open(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<EdgeAction>) -> bool {
        if self.open.contains_key(&sample) {
            return true;
        }
        if self.answered.contains(&sample) {
            return false;
        }
        if self.open.len() >= self.config.max_open_samples
            && let Some((&oldest, _)) = self.open.first_key_value()
        {
            self.answer(oldest, actions);
        }
        // Features without a request are given up after twice `features_ms`.
        let due = now.plus_ms(self.config.features_ms.saturating_mul(2));
        let features = vec![0; self.config.slots.len() * self.config.packed_bytes];
        self.open.insert(
            sample,
            CollectingSample { wanted: None, delivered: SlotSet::EMPTY, gone: SlotSet::EMPTY, features, due },
        );
        self.timers.push(due, sample);
        true
    }

    fn answer_if_complete(&mut self, sample: SampleId, actions: &mut Vec<EdgeAction>) {
        let complete = self.open.get(&sample).is_some_and(|open| {
            open.wanted.is_some_and(|wanted| wanted.is_subset(open.delivered | open.gone))
        });
        if complete {
            self.answer(sample, actions);
        }
    }

    /// Ends a sample: with a run, with [`EdgeAction::Gone`], or without an answer if no request came.
    fn answer(&mut self, sample: SampleId, actions: &mut Vec<EdgeAction>) {
        let Some(open) = self.open.remove(&sample) else { return };
        let Some(wanted) = open.wanted else { return };
        if self.answered.len() == MAX_ANSWERED {
            self.answered.pop_front();
        }
        self.answered.push_back(sample);
        // Features of a slot that the request did not name are left out.
        let slots = open.delivered & wanted;
        actions.push(if slots.is_empty() {
            EdgeAction::Gone(sample)
        } else {
            let presence = self.config.slots.iter().map(|slot| slots.contains(*slot)).collect();
            EdgeAction::Run(EdgeJob { sample, slots, features: open.features, presence })
        });
    }
}
