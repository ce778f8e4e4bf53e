//! The temperature of an exit.

use headwater_inference::exit::cross_entropy;
use headwater_inference::policy::{PolicyError, Temperature};

use crate::data::Samples;

/// The temperature with the least cross-entropy on samples that a slot sees (Guo et al. 2017, section 4.2).
pub(super) fn fit(logits: &[f32], samples: &Samples) -> Result<Temperature, PolicyError> {
    let loss = |log: f64| -> f64 {
        let rows = logits.chunks_exact(samples.classes).zip(&samples.labels).zip(&samples.seen);
        let seen = rows.filter(|(_, seen)| !seen.is_empty());
        seen.map(|((row, label), _)| cross_entropy(row, log.exp(), usize::from(*label))).sum()
    };
    // The loss is convex in 1/temperature, so it has one minimum in the logarithm too.
    let (mut low, mut high) = ((0.02f64).ln(), (50.0f64).ln());
    for _ in 0..60 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if loss(a) <= loss(b) { high = b } else { low = a }
    }
    Temperature::new(f64::midpoint(low, high).exp() as f32)
}
