//! The registry of a process: metrics by name, and their text for Prometheus.

use prometheus::core::Collector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TEXT_FORMAT, TextEncoder,
};

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
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// A registry without metrics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a counter; its name ends in `_total`.
    pub fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    /// Declares a counter for each value of its labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// Declares a gauge.
    pub fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help))
    }

    /// Declares a gauge for each value of its labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    /// Declares a histogram of seconds with [`DURATION_BUCKETS_S`] for each value of its labels.
    pub fn durations(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(DURATION_BUCKETS_S.to_vec());
        self.register(HistogramVec::new(options, labels))
    }

    /// All metrics in the Prometheus text format 0.0.4.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        // Encoding fails for a family without a name, which the registry refuses, and for a writer that fails.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    fn register<C: Collector + Clone + 'static>(&self, metric: prometheus::Result<C>) -> C {
        let metric = metric.expect("the name and the labels are constants of the program");
        self.register_collector(Box::new(metric.clone()));
        metric
    }

    pub(crate) fn register_collector(&self, collector: Box<dyn Collector>) {
        self.registry.register(collector).expect("each metric is declared once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_help_type_and_value_of_each_metric() {
        let metrics = Metrics::new();
        metrics.counter("headwater_test_frames_total", "Frames taken.").inc_by(3);
        metrics.gauge("headwater_test_open", "Samples open now.").set(2);
        let stages =
            metrics.durations("headwater_test_stage_duration_seconds", "Time of a stage.", &["stage"]);
        for seconds in [0.000_1, 0.000_101, 20.0] {
            stages.with_label_values(&["queue"]).observe(seconds);
        }
        let text = metrics.text();
        let stage = "headwater_test_stage_duration_seconds";
        for line in [
            "# HELP headwater_test_frames_total Frames taken.",
            "# TYPE headwater_test_frames_total counter",
            "headwater_test_frames_total 3",
            "headwater_test_open 2",
            &format!("# TYPE {stage} histogram"),
            // Buckets are cumulative, and a bound belongs to its bucket.
            &format!("{stage}_bucket{{stage=\"queue\",le=\"0.0001\"}} 1"),
            &format!("{stage}_bucket{{stage=\"queue\",le=\"0.00025\"}} 2"),
            &format!("{stage}_bucket{{stage=\"queue\",le=\"10\"}} 2"),
            &format!("{stage}_bucket{{stage=\"queue\",le=\"+Inf\"}} 3"),
            &format!("{stage}_sum{{stage=\"queue\"}} 20.000201"),
            &format!("{stage}_count{{stage=\"queue\"}} 3"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        crate::testing::check_metrics(&text);
    }

    #[test]
    #[should_panic(expected = "each metric is declared once")]
    fn a_metric_that_is_declared_twice_is_a_mistake_of_the_program() {
        let metrics = Metrics::new();
        metrics.counter("headwater_test_frames_total", "Frames taken.");
        metrics.counter("headwater_test_frames_total", "Frames taken.");
    }
}
