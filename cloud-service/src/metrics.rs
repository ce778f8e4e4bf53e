//! Counts of the service and of its models since the start, each with its metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_inference::bundle::PerNetwork;
use headwater_protocol::{Fault, NetworkId};
use headwater_telemetry::{DurationCounts, Metrics, report};
use headwater_transport::ClosedConnections;
use parking_lot::{Mutex, MutexGuard};

/// Code of a request that was answered with logits.
const OK: &str = "ok";

report! {
    /// Work of the service since it started.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CloudReport {
        connections: u64 = counter("headwater_cloud_connections_total", "Connections accepted.");
        closed_connections: BTreeMap<&'static str, u64> = counters(
            "headwater_cloud_closed_connections_total",
            "Connections that a limit closed, by reason.",
            "reason"
        );
        requests: BTreeMap<&'static str, u64> = counters(
            "headwater_cloud_requests_total",
            "Inference requests, and refused ones of every endpoint, by the code of their answer; ok for logits.",
            "code"
        ).from_zero(&[OK]);
        body_received_bytes: u64 = counter(
            "headwater_cloud_body_received_bytes_total",
            "Bytes of inference request bodies read."
        );
        body_sent_bytes: u64 = counter(
            "headwater_cloud_body_sent_bytes_total",
            "Bytes of inference answer bodies written."
        );
        request_durations: DurationCounts = durations(
            "headwater_cloud_request_duration_seconds",
            "Time from the head of an inference request to its answer, refusals included."
        ) => |durations| *durations;
        /// Durations of the refused requests; `request_durations` has these too.
        refused_durations: DurationCounts;
        /// Counts of each network's model.
        models: BTreeMap<NetworkId, ModelCounts>;
    }
}

report! {
    /// Work of one network's model thread.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ModelCounts {
        samples: u64 = counter("headwater_cloud_samples_total", "Samples that went through a model.");
        batches: u64 = counter("headwater_cloud_batches_total", "Runs of a model.");
        largest_batch: u64 = gauge("headwater_cloud_max_batch_samples", "Samples in the largest run.");
        /// Reasons are `deadline` and `caller_gone`.
        skipped: BTreeMap<&'static str, u64> = counters(
            "headwater_cloud_skipped_requests_total",
            "Queued requests not run: the deadline had passed, or the caller had left.",
            "reason"
        ).from_zero(&["deadline", "caller_gone"]);
        /// Time that requests spend in the queue.
        queue: DurationCounts;
        /// Time that batches spend in the model.
        model: DurationCounts;
    }
    durations_by(
        "headwater_cloud_stage_duration_seconds",
        "Time of a request in the queue, and of a batch in the model.",
        "stage"
    ) => |counts| vec![("queue", counts.queue), ("model", counts.model)];
}

impl CloudReport {
    pub(crate) fn count_answered(&mut self) {
        *self.requests.entry(OK).or_default() += 1;
    }

    pub(crate) fn count_refused(&mut self, fault: Fault) {
        *self.requests.entry(fault.code()).or_default() += 1;
    }

    /// Inference requests answered with logits.
    pub fn answered(&self) -> u64 {
        self.requests.get(OK).copied().unwrap_or(0)
    }

    /// Requests answered with an error, by code: inference requests, requests of any endpoint from clients that are not admitted, and calls
    /// of unknown gRPC methods.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.requests.iter().map(|(code, count)| (*code, *count)).filter(|(code, _)| *code != OK)
    }

    /// Sum of one count over all models.
    pub fn of_models(&self, count: fn(&ModelCounts) -> u64) -> u64 {
        self.models.values().map(count).sum()
    }
}

impl ModelCounts {
    pub(crate) fn count_skipped(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Queued requests that were not run for this reason: `deadline` or `caller_gone`.
    pub fn skipped(&self, reason: &str) -> u64 {
        self.skipped.get(reason).copied().unwrap_or(0)
    }
}

/// The counts of one service, with the registry that shows them.
#[derive(Debug)]
pub(crate) struct CloudMetrics {
    pub(crate) registry: Metrics,
    pub(crate) closed: Arc<ClosedConnections>,
    /// Each network with the counts of its model.
    pub(crate) models: PerNetwork<(NetworkId, Arc<Mutex<ModelCounts>>)>,
    counts: Arc<Mutex<CloudReport>>,
}

impl CloudMetrics {
    /// Registers the metrics of a service of these networks.
    pub(crate) fn new(networks: PerNetwork<NetworkId>) -> Self {
        let (registry, closed, counts) = (Metrics::new(), Arc::default(), Arc::default());
        let of_service = (Arc::clone(&counts), Arc::clone(&closed));
        registry.register_report(CloudReport::METRICS, &[], move || {
            let (counts, closed) = &of_service;
            with_closed(counts, closed)
        });
        let models = networks.map(|generation, network| {
            let counts = Arc::<Mutex<ModelCounts>>::default();
            let (id, of_model) = (network.short(), Arc::clone(&counts));
            // The label `network` stays the same when the next network becomes the current one.
            let labels = [("network", id.as_str()), ("generation", generation.name())];
            registry.register_report(ModelCounts::METRICS, &labels, move || of_model.lock().clone());
            (network, counts)
        });
        Self { registry, closed, models, counts }
    }

    /// Locks the counts of the service, to raise one of them.
    pub(crate) fn counts(&self) -> MutexGuard<'_, CloudReport> {
        self.counts.lock()
    }

    pub(crate) fn report(&self) -> CloudReport {
        let models = self.models.iter().map(|(_, (network, counts))| (*network, counts.lock().clone()));
        CloudReport { models: models.collect(), ..with_closed(&self.counts, &self.closed) }
    }
}

fn with_closed(counts: &Mutex<CloudReport>, closed: &ClosedConnections) -> CloudReport {
    CloudReport { closed_connections: closed.by_name().into(), ..counts.lock().clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_counted_under_its_code_and_promtool_accepts_the_metrics() {
        let metrics =
            CloudMetrics::new(PerNetwork { current: NetworkId([1; 32]), next: Some(NetworkId([2; 32])) });
        metrics.counts().count_refused(Fault::Overloaded);
        metrics.models.current.1.lock().queue.add_us(1000);
        assert_eq!(metrics.report().requests, BTreeMap::from([("overloaded", 1)]));
        let text = metrics.registry.text();
        for line in [
            "headwater_cloud_requests_total{code=\"ok\"} 0",
            "headwater_cloud_requests_total{code=\"overloaded\"} 1",
            "headwater_cloud_closed_connections_total{reason=\"head_timeout\"} 0",
            "headwater_cloud_skipped_requests_total{generation=\"next\",network=\"020202020202\",reason=\"deadline\"} 0",
            "headwater_cloud_stage_duration_seconds_count{generation=\"current\",network=\"010101010101\",stage=\"queue\"} 1",
            "headwater_cloud_stage_duration_seconds_count{generation=\"current\",network=\"010101010101\",stage=\"model\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        headwater_telemetry::testing::check_metrics(&text);
    }
}
