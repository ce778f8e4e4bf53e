//! What became of every sample: triggers go in, decisions go in, the account comes out.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use headwater_protocol::{Decision, Degraded, Dropped, Exit, SampleId, Settled, Stages};

use super::report::{ExitReport, Percentiles, StagesReport, share};

/// Every sample of a run.
#[derive(Default)]
pub(super) struct Ledger {
    samples: HashMap<SampleId, Entry>,
    first_trigger: Option<Instant>,
    last_decision: Option<Instant>,
    decided: u64,
    settled: Settled,
}

struct Entry {
    triggered: Instant,
    class: Option<u16>,
    decision: Option<(Decision, Duration)>,
    contradicted: bool,
}

/// Sums over all decisions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Account {
    /// Samples triggered.
    pub(super) samples: u64,
    /// Samples decided.
    pub(super) decided: u64,
    /// Decided and right.
    pub(super) right: u64,
    /// By exit.
    pub(super) exits: BTreeMap<Exit, ExitReport>,
    /// By reason.
    pub(super) degraded: BTreeMap<Degraded, u64>,
    /// By reason, from the leader's account.
    pub(super) dropped: BTreeMap<Dropped, u64>,
    /// Sample-slot pairs.
    pub(super) missing: u64,
    /// Neither decided nor dropped.
    pub(super) lost: u64,
    /// Two different decisions.
    pub(super) duplicated: u64,
    /// Body bytes from the leader to the cloud.
    pub(super) edge_cloud_bytes: u64,
    /// Decisions over the time they took.
    pub(super) decisions_per_second: f64,
}

impl Ledger {
    /// A sample was triggered; `class` is the truth, where it is known.
    pub(super) fn triggered(&mut self, sample: SampleId, class: Option<u16>, now: Instant) {
        self.first_trigger.get_or_insert(now);
        self.samples.insert(sample, Entry { triggered: now, class, decision: None, contradicted: false });
    }

    /// A decision came. True when it is the first for one of our samples.
    pub(super) fn decided(&mut self, decision: Decision, now: Instant) -> bool {
        let Some(entry) = self.samples.get_mut(&decision.sample) else { return false };
        match &entry.decision {
            Some((first, _)) => {
                entry.contradicted |= *first != decision;
                false
            }
            None => {
                entry.decision = Some((decision, now - entry.triggered));
                self.last_decision = Some(now);
                self.decided += 1;
                true
            }
        }
    }

    /// The leader's account came.
    pub(super) fn settled(&mut self, settled: Settled) {
        if settled.highest >= self.settled.highest {
            self.settled = settled;
        }
    }

    /// Samples without an end so far.
    pub(super) fn unsettled(&self) -> u64 {
        let ended = self.decided + self.settled.dropped.values().sum::<u64>();
        (self.samples.len() as u64).saturating_sub(ended)
    }

    /// Adds everything up.
    pub(super) fn account(&self) -> Account {
        let mut account = Account {
            samples: self.samples.len() as u64,
            decided: self.decided,
            dropped: self.settled.dropped.clone(),
            lost: self.unsettled(),
            ..Account::default()
        };
        let mut latencies: BTreeMap<Exit, Left> = BTreeMap::new();
        for entry in self.samples.values() {
            account.duplicated += u64::from(entry.contradicted);
            let Some((decision, latency)) = &entry.decision else { continue };
            let right = u64::from(entry.class == Some(decision.class));
            account.right += right;
            account.missing += u64::from(decision.presence.missing_count());
            account.edge_cloud_bytes += decision.bytes.edge_cloud;
            for reason in &decision.degraded {
                *account.degraded.entry(*reason).or_default() += 1;
            }
            let left = latencies.entry(decision.exit).or_default();
            left.right += right;
            left.latencies_ms.push(latency.as_secs_f64() * 1e3);
            left.stages.push(decision.stages);
        }
        account.exits = latencies.into_iter().map(|(exit, row)| (exit, exit_report(row))).collect();
        if let (Some(first), Some(last)) = (self.first_trigger, self.last_decision) {
            let seconds = (last - first).as_secs_f64();
            account.decisions_per_second = if seconds > 0.0 { self.decided as f64 / seconds } else { 0.0 };
        }
        account
    }
}

/// What left at one exit.
#[derive(Default)]
struct Left {
    right: u64,
    latencies_ms: Vec<f64>,
    stages: Vec<Stages>,
}

fn exit_report(Left { right, latencies_ms, stages }: Left) -> ExitReport {
    let count = latencies_ms.len() as u64;
    ExitReport {
        count,
        accuracy: share(right, count),
        latency_ms: Percentiles::of(latencies_ms),
        stages_ms: StagesReport::of(&stages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::{HopBytes, NetworkId, PolicyId, Presence};

    fn decision(sample: u64, class: u16) -> Decision {
        Decision {
            sample: SampleId(sample),
            class,
            label: String::new(),
            confidence: 0.5,
            exit: Exit::Local,
            presence: Presence::missing(2),
            degraded: vec![Degraded::NoView],
            network: NetworkId([0; 32]),
            policy: PolicyId([0; 8]),
            stages: Stages::default(),
            bytes: HopBytes::default(),
        }
    }

    #[test]
    fn a_repeated_decision_is_no_duplicate_but_a_different_one_is() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        for sample in 1..=3 {
            ledger.triggered(SampleId(sample), Some(4), now);
        }
        assert!(ledger.decided(decision(1, 4), now));
        assert!(!ledger.decided(decision(1, 4), now));
        assert_eq!(ledger.account().duplicated, 0);
        assert!(ledger.decided(decision(2, 4), now));
        assert!(!ledger.decided(decision(2, 5), now));
        let account = ledger.account();
        assert_eq!((account.duplicated, account.decided, account.right, account.lost), (1, 2, 2, 1));
        assert_eq!((account.missing, account.degraded[&Degraded::NoView]), (4, 2));
    }

    #[test]
    fn a_dropped_sample_is_not_lost() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.triggered(SampleId(1), None, now);
        assert_eq!(ledger.unsettled(), 1);
        ledger.settled(Settled { highest: SampleId(1), decided: 0, dropped: [(Dropped::Shed, 1)].into() });
        assert_eq!(ledger.account().lost, 0);
    }

    #[test]
    fn decisions_about_samples_of_others_are_passed_over() {
        let mut ledger = Ledger::default();
        assert!(!ledger.decided(decision(9, 0), Instant::now()));
        assert_eq!(ledger.account(), Account::default());
    }
}
