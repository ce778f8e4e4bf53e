//! Report of a run. `headwater demo --json` prints it as JSON; without `--json` it is printed as a table.

use std::collections::BTreeMap;

use anyhow::Context;
use headwater_group::SampleAccount;
use headwater_group::start::DeviceTotals;
use headwater_inference::policy::Promise;
use headwater_protocol::{Degraded, Dropped, Exit, Stages};
use headwater_samples::archive::{Archive, Frame};
use headwater_samples::image_codec::{jpeg_len, webp_len};
use serde::Serialize;

/// Report of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DemoReport {
    /// Samples that were triggered.
    pub samples: u64,
    /// Samples that were decided.
    pub decided: u64,
    /// Share of the decided samples whose class was right, from 0 to 1.
    pub accuracy: f64,
    /// Decided samples without a class, which count as wrong.
    pub undecided: u64,
    /// Promises of the policy about the exits; empty if the loss at the exits was only measured, not bounded for new data.
    pub promises: Vec<Promise>,
    /// The promises as a line of text.
    #[serde(skip)]
    pub promise_line: String,
    /// Samples by exit; an exit at which no sample left is absent.
    pub exits: BTreeMap<Exit, ExitReport>,
    /// Bytes on each link.
    pub bytes: BytesReport,
    /// Number of degraded decisions for each reason; a decision with two reasons counts under both.
    pub degraded: BTreeMap<Degraded, u64>,
    /// Samples that were dropped, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
    /// Number of answers `summary`, `input` and `decided` that the devices sent: one for each view. `bytes` are averages over these.
    pub views: u64,
    /// Pairs of sample and slot without a view, because the device was down, late or refused; decided samples only.
    pub missing: u64,
    /// Triggered samples that were neither decided nor dropped when the run ended.
    pub lost: u64,
    /// Samples with two different decisions.
    pub duplicated: u64,
    /// Decided samples per second, from the first trigger to the last decision.
    pub decisions_per_second: f64,
}

impl DemoReport {
    pub(super) fn new(
        account: &SampleAccount,
        devices: DeviceTotals,
        sizes: BytesReport,
        frames: &Archive,
    ) -> Self {
        let per_view = |bytes: u64| bytes as f64 / devices.views.max(1) as f64;
        let bytes = BytesReport {
            body: per_view(devices.body_bytes),
            payload: per_view(devices.payload_bytes),
            wire_sent: per_view(devices.wire_sent),
            wire_received: per_view(devices.wire_received),
            ..sizes
        };
        let mut report = Self {
            samples: account.triggered_count,
            decided: account.decided_count,
            dropped: account.dropped(),
            lost: account.unsettled_count(),
            duplicated: account.contradicted_count(),
            decisions_per_second: account.decisions_per_second(),
            bytes,
            views: devices.views,
            ..Self::default()
        };
        let (mut right, mut cloud_bytes) = (0, 0);
        let mut by_exit: BTreeMap<Exit, ExitSamples> = BTreeMap::new();
        for sample in account.triggered_samples() {
            let (Some((decision, _)), Some(latency)) = (&sample.decision, sample.latency()) else { continue };
            let class = frames.labels.classes[(decision.sample.0 % frames.len() as u64) as usize];
            let is_right = u64::from(class.is_some() && class == decision.class);
            right += is_right;
            report.undecided += u64::from(decision.class.is_none());
            cloud_bytes += decision.bytes.edge_cloud;
            report.missing += u64::from(decision.presence.missing_count());
            for reason in &decision.degraded {
                *report.degraded.entry(*reason).or_default() += 1;
            }
            let exit = by_exit.entry(decision.exit).or_default();
            exit.right += is_right;
            exit.latencies_ms.push(latency.as_secs_f64() * 1e3);
            exit.stages.push(decision.stages);
        }
        report.accuracy = share(right, report.decided);
        report.bytes.cloud = share(cloud_bytes, report.decided);
        report.exits = by_exit.into_iter().map(|(exit, samples)| (exit, samples.report())).collect();
        report
    }
}

#[derive(Default)]
struct ExitSamples {
    right: u64,
    latencies_ms: Vec<f64>,
    stages: Vec<Stages>,
}

