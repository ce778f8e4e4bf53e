//! What the service counts, as numbers for a report and as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use headwater_protocol::Fault;
use serde::Serialize;

use crate::histogram::Histogram;

/// Counters of one service; only grow.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) largest_batch: AtomicU64,
    pub(crate) skipped_deadline: AtomicU64,
    pub(crate) skipped_caller_gone: AtomicU64,
    pub(crate) body_received_bytes: AtomicU64,
    pub(crate) body_sent_bytes: AtomicU64,
    pub(crate) queue: Histogram,
    pub(crate) model: Histogram,
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
    /// Samples that went through the model.
    pub samples: u64,
    /// Runs of the model.
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
    pub(crate) fn refuse(&self, fault: Fault) {
        if let Some(index) = Fault::ALL.iter().position(|&row| row == fault) {
            self.refused[index].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn report(&self) -> CloudReport {
        let refused =
            Fault::ALL.iter().zip(&self.refused).map(|(fault, count)| (fault.code(), count.load(Relaxed)));
        CloudReport {
            connections: self.connections.load(Relaxed),
            answered: self.answered.load(Relaxed),
            refused: refused.filter(|&(_, count)| count > 0).collect(),
            samples: self.samples.load(Relaxed),
            batches: self.batches.load(Relaxed),
            largest_batch: self.largest_batch.load(Relaxed),
            skipped_deadline: self.skipped_deadline.load(Relaxed),
            skipped_caller_gone: self.skipped_caller_gone.load(Relaxed),
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
            "headwater_cloud_skipped_total",
            [("deadline", report.skipped_deadline), ("caller_gone", report.skipped_caller_gone)]
                .map(|(reason, n)| (format!("reason=\"{reason}\""), n)),
        );
        series(
            &mut out,
            "headwater_cloud_body_bytes_total",
            [("received", report.body_received_bytes), ("sent", report.body_sent_bytes)]
                .map(|(direction, n)| (format!("direction=\"{direction}\""), n)),
        );
        for (name, count) in [
            ("headwater_cloud_connections_total", report.connections),
            ("headwater_cloud_samples_total", report.samples),
            ("headwater_cloud_batches_total", report.batches),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# TYPE {name} counter\n{name} {count}");
        }
        let name = "headwater_cloud_stage_duration_seconds";
        let _ = writeln!(out, "# TYPE {name} histogram");
        self.queue.render(name, "stage=\"queue\"", &mut out);
        self.model.render(name, "stage=\"model\"", &mut out);
        out
    }
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
        let counters = Counters::default();
        counters.refuse(Fault::Overloaded);
        counters.refuse(Fault::Overloaded);
        assert_eq!(counters.report().refused, BTreeMap::from([("overloaded", 2)]));
        assert!(counters.render().contains("headwater_cloud_requests_total{code=\"overloaded\"} 2\n"));
    }
}
