//! Cost of a sample by the exit at which it leaves: body bytes of the devices, and multiply-accumulates over all tiers.

use headwater_inference::cascade::ExitAnswer;
use headwater_inference::cost::DeviceBody;
use headwater_inference::manifest::{NetworkManifest, Tier};
use headwater_protocol::{Exit, SlotSet};

use crate::data::{AbsentView, Samples};
use crate::part_logits::PartLogits;

/// Costs of a network from which the cost of each sample follows.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkCost {
    body: DeviceBody,
    first: Exit,
    /// Multiply-accumulates of the section of each slot; empty if devices have no section.
    device_macs: Vec<u64>,
    local_macs: u64,
    /// Multiply-accumulates of all edge sections, and of the section over their scores.
    edge_macs: u64,
    cloud_macs: u64,
}

/// Cost of one sample, or the sum over several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostSum {
    /// Number of samples.
    pub samples: f64,
    /// Number of views: slots that see a sample, summed over the samples.
    pub views: f64,
    /// Body bytes that the devices send.
    pub body_bytes: f64,
    /// Multiply-accumulates over all tiers.
    pub macs: f64,
}

/// Mean cost of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanCost {
    /// Body bytes per device and sample, over slots with a view.
    pub body_bytes: f64,
    /// Multiply-accumulates per sample, over all tiers.
    pub macs: f64,
}

impl NetworkCost {
    /// The costs of a network.
    pub fn of(manifest: &NetworkManifest) -> Self {
        let macs = |is: &dyn Fn(Tier, &str) -> bool| -> Vec<u64> {
            let sections = manifest.sections.iter().filter(|section| is(section.tier, &section.name));
            sections.map(|section| section.macs).collect()
        };
        let sum = |is: &dyn Fn(Tier, &str) -> bool| macs(is).iter().sum();
        Self {
            body: DeviceBody::of(manifest),
            first: manifest.exits()[0],
            device_macs: macs(&|tier, _| tier == Tier::Device),
            local_macs: sum(&|tier, name| tier == Tier::Edge && name == Exit::LOCAL.name()),
            edge_macs: sum(&|tier, name| tier == Tier::Edge && name != Exit::LOCAL.name()),
            cloud_macs: sum(&|tier, _| tier == Tier::Cloud),
        }
    }

    /// The least mean body bytes per device and sample: every sample leaves at the first exit.
    pub fn least_body_bytes(&self) -> f64 {
        self.body.mean(1, 0)
    }

    /// The least mean multiply-accumulates of the samples of a part: every sample leaves at the first exit.
    pub fn least_macs(&self, samples: &Samples) -> f64 {
        let of = |seen: &SlotSet| self.macs(*seen, samples.absent, self.first) as f64;
        samples.seen.iter().map(of).sum::<f64>() / samples.len().max(1) as f64
    }

    /// The cost of each sample of a part, given the exits at which the samples leave.
    ///
    /// # Panics
    /// When `logits` has coded maps of fewer samples than `samples`.
    pub fn of_samples(&self, logits: &PartLogits, samples: &Samples, answers: &[ExitAnswer]) -> Vec<CostSum> {
        let with_exits = samples.seen.iter().zip(answers).enumerate();
        let cost = |(sample, (seen, answer)): (usize, (&SlotSet, &ExitAnswer))| CostSum {
            samples: 1.0,
            views: seen.len() as f64,
            body_bytes: self.body_bytes(logits, sample, *seen, answer.exit),
            macs: self.macs(*seen, samples.absent, answer.exit) as f64,
        };
        with_exits.map(cost).collect()
    }

    /// Body bytes of all devices for one sample.
    fn body_bytes(&self, logits: &PartLogits, sample: usize, seen: SlotSet, exit: Exit) -> f64 {
        let views = seen.len();
        let unsure = if exit == self.first { 0 } else { views };
        let mean = if logits.map_bytes.is_empty() {
            self.body.mean(views, unsure)
        } else {
            let maps = seen.iter().filter_map(|slot| logits.map_bytes.get(slot.index()));
            let coded: f64 = maps.map(|maps| f64::from(maps[sample])).sum();
            self.body.mean_of_coded(views, unsure, if unsure > 0 { coded } else { 0.0 })
        };
        mean * views as f64
    }

    /// Multiply-accumulates of one sample: the sections of the devices that see it, and of every tier that it reaches.
    fn macs(&self, seen: SlotSet, absent: AbsentView, exit: Exit) -> u64 {
        // The class prior answers a sample without a view: no section runs.
        if seen.is_empty() {
            return 0;
        }
        let devices: u64 = match absent {
            AbsentView::Absent => {
                seen.iter().filter_map(|slot| self.device_macs.get(slot.index())).copied().sum()
            }
            // A device without a view computes on a black image too.
            AbsentView::Black => self.device_macs.iter().sum(),
        };
        let of_tier = |tier: Exit, macs: u64| if exit >= tier { macs } else { 0 };
        devices
            + self.local_macs
            + of_tier(Exit::EDGE, self.edge_macs)
            + of_tier(Exit::CLOUD, self.cloud_macs)
    }
}

impl CostSum {
    /// The means; 0 without samples or views.
    pub fn mean(&self) -> MeanCost {
        let share = |of: f64, count: f64| if count > 0.0 { of / count } else { 0.0 };
        MeanCost { body_bytes: share(self.body_bytes, self.views), macs: share(self.macs, self.samples) }
    }
}

impl std::ops::Add for CostSum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            views: self.views + other.views,
            body_bytes: self.body_bytes + other.body_bytes,
            macs: self.macs + other.macs,
        }
    }
}

impl std::iter::Sum for CostSum {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), std::ops::Add::add)
    }
}
