//! The cascade: at which exit a sample leaves, and with which answer.
//!
//! ```text
//! first exit --sure--> leaves      no view at all: the class prior answers at the first exit
//!     | unsure
//! next exit  --sure--> leaves
//!     | unsure
//! last exit  --------> leaves, whatever its confidence; undecided if its confidence is below `claim_above` of the policy
//! ```
//!
//! Evaluation and [`Whole`](crate::whole::Whole) decide here. The leader takes the same steps one message at a time; tests
//! check that both agree.

use headwater_protocol::Exit;
use serde::{Deserialize, Serialize};

use crate::exit::{Assessment, ExitInput};
use crate::policy::{ExitRule, NoAnswer, Policy};

/// The exits of a network under a policy.
#[derive(Clone, Copy, Debug)]
pub struct Cascade<'a> {
    /// Exits, shallowest first.
    pub exits: &'a [Exit],
    /// Rule, temperature and threshold of each exit.
    pub policy: &'a Policy,
    /// Share of each class in training; the most frequent class answers a sample without a view.
    pub class_prior: &'a [f32],
}

/// The exit at which a sample leaves, and the answer there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitAnswer {
    /// Exit at which the sample leaves.
    pub exit: Exit,
    /// Class and confidence at that exit.
    pub assessment: Assessment,
}

impl Cascade<'_> {
    /// The answer to a sample with views in `present` slots. `input` gives the [`ExitInput`] of an exit.
    ///
    /// # Panics
    /// When the network has no exit.
    pub fn answer<'l>(&self, present: u32, input: impl Fn(Exit) -> ExitInput<'l>) -> ExitAnswer {
        let (&last, in_front) = self.exits.split_last().expect("a network has a last exit");
        if present == 0 {
            let exit = in_front.first().copied().unwrap_or(last);
            return ExitAnswer { exit, assessment: Assessment::of_prior(self.class_prior) };
        }
        let answer = |exit| ExitAnswer { exit, assessment: self.policy.of(exit).assess(input(exit)) };
        let mut in_front = in_front.iter().copied().map(answer);
        in_front.find(|answer| answer.assessment.leaves).unwrap_or_else(|| answer(last))
    }

    /// Largest `claim_above` at which the answer to a sample with views in `present` slots is claimed: `INFINITY` if it is always claimed,
    /// `NEG_INFINITY` if never. [`Policy::no_answer`] says whether the answer to a sample without a view is claimed.
    pub fn claimed_up_to(&self, present: u32, answer: &ExitAnswer) -> f32 {
        let is_last = self.exits.last() == Some(&answer.exit);
        match (present, self.policy.no_answer) {
            (0, NoAnswer::ClassPrior) => f32::INFINITY,
            (0, NoAnswer::Undecided) => f32::NEG_INFINITY,
            (_, _) if is_last && self.policy.of(answer.exit).rule == ExitRule::Learned => 0.0,
            (_, _) if is_last => answer.assessment.confidence,
            (_, _) => f32::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ExitThreshold, Threshold};

    const PRIOR: [f32; 2] = [0.3, 0.7];

    #[track_caller]
    fn check(thresholds: [f32; 2], logits: [[f32; 2]; 3], present: u32, expected: (Exit, u16)) {
        let mut policy = Policy::default();
        for (exit, threshold) in [Exit::LOCAL, Exit::EDGE].into_iter().zip(thresholds) {
            policy.of_mut(exit).threshold = Threshold::One(ExitThreshold::new(threshold).unwrap());
        }
        let exits = [Exit::LOCAL, Exit::EDGE, Exit::CLOUD];
        let at = |exit| {
            let logits = &logits[exits.iter().position(|other| *other == exit).unwrap()];
            ExitInput::new(logits, present, [])
        };
        let found = Cascade { exits: &exits, policy: &policy, class_prior: &PRIOR }.answer(present, at);
        assert_eq!((found.exit, found.assessment.class), expected);
    }

    const SURE: [f32; 2] = [9.0, 0.0];
    const UNSURE: [f32; 2] = [0.1, 0.0];

    #[test]
    fn a_sample_leaves_at_the_first_exit_that_is_sure() {
        check([0.5, 0.5], [SURE, SURE, SURE], 1, (Exit::LOCAL, 0));
        check([0.5, 0.5], [UNSURE, SURE, SURE], 1, (Exit::EDGE, 0));
    }

    #[test]
    fn the_last_exit_takes_an_unsure_sample_whatever_its_threshold() {
        check([0.5, 0.5], [UNSURE, UNSURE, [0.0, 0.1]], 1, (Exit::CLOUD, 1));
        check([1.0, 1.0], [[f32::NAN, 0.0], [0.0, f32::NAN], [f32::NAN, -1.0]], 1, (Exit::CLOUD, 1));
    }

    #[test]
    fn an_answer_of_the_last_exit_is_claimed_up_to_its_confidence_and_a_sure_one_always() {
        let at = |policy: &Policy, present, exit, confidence| {
            let assessment = Assessment { class: 0, confidence, leaves: true };
            let exits = [Exit::LOCAL, Exit::CLOUD];
            let cascade = Cascade { exits: &exits, policy, class_prior: &PRIOR };
            cascade.claimed_up_to(present, &ExitAnswer { exit, assessment })
        };
        let policy = Policy::default();
        assert_eq!(at(&policy, 1, Exit::CLOUD, 0.25), 0.25);
        assert_eq!(at(&policy, 1, Exit::LOCAL, 0.25), f32::INFINITY);
        assert_eq!(at(&policy, 0, Exit::LOCAL, 0.0), f32::NEG_INFINITY);
        let prior = Policy { no_answer: NoAnswer::ClassPrior, ..policy };
        assert_eq!(at(&prior, 0, Exit::LOCAL, 0.0), f32::INFINITY);
    }

    #[test]
    fn a_sample_without_a_view_leaves_at_the_first_exit_with_the_class_prior() {
        check([0.0, 0.0], [UNSURE, UNSURE, UNSURE], 0, (Exit::LOCAL, 1));
    }
}
