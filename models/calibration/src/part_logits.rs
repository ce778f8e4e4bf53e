//! Logits of the samples of a part, and the right answers of each exit.

use std::borrow::Cow;

use headwater_inference::exit::{Assessment, ExitInput, argmax, cross_entropy};
use headwater_inference::manifest::Configuration;
use headwater_protocol::{Exit, Slot, SlotSet};
use headwater_samples::NO_CLASS;
use serde::{Deserialize, Serialize};

use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::message::{Reader, put_u64};

/// Logits of every exit for every sample of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartLogits {
    /// Number of classes.
    pub classes: usize,
    /// Scores of each slot, `[samples, classes]`; zeros for a sample that the slot does not see (under
    /// [`AbsentView::Black`](crate::data::AbsentView::Black) the scores of a black image). Empty if devices have no section.
    pub devices: Vec<Vec<f32>>,
    /// Logits of each exit, `[samples, classes]`; zeros for a sample that no slot sees.
    pub exits: ByExit<Vec<f32>>,
    /// For each slot `[samples]`: bytes of the coded map, 0 for a sample that the slot does not see; empty if messages carry uncoded
    /// maps.
    pub map_bytes: Vec<Vec<f32>>,
}

/// Samples with the logits of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluatedPart {
    /// The samples; without views if they come from a file of logits or from other ranks.
    pub samples: Samples,
    /// Logits of every device and exit.
    pub logits: PartLogits,
}

/// Share of correct answers by exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitShares {
    /// Share of each device over the samples with a class that the device sees; empty if devices have no section.
    pub devices: Vec<f64>,
    /// Share of each exit over all samples that show a class.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub exits: ByExit<f64>,
}

/// Right answers by device and by exit, for a part or for a shard of the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitCounts {
    /// Count of each device over the samples with a class that the device sees; empty if devices have no section.
    pub devices: Vec<Count>,
    /// Count of each exit over all samples that show a class.
    pub exits: ByExit<Count>,
}

/// Right answers among some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Right answers.
    pub right: u64,
    /// Samples.
    pub samples: u64,
}

impl PartLogits {
    /// Logits of one sample at an exit.
    ///
    /// # Panics
    /// When there is no such exit or sample.
    pub fn of(&self, exit: Exit, sample: usize) -> &[f32] {
        &self.exits[exit][sample * self.classes..][..self.classes]
    }

    /// The input of an exit for one sample that the slots `seen` see.
    ///
    /// # Panics
    /// When there is no such exit or sample.
    pub fn input(&self, exit: Exit, sample: usize, seen: SlotSet) -> ExitInput<'_> {
        // Devices without a section have no scores.
        let scores = seen.iter().filter_map(|slot| self.devices.get(slot.index()));
        let classes = scores.map(|scores| argmax(&scores[sample * self.classes..][..self.classes]));
        ExitInput::new(self.of(exit, sample), seen.len() as u32, classes)
    }

    /// Class that an exit gives to each sample; a sample that no slot sees gets the class of the class prior.
    ///
    /// # Panics
    /// When there is no such exit.
    pub fn classes_given(&self, exit: Exit, samples: &Samples, class_prior: &[f32]) -> Vec<u16> {
        let prior = Assessment::of_prior(class_prior).class;
        let class = |(sample, seen): (usize, &SlotSet)| {
            if seen.is_empty() { prior } else { argmax(self.of(exit, sample)) }
        };
        samples.seen.iter().enumerate().map(class).collect()
    }

    /// True for each sample that an exit answers right.
    ///
    /// # Panics
    /// When there is no such exit.
    pub fn right(&self, exit: Exit, samples: &Samples, class_prior: &[f32]) -> Vec<bool> {
        let given = self.classes_given(exit, samples, class_prior);
        given.iter().zip(&samples.labels).map(|(given, label)| given == label).collect()
    }

    /// Sum of the cross-entropies against the labels over exits and samples, and the number of summands. Samples that no slot sees and
    /// samples of nothing are left out.
    pub fn cross_entropies(&self, samples: &Samples) -> (f64, u64) {
        let (mut sum, mut count) = (0.0, 0);
        for (_, logits) in self.exits.iter() {
            let rows = logits.chunks_exact(self.classes.max(1)).zip(&samples.labels).zip(&samples.seen);
            for ((row, label), seen) in rows {
                let label = usize::from(*label);
                if !seen.is_empty() && label < self.classes {
                    sum += cross_entropy(row, 1.0, label);
                    count += 1;
                }
            }
        }
        (sum, count)
    }

    /// The samples that show a class, with their logits: choices and promises about accuracy are made on these.
    pub fn with_class<'a>(&'a self, samples: &'a Samples) -> (Cow<'a, Self>, Cow<'a, Samples>) {
        if samples.of_nothing() == 0 {
            return (Cow::Borrowed(self), Cow::Borrowed(samples));
        }
        let kept: Vec<usize> =
            (0..samples.len()).filter(|sample| samples.labels[*sample] != NO_CLASS).collect();
        (Cow::Owned(self.subset(&kept)), Cow::Owned(samples.subset(&kept)))
    }

    /// Number of samples.
    pub fn samples(&self) -> usize {
        self.exits.iter().next().map_or(0, |(_, logits)| logits.len() / self.classes.max(1))
    }

    /// The rows of the given samples, in the given order.
    ///
    /// # Panics
    /// When there is no such sample.
    #[must_use]
    pub fn subset(&self, samples: &[usize]) -> Self {
        let rows = |all: &Vec<f32>| -> Vec<f32> {
            samples.iter().flat_map(|sample| &all[sample * self.classes..][..self.classes]).copied().collect()
        };
        Self {
            classes: self.classes,
            devices: self.devices.iter().map(rows).collect(),
            exits: self.exits.map(|_, all| rows(all)),
            map_bytes: self
                .map_bytes
                .iter()
                .map(|all| samples.iter().map(|sample| all[*sample]).collect())
                .collect(),
        }
    }

    /// Zeros for every device with a section and every exit of a configuration.
    pub fn zeros(configuration: Configuration, slots: usize, classes: usize, samples: usize) -> Self {
        let zeros = vec![0.0; samples * classes];
        let exits = configuration.exits().iter().map(|exit| (*exit, zeros.clone())).collect();
        let devices = if configuration.has_device_section() { slots } else { 0 };
        Self { classes, devices: vec![zeros; devices], exits, map_bytes: Vec::new() }
    }

    /// Appends the rows of other samples of the same network.
    pub fn append(&mut self, other: Self) {
        self.classes = other.classes;
        self.devices.resize(other.devices.len(), Vec::new());
        self.devices.iter_mut().zip(other.devices).for_each(|(all, more)| all.extend(more));
        self.map_bytes.resize(other.map_bytes.len(), Vec::new());
        self.map_bytes.iter_mut().zip(other.map_bytes).for_each(|(all, more)| all.extend(more));
        for (exit, more) in other.exits.iter() {
            self.exits.get_or_insert_with(exit, Vec::new).extend(more);
        }
    }
}

