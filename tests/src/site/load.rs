//! The load: a real aggregator leads many groups of simulated devices over Mosquitto with TLS; its processor time and memory are measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use super::simulated::{Answers, Clock, SIMULATED_PERIOD, SimulatedGroup, connected};
use super::{DEVICE_NAMES, DEVICES, Part, Site, until_nothing_is_missing};

/// Time for which all devices capture before the first sample that counts.
const WARM_UP: Duration = Duration::from_secs(10);

/// Time between two measurements of the aggregator's memory.
const LOOK: Duration = Duration::from_secs(10);

/// Share of the run, from its beginning, in which growth of memory is not judged: 3 of 10 minutes.
const SETTLING: f64 = 0.3;

/// Clock ticks in a second in `/proc/PID/stat`: 100 on the processors that we support.
const TICKS_PER_SECOND: f64 = 100.0;

/// Most percent of one processor that the simulation may use. Above this limit the load measures the simulation, not the aggregator.
const MAX_SIMULATION_PERCENT: f64 = 40.0;

/// Limit of the growth of the aggregator's resident memory, MB a minute.
const MAX_GROWTH_MB_A_MINUTE: f64 = 1.0;

/// Limits of the 99th percentiles of the time from capture to decision, ms: `[local, escalated]`.
const MAX_P99_MS: [f64; 2] = [100.0, 250.0];

/// Limit of the share of missing views in all views.
const MAX_MISSING_SHARE: f64 = 1e-4;

/// Limit of the resident memory of an aggregator with 1,000 groups of one bundle, MB.
pub const MAX_GROUPS_MB: f64 = 200.0;

/// Size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Groups, each with [`DEVICES`] devices.
    pub groups: usize,
    /// Time for which samples count.
    pub time: Duration,
    /// Times of capture of the groups within a period.
    pub phases: Phases,
}

/// Times of capture of the groups within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// The groups capture one after the other, spread evenly over a period.
    Spread,
    /// All groups capture at the same moment.
    Equal,
}

/// Times from capture to decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of decisions.
    pub decisions: usize,
    /// Median, ms.
    pub p50_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Longest time, ms.
    pub max_ms: f64,
}

impl Latency {
    /// The 99th percentile, ms; `None` without a decision.
    fn measured_p99_ms(self) -> Option<f64> {
        (self.decisions > 0).then_some(self.p99_ms)
    }
}

/// Results of a load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadReport {
    /// Number of groups, each with six devices.
    pub groups: usize,
    /// Seconds for which samples counted.
    pub seconds: f64,
    /// True when all groups captured at the same moment.
    pub in_phase: bool,
    /// Number of captured samples that count.
    pub captured: u64,
    /// Captured samples without a decision, dropped ones too, by group. Groups without such samples are left out.
    pub undecided: BTreeMap<String, u64>,
    /// Captured samples that the leader never named as settled, by group. Groups without such samples are left out.
    pub unsettled: BTreeMap<String, u64>,
    /// Samples that were decided twice, or decided and never captured.
    pub contradicted: u64,
    /// Decisions in which a device is missing, by device. Devices that are never missing are left out.
    pub missing_views: BTreeMap<String, u64>,
    /// Share of missing views in all views of the decisions.
    pub missing_share: f64,
    /// Number of decisions by reason of degradation.
    pub degraded: BTreeMap<&'static str, u64>,
    /// Times from capture to the arrival of the decision at an operator, for decisions without a request for features.
    pub local: Latency,
    /// Times as in `local`, for decisions with a request for features.
    pub escalated: Latency,
    /// Percent of one processor that the simulation used.
    pub simulation_percent: f64,
    /// Percent of one processor that the aggregator used.
    pub aggregator_percent: f64,
    /// Microseconds of the aggregator's processor time for each decision.
    pub us_a_decision: f64,
    /// Growth of the aggregator's resident memory after the first three tenths of the run, MB a minute, by least squares; `None` with fewer
    /// than three measurements in that time.
    pub growth_mb_a_minute: Option<f64>,
    /// Measurements of the aggregator's resident memory: seconds since the beginning of the run, MB.
    pub resident_mb: Vec<(f64, f64)>,
    /// Number of messages that the links of the groups did not take.
    pub unsent: u64,
}

