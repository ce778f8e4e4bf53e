//! Intervals of mean costs by the percentile bootstrap (Efron and Tibshirani 1993, section 13.3). The intervals are approximate and
//! make no promise.

use serde::Serialize;

use crate::random::Random;
use crate::sample_cost::{CostSum, MeanCost};

/// Approximate share of intervals that contain the true mean.
pub const CONFIDENCE: f64 = 0.95;

/// Least number of independent units for an interval: resamples of fewer units differ too little (at 20 units about 92 % of intervals
/// contain the true mean, not 95 %).
pub const LEAST_UNITS: usize = 20;

const RESAMPLES: usize = 1000;

/// Seed of the resamples: fixed, so that equal arguments give equal intervals.
const SEED: u64 = 0x626f_6f74;

/// A measured mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Mean over the part.
    pub mean: f64,
    /// Interval of the mean at [`CONFIDENCE`]; `None` for fewer than [`LEAST_UNITS`] independent units.
    pub interval: Option<[f64; 2]>,
}

/// Measured means of both costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredCost {
    /// Body bytes per device and sample, over slots with a view.
    pub body_bytes: Measured,
    /// Multiply-accumulates per sample, over all tiers.
    pub macs: Measured,
}

/// Costs of the independent units of a part: of each sample, or of each group if samples form groups.
///
/// # Panics
/// When `groups` is neither empty nor as long as `costs`.
pub fn units(costs: &[CostSum], groups: &[u32]) -> Vec<CostSum> {
    if groups.is_empty() {
        return costs.to_vec();
    }
    assert_eq!(groups.len(), costs.len(), "a group for each sample");
    let mut of_groups = std::collections::BTreeMap::<u32, CostSum>::new();
    for (group, cost) in groups.iter().zip(costs) {
        let sum = of_groups.entry(*group).or_default();
        *sum = *sum + *cost;
    }
    of_groups.into_values().collect()
}

impl MeasuredCost {
    /// The means over independent units, with their intervals.
    pub fn of(units: &[CostSum]) -> Self {
        let MeanCost { body_bytes, macs } = units.iter().copied().sum::<CostSum>().mean();
        let (mut all_bytes, mut all_macs) = (Vec::new(), Vec::new());
        if units.len() >= LEAST_UNITS {
            let mut random = Random::new(SEED, &[units.len() as u64]);
            for _ in 0..RESAMPLES {
                let drawn: CostSum = (0..units.len()).map(|_| units[random.below(units.len())]).sum();
                let mean = drawn.mean();
                all_bytes.push(mean.body_bytes);
                all_macs.push(mean.macs);
            }
        }
        Self {
            body_bytes: Measured { mean: body_bytes, interval: percentiles(all_bytes) },
            macs: Measured { mean: macs, interval: percentiles(all_macs) },
        }
    }
}

/// Bounds of the middle share [`CONFIDENCE`] of the values; `None` without values.
pub fn percentiles(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let tail = (values.len() as f64 * (1.0 - CONFIDENCE) / 2.0).floor() as usize;
    Some([*values.get(tail)?, *values.get(values.len() - 1 - tail)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of one view that send 40 bytes, and 256 more with probability 0.2: the mean is 91.2.
    fn drawn(random: &mut Random, count: usize) -> Vec<CostSum> {
        let cost = |_| {
            let is_unsure = f64::from(u8::from(random.unit() < 0.2));
            CostSum { samples: 1.0, views: 1.0, body_bytes: 40.0 + 256.0 * is_unsure, macs: 1e6 * is_unsure }
        };
        (0..count).map(cost).collect()
    }

    /// Share of 300 parts whose intervals hold the true means, for bytes and for compute.
    fn coverage(mut part: impl FnMut(&mut Random) -> Vec<CostSum>) -> [f64; 2] {
        const PARTS: u32 = 300;
        let mut random = Random::new(7, &[]);
        let mut held = [0u32; 2];
        for _ in 0..PARTS {
            let MeasuredCost { body_bytes, macs } = MeasuredCost::of(&part(&mut random));
            for ((held, found), mean) in held.iter_mut().zip([body_bytes, macs]).zip([91.2, 2e5]) {
                let [low, high] = found.interval.expect("enough units");
                *held += u32::from(low <= mean && mean <= high);
            }
        }
        held.map(|held| f64::from(held) / f64::from(PARTS))
    }

    #[test]
    fn the_interval_holds_the_true_mean_about_as_often_as_it_says() {
        // Four standard deviations of a share of 300 around 0.95 are 0.05; the bootstrap of 150 samples itself misses a little more.
        for share in coverage(|random| drawn(random, 150)) {
            assert!((0.89..=0.99).contains(&share), "{share}");
        }
    }

    #[test]
    fn samples_of_groups_are_drawn_together() {
        // Each group is one sample, ten times.
        let grouped = |random: &mut Random| -> Vec<CostSum> {
            drawn(random, 100).into_iter().flat_map(|cost| [cost; 10]).collect()
        };
        let groups: Vec<u32> = (0..1000).map(|sample| sample / 10).collect();
        for share in coverage(|random| units(&grouped(random), &groups)) {
            assert!((0.89..=0.99).contains(&share), "{share}");
        }
        // If the copies counted as independent samples, the intervals would be too narrow.
        for share in coverage(|random| units(&grouped(random), &[])) {
            assert!(share < 0.7, "{share}");
        }
    }

    #[test]
    fn few_units_have_a_mean_alone() {
        let costs = drawn(&mut Random::new(1, &[]), 19);
        assert_eq!(MeasuredCost::of(&costs).body_bytes.interval, None);
        assert_eq!(
            MeasuredCost::of(&[]).macs,
            Measured { mean: 0.0, interval: None },
            "a part without samples"
        );
    }
}
