//! The samples that a device captured most recently.

use std::collections::VecDeque;

use headwater_protocol::{JudgedTrigger, SampleId, TriggeredIds};

/// Number of remembered ids: a broker repeats a message within moments, not hundreds of samples later.
const MAX_IDS: usize = 128;

/// Distinguishes a new trigger from one that is repeated, goes backwards, or is too far ahead to be believed alone.
#[derive(Debug, Default)]
pub(crate) struct RecentSamples {
    /// In the order of capture, at most [`MAX_IDS`].
    ids: VecDeque<SampleId>,
    triggers: TriggeredIds,
    /// Captured samples whose triggers no second trigger has confirmed; all are among `ids`.
    unconfirmed: Vec<SampleId>,
}

impl RecentSamples {
    /// Judges the trigger of a sample, and remembers the sample unless its trigger is refused; `None` if the sample was captured before.
    pub(crate) fn admit(&mut self, sample: SampleId) -> Option<JudgedTrigger> {
        if self.ids.contains(&sample) {
            return None;
        }
        let judged = self.triggers.judge(sample);
        match judged {
            JudgedTrigger::Believed => self.remember(sample),
            JudgedTrigger::Confirms(first) => {
                self.unconfirmed.retain(|id| *id != first);
                self.remember(sample);
            }
            JudgedTrigger::Unconfirmed => {
                self.remember(sample);
                self.unconfirmed.push(sample);
            }
            JudgedTrigger::Below | JudgedTrigger::TooHigh => {}
        }
        Some(judged)
    }

    /// Remembers a captured sample, and forgets the oldest one beyond [`MAX_IDS`].
    pub(crate) fn remember(&mut self, sample: SampleId) {
        if self.ids.len() == MAX_IDS {
            let oldest = self.ids.pop_front();
            self.unconfirmed.retain(|id| Some(*id) != oldest);
        }
        self.ids.push_back(sample);
    }

    /// Takes the highest settled id of the leader's account. If a wrong trigger made the newest id far higher, the newest id goes back to
    /// `highest`; returns true if this happened.
    pub(crate) fn settle(&mut self, highest: SampleId) -> bool {
        let before = self.triggers.newest();
        self.triggers.settle(highest);
        self.triggers.newest() != before
    }

    /// True while the trigger of a captured sample waits for a second trigger that confirms the first one.
    pub(crate) fn is_unconfirmed(&self, sample: SampleId) -> bool {
        self.unconfirmed.contains(&sample)
    }

    /// True while a trigger far above the newest id waits for a second trigger near it.
    pub(crate) fn waits(&self) -> bool {
        self.triggers.unconfirmed().is_some()
    }

    /// Id of the newest believed trigger; 0 before the first one.
    pub(crate) fn newest(&self) -> SampleId {
        self.triggers.newest().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::Trigger;

    use super::*;

    const NEW: Option<JudgedTrigger> = Some(JudgedTrigger::Believed);
    const UNCONFIRMED: Option<JudgedTrigger> = Some(JudgedTrigger::Unconfirmed);
    const BELOW: Option<JudgedTrigger> = Some(JudgedTrigger::Below);
    const TOO_HIGH: Option<JudgedTrigger> = Some(JudgedTrigger::TooHigh);

    #[track_caller]
    fn check(recent: &mut RecentSamples, triggers: &[(u64, Option<JudgedTrigger>)]) {
        for &(sample, expected) in triggers {
            assert_eq!(recent.admit(SampleId(sample)), expected, "{sample}");
        }
    }

    /// An id far from small ones.
    const FAR: u64 = 1 << 40;

    #[test]
    fn one_trigger_far_away_harms_nothing_and_its_sample_is_not_answered() {
        let mut recent = RecentSamples::default();
        check(
            &mut recent,
            &[(5, NEW), (FAR, UNCONFIRMED), (6, NEW), (FAR + 1, UNCONFIRMED), (7, NEW), (6, None)],
        );
        let found = [5, FAR, 6, FAR + 1, 7].map(|id| recent.is_unconfirmed(SampleId(id)));
        assert_eq!(found, [false, true, false, true, false]);
        assert_eq!((recent.newest(), recent.waits()), (SampleId(7), false));
        check(&mut recent, &[(FAR + 2000, UNCONFIRMED)]);
        assert_eq!((recent.newest(), recent.waits()), (SampleId(7), true));
        check(
            &mut RecentSamples::default(),
            &[(Trigger::MAX_ID.0 + 1, TOO_HIGH), (5, NEW), (u64::MAX, TOO_HIGH)],
        );
    }

    #[test]
    fn a_second_trigger_confirms_the_one_before_and_a_repeated_one_is_no_second() {
        let mut recent = RecentSamples::default();
        let first = Some(JudgedTrigger::Confirms(SampleId(FAR)));
        check(&mut recent, &[(5, NEW), (FAR, UNCONFIRMED), (FAR, None), (FAR + 1, first), (6, BELOW)]);
        assert!(!recent.is_unconfirmed(SampleId(FAR)) && !recent.is_unconfirmed(SampleId(FAR + 1)));
    }

    #[test]
    fn a_device_whose_first_trigger_was_wrong_follows_the_leader_s_account() {
        let mut recent = RecentSamples::default();
        check(&mut recent, &[(FAR, NEW), (5, BELOW)]);
        assert!(recent.settle(SampleId(4)) && !recent.settle(SampleId(4)));
        check(&mut recent, &[(5, NEW), (6, NEW), (FAR, None), (FAR + 1, UNCONFIRMED)]);
    }

    #[test]
    fn a_repeated_trigger_is_distinguished_from_one_that_goes_backwards() {
        let mut recent = RecentSamples::default();
        check(&mut recent, &[(0, NEW), (5, NEW), (5, None), (0, None), (4, BELOW), (6, NEW)]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = RecentSamples::default();
        for id in 0..10_000 {
            recent.admit(SampleId(2000 * id));
        }
        assert!(recent.ids.len() == MAX_IDS && recent.unconfirmed.len() <= MAX_IDS);
    }
}