impl ExitCounts {
    /// Counts over a part, or over a rank's shard of the part.
    pub fn of(logits: &PartLogits, samples: &Samples, class_prior: &[f32]) -> Self {
        let devices = Slot::first(samples.slots).zip(&logits.devices).map(|(slot, scores)| {
            let mut seen = samples.seen_by(slot);
            seen.retain(|sample| samples.labels[*sample] != NO_CLASS);
            let row = |sample: usize| &scores[sample * logits.classes..][..logits.classes];
            let right = seen.iter().filter(|sample| argmax(row(**sample)) == samples.labels[**sample]);
            Count { right: right.count() as u64, samples: seen.len() as u64 }
        });
        let exits = logits.exits.map(|exit, _| {
            let right = logits.right(exit, samples, class_prior);
            let shown = right.len() - samples.of_nothing();
            Count { right: right.iter().filter(|right| **right).count() as u64, samples: shown as u64 }
        });
        Self { devices: devices.collect(), exits }
    }

    /// Sum of the counts of this shard and of `other`.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let devices =
            self.devices.iter().zip(&other.devices).map(|(count, more)| count.with(*more)).collect();
        let exits =
            self.exits.map(|exit, count| count.with(other.exits.get(exit).copied().unwrap_or_default()));
        Self { devices, exits }
    }

    /// Appends the counts to a message.
    pub fn put(&self, message: &mut Vec<u8>) {
        let exits = self.exits.iter().map(|(_, count)| count);
        for count in self.devices.iter().chain(exits) {
            put_u64(message, count.right);
            put_u64(message, count.samples);
        }
    }

    /// Reads the counts of another shard, which has the same devices and exits.
    #[must_use]
    pub fn read(&self, message: &mut Reader<'_>) -> Self {
        let mut count = || Count { right: message.u64(), samples: message.u64() };
        let devices = self.devices.iter().map(|_| count()).collect();
        Self { devices, exits: self.exits.map(|_, _| count()) }
    }

    /// Shares of right answers; 0 where a device or exit has no samples with a class.
    pub fn shares(&self) -> ExitShares {
        let share = |count: Count| count.right as f64 / count.samples.max(1) as f64;
        ExitShares {
            devices: self.devices.iter().copied().map(share).collect(),
            exits: self.exits.map(|_, count| share(*count)),
        }
    }
}

impl Count {
    fn with(self, other: Self) -> Self {
        Self { right: self.right + other.right, samples: self.samples + other.samples }
    }
}
