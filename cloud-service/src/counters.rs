//! What the service counts, over all networks and for each, as numbers for a report and as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use headwater_inference::bundle::Generation;
use headwater_protocol::{Fault, NetworkId};
use serde::Serialize;

use crate::held::Held;
use crate::model_counters::ModelCounters;

/// Counters of one service; only grow.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) body_received_bytes: AtomicU64,
    pub(crate) body_sent_bytes: AtomicU64,
    models: Held<Arc<ModelCounters>>,
    refused: [AtomicU64; Fault::ALL.len()],
}

/// What the service did since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CloudReport {
    /// Connections accepted.
    pub connections: u64,
    /// Inference requests answered with logits.
    pub answered: u64,
    /// Inference requests answered with an error, by its code; only codes that occurred.
    pub refused: BTreeMap<&'static str, u64>,
    /// Samples that went through a model.
    pub samples: u64,
    /// The same by network, for each that is held.
    pub samples_by_network: BTreeMap<NetworkId, u64>,
    /// Runs of a model.
    pub batches: u64,
    /// Samples in the largest run.
    pub largest_batch: u64,
    /// Queued requests not run because their deadline had passed.
    pub skipped_deadline: u64,
    /// Queued requests not run because their caller had gone.
    pub skipped_caller_gone: u64,
    /// Bytes of inference request bodies read.
    pub body_received_bytes: u64,
    /// Bytes of inference answer bodies given to the connection.
    pub body_sent_bytes: u64,
}

impl Counters {
    pub(crate) fn new(models: Held<Arc<ModelCounters>>) -> Self {
        Self {
            connections: AtomicU64::default(),
            answered: AtomicU64::default(),
            body_received_bytes: AtomicU64::default(),
            body_sent_bytes: AtomicU64::default(),
            models,
            refused: Default::default(),
        }
    }

    pub(crate) fn refuse(&self, fault: Fault) {
        if let Some(index) = Fault::ALL.iter().position(|&row| row == fault) {
            self.refused[index].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn report(&self) -> CloudReport {
        let refused =
            Fault::ALL.iter().zip(&self.refused).map(|(fault, count)| (fault.code(), count.load(Relaxed)));
        let models = || self.models.each().map(|(_, model)| model);
        let sum =
            |count: fn(&ModelCounters) -> &AtomicU64| models().map(|model| count(model).load(Relaxed)).sum();
        CloudReport {
            connections: self.connections.load(Relaxed),
            answered: self.answered.load(Relaxed),
            refused: refused.filter(|&(_, count)| count > 0).collect(),
            samples: sum(|model| &model.samples),
            samples_by_network: models().map(|model| (model.network, model.samples.load(Relaxed))).collect(),
            batches: sum(|model| &model.batches),
            largest_batch: models().map(|model| model.largest_batch.load(Relaxed)).max().unwrap_or(0),
            skipped_deadline: sum(|model| &model.skipped_deadline),
            skipped_caller_gone: sum(|model| &model.skipped_caller_gone),
            body_received_bytes: self.body_received_bytes.load(Relaxed),
            body_sent_bytes: self.body_sent_bytes.load(Relaxed),
        }
    }

    /// Prometheus text, version 0.0.4.
    pub(crate) fn render(&self) -> String {
        let report = self.report();
        let mut out = String::with_capacity(4096);
        let requests = [("ok", report.answered)].into_iter().chain(report.refused);
        series(
            &mut out,
            "headwater_cloud_requests_total",
            requests.map(|(code, n)| (format!("code=\"{code}\""), n)),
        );
        series(
            &mut out,
            "headwater_cloud_body_bytes_total",
            [("received", report.body_received_bytes), ("sent", report.body_sent_bytes)]
                .map(|(direction, n)| (format!("direction=\"{direction}\""), n)),
        );
        let (name, count) = ("headwater_cloud_connections_total", report.connections);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# TYPE {name} counter\n{name} {count}");
        self.render_models(&mut out);
        out
    }

    /// What each network has of its own: by its id, which stays the same when the next becomes the current one, and by what it is now.
    fn render_models(&self, out: &mut String) {
        let models: Vec<_> =
            self.models.each().map(|(generation, model)| (labels(generation, model), model)).collect();
        let skipped = models.iter().flat_map(|(labels, model)| {
            [("deadline", &model.skipped_deadline), ("caller_gone", &model.skipped_caller_gone)]
                .map(|(reason, count)| (format!("reason=\"{reason}\",{labels}"), count.load(Relaxed)))
        });
        series(out, "headwater_cloud_skipped_total", skipped);
        let samples = models.iter().map(|(labels, model)| (labels.clone(), model.samples.load(Relaxed)));
        series(out, "headwater_cloud_samples_total", samples);
        let batches = models.iter().map(|(labels, model)| (labels.clone(), model.batches.load(Relaxed)));
        series(out, "headwater_cloud_batches_total", batches);
        let name = "headwater_cloud_stage_duration_seconds";
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# TYPE {name} histogram");
        for (labels, model) in &models {
            model.queue.render(name, &format!("stage=\"queue\",{labels}"), out);
            model.model.render(name, &format!("stage=\"model\",{labels}"), out);
        }
    }
}

fn labels(generation: Generation, model: &ModelCounters) -> String {
    format!("network=\"{}\",held=\"{}\"", model.network.short(), generation.name())
}

fn series(out: &mut String, name: &str, rows: impl IntoIterator<Item = (String, u64)>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# TYPE {name} counter");
    for (labels, count) in rows {
        let _ = writeln!(out, "{name}{{{labels}}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_counted_under_its_code() {
        let current = Arc::new(ModelCounters::of(NetworkId([1; 32])));
        let counters = Counters::new(Held { current, next: None });
        counters.refuse(Fault::Overloaded);
        counters.refuse(Fault::Overloaded);
        assert_eq!(counters.report().refused, BTreeMap::from([("overloaded", 2)]));
        assert!(counters.render().contains("headwater_cloud_requests_total{code=\"overloaded\"} 2\n"));
    }
}
