//! Ids of triggers: leader and devices judge alike which triggers are believed. In the figure a trigger of the present connection has the
//! newest id; [`JudgedTrigger::Below`] has the other cases.
//!
//! ```text
//!        newest              newest + 1,000
//! ─────────┤────────────────────┤──────────────────────────────> id
//!  refused        believed         waits for a second one near it
//! ```

use serde::{Deserialize, Serialize};

use crate::ids::SampleId;
use crate::trigger::Trigger;

/// Ids of the triggers of a group, as one reader has seen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggeredIds {
    /// Newest believed id, from a trigger or an answer; `None` while there is none.
    newest: Option<SampleId>,
    /// Newest believed trigger of the present connection, or the id to which [`settle`](Self::settle) set the newest id back. Later
    /// triggers of the connection must be above this id.
    triggered: Option<SampleId>,
    /// Latest trigger that was too far ahead to be believed alone; `None` once another trigger is believed.
    unconfirmed: Option<SampleId>,
}

/// Judgement of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgedTrigger {
    /// The id is near the newest one, or is the first one.
    Believed,
    /// The id is near the unconfirmed id in this variant and differs from it: both ids are believed.
    Confirms(SampleId),
    /// The id is far ahead: devices capture the sample, but do not answer before a second trigger confirms it.
    Unconfirmed,
    /// The id is not above the newest trigger of the connection, or is far below the newest id.
    Below,
    /// The id is above [`Trigger::MAX_ID`].
    TooHigh,
}

impl TriggeredIds {
    /// Judges a trigger. A believed id is kept as the newest, an unconfirmed id as the one that waits.
    pub fn judge(&mut self, sample: SampleId) -> JudgedTrigger {
        if sample > Trigger::MAX_ID {
            return JudgedTrigger::TooHigh;
        }
        if self.triggered.is_some_and(|newest| sample <= newest) || self.is_far_below(sample) {
            return JudgedTrigger::Below;
        }
        let confirmed = match self.newest {
            Some(newest) if !is_near(sample, newest) => {
                let first = self.unconfirmed.filter(|first| *first != sample && is_near(sample, *first));
                if first.is_none() {
                    self.unconfirmed = Some(sample);
                    return JudgedTrigger::Unconfirmed;
                }
                first
            }
            _ => None,
        };
        let newest = confirmed.map_or(sample, |first| sample.max(first));
        self.believe(newest);
        (self.triggered, self.unconfirmed) = (Some(newest), None);
        confirmed.map_or(JudgedTrigger::Believed, JudgedTrigger::Confirms)
    }

    /// Takes an id that is believed without its trigger, such as the id of an answer.
    pub fn believe(&mut self, sample: SampleId) {
        self.newest = self.newest.max(Some(sample));
    }

    /// Takes the highest settled id of the leader's account, 0 for none. If the newest id is far above the settled one, a wrong trigger was
    /// believed: the settled id becomes the newest, and the earlier newest waits for a second trigger near it.
    pub fn settle(&mut self, highest: SampleId) {
        if let Some(newest) = self.newest.filter(|newest| *newest > highest && !is_near(*newest, highest)) {
            let highest = Some(highest).filter(|highest| *highest > SampleId(0));
            *self = Self { newest: highest, triggered: highest, unconfirmed: Some(newest) };
        }
    }

    /// Begins a connection. Earlier triggers may have been missed, so the first trigger of the connection may be below the newest id, but
    /// near it.
    pub fn connected(&mut self) {
        self.triggered = None;
    }

    /// Newest believed id; `None` while there is none.
    pub fn newest(&self) -> Option<SampleId> {
        self.newest
    }

    /// True once a trigger of the present connection was believed, or [`settle`](Self::settle) has set the newest id back to an id above 0.
    pub fn has_trigger(&self) -> bool {
        self.triggered.is_some()
    }

    /// The trigger that waits for a second trigger near it; `None` if there is none.
    pub fn unconfirmed(&self) -> Option<SampleId> {
        self.unconfirmed
    }

