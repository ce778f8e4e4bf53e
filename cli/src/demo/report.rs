//! What the demo found, as one object: `headwater demo --json` prints it, the table is drawn from it.

use std::collections::BTreeMap;

use headwater_protocol::{Degraded, Dropped, Exit, Stages};
use serde::Serialize;

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DemoReport {
    /// Samples that were triggered.
    pub samples: u64,
    /// Samples that were decided.
    pub decided: u64,
    /// Share of the decided samples whose class was right.
    pub accuracy: f64,
    /// By exit; only exits at which something left.
    pub exits: BTreeMap<Exit, ExitReport>,
    /// What travelled.
    pub bytes: BytesReport,
    /// Decisions by the reason for which they were degraded.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Samples that were dropped, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Sample-slot pairs that were down, late or refused.
    pub missing: u64,
    /// Samples that were triggered and neither decided nor dropped.
    pub lost: u64,
    /// Samples for which two different decisions came.
    pub duplicated: u64,
    /// Decided samples over the time from the first trigger to the last decision.
    pub decisions_per_second: f64,
}

/// One exit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExitReport {
    /// Samples that left there.
    pub count: u64,
    /// Share of them whose class was right.
    pub accuracy: f64,
    /// From the trigger on the wire to the decision at a subscriber: all of the sample's way and both ends of the broker.
    pub latency_ms: Percentiles,
    /// Medians of what the leader wrote down, from capture to the end of each stage, ms; see `protocol`'s `Stages`.
    pub stages_ms: StagesReport,
}

/// From capture to the end of each stage, ms; 0 where samples of the exit do not pass the stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StagesReport {
    /// First message at the leader.
    pub opened: f64,
    /// All summaries in, or the window's end.
    pub window: f64,
    /// All features in, or the end of the wait.
    pub features: f64,
    /// All answers of edges in, or the end of the wait.
    pub edge: f64,
    /// The cloud's answer.
    pub cloud: f64,
    /// The decision, as journalled.
    pub decided: f64,
}

impl StagesReport {
    /// Medians over decisions.
    pub fn of(stages: &[Stages]) -> Self {
        let median = |stage: fn(&Stages) -> u64| {
            Percentiles::of(stages.iter().map(|stages| stage(stages) as f64 / 1e3).collect()).p50
        };
        Self {
            opened: median(|stages| stages.opened_us),
            window: median(|stages| stages.window_us),
            features: median(|stages| stages.features_us),
            edge: median(|stages| stages.edge_us),
            cloud: median(|stages| stages.cloud_us),
            decided: median(|stages| stages.decided_us),
        }
    }

    /// The stages by name, in order.
    pub fn rows(&self) -> [(&'static str, f64); 6] {
        [
            ("opened", self.opened),
            ("window", self.window),
            ("features", self.features),
            ("edge", self.edge),
            ("cloud", self.cloud),
            ("decided", self.decided),
        ]
    }
}

/// Milliseconds, by the nearest-rank method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Bytes per view, that is per sample and device that saw it; `cloud` per sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BytesReport {
    /// The pixels themselves.
    pub raw: f64,
    /// The same view as JPEG at quality 75, computed outside the run.
    pub jpeg: f64,
    /// The same view as lossy WebP at the same quality, computed outside the run.
    pub webp: f64,
    /// Scores and feature bits: DDNN's `4|C| + (1 - l) f o / 8`.
    pub body: f64,
    /// Body and our headers.
    pub payload: f64,
    /// Everything the device wrote to its socket.
    pub wire_sent: f64,
    /// Everything the device read from its socket.
    pub wire_received: f64,
    /// Body bytes from the leader to the cloud, per sample.
    pub cloud: f64,
}

impl Percentiles {
    /// Of a list of milliseconds, in any order; zeros for an empty one.
    pub fn of(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let index = (share * milliseconds.len() as f64).ceil() as usize;
            milliseconds.get(index.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: rank(0.50), p95: rank(0.95), p99: rank(0.99) }
    }
}

/// `part` of `whole`, 0 where there is nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let hundred = (1..=100).rev().map(f64::from).collect();
        assert_eq!(Percentiles::of(hundred), Percentiles { p50: 50.0, p95: 95.0, p99: 99.0 });
        assert_eq!(Percentiles::of(vec![7.0]), Percentiles { p50: 7.0, p95: 7.0, p99: 7.0 });
        assert_eq!(Percentiles::of(vec![]), Percentiles::default());
    }

    #[test]
    fn stages_are_medians_in_milliseconds() {
        let stages = [1000, 3000, 2000].map(|cloud_us| Stages { cloud_us, ..Stages::default() });
        assert_eq!(StagesReport::of(&stages), StagesReport { cloud: 2.0, ..StagesReport::default() });
    }

    #[test]
    fn the_json_has_the_names_scripts_read() {
        let mut report = DemoReport::default();
        report.exits.insert(Exit::Local, ExitReport::default());
        report.degraded.insert(Degraded::CloudTimeout, 2);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["exits"]["local"]["latency_ms"]["p99"], 0.0);
        assert_eq!(json["degraded"]["cloud_timeout"], 2);
        let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let expected = [
            "accuracy",
            "bytes",
            "decided",
            "decisions_per_second",
            "degraded",
            "dropped",
            "duplicated",
            "exits",
            "lost",
            "missing",
            "samples",
        ];
        assert_eq!(keys, expected);
    }
}