impl LoadReport {
    /// Requirements that the load did not meet, each with the value that was found; empty for a good load. Without `figures_count` only the
    /// account counts: samples were captured, each was decided and settled once, and every message was sent.
    pub fn misses(&self, figures_count: bool) -> Vec<String> {
        let mut misses = Vec::new();
        if self.captured == 0 {
            misses.push("no sample was captured".to_owned());
        }
        for (end, groups) in [("decided", &self.undecided), ("settled", &self.unsettled)] {
            for (group, count) in groups {
                misses.push(format!("{group}: {count} samples were captured and not {end}"));
            }
        }
        for (fault, count) in [
            ("samples were decided again, or never captured", self.contradicted),
            ("messages were not sent", self.unsent),
        ] {
            if count > 0 {
                misses.push(format!("{count} {fault}"));
            }
        }
        if !figures_count {
            return misses;
        }
        if self.simulation_percent > MAX_SIMULATION_PERCENT {
            let found = self.simulation_percent;
            misses.push(format!(
                "void: the simulation used {found:.1} % of a processor, at most {MAX_SIMULATION_PERCENT} are allowed"
            ));
        }
        let mut below = |name: &str, limit: f64, found: Option<f64>| {
            let is_kept = found.is_some_and(|found| found < limit);
            if !is_kept {
                misses.push(format!("{name}: expected less than {limit}, found {found:?}"));
            }
        };
        let missing = format!("share of missing views {:?}", self.missing_views);
        below(&missing, MAX_MISSING_SHARE, Some(self.missing_share));
        below("p99 of local decisions, ms", MAX_P99_MS[0], self.local.measured_p99_ms());
        below("p99 of escalated decisions, ms", MAX_P99_MS[1], self.escalated.measured_p99_ms());
        below("growth of resident memory, MB a minute", MAX_GROWTH_MB_A_MINUTE, self.growth_mb_a_minute);
        misses
    }

    /// Row of a Markdown table.
    pub fn line(&self) -> String {
        let latency =
            |of: Latency| format!("{}: {:.1} / {:.1} / {:.1}", of.decisions, of.p50_ms, of.p99_ms, of.max_ms);
        let growth = self.growth_mb_a_minute.map_or("too short".to_owned(), |growth| format!("{growth:+.3}"));
        let resident = self.resident_mb.last().map_or(0.0, |(_, mb)| *mb);
        let degraded: Vec<_> =
            self.degraded.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        format!(
            "| {} | {} | {:.0} | {} | {} | {} | {:.2e} | {} | {} | {} | {:.1} | {:.1} | {:.0} | {resident:.1} | {growth} |",
            self.groups,
            if self.in_phase { "equal" } else { "spread" },
            self.seconds,
            self.captured,
            self.undecided.values().sum::<u64>(),
            self.unsettled.values().sum::<u64>(),
            self.missing_share,
            if degraded.is_empty() { "0".to_owned() } else { degraded.join(", ") },
            latency(self.local),
            latency(self.escalated),
            self.simulation_percent,
            self.aggregator_percent,
            self.us_a_decision,
        )
    }
}

/// Head of the Markdown table.
pub const HEAD: &str = "\
| groups | phases | s | captured | of these not decided | not settled | missing views | degraded | local: p50 / p99 / max ms | escalated: p50 / p99 / max ms | simulation, % of a processor | aggregator, % | us a decision | resident, MB | MB a minute |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

/// Runs a load on a site of its own, whose files are in `folder`.
///
/// # Panics
/// When a part does not start, or a simulated device ends.
pub async fn run(folder: &Path, load: Load, answers: &Arc<Answers>) -> LoadReport {
    let mut site = Site::enroll_groups(folder, load.groups);
    for part in [Part::Broker, Part::Cloud, Part::Aggregator] {
        site.start(part);
    }
    let phase = |group: usize| match load.phases {
        Phases::Spread => SIMULATED_PERIOD * group as u32 / load.groups as u32,
        Phases::Equal => Duration::ZERO,
    };
    let mut groups: Vec<_> = site
        .groups
        .iter()
        .enumerate()
        .map(|(index, group)| SimulatedGroup::start(&site, group, answers, Clock::new(phase(index))))
        .collect();
    connected(&groups).await;
    until_all_devices(&site).await;
    sleep(WARM_UP).await;
    let aggregator = site.program(Part::Aggregator).id();
    let unsent_before: u64 = groups.iter().map(SimulatedGroup::unsent).sum();
    let (begin, before) =
        (Instant::now(), (processor_seconds("self"), processor_seconds(&aggregator.to_string())));
    groups.iter().for_each(SimulatedGroup::begin);
    let mut resident_mb = Vec::new();
    while begin.elapsed() < load.time {
        sleep(LOOK.min(load.time.saturating_sub(begin.elapsed()))).await;
        if let Some((_, kib)) = site.resident_kib().get(&Part::Aggregator) {
            resident_mb.push((begin.elapsed().as_secs_f64(), *kib as f64 / 1000.0 * 1.024));
        }
        assert!(groups.iter_mut().all(SimulatedGroup::runs), "a simulated device ended");
    }
    let seconds = begin.elapsed().as_secs_f64();
    let after = (processor_seconds("self"), processor_seconds(&aggregator.to_string()));
    groups.iter().for_each(SimulatedGroup::end);
    until_settled(&groups).await;
    let unsent = groups.iter().map(SimulatedGroup::unsent).sum::<u64>() - unsent_before;
    report(&load, &groups, Figures { seconds, processor: (before, after), resident_mb, unsent })
}

