//! The account of samples: each triggered sample ends in one decision or one drop.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use headwater_protocol::{Decision, Dropped, SampleId, Settled, SettledNotice};

/// Samples triggered, decisions received, and drops that the leader reports. Memory grows with every sample;
/// [`GroupClient::begin_account`](crate::GroupClient::begin_account) begins an empty account.
#[derive(Clone, Debug, Default)]
pub struct SampleAccount {
    samples: HashMap<SampleId, AccountedSample>,
    /// Number of triggered samples.
    pub triggered_count: u64,
    /// Number of triggered samples with a decision.
    pub decided_count: u64,
    first_trigger: Option<Instant>,
    last_decision: Option<Instant>,
    /// The leader's latest account.
    pub settled: Settled,
    /// Drops that the leader had reported before this account began.
    dropped_before: BTreeMap<Dropped, u64>,
    /// Samples that earlier accounts triggered and that had no decision. If the leader drops one of them, the drop does not count here.
    pending_before: BTreeSet<SampleId>,
}

/// One sample of a [`SampleAccount`].
#[derive(Clone, Debug, Default)]
pub struct AccountedSample {
    /// Time at which this program last triggered the sample; `None` for a sample that other programs triggered or a device captured by itself.
    pub triggered: Option<Instant>,
    /// The first decision and the time at which it came; `None` before it came.
    pub decision: Option<(Decision, Instant)>,
    /// True when a second, different decision came.
    pub is_contradicted: bool,
}

impl AccountedSample {
    /// Time from the trigger to the first decision; `None` without a trigger or without a decision.
    pub fn latency(&self) -> Option<Duration> {
        Some(self.decision.as_ref()?.1 - self.triggered?)
    }
}

impl SampleAccount {
    /// An empty account that follows this one. Neither earlier drops nor later drops of this account's samples count in the new account.
    pub fn following(&self) -> Self {
        let pending = |sample: &(&SampleId, &AccountedSample)| {
            sample.1.triggered.is_some() && sample.1.decision.is_none()
        };
        let own = self.samples.iter().filter(pending).map(|(sample, _)| *sample);
        let pending_before = self.pending_before.iter().copied().chain(own).collect();
        let (settled, dropped_before) = (self.settled.clone(), self.settled.dropped.clone());
        Self { settled, dropped_before, pending_before, ..Self::default() }
    }

    /// Records the trigger of a sample at `now`.
    pub fn triggered(&mut self, sample: SampleId, now: Instant) {
        self.first_trigger.get_or_insert(now);
        let entry = self.samples.entry(sample).or_default();
        if entry.triggered.replace(now).is_none() {
            self.triggered_count += 1;
            self.decided_count += u64::from(entry.decision.is_some());
        }
    }

    /// Records a decision that arrived at `now`. Returns true for the first decision of the sample.
    pub fn decided(&mut self, decision: Decision, now: Instant) -> bool {
        self.pending_before.remove(&decision.sample);
        let entry = self.samples.entry(decision.sample).or_default();
        match &entry.decision {
            Some((first, _)) => {
                entry.is_contradicted |= *first != decision;
                false
            }
            None => {
                if entry.triggered.is_some() {
                    self.decided_count += 1;
                    self.last_decision = Some(now);
                }
                entry.decision = Some((decision, now));
                true
            }
        }
    }

    /// Records the leader's account. An account with a lower highest id and no more decisions than the latest is older and changes nothing.
    /// After the group numbers its samples anew, ids may be lower: the count of decisions then shows that the account is newer.
    pub fn settle(&mut self, notice: SettledNotice) {
        let SettledNotice { account, closed, .. } = notice;
        if account.highest < self.settled.highest && account.decided <= self.settled.decided {
            return;
        }
        for (first, last) in closed.into_iter().filter(|(first, last)| first <= last) {
            let dropped = self.pending_before.extract_if(first..=last, |_| true).count() as u64;
            // The leader closed a sample of an earlier account without a decision: most likely it dropped the sample as unanswered.
            let before = self.dropped_before.entry(Dropped::Unanswered).or_default();
            *before = before.saturating_add(dropped);
        }
        self.settled = account;
    }

    /// Drops by reason since this account began.
    pub fn dropped(&self) -> BTreeMap<Dropped, u64> {
        self.drops().filter(|(_, count)| *count > 0).collect()
    }

    fn drops(&self) -> impl Iterator<Item = (Dropped, u64)> {
        let before = |reason| self.dropped_before.get(reason).copied().unwrap_or(0);
        self.settled.dropped.iter().map(move |(reason, all)| (*reason, all.saturating_sub(before(reason))))
    }

    /// Number of triggered samples that are neither decided nor dropped; at the end of a run the number of lost samples. Drops of samples that
    /// other programs triggered count too, so the number may then be too low.
    pub fn unsettled_count(&self) -> u64 {
        let counts = self.drops().map(|(_, count)| count);
        self.triggered_count.saturating_sub(counts.fold(self.decided_count, u64::saturating_add))
    }

    /// Number of samples with two different decisions.
    pub fn contradicted_count(&self) -> u64 {
        self.samples.values().filter(|sample| sample.is_contradicted).count() as u64
    }

    /// Samples that this program triggered, in any order.
    pub fn triggered_samples(&self) -> impl Iterator<Item = &AccountedSample> {
        self.samples.values().filter(|sample| sample.triggered.is_some())
    }

