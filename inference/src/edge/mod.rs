//! What an edge does beside the leader, without sockets, threads or a clock: collects the features of its slots and says when its
//! section is to run.
//!
//! An edge may be in the leader's process or in one of its own; either way it hears which slots of a sample have a view (from the
//! leader, or from its request on the wire) and the features that devices send, in any order. It answers every sample that it was
//! told of, once, when all features are in or their time is over.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use headwater_protocol::{SampleId, Slot, SlotSet};

use crate::leader::Micros;
use crate::leader::timers::Timers;

/// Samples that were answered and are remembered, so that stragglers open nothing.
const REMEMBERED: usize = 1024;

/// What an edge must know.
#[derive(Clone, Debug)]
pub struct CollectorConfig {
    /// Its slots, in the order in which its section takes their maps.
    pub slots: Vec<Slot>,
    /// Bytes of the map that a device sends.
    pub packed_bytes: usize,
    /// Time from the request until it answers with what it has, ms.
    pub features_ms: u32,
    /// Most samples open at once; beyond it the oldest is answered with what is there.
    pub max_open_samples: usize,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EdgeEvent<'a> {
    /// These slots have a view of the sample and send their features; some may belong to other edges.
    Collect {
        /// Which sample.
        sample: SampleId,
        /// Which slots.
        slots: SlotSet,
    },
    /// Features of a slot.
    Features {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
        /// The map, [`CollectorConfig::packed_bytes`] long.
        bits: &'a [u8],
    },
    /// Features that are no longer kept.
    Gone {
        /// Who.
        slot: Slot,
        /// Which sample.
        sample: SampleId,
    },
    /// A device went away.
    DeviceDown {
        /// Its slot.
        slot: Slot,
    },
    /// Nothing; time passed.
    Tick,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq)]
pub enum EdgeAction {
    /// Run the section and answer with what it gives.
    Run(EdgeJob),
    /// Answer that there are no features.
    Gone(SampleId),
}

/// One run of the section of an edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeJob {
    /// Which sample.
    pub sample: SampleId,
    /// Slots of the network whose features are in it; never empty.
    pub slots: SlotSet,
    /// `[slots of this edge, packed_bytes]`, zero where absent.
    pub features: Vec<u8>,
    /// `[slots of this edge]`.
    pub presence: Vec<bool>,
}

/// Collects the features of the slots of one edge.
pub struct Collector {
    config: CollectorConfig,
    /// Slots of this edge.
    own: SlotSet,
    open: BTreeMap<SampleId, Open>,
    answered: VecDeque<SampleId>,
    timers: Timers,
    misfits: u64,
}

/// A sample of which something is known.
struct Open {
    /// Slots that have a view; `None` until somebody says so.
    wanted: Option<SlotSet>,
    delivered: SlotSet,
    gone: SlotSet,
    features: Vec<u8>,
    due: Micros,
}

impl Collector {
    /// An edge that knows of no sample.
    pub fn new(config: CollectorConfig) -> Self {
        let own = config.slots.iter().copied().collect();
        Self {
            config,
            own,
            open: BTreeMap::new(),
            answered: VecDeque::new(),
            timers: Timers::default(),
            misfits: 0,
        }
    }

    /// Slots of this edge.
    pub fn slots(&self) -> SlotSet {
        self.own
    }

    /// Maps of the wrong length.
    pub fn misfits(&self) -> u64 {
        self.misfits
    }

    /// When [`EdgeEvent::Tick`] is needed next; `None` while nothing is open. May be early, never late.
    pub fn next_timer(&self) -> Option<Micros> {
        self.timers.earliest()
    }

    /// Takes one event at `now`, which must not go backwards, and appends what is to be done.
    pub fn handle(&mut self, now: Micros, event: EdgeEvent<'_>, actions: &mut Vec<EdgeAction>) {
        match event {
            EdgeEvent::Collect { sample, slots } => {
                if !(slots & self.own).is_empty() && self.knows(now, sample, actions) {
                    let due = now.plus_ms(self.config.features_ms);
                    if let Some(open) = self.open.get_mut(&sample).filter(|open| open.wanted.is_none()) {
                        (open.wanted, open.due) = (Some(slots & self.own), due);
                        self.timers.push(due, sample);
                    }
                    self.answer_if_complete(sample, actions);
                }
            }
            EdgeEvent::Features { slot, sample, bits } => {
                let at = self.config.slots.iter().position(|own| *own == slot);
                if bits.len() != self.config.packed_bytes {
                    self.misfits += 1;
                } else if let Some(at) = at
                    && self.knows(now, sample, actions)
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

    /// Makes sure that the sample is open; false for one that was answered already.
    fn knows(&mut self, now: Micros, sample: SampleId, actions: &mut Vec<EdgeAction>) -> bool {
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
        // Features that nobody asks about are given up after as long as they would have been waited for.
        let due = now.plus_ms(self.config.features_ms.saturating_mul(2));
        let features = vec![0; self.config.slots.len() * self.config.packed_bytes];
        self.open.insert(
            sample,
            Open { wanted: None, delivered: SlotSet::EMPTY, gone: SlotSet::EMPTY, features, due },
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

    /// Ends a sample: with a run, with the word that there is nothing, or silently when nobody asked.
    fn answer(&mut self, sample: SampleId, actions: &mut Vec<EdgeAction>) {
        let Some(open) = self.open.remove(&sample) else { return };
        let Some(wanted) = open.wanted else { return };
        if self.answered.len() == REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back(sample);
        // A slot that the leader does not count has no part, whatever it sent.
        let slots = open.delivered & wanted;
        actions.push(if slots.is_empty() {
            EdgeAction::Gone(sample)
        } else {
            let presence = self.config.slots.iter().map(|slot| slots.contains(*slot)).collect();
            EdgeAction::Run(EdgeJob { sample, slots, features: open.features, presence })
        });
    }
}
