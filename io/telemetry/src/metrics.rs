//! The metrics of a process, and their text for Prometheus.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::proto::MetricFamily;
use prometheus::{TEXT_FORMAT, TextEncoder};

/// Bucket bounds of durations, seconds.
pub const DURATION_BUCKETS_S: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Content type of [`Metrics::text`].
pub const METRICS_CONTENT_TYPE: &str = TEXT_FORMAT;

/// Metrics of one process; clones share them.
#[derive(Clone, Default)]
pub struct Metrics {
    pub(crate) reports: Arc<Mutex<Vec<Box<dyn Families>>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// No metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// All metrics in the Prometheus text format 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for reports in self.reports.lock().iter() {
            // One family at a time: all families of a thousand groups together take four times the memory of their text. Encoding fails for a
            // family without metrics, which has no lines.
            reports.each_family(&mut |family| _ = TextEncoder::new().encode_utf8(&[family], &mut text));
        }
        text
    }
}

/// Reports of any type.
pub(crate) trait Families: Any + Send {
    /// Names of the metrics.
    fn names(&self) -> Vec<&'static str>;

    /// Reads the reports and gives their metrics family by family.
    fn each_family(&self, take: &mut dyn FnMut(MetricFamily));
}
