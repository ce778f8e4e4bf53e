//! The registry of a process: metrics by name, and their text for Prometheus.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry, TEXT_FORMAT, TextEncoder};

/// Bucket bounds of durations, seconds.
pub const DURATION_BUCKETS_S: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Content type of [`Metrics::text`].
pub const METRICS_CONTENT_TYPE: &str = TEXT_FORMAT;

/// Metrics of one process; clones share them.
///
/// Names and labels are constants of the program: a method that declares a metric panics when the name is malformed or declared
/// twice.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Registry,
    pub(crate) reports: Arc<Mutex<Vec<Box<dyn Families>>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("registry", &self.registry).finish_non_exhaustive()
    }
}

impl Metrics {
    /// A registry without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a gauge for each combination of values of the labels.
    ///
    /// # Panics
    /// When the name or a label is malformed, or the name is declared twice.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        let gauges = IntGaugeVec::new(Opts::new(name, help), labels);
        let gauges = gauges.expect("the name and the labels are constants of the program");
        self.register_collector(Box::new(gauges.clone()));
        gauges
    }

    /// All metrics in the Prometheus text format 0.0.4.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Encoding fails for a family without a name, which the registry refuses, or without metrics, which has no lines.
        let mut write = |families: &[MetricFamily]| _ = TextEncoder::new().encode_utf8(families, &mut text);
        write(&self.registry.gather());
        for reports in self.reports.lock().iter() {
            // One family at a time: those of a thousand groups together take four times the memory of their text.
            reports.each_family(&mut |family| write(&[family]));
        }
        text
    }

    pub(crate) fn register_collector(&self, collector: Box<dyn Collector>) {
        self.registry.register(collector).expect("each metric is declared once");
    }
}

/// Reports of any type.
pub(crate) trait Families: Any + Send {
    /// Reads the reports and gives their metrics family by family.
    fn each_family(&self, take: &mut dyn FnMut(MetricFamily));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "each metric is declared once")]
    fn a_metric_that_is_declared_twice_is_a_mistake_of_the_program() {
        let metrics = Metrics::new();
        metrics.gauges("headwater_test_open", "Samples open now.", &["group"]);
        metrics.gauges("headwater_test_open", "Samples open now.", &["group"]);
    }
}
