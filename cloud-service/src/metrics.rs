//! Metrics of the service: their names, and the report that is read from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_inference::bundle::PerNetwork;
use headwater_protocol::{Fault, NetworkId};
use headwater_telemetry::{Histogram, IntCounter, IntCounterVec, IntGauge, Metrics, ReportMetric};
use headwater_transport::ClosedConnections;

/// Metrics of one service.
#[derive(Debug)]
pub(crate) struct CloudMetrics {
    pub(crate) registry: Metrics,
    pub(crate) connections: IntCounter,
    pub(crate) closed: Arc<ClosedConnections>,
    pub(crate) answered: IntCounter,
    pub(crate) body_received_bytes: IntCounter,
    pub(crate) body_sent_bytes: IntCounter,
    /// Time from the head of an inference request to its answer or refusal, seconds.
    pub(crate) request_duration: Histogram,
    pub(crate) models: PerNetwork<ModelMetrics>,
    requests: IntCounterVec,
}

/// Metrics of one network's model thread.
#[derive(Clone, Debug)]
pub(crate) struct ModelMetrics {
    pub(crate) network: NetworkId,
    pub(crate) samples: IntCounter,
    pub(crate) batches: IntCounter,
    pub(crate) max_batch: IntGauge,
    pub(crate) skipped_deadline: IntCounter,
    pub(crate) skipped_caller_gone: IntCounter,
    /// Time in the queue, seconds.
    pub(crate) queue: Histogram,
    /// Time in the model, seconds.
    pub(crate) model: Histogram,
}

/// Work of the service since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudReport {
    /// Connections accepted.
    pub connections: u64,
    /// Connections that a limit closed, by its name; only limits that were reached.
    pub closed_connections: BTreeMap<&'static str, u64>,
    /// Inference requests answered with logits.
    pub answered: u64,
    /// Inference requests answered with an error, by its code; only codes that occurred.
    pub refused: BTreeMap<&'static str, u64>,
    /// Samples that went through a model.
    pub samples: u64,
    /// Samples that went through each network's model.
    pub samples_by_network: BTreeMap<NetworkId, u64>,
    /// Runs of a model.
    pub batches: u64,
    /// Samples in the largest run.
    pub largest_batch: u64,
    /// Queued requests not run because their deadline had passed.
    pub skipped_deadline: u64,
    /// Queued requests not run because their caller had left.
    pub skipped_caller_gone: u64,
    /// Bytes of inference request bodies read.
    pub body_received_bytes: u64,
    /// Bytes of inference answer bodies passed to the connection.
    pub body_sent_bytes: u64,
}

/// Labels of a network: its id stays the same when the next network becomes the current one.
const NETWORK_LABELS: [&str; 2] = ["network", "generation"];

/// Metric of the connections that a limit closed.
const CLOSED: [ReportMetric<Arc<ClosedConnections>>; 1] = [ReportMetric::counters(
    "headwater_cloud_closed_connections_total",
    "Connections that a limit closed, by reason.",
    "reason",
    |closed| closed.by_name().map(|(reason, count)| (reason.into(), count)).into(),
)];

