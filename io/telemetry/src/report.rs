//! Metrics that are read from a report of a service at each request for the metrics.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::metrics::{DURATION_BUCKETS_S, Families, Metrics};

/// Durations counted by the buckets of [`DURATION_BUCKETS_S`], as part of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationCounts {
    /// Durations in each bucket alone; the last count is for durations above every bound.
    buckets: [u64; DURATION_BUCKETS_S.len() + 1],
    sum_us: u64,
}

impl DurationCounts {
    /// Counts a duration in microseconds.
    pub fn add_us(&mut self, us: u64) {
        let seconds = us as f64 / 1e6;
        let bucket = DURATION_BUCKETS_S.iter().take_while(|bound| seconds > **bound).count();
        self.buckets[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        self.add_us(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of the durations in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The durations as a histogram without labels.
    fn metric(&self) -> Metric {
        let mut cumulative = 0;
        let buckets = DURATION_BUCKETS_S.iter().zip(&self.buckets).map(|(bound, count)| {
            cumulative += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(cumulative);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(self.count());
        histogram.set_sample_sum(self.sum_us as f64 / 1e6);
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        metric
    }
}

/// One metric of a report of type `R`.
#[derive(Debug)]
pub struct ReportMetric<R> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    values: Values<R>,
}

/// Values of a metric with two labels; beside each value the two label values.
pub type ValuesByTwoLabels = Vec<([String; 2], u64)>;

/// Labels with their values.
type Labels = Vec<(&'static str, String)>;

/// Access to the values of a metric in the report.
#[derive(Debug)]
enum Values<R> {
    One(fn(&R) -> u64),
    ByLabel { label: &'static str, known: &'static [&'static str], read: fn(&R) -> Vec<(String, u64)> },
    ByTwoLabels { labels: [&'static str; 2], read: fn(&R) -> ValuesByTwoLabels },
    Durations(fn(&R) -> DurationCounts),
    DurationsByLabel { label: &'static str, read: fn(&R) -> Vec<(&'static str, DurationCounts)> },
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

    /// A histogram of seconds; its name ends in `_seconds`.
    pub const fn durations(name: &'static str, help: &'static str, read: fn(&R) -> DurationCounts) -> Self {
        Self { name, help, kind: MetricType::HISTOGRAM, values: Values::Durations(read) }
    }

    /// A histogram of seconds for each value of a label.
    pub const fn durations_by(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: fn(&R) -> Vec<(&'static str, DurationCounts)>,
    ) -> Self {
        Self { name, help, kind: MetricType::HISTOGRAM, values: Values::DurationsByLabel { label, read } }
    }

    /// Makes a counter for each value of a label.
    pub const fn counters(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: fn(&R) -> Vec<(String, u64)>,
    ) -> Self {
        Self { name, help, kind: MetricType::COUNTER, values: Values::ByLabel { label, known: &[], read } }
    }

    /// Makes the counters with these label values exist from the start, at 0 until they are counted. Prometheus sees no increase in a
    /// series that begins with its first event, so an alert on the increase would miss that event.
    ///
    /// # Panics
    /// For other metrics than counters of one label.
    #[must_use]
    pub const fn from_zero(self, known: &'static [&'static str]) -> Self {
        let Values::ByLabel { label, read, .. } = self.values else {
            panic!("expected counters of one label")
        };
        Self { values: Values::ByLabel { label, known, read }, ..self }
    }

    /// Makes a gauge for each value of a label.
    pub const fn gauges(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        read: fn(&R) -> Vec<(String, u64)>,
    ) -> Self {
        Self { name, help, kind: MetricType::GAUGE, values: Values::ByLabel { label, known: &[], read } }
    }

    /// Makes a gauge for each pair of values of two labels.
    pub const fn gauges_by_two(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; 2],
        read: fn(&R) -> ValuesByTwoLabels,
    ) -> Self {
        Self { name, help, kind: MetricType::GAUGE, values: Values::ByTwoLabels { labels, read } }
    }

    /// The metrics of several reports, each report beside the labels that stand on all its metrics.
    fn family<'a>(&self, reports: impl IntoIterator<Item = (&'a [LabelPair], &'a R)>) -> MetricFamily
    where
        R: 'a,
    {
        let metrics = reports.into_iter().flat_map(|(shared, report)| {
            self.labelled(report).into_iter().map(move |(own, mut metric)| {
                let own = own.into_iter().map(|(name, value)| pair(name, value));
                let mut labels: Vec<_> = shared.iter().cloned().chain(own).collect();
                labels.sort();
                metric.set_label(labels);
                metric
            })
        });
        let mut family = MetricFamily::default();
        family.set_name(self.name.into());
        family.set_help(self.help.into());
        family.set_field_type(self.kind);
        family.set_metric(metrics.collect());
        family
    }

    /// The metrics of a report, each beside its own labels.
    fn labelled(&self, report: &R) -> Vec<(Labels, Metric)> {
        match self.values {
            Values::One(read) => vec![(Vec::new(), self.metric(read(report)))],
            Values::ByLabel { label, known, read } => {
                let mut values = read(report);
                let uncounted = known.iter().filter(|name| values.iter().all(|(value, _)| value != *name));
                values.extend(uncounted.map(|name| ((*name).to_owned(), 0)).collect::<Vec<_>>());
                let values = values.into_iter();
                values.map(|(value, count)| (vec![(label, value)], self.metric(count))).collect()
            }
            Values::ByTwoLabels { labels, read } => {
                let labelled = |found: [String; 2]| labels.into_iter().zip(found).collect();
                read(report).into_iter().map(|(found, count)| (labelled(found), self.metric(count))).collect()
            }
            Values::Durations(read) => vec![(Vec::new(), read(report).metric())],
            Values::DurationsByLabel { label, read } => {
                let values = read(report).into_iter();
                values.map(|(value, counts)| (vec![(label, value.into())], counts.metric())).collect()
            }
        }
    }

    /// A counter or gauge without labels.
    fn metric(&self, value: u64) -> Metric {
        let mut metric = Metric::default();
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

/// A count of a report that a metric shows as it is.
pub trait MetricValue<T> {
    /// The value of the metric.
    fn value(&self) -> T;
}

impl MetricValue<u64> for u64 {
    fn value(&self) -> u64 {
        *self
    }
}

impl MetricValue<u64> for bool {
    fn value(&self) -> u64 {
        (*self).into()
    }
}

impl MetricValue<Vec<(String, u64)>> for BTreeMap<&'static str, u64> {
    fn value(&self) -> Vec<(String, u64)> {
        self.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect()
    }
}

/// Declares a report: a struct of public counts, and its constant `METRICS` with the metrics of the counts.
///
/// A count has its metrics after `=`, each with the function of [`ReportMetric`] that makes it. The help of the metrics documents the
/// field. `=> read` computes the value from a field whose type is no [`MetricValue`]. Metrics of several fields follow the struct.
#[macro_export]
macro_rules! report {
    (@value $field:expr) => { $crate::MetricValue::value($field) };
    (@value $field:expr, $type:ty, $read:expr) => {{
        let read: fn(&$type) -> _ = $read;
        read($field)
    }};
    (
        $(#[$attribute:meta])*
        pub struct $report:ident { $(
            $(#[$doc:meta])*
            $field:ident: $type:ty $(= $(
                $kind:ident($name:literal, $help:literal $(, $label:expr)?)
                $(.from_zero($known:expr))? $(=> $read:expr)?
            ),+ )?;
        )* }
        $( $kind_of_all:ident($name_of_all:literal, $help_of_all:literal $(, $label_of_all:expr)?) => $read_all:expr; )*
    ) => {
        $(#[$attribute])*
        pub struct $report { $( $($( #[doc = $help] )+)? $(#[$doc])* pub $field: $type, )* }

        impl $report {
            /// The metrics of the counts.
            pub(crate) const METRICS: &'static [$crate::ReportMetric<Self>] = &[ $($($(
                $crate::ReportMetric::$kind($name, $help $(, $label)?, |report: &Self| {
                    $crate::report!(@value &report.$field $(, $type, $read)?)
                }) $(.from_zero($known))?,
            )+)?)* $(
                $crate::ReportMetric::$kind_of_all($name_of_all, $help_of_all $(, $label_of_all)?, $read_all),
            )* ];
        }
    };
}

/// Metrics of the state of a program's certificate. Each name is given in full, so that a search for a metric finds its declaration.
#[macro_export]
macro_rules! certificate_metrics {
    ($expiry:literal, $reload_failed:literal) => {
        [
            $crate::ReportMetric::gauge(
                $expiry,
                "When the own certificate in use expires, in seconds since 1970.",
                |state| state.expires_unix_s,
            ),
            $crate::ReportMetric::gauge(
                $reload_failed,
                "1 while newer files of the identity cannot be used, and the earlier ones stay in use.",
                |state| state.has_failed_reload.into(),
            ),
        ]
    };
}

impl Metrics {
    /// Registers the metrics of a report; `read` makes the report at each request for the metrics.
    ///
    /// `labels` stand on every metric, for example the group in a process of several groups. Reports of the same `metrics` must differ
    /// in the values of their labels and agree in the names.
    ///
    /// # Panics
    /// When the name of a metric is malformed or declared twice: names are constants of the program.
    pub fn register_report<R: 'static>(
        &self,
        metrics: &'static [ReportMetric<R>],
        labels: &[(&str, &str)],
        read: impl Fn() -> R + Send + Sync + 'static,
    ) {
        let labels: Vec<_> = labels.iter().map(|&(name, value)| pair(name, value.to_owned())).collect();
        let source = Source { labels, read: Box::new(read) };
        let mut reports = self.reports.lock();
        let mut same = reports
            .iter_mut()
            .filter_map(|reports| (&mut **reports as &mut dyn Any).downcast_mut::<Reports<R>>());
        // Reports are compared by the names of their metrics, since a constant may have several addresses.
        if let Some(same) = same.find(|reports| {
            reports.metrics.iter().map(|metric| metric.name).eq(metrics.iter().map(|metric| metric.name))
        }) {
            same.sources.push(source);
            return;
        }
        let mut names: BTreeSet<_> = reports.iter().flat_map(|reports| reports.names()).collect();
        for &ReportMetric { name, .. } in metrics {
            let is_well_formed = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            assert!(is_well_formed && names.insert(name), "{name}: each metric has a name of its own");
        }
        reports.push(Box::new(Reports { metrics, sources: vec![source] }));
    }
}

/// Reports with the same metrics, such as those of the groups of a process.
struct Reports<R: 'static> {
    metrics: &'static [ReportMetric<R>],
    sources: Vec<Source<R>>,
}

/// Function that makes a report, with the labels that stand on every metric of the report.
struct Source<R> {
    labels: Vec<LabelPair>,
    read: Box<dyn Fn() -> R + Send + Sync>,
}

impl<R> Families for Reports<R> {
    fn names(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|metric| metric.name).collect()
    }

    fn each_family(&self, take: &mut dyn FnMut(MetricFamily)) {
        let reports: Vec<_> =
            self.sources.iter().map(|source| (source.labels.as_slice(), (source.read)())).collect();
        for metric in self.metrics {
            take(metric.family(reports.iter().map(|(labels, report)| (*labels, report))));
        }
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

    const METRICS: [ReportMetric<Account>; 5] = [
        ReportMetric::gauges_by_two(
            "headwater_test_state",
            "State of a device.",
            ["device", "state"],
            |_| vec![(["cam-0".into(), "up".into()], 1)],
        ),
        ReportMetric::durations("headwater_test_duration_seconds", "Time of a sample.", |_| {
            let mut durations = DurationCounts::default();
            [50, 100, 101, 20_000_000].into_iter().for_each(|us| durations.add_us(us));
            durations
        }),
        ReportMetric::counters(
            "headwater_test_exit_samples_total",
            "Samples by exit.",
            "exit",
            |(exits, _): &Account| exits.iter().map(|&(exit, count)| (exit.into(), count)).collect(),
        )
        .from_zero(&["local", "edge"]),
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
            "# HELP headwater_test_open Samples open now.",
            "# TYPE headwater_test_exit_samples_total counter",
            "headwater_test_exit_samples_total{exit=\"edge\",group=\"north\"} 2",
            "headwater_test_exit_samples_total{exit=\"cloud\",group=\"south\"} 3",
            "headwater_test_exit_samples_total{exit=\"local\",group=\"south\"} 0",
            "headwater_test_samples_total{group=\"north\"} 5",
            "# TYPE headwater_test_open gauge",
            "headwater_test_open{group=\"south\"} 7",
            "headwater_test_state{device=\"cam-0\",group=\"north\",state=\"up\"} 1",
            "headwater_test_duration_seconds_bucket{group=\"north\",le=\"0.0001\"} 2",
            "headwater_test_duration_seconds_bucket{group=\"north\",le=\"10\"} 3",
            "headwater_test_duration_seconds_bucket{group=\"north\",le=\"+Inf\"} 4",
            "headwater_test_duration_seconds_sum{group=\"north\"} 20.000251",
            "headwater_test_duration_seconds_count{group=\"north\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        crate::testing::check_metrics(&text);
    }

    #[test]
    #[should_panic(expected = "headwater_test_open: each metric has a name of its own")]
    fn a_metric_that_is_declared_twice_is_a_mistake_of_the_program() {
        const OPEN: [ReportMetric<u64>; 1] =
            [ReportMetric::gauge("headwater_test_open", "Samples open now.", |open| *open)];
        let metrics = Metrics::new();
        metrics.register_report(&METRICS, &[], || (Vec::new(), 1));
        metrics.register_report(&OPEN, &[], || 1);
    }
}
