//! Metrics that are read from a report of a service at each request for the metrics.

use std::collections::HashMap;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use crate::metrics::Metrics;

/// One metric of a report of type `R`.
#[derive(Debug)]
pub struct ReportMetric<R> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    values: Values<R>,
}

/// Access to the values of a metric in the report.
#[derive(Debug)]
enum Values<R> {
    One(fn(&R) -> u64),
    ByLabel { label: &'static str, read: fn(&R) -> Vec<(String, u64)> },
}

impl<R> ReportMetric<R> {
    /// A counter; its name ends in `_total`.
    pub const fn counter(name: &'static str, help: &'static str, read: fn(&R) -> u64) -> Self {
        Self { name, help, kind: MetricType::COUNTER, values: Values::One(read) }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, help: &'static str, read: fn(&R) -> u64) -> Self {
        Self { name, help, kind: MetricType::GAUGE, values: Values::One(read) }
    }

    /// Makes a counter for each value of a label.
    pub const fn counters(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: fn(&R) -> Vec<(String, u64)>,
    ) -> Self {
        Self { name, help, kind: MetricType::COUNTER, values: Values::ByLabel { label, read } }
    }

    /// Makes a gauge for each value of a label.
    pub const fn gauges(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: fn(&R) -> Vec<(String, u64)>,
    ) -> Self {
        Self { name, help, kind: MetricType::GAUGE, values: Values::ByLabel { label, read } }
    }

    fn desc(&self, labels: &HashMap<String, String>) -> Desc {
        let label = match self.values {
            Values::One(_) => Vec::new(),
            Values::ByLabel { label, .. } => vec![label.to_owned()],
        };
        Desc::new(self.name.into(), self.help.into(), label, labels.clone())
            .expect("the name and the labels are constants of the program")
    }

    fn family(&self, report: &R, labels: &HashMap<String, String>) -> MetricFamily {
        let metrics = match self.values {
            Values::One(read) => vec![self.metric(read(report), None, labels)],
            Values::ByLabel { label, read } => read(report)
                .into_iter()
                .map(|(value, count)| self.metric(count, Some((label, value)), labels))
                .collect(),
        };
        let mut family = MetricFamily::default();
        family.set_name(self.name.into());
        family.set_help(self.help.into());
        family.set_field_type(self.kind);
        family.set_metric(metrics);
        family
    }

    fn metric(&self, value: u64, label: Option<(&str, String)>, labels: &HashMap<String, String>) -> Metric {
        let constant = labels.iter().map(|(name, value)| pair(name, value.clone()));
        let mut pairs: Vec<_> = constant.chain(label.map(|(name, value)| pair(name, value))).collect();
        pairs.sort();
        let mut metric = Metric::from_label(pairs);
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value as f64);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value as f64);
            metric.set_gauge(gauge);
        }
        metric
    }
}

impl Metrics {
    /// Registers the metrics of a report; `read` makes the report at each request for the metrics.
    ///
    /// `labels` stand on every metric, for example the group in a process of several groups.
    pub fn register_report<R: 'static>(
        &self,
        metrics: &'static [ReportMetric<R>],
        labels: &[(&str, &str)],
        read: impl Fn() -> R + Send + Sync + 'static,
    ) {
        let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let descs = metrics.iter().map(|metric| metric.desc(&labels)).collect();
        self.register_collector(Box::new(ReportCollector { metrics, labels, descs, read }));
    }
}

/// A report in the form that the registry takes.
struct ReportCollector<R: 'static, F> {
    metrics: &'static [ReportMetric<R>],
    labels: HashMap<String, String>,
    descs: Vec<Desc>,
    read: F,
}

impl<R, F: Fn() -> R + Send + Sync> Collector for ReportCollector<R, F> {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let report = (self.read)();
        self.metrics.iter().map(|metric| metric.family(&report, &self.labels)).collect()
    }
}

fn pair(name: &str, value: String) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value);
    pair
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// Samples decided at each exit, and samples open.
    type Account = (Vec<(&'static str, u64)>, u64);

    const METRICS: [ReportMetric<Account>; 3] = [
        ReportMetric::counters(
            "headwater_test_exit_samples_total",
            "Samples by exit.",
            "exit",
            |(exits, _)| exits.iter().map(|&(exit, count)| (exit.into(), count)).collect(),
        ),
        ReportMetric::counter("headwater_test_samples_total", "Samples.", |(exits, _)| {
            exits.iter().map(|(_, count)| count).sum()
        }),
        ReportMetric::gauge("headwater_test_open", "Samples open now.", |(_, open)| *open),
    ];

    #[test]
    fn a_report_is_read_each_time_and_shown_for_each_group() {
        let metrics = Metrics::new();
        let open = Arc::new(AtomicU64::new(1));
        for group in ["north", "south"] {
            let open = Arc::clone(&open);
            let read = move || (vec![("edge", 2), ("cloud", 3)], open.load(Relaxed));
            metrics.register_report(&METRICS, &[("group", group)], read);
        }
        open.store(7, Relaxed);
        let text = metrics.text();
        for line in [
            "# TYPE headwater_test_exit_samples_total counter",
            "headwater_test_exit_samples_total{exit=\"edge\",group=\"north\"} 2",
            "headwater_test_exit_samples_total{exit=\"cloud\",group=\"south\"} 3",
            "headwater_test_samples_total{group=\"north\"} 5",
            "# TYPE headwater_test_open gauge",
            "headwater_test_open{group=\"south\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        crate::testing::check_metrics(&text);
    }
}
