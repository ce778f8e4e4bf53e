//! What a policy does to a part of the data.

use headwater_inference::manifest::{Configuration, FeatureMap};
use headwater_inference::policy::Policy;
use headwater_protocol::Exit;
use serde::{Deserialize, Serialize};

use super::thresholds::right;
use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::evaluation::{ExitCounts, ExitLogits};

/// What the exits of a network with a policy do to a part of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Samples.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples it sees.
    pub devices: Vec<f64>,
    /// Share of correct answers of each exit for every sample.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of correct answers when each sample leaves where the policy says.
    pub overall: f64,
    /// Share of samples that leave at each exit; those that no device sees count with the cloud's.
    #[serde(flatten, with = "crate::by_exit::share")]
    pub share: ByExit<f64>,
    /// Share of correct answers among those.
    #[serde(flatten, with = "crate::by_exit::accuracy")]
    pub accuracy: ByExit<f64>,
    /// Samples that no device sees; the class prior answers them.
    pub no_view: usize,
    /// Body bytes per device and sample, over slots with a view.
    pub body_bytes: f64,
}

/// Body bytes that a device with a view sends for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Always: scores, or the view where devices have no section; nothing where the device decides.
    pub always: usize,
    /// When the sample does not leave at the first exit: features, with the scores where they were not sent before.
    pub unsure: usize,
}

impl DeviceBytes {
    /// What devices of a configuration send (see the table of configurations in the design).
    pub fn of(configuration: Configuration, classes: usize, map: &FeatureMap) -> Self {
        let (scores, features) = (4 * classes, map.packed_bytes());
        match configuration {
            Configuration::A => Self { always: features, unsure: 0 },
            Configuration::B | Configuration::D => Self { always: 0, unsure: scores + features },
            Configuration::C | Configuration::E | Configuration::F => {
                Self { always: scores, unsure: features }
            }
        }
    }
}

impl Outcome {
    /// What `policy` does to a part.
    pub fn of(
        logits: &ExitLogits,
        samples: &Samples,
        prior: &[f32],
        policy: &Policy,
        bytes: DeviceBytes,
    ) -> Self {
        let right = logits.exits.map(|_, logits| right(logits, samples, prior));
        let first = logits.exits.iter().next().map(|(exit, _)| exit);
        let mut left = logits.exits.map(|_, _| Leaving::default());
        let (mut no_view, mut views, mut unsure) = (0usize, 0u64, 0u64);
        for (sample, seen) in samples.seen.iter().enumerate() {
            let present = seen.count_ones();
            let exit = if present == 0 { Exit::Cloud } else { leave(logits, policy, sample, present) };
            no_view += usize::from(present == 0);
            views += u64::from(present);
            unsure += if Some(exit) == first { 0 } else { u64::from(present) };
            let left = left.slot(exit).get_or_insert_default();
            left.samples += 1;
            left.right += usize::from(right[exit][sample]);
        }
        let count = samples.len();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        let overall: usize = left.iter().map(|(_, left)| left.right).sum();
        let sent = bytes.always as u64 * views + bytes.unsure as u64 * unsure;
        Self {
            samples: count,
            devices: ExitCounts::of(logits, samples).shares().devices,
            every: right.map(|_, right| share(right.iter().filter(|right| **right).count(), count)),
            overall: share(overall, count),
            share: left.map(|_, left| share(left.samples, count)),
            accuracy: left.map(|_, left| share(left.right, left.samples)),
            no_view,
            body_bytes: sent as f64 / views.max(1) as f64,
        }
    }
}

/// Samples that leave at an exit.
#[derive(Clone, Copy, Default)]
struct Leaving {
    samples: usize,
    right: usize,
}

/// The first exit that is sure enough of a sample.
fn leave(logits: &ExitLogits, policy: &Policy, sample: usize, present: u32) -> Exit {
    let row = |of: &[f32]| of[sample * logits.classes..][..logits.classes].to_vec();
    let mut in_front = logits.exits.iter().filter(|(exit, _)| *exit != Exit::Cloud);
    let sure = in_front.find(|(exit, of)| policy.of(*exit).assess(&row(of), present).leaves);
    sure.map_or(Exit::Cloud, |(exit, _)| exit)
}
