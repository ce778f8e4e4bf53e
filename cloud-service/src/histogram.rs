//! A histogram of durations in fixed buckets, counted without locks and rendered for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds in microseconds; a last bucket takes the rest.
const BOUNDS_US: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// Durations seen, by bucket, and their sum.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_US.partition_point(|&bound| bound < us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// Appends the series `name{labels}`; `labels` like `stage="queue"`.
    pub(crate) fn render(&self, name: &str, labels: &str, out: &mut String) {
        let mut total = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US.map(Some).into_iter().chain([None])) {
            total += bucket.load(Relaxed);
            let le = bound.map_or_else(|| "+Inf".into(), |us| (us as f64 / 1e6).to_string());
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{le}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.sum_us.load(Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_bounds_belong_below() {
        let histogram = Histogram::default();
        for us in [50, 51, 2_000_000] {
            histogram.observe(Duration::from_micros(us));
        }
        let mut text = String::new();
        histogram.render("x_seconds", "stage=\"queue\"", &mut text);
        for line in [
            "x_seconds_bucket{stage=\"queue\",le=\"0.00005\"} 1",
            "x_seconds_bucket{stage=\"queue\",le=\"0.0001\"} 2",
            "x_seconds_bucket{stage=\"queue\",le=\"1\"} 2",
            "x_seconds_bucket{stage=\"queue\",le=\"+Inf\"} 3",
            "x_seconds_sum{stage=\"queue\"} 2.000101",
            "x_seconds_count{stage=\"queue\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