/// Waits until the leaders have a device in every slot, by the metric of the filled slots.
async fn until_all_devices(site: &Site) {
    let expected = (site.groups.len() * DEVICES) as f64;
    until_nothing_is_missing(|| {
        let metrics = site.metrics();
        let filled =
            metrics.iter().filter(|(name, _)| name.starts_with("headwater_aggregator_filled_slots{"));
        let found = filled.map(|(_, slots)| *slots).sum::<f64>();
        let folder = site.folder.display();
        (found != expected).then(|| format!("filled slots: expected {expected}, found {found}; see {folder}"))
    })
    .await;
}

/// Waits until every sample is decided and settled, at most 10 s.
async fn until_settled(groups: &[SimulatedGroup]) {
    let until = Instant::now() + Duration::from_secs(10);
    let is_open = |group: &SimulatedGroup| {
        let seen = group.seen.lock();
        !seen.unsettled.is_empty() || !seen.undecided.is_empty()
    };
    while Instant::now() < until && groups.iter().any(is_open) {
        sleep(Duration::from_millis(100)).await;
    }
}

/// Figures of a run that do not come from the groups.
struct Figures {
    seconds: f64,
    /// Seconds of processor time, before and after the run, each of (simulation, aggregator).
    processor: ((f64, f64), (f64, f64)),
    resident_mb: Vec<(f64, f64)>,
    unsent: u64,
}

fn report(load: &Load, groups: &[SimulatedGroup], figures: Figures) -> LoadReport {
    let Figures { seconds, processor: (before, after), resident_mb, unsent } = figures;
    let (mut captured, mut contradicted) = (0, 0);
    let [mut undecided, mut unsettled, mut missing_views] = [const { BTreeMap::<String, u64>::new() }; 3];
    let (mut degraded, mut latencies) = (BTreeMap::<&str, u64>::new(), [const { Vec::<u32>::new() }; 2]);
    for group in groups {
        let seen = group.seen.lock();
        captured += seen.captured;
        contradicted += seen.contradicted;
        undecided.insert(group.name.clone(), seen.undecided.len() as u64);
        unsettled.insert(group.name.clone(), seen.unsettled.len() as u64);
        for (device, missing) in DEVICE_NAMES.into_iter().zip(seen.missing_views) {
            missing_views.insert(format!("{}/{device}", group.name), missing);
        }
        for (reason, count) in &seen.degraded {
            *degraded.entry(*reason).or_default() += count;
        }
        for (all, of_group) in latencies.iter_mut().zip(&seen.latencies_us) {
            all.extend(of_group);
        }
    }
    for counts in [&mut undecided, &mut unsettled, &mut missing_views] {
        counts.retain(|_, count| *count > 0);
    }
    let decided = latencies.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    let missing_share = missing_views.values().sum::<u64>() as f64 / (decided * DEVICES as f64);
    let [local, escalated] = latencies.map(latency);
    let settled_from = SETTLING * load.time.as_secs_f64();
    let late: Vec<_> = resident_mb.iter().copied().filter(|(at, _)| *at >= settled_from).collect();
    LoadReport {
        groups: load.groups,
        seconds,
        in_phase: load.phases == Phases::Equal,
        captured,
        undecided,
        unsettled,
        contradicted,
        missing_views,
        missing_share,
        degraded,
        local,
        escalated,
        simulation_percent: 100.0 * (after.0 - before.0) / seconds,
        aggregator_percent: 100.0 * (after.1 - before.1) / seconds,
        us_a_decision: 1e6 * (after.1 - before.1) / decided,
        growth_mb_a_minute: slope(&late).map(|a_second| 60.0 * a_second),
        resident_mb,
        unsent,
    }
}