impl CloudMetrics {
    /// Declares all metrics, for a service of these networks.
    pub(crate) fn new(networks: PerNetwork<NetworkId>) -> Self {
        let registry = Metrics::new();
        let [network, generation] = NETWORK_LABELS;
        let samples = registry.counters(
            "headwater_cloud_samples_total",
            "Samples that went through a model.",
            &NETWORK_LABELS,
        );
        let batches = registry.counters("headwater_cloud_batches_total", "Runs of a model.", &NETWORK_LABELS);
        let max_batch = registry.gauges(
            "headwater_cloud_max_batch_samples",
            "Samples in the largest run.",
            &NETWORK_LABELS,
        );
        let skipped = registry.counters(
            "headwater_cloud_skipped_requests_total",
            "Queued requests not run: the deadline had passed, or the caller had left.",
            &["reason", network, generation],
        );
        let stages = registry.durations(
            "headwater_cloud_stage_duration_seconds",
            "Time of a request in the queue, and of a batch in the model.",
            &["stage", network, generation],
        );
        let models = networks.map(|generation, network| {
            let (id, generation) = (network.short(), generation.name());
            let labels = [id.as_str(), generation];
            let with = |first| [first, id.as_str(), generation];
            ModelMetrics {
                network,
                samples: samples.with_label_values(&labels),
                batches: batches.with_label_values(&labels),
                max_batch: max_batch.with_label_values(&labels),
                skipped_deadline: skipped.with_label_values(&with("deadline")),
                skipped_caller_gone: skipped.with_label_values(&with("caller_gone")),
                queue: stages.with_label_values(&with("queue")),
                model: stages.with_label_values(&with("model")),
            }
        });
        let requests = registry.counters(
            "headwater_cloud_requests_total",
            "Inference requests by the code of their answer; ok for logits.",
            &["code"],
        );
        let closed = Arc::<ClosedConnections>::default();
        let counts = Arc::clone(&closed);
        registry.register_report(&CLOSED, &[], move || Arc::clone(&counts));
        Self {
            closed,
            connections: registry.counter("headwater_cloud_connections_total", "Connections accepted."),
            answered: requests.with_label_values(&["ok"]),
            body_received_bytes: registry.counter(
                "headwater_cloud_body_received_bytes_total",
                "Bytes of inference request bodies read.",
            ),
            body_sent_bytes: registry.counter(
                "headwater_cloud_body_sent_bytes_total",
                "Bytes of inference answer bodies written.",
            ),
            request_duration: registry
                .durations(
                    "headwater_cloud_request_duration_seconds",
                    "Time from the head of an inference request to its answer, refusals included.",
                    &[],
                )
                .with_label_values::<&str>(&[]),
            models,
            requests,
            registry,
        }
    }

    /// Requests refused for a fault.
    pub(crate) fn refused(&self, fault: Fault) -> IntCounter {
        self.requests.with_label_values(&[fault.code()])
    }

    pub(crate) fn report(&self) -> CloudReport {
        let models = || self.models.iter().map(|(_, model)| model);
        let sum =
            |counter: fn(&ModelMetrics) -> &IntCounter| models().map(|model| counter(model).get()).sum();
        let refused = Fault::all().map(|fault| (fault.code(), self.refused(fault).get()));
        let largest_batch = models().map(|model| model.max_batch.get()).max().unwrap_or(0);
        CloudReport {
            connections: self.connections.get(),
            closed_connections: self.closed.by_name().into_iter().filter(|&(_, count)| count > 0).collect(),
            answered: self.answered.get(),
            refused: refused.filter(|&(_, count)| count > 0).collect(),
            samples: sum(|model| &model.samples),
            samples_by_network: models().map(|model| (model.network, model.samples.get())).collect(),
            batches: sum(|model| &model.batches),
            largest_batch: largest_batch.unsigned_abs(),
            skipped_deadline: sum(|model| &model.skipped_deadline),
            skipped_caller_gone: sum(|model| &model.skipped_caller_gone),
            body_received_bytes: self.body_received_bytes.get(),
            body_sent_bytes: self.body_sent_bytes.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_counted_under_its_code() {
        let metrics = CloudMetrics::new(PerNetwork::new(NetworkId([1; 32])));
        metrics.refused(Fault::Overloaded).inc_by(2);
        assert_eq!(metrics.report().refused, BTreeMap::from([("overloaded", 2)]));
        let text = metrics.registry.text();
        assert!(text.contains("headwater_cloud_requests_total{code=\"overloaded\"} 2\n"), "{text}");
    }

    #[test]
    fn promtool_accepts_the_metrics() {
        let metrics =
            CloudMetrics::new(PerNetwork { current: NetworkId([1; 32]), next: Some(NetworkId([2; 32])) });
        metrics.refused(Fault::Overloaded).inc();
        metrics.models.current.queue.observe(0.001);
        headwater_telemetry::testing::check_metrics(&metrics.registry.text());
    }
}