impl ExitSamples {
    fn report(self) -> ExitReport {
        let count = self.latencies_ms.len() as u64;
        let median_ms = |end_us: StageEnd| {
            Percentiles::of(self.stages.iter().map(|stages| end_us(stages) as f64 / 1e3).collect()).p50
        };
        ExitReport {
            count,
            accuracy: share(self.right, count),
            latency_ms: Percentiles::of(self.latencies_ms),
            stages_ms: STAGES.into_iter().map(|(name, end_us)| (name, median_ms(end_us))).collect(),
        }
    }
}

/// Report of one exit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExitReport {
    /// Samples that left at the exit.
    pub count: u64,
    /// Share of these samples whose class was right, from 0 to 1.
    pub accuracy: f64,
    /// Milliseconds from the trigger to the decision, both measured in this program: the way through the broker counts twice.
    pub latency_ms: Percentiles,
    /// Median milliseconds from capture to the end of each of [`STAGES`], as the leader measured; 0 for a stage that the samples skipped.
    pub stages_ms: BTreeMap<&'static str, f64>,
}

/// Reads the microseconds from capture to the end of one stage.
pub type StageEnd = fn(&Stages) -> u64;

/// Stages of a sample, in order, by name.
pub const STAGES: [(&str, StageEnd); 6] = [
    ("opened", |stages| stages.opened_us),
    ("window", |stages| stages.window_us),
    ("features", |stages| stages.features_us),
    ("edge", |stages| stages.edge_us),
    ("cloud", |stages| stages.cloud_us),
    ("decided", |stages| stages.decided_us),
];

/// Percentiles in milliseconds, by the nearest-rank method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Average bytes per view: per sample and device that sees the sample. Only `cloud` is per sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BytesReport {
    /// Size of the uncompressed pixels.
    pub raw: f64,
    /// The view as JPEG at quality 75, computed before the run.
    pub jpeg: f64,
    /// The view as lossy WebP at quality 75, computed before the run.
    pub webp: f64,
    /// Message bodies: mostly scores and feature maps. DDNN's formula for these is `4|C| + (1 - l) f o / 8`.
    pub body: f64,
    /// Message bodies and our headers, without topics and MQTT headers.
    pub payload: f64,
    /// All bytes that the device wrote to its socket.
    pub wire_sent: f64,
    /// All bytes that the device read from its socket.
    pub wire_received: f64,
    /// Body bytes from the leader to the cloud, averaged over all decided samples.
    pub cloud: f64,
}

/// Quality of the compressed images, on the encoders' scale of 1 to 100.
const QUALITY: u8 = 75;

/// Mean sizes of all views of an archive as pixels, JPEG and lossy WebP. Broken frames do not count.
///
/// The caller calls this before the run, since encoding would slow the run down.
///
/// # Errors
/// When an encoder refuses a view.
pub(super) fn image_sizes(archive: &Archive) -> anyhow::Result<BytesReport> {
    let (mut views, mut raw, mut jpeg, mut webp) = (0usize, 0, 0, 0);
    for sample in 0..archive.len() {
        for slot in 0..archive.slots() {
            if let Frame::View(view) = archive.frame(sample, slot) {
                views += 1;
                raw += view.pixels.len();
                jpeg += jpeg_len(&view, QUALITY).context("encoding a view as JPEG")?;
                webp += webp_len(&view, QUALITY).context("encoding a view as WebP")?;
            }
        }
    }
    let mean = |sum: usize| sum as f64 / views.max(1) as f64;
    Ok(BytesReport { raw: mean(raw), jpeg: mean(jpeg), webp: mean(webp), ..BytesReport::default() })
}

impl Percentiles {
    /// Percentiles of milliseconds, which may come in any order; zeros for an empty list.
    pub fn of(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let index = (share * milliseconds.len() as f64).ceil() as usize;
            milliseconds.get(index.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self { p50: rank(0.50), p95: rank(0.95), p99: rank(0.99) }
    }
}

/// `part` divided by `whole`; 0 where `whole` is 0.
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
        let medians = ExitSamples { stages: stages.into(), ..ExitSamples::default() }.report().stages_ms;
        assert_eq!((medians["cloud"], medians["decided"], medians.len()), (2.0, 0.0, 6));
    }

    #[test]
    fn the_json_has_the_names_scripts_read() {
        let mut report = DemoReport::default();
        report.exits.insert(Exit::LOCAL, ExitReport::default());
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
            "promises",
            "samples",
            "undecided",
            "views",
        ];
        assert_eq!(keys, expected);
    }
}