    /// First decision of every sample, in any order.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.samples.values().filter_map(|sample| sample.decision.as_ref()).map(|(decision, _)| decision)
    }

    /// Trigger and decision of one sample; `None` for a sample that has neither.
    pub fn sample(&self, sample: SampleId) -> Option<&AccountedSample> {
        self.samples.get(&sample)
    }

    /// First decision of one sample; `None` without a decision.
    pub fn decision(&self, sample: SampleId) -> Option<&Decision> {
        self.samples.get(&sample)?.decision.as_ref().map(|(decision, _)| decision)
    }

    /// Decisions of triggered samples per second, from the first trigger to the last of these decisions; 0 without one.
    pub fn decisions_per_second(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first_trigger, self.last_decision) else { return 0.0 };
        let seconds = (last - first).as_secs_f64();
        if seconds > 0.0 { self.decided_count as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::{Degraded, testing};

    fn decision(sample: u64, class: u16) -> Decision {
        Decision { class: Some(class), degraded: vec![Degraded::NoView], ..testing::decision(sample) }
    }

    fn shed(highest: u64, count: u64) -> Settled {
        Settled { highest: SampleId(highest), decided: 0, dropped: [(Dropped::Shed, count)].into() }
    }

    fn notice(account: Settled) -> SettledNotice {
        SettledNotice { account, ..SettledNotice::default() }
    }

    #[test]
    fn a_repeated_decision_is_no_contradiction_but_a_different_one_is() {
        let now = Instant::now();
        let mut account = SampleAccount::default();
        for sample in 1..=3 {
            account.triggered(SampleId(sample), now);
        }
        assert!(account.decided(decision(1, 4), now));
        assert!(!account.decided(decision(1, 4), now));
        assert_eq!(account.contradicted_count(), 0);
        assert!(account.decided(decision(2, 4), now));
        assert!(!account.decided(decision(2, 5), now));
        assert_eq!(account.contradicted_count(), 1);
        assert_eq!((account.decided_count, account.unsettled_count()), (2, 1));
        assert_eq!(account.decision(SampleId(2)).and_then(|first| first.class), Some(4));
    }

    #[test]
    fn a_dropped_sample_is_not_lost() {
        let mut account = SampleAccount::default();
        account.triggered(SampleId(1), Instant::now());
        assert_eq!(account.unsettled_count(), 1);
        account.settle(notice(shed(1, 1)));
        assert_eq!(account.unsettled_count(), 0);
    }

    #[test]
    fn counts_of_any_size_leave_no_sample_lost() {
        let mut account = SampleAccount::default();
        account.triggered(SampleId(1), Instant::now());
        account.triggered(SampleId(2), Instant::now());
        account.decided(decision(2, 4), Instant::now());
        let dropped = [(Dropped::Shed, u64::MAX), (Dropped::Restart, 1)].into();
        account.settle(notice(Settled { highest: SampleId(2), decided: 1, dropped }));
        assert_eq!(account.unsettled_count(), 0);
    }

    #[test]
    fn drops_before_the_account_began_do_not_count() {
        let mut account = SampleAccount { settled: shed(1, 5), ..SampleAccount::default() }.following();
        account.triggered(SampleId(2), Instant::now());
        assert_eq!((account.unsettled_count(), account.dropped()), (1, BTreeMap::new()));
        account.settle(notice(shed(2, 6)));
        assert_eq!((account.unsettled_count(), account.dropped()), (0, [(Dropped::Shed, 1)].into()));
        account.settle(notice(shed(1, 5)));
        assert_eq!(account.unsettled_count(), 0, "an older account changes nothing");
    }

    #[test]
    fn drops_of_samples_that_an_earlier_account_triggered_do_not_count() {
        let now = Instant::now();
        let mut earlier = SampleAccount::default();
        for sample in 1..=3 {
            earlier.triggered(SampleId(sample), now);
        }
        earlier.decided(decision(1, 4), now);
        let mut account = earlier.following();
        account.triggered(SampleId(5), now);
        account.decided(decision(2, 4), now);
        // Sample 3 of the earlier account was not answered; sample 5 is still open, and is dropped below.
        let dropped = [(Dropped::Unanswered, 1)].into();
        let settled = Settled { highest: SampleId(3), decided: 2, dropped };
        let closed = vec![(SampleId(1), SampleId(3))];
        account.settle(SettledNotice { closed, ..notice(settled) });
        assert_eq!((account.unsettled_count(), account.dropped()), (1, BTreeMap::new()));
        let dropped = [(Dropped::Unanswered, 2)].into();
        let settled = Settled { highest: SampleId(5), decided: 2, dropped };
        let closed = vec![(SampleId(1), SampleId(3)), (SampleId(5), SampleId(5))];
        account.settle(SettledNotice { closed, ..notice(settled) });
        assert_eq!((account.unsettled_count(), account.dropped()), (0, [(Dropped::Unanswered, 1)].into()));
    }

    #[test]
    fn an_account_of_a_new_numbering_begins_with_lower_ids() {
        let mut account = SampleAccount::default();
        account.settle(notice(Settled { highest: SampleId(900), decided: 7, ..Settled::default() }));
        account.settle(notice(Settled { highest: SampleId(3), decided: 8, ..Settled::default() }));
        assert_eq!(account.settled.highest, SampleId(3));
    }

    #[test]
    fn decisions_about_samples_of_others_are_kept_and_not_counted() {
        let mut account = SampleAccount::default();
        assert!(account.decided(decision(9, 0), Instant::now()));
        assert_eq!((account.decided_count, account.unsettled_count()), (0, 0));
        assert_eq!(account.triggered_samples().count(), 0);
        assert_eq!(account.decisions().count(), 1);
    }
}