fn latency(mut us: Vec<u32>) -> Latency {
    us.sort_unstable();
    let at = |share: f64| {
        let index = (us.len() as f64 * share).ceil() as usize;
        us.get(index.saturating_sub(1)).map_or(0.0, |us| f64::from(*us) / 1000.0)
    };
    Latency { decisions: us.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
}

/// Slope of the line through the points by least squares; `None` for fewer than three points, and if all points have the same x.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (points.len() >= 3 && variance > 0.0).then(|| covariance / variance)
}

/// Seconds of processor time that a process has used, without its children; 0 for a process that does not exist. `process` is an id or
/// `self`.
fn processor_seconds(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name, which ends at the last bracket, may have spaces. User and system time are the fields 14 and 15 of the line.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// Resident memory in MB of an aggregator that leads this number of groups of one bundle, without devices and without TLS: the largest value
/// within 10 s after the aggregator has become the leader of all groups.
///
/// # Panics
/// When the aggregator does not become the leader of all groups in time.
pub async fn resident_mb_of_groups(folder: &Path, groups: usize) -> f64 {
    let mut site = Site::without_identity(folder, groups);
    site.start(Part::Broker);
    site.start(Part::Aggregator);
    until_nothing_is_missing(|| {
        let metrics = site.metrics();
        let leads = |(name, state): &(&String, &f64)| {
            name.starts_with("headwater_aggregator_leader_state{") && **state == 1.0
        };
        let (found, log) = (metrics.iter().filter(leads).count(), site.log(Part::Aggregator));
        let log = log.display();
        (found != groups).then(|| format!("groups led: expected {groups}, found {found}; see {log}"))
    })
    .await;
    let mut largest: u64 = 0;
    for _ in 0..10 {
        sleep(Duration::from_secs(1)).await;
        let resident = site.resident_kib();
        largest = largest.max(resident.get(&Part::Aggregator).map_or(0, |(_, kib)| *kib));
    }
    largest as f64 * 1.024 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_line_with_noise_is_that_of_the_line() {
        let points: Vec<_> =
            (0..40).map(|at| (f64::from(at), 5.0 + 0.25 * f64::from(at) + f64::from(at % 2))).collect();
        let found = slope(&points).unwrap();
        assert!((found - 0.25).abs() < 0.01, "{found}");
        assert_eq!(slope(&points[..2]), None);
        assert_eq!(slope(&[(1.0, 1.0); 5]), None);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let found = latency((1..=1000).rev().collect());
        assert_eq!(found, Latency { decisions: 1000, p50_ms: 0.5, p99_ms: 0.99, max_ms: 1.0 });
        assert_eq!(latency(Vec::new()), Latency::default());
    }

    #[test]
    fn this_process_has_used_time_and_an_unknown_one_none() {
        let begin = Instant::now();
        while processor_seconds("self") == 0.0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "no processor time in a minute of work");
        }
        assert_eq!(processor_seconds("0"), 0.0);
    }

    #[test]
    fn each_mark_that_is_missed_is_named() {
        let good = LoadReport {
            captured: 300_000,
            local: Latency { decisions: 1, ..Latency::default() },
            escalated: Latency { decisions: 1, ..Latency::default() },
            simulation_percent: 30.0,
            growth_mb_a_minute: Some(0.1),
            ..LoadReport::default()
        };
        assert_eq!(good.misses(true), Vec::<String>::new());
        let slow = Latency { decisions: 9, p99_ms: 101.0, ..Latency::default() };
        let check = |change: &dyn Fn(&mut LoadReport), figures_count: bool, expected: &str| {
            let mut report = good.clone();
            change(&mut report);
            let misses = report.misses(figures_count).join("; ");
            assert!(misses.contains(expected), "{expected} in {misses}");
        };
        let one = BTreeMap::from([("gate".to_owned(), 1)]);
        check(&|report| report.captured = 0, false, "no sample");
        check(
            &|report| report.undecided = one.clone(),
            false,
            "gate: 1 samples were captured and not decided",
        );
        check(
            &|report| report.unsettled = one.clone(),
            false,
            "gate: 1 samples were captured and not settled",
        );
        check(&|report| report.missing_share = 1e-4, true, "missing views");
        check(&|report| report.simulation_percent = 41.0, true, "void");
        check(&|report| report.local = slow, true, "p99 of local");
        let expected = "p99 of escalated decisions, ms: expected less than 250, found None";
        check(&|report| report.escalated = Latency::default(), true, expected);
        check(&|report| report.growth_mb_a_minute = None, true, "growth");
        let slow_only = LoadReport { local: slow, ..good.clone() };
        assert_eq!(slow_only.misses(false), Vec::<String>::new());
    }
}