    fn is_far_below(&self, sample: SampleId) -> bool {
        self.newest.is_some_and(|newest| sample < newest && !is_near(sample, newest))
    }
}

/// True if two ids are at most [`Trigger::MAX_STEP`] apart.
pub fn is_near(sample: SampleId, other: SampleId) -> bool {
    sample.0.abs_diff(other.0) <= Trigger::MAX_STEP
}

#[cfg(test)]
mod tests {
    use super::JudgedTrigger::{Believed, Below, Confirms, TooHigh, Unconfirmed};
    use super::*;

    const FAR: u64 = 1 << 40;

    #[track_caller]
    fn check(ids: &mut TriggeredIds, triggers: &[(u64, JudgedTrigger)]) {
        for &(sample, expected) in triggers {
            assert_eq!(ids.judge(SampleId(sample)), expected, "{sample}");
        }
    }

    fn after(sample: u64) -> TriggeredIds {
        let mut ids = TriggeredIds::default();
        check(&mut ids, &[(sample, Believed)]);
        ids
    }

    #[test]
    fn the_first_trigger_may_have_any_id_that_leaves_room_for_others() {
        for first in [0, FAR, Trigger::MAX_ID.0] {
            after(first);
        }
        check(
            &mut TriggeredIds::default(),
            &[(u64::MAX, TooHigh), (Trigger::MAX_ID.0 + 1, TooHigh), (1, Believed)],
        );
    }

    #[test]
    fn a_trigger_a_thousand_above_the_newest_is_believed_and_one_further_waits_for_a_second() {
        check(
            &mut after(5),
            &[(1005, Believed), (2006, Unconfirmed), (2007, Confirms(SampleId(2006))), (2008, Believed)],
        );
        check(
            &mut after(5),
            &[(FAR, Unconfirmed), (FAR - 1000, Confirms(SampleId(FAR))), (FAR, Below), (FAR + 1, Believed)],
        );
        check(
            &mut after(5),
            &[(FAR, Unconfirmed), (FAR, Unconfirmed), (FAR + 1001, Unconfirmed), (FAR, Unconfirmed)],
        );
    }

    #[test]
    fn one_wrong_trigger_does_not_move_the_newest_id() {
        let mut ids = after(5);
        check(&mut ids, &[(FAR, Unconfirmed), (6, Believed), (FAR + 1, Unconfirmed), (7, Believed)]);
        assert_eq!((ids.newest(), ids.unconfirmed()), (Some(SampleId(7)), None));
    }

    #[test]
    fn ids_that_do_not_rise_are_refused() {
        check(&mut after(FAR), &[(FAR, Below), (FAR - 1, Below), (5, Below), (6, Below)]);
    }

    #[test]
    fn an_id_that_answers_have_overtaken_is_believed_and_one_far_below_is_not() {
        let mut ids = after(5);
        ids.believe(SampleId(7));
        check(&mut ids, &[(6, Believed), (7, Believed), (6, Below)]);
        let mut after_restart = TriggeredIds::default();
        after_restart.believe(SampleId(5000));
        check(&mut after_restart, &[(3999, Below), (4000, Believed)]);
        ids.connected();
        check(&mut ids, &[(6, Believed)]);
    }

    #[test]
    fn the_account_of_the_leader_puts_a_reader_back_that_followed_a_wrong_trigger() {
        let mut ids = after(FAR);
        check(&mut ids, &[(5001, Below)]);
        ids.settle(SampleId(5000));
        check(&mut ids, &[(5001, Believed), (FAR, Unconfirmed)]);
        // A right trigger that the account does not have yet is not lost: the next trigger is near and confirms it.
        let mut ahead = after(FAR);
        ahead.settle(SampleId(FAR - 1001));
        check(&mut ahead, &[(FAR + 1, Confirms(SampleId(FAR)))]);
        let mut near = after(FAR);
        near.settle(SampleId(FAR - 1000));
        check(&mut near, &[(FAR + 1, Believed)]);
        // A new numbering begins with any id.
        let mut again = after(FAR);
        again.settle(SampleId(0));
        check(&mut again, &[(3000, Believed)]);
    }
}
