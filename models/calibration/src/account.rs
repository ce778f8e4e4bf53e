//! Counts of the exits at which the samples of a part leave under a policy, as in serving with `no_answer = "class_prior"`.

use headwater_inference::cascade::{Cascade, ExitAnswer};
use headwater_inference::cost::DeviceBody;
use headwater_inference::policy::{Confidence, Policy};
use headwater_protocol::Exit;
use headwater_samples::NO_CLASS;
use serde::Serialize;

use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::part_logits::{ExitCounts, ExitShares, PartLogits};

/// Counts of a part by exit. A sample without a view counts at the first exit with the answer of the class prior, whatever `no_answer` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartAccount {
    /// Samples that leave at each exit.
    pub exits: ByExit<ExitCount>,
    /// Samples without a view.
    pub no_view: usize,
    /// Number of views, over all samples.
    pub views: usize,
    /// Views of the samples that do not leave at the first exit.
    pub unsure_views: usize,
    /// Bytes of the coded maps of the unsure views; `None` if maps are not coded.
    pub unsure_map_bytes: Option<u64>,
}

/// Samples that leave at one exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCount {
    /// Samples.
    pub samples: usize,
    /// Right answers to the samples that leave at this exit.
    pub right: usize,
    /// Samples of nothing that leave at this exit; no answer to them is right.
    pub of_nothing: usize,
}

impl ExitCount {
    /// Share of right answers among the samples that show a class.
    fn accuracy(self) -> f64 {
        self.right as f64 / (self.samples - self.of_nothing).max(1) as f64
    }
}

/// Answer to each sample of a part under a policy, with the exit at which it leaves.
///
/// # Panics
/// When `logits` has fewer samples than `samples`.
pub fn answers(
    logits: &PartLogits,
    samples: &Samples,
    class_prior: &[f32],
    policy: &Policy,
) -> Vec<ExitAnswer> {
    let exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
    let cascade = Cascade { exits: &exits, policy, class_prior };
    let seen = samples.seen.iter().enumerate();
    seen.map(|(sample, seen)| cascade.answer(seen.len() as u32, |exit| logits.input(exit, sample, *seen)))
        .collect()
}

/// Answers to the samples of a part. A `claim_above` then decides which answers are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// Largest `claim_above` at which each answer is given: `INFINITY` for an answer that is always given, `NEG_INFINITY` for one that never is.
    pub up_to: Vec<f32>,
    /// True for each wrong answer; every answer to a sample of nothing is wrong.
    pub is_wrong: Vec<bool>,
}

/// Counts of the samples that get an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Samples that get an answer.
    pub answered: u64,
    /// Samples that get a wrong answer.
    pub wrong: u64,
}

impl Claims {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.up_to.len()
    }

    /// Returns true when there are no samples.
    pub fn is_empty(&self) -> bool {
        self.up_to.is_empty()
    }

    /// The answers under a policy; the `claim_above` of the policy is not read.
    ///
    /// # Panics
    /// When `logits` has fewer samples than `samples`.
    pub fn of(logits: &PartLogits, samples: &Samples, class_prior: &[f32], policy: &Policy) -> Self {
        let exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
        let cascade = Cascade { exits: &exits, policy, class_prior };
        let answers = answers(logits, samples, class_prior, policy);
        let with_seen = samples.seen.iter().zip(&answers);
        let up_to = with_seen.map(|(seen, answer)| cascade.claimed_up_to(seen.len() as u32, answer));
        let with_labels = samples.labels.iter().zip(&answers);
        let is_wrong = with_labels.map(|(label, answer)| answer.assessment.class != *label);
        Self { up_to: up_to.collect(), is_wrong: is_wrong.collect() }
    }

    /// Returns true when the answer to `sample` is given under `claim_above`.
    pub fn is_given(&self, sample: usize, claim_above: Confidence) -> bool {
        self.up_to[sample] >= claim_above.get()
    }

    /// Counts over `samples` under `claim_above`.
    pub fn given(&self, samples: impl Iterator<Item = usize>, claim_above: Confidence) -> Given {
        let mut given = Given::default();
        for sample in samples.filter(|sample| self.is_given(*sample, claim_above)) {
            given.answered += 1;
            given.wrong += u64::from(self.is_wrong[sample]);
        }
        given
    }
}

/// Answers that are given on a part, where a policy has a `claim_above` or the part has samples of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClaimFigures {
    /// Share of all samples that get an answer.
    pub answered: f64,
    /// Share of the answers given that are wrong; every answer to a sample of nothing is wrong.
    pub wrong: f64,
    /// Samples of nothing.
    pub of_nothing: usize,
    /// Share of the samples of nothing that get an answer.
    pub of_nothing_answered: f64,
}

impl ClaimFigures {
    /// The figures of a part; `None` for a policy that claims every answer, on a part without samples of nothing.
    ///
    /// # Panics
    /// When `logits` has fewer samples than `samples`.
    pub fn of(logits: &PartLogits, samples: &Samples, class_prior: &[f32], policy: &Policy) -> Option<Self> {
        let of_nothing = samples.of_nothing();
        if policy.claim_above.is_none() && of_nothing == 0 {
            return None;
        }
        let claim_above = policy.claim_above.unwrap_or(Confidence::NONE);
        let claims = Claims::of(logits, samples, class_prior, policy);
        let all = claims.given(0..samples.len(), claim_above);
        let nothing = (0..samples.len()).filter(|sample| samples.labels[*sample] == NO_CLASS);
        let nothing = claims.given(nothing, claim_above);
        let share = |part: u64, of: usize| part as f64 / of.max(1) as f64;
        Some(Self {
            answered: share(all.answered, samples.len()),
            wrong: share(all.wrong, all.answered as usize),
            of_nothing,
            of_nothing_answered: share(nothing.answered, of_nothing),
        })
    }
}

impl PartAccount {
    /// The account of a part under a policy.
    ///
    /// # Panics
    /// When `logits` has fewer samples than `samples`.
    pub fn of(logits: &PartLogits, samples: &Samples, class_prior: &[f32], policy: &Policy) -> Self {
        let first = logits.exits.iter().next().map(|(exit, _)| exit);
        let counts = logits.exits.map(|_, _| ExitCount::default());
        let coded = (!logits.map_bytes.is_empty()).then_some(0);
        let mut account = Self { exits: counts, unsure_map_bytes: coded, ..Self::default() };
        let answers = answers(logits, samples, class_prior, policy);
        let with_labels = samples.seen.iter().zip(&samples.labels);
        for (sample, ((seen, label), answer)) in with_labels.zip(answers).enumerate() {
            let present = seen.len();
            let count = account.exits.get_or_insert_with(answer.exit, ExitCount::default);
            count.samples += 1;
            count.right += usize::from(answer.assessment.class == *label);
            count.of_nothing += usize::from(*label == NO_CLASS);
            account.no_view += usize::from(present == 0);
            account.views += present;
            if Some(answer.exit) == first {
                continue;
            }
            account.unsure_views += present;
            if let Some(bytes) = &mut account.unsure_map_bytes {
                let maps = seen.iter().filter_map(|slot| logits.map_bytes.get(slot.index()));
                *bytes += maps.map(|maps| maps[sample] as u64).sum::<u64>();
            }
        }
        account
    }

    /// Right answers at all exits.
    pub fn right(&self) -> usize {
        self.exits.iter().map(|(_, count)| count.right).sum()
    }
}

/// Figures of a part of the data under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartReport {
    /// Number of samples. Samples of nothing are included; no accuracy counts them.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples with a class that the device sees.
    pub devices: Vec<f64>,
    /// Share of correct answers of each exit over all samples that show a class.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of correct answers if each sample leaves at the exit that the policy chooses; `claim_above` is not applied.
    pub overall: f64,
    /// Share of samples that leave at each exit; a sample without a view counts at the first exit.
    #[serde(flatten, with = "crate::by_exit::share")]
    pub share: ByExit<f64>,
    /// Share of correct answers among the samples with a class that leave at each exit; `claim_above` is not applied.
    #[serde(flatten, with = "crate::by_exit::accuracy")]
    pub accuracy: ByExit<f64>,
    /// Samples without a view, which the class prior answers.
    pub no_view: usize,
    /// Mean body bytes per device and sample, over slots with a view.
    pub body_bytes: f64,
    /// Answers that are given; `None` for a policy that claims every answer, on a part without samples of nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimFigures>,
    /// True when the policy has a `claim_above`.
    #[serde(skip)]
    pub has_claim_above: bool,
}

impl PartReport {
    /// The figures of a part under `policy`.
    pub fn of(
        logits: &PartLogits,
        samples: &Samples,
        class_prior: &[f32],
        policy: &Policy,
        body: DeviceBody,
    ) -> Self {
        let account = PartAccount::of(logits, samples, class_prior, policy);
        let ExitShares { devices, exits: every } = ExitCounts::of(logits, samples, class_prior).shares();
        let count = samples.len();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        Self {
            samples: count,
            devices,
            every,
            overall: share(account.right(), count - samples.of_nothing()),
            share: account.exits.map(|_, left| share(left.samples, count)),
            accuracy: account.exits.map(|_, left| left.accuracy()),
            no_view: account.no_view,
            body_bytes: match account.unsure_map_bytes {
                None => body.mean(account.views, account.unsure_views),
                Some(bytes) => body.mean_of_coded(account.views, account.unsure_views, bytes as f64),
            },
            claims: ClaimFigures::of(logits, samples, class_prior, policy),
            has_claim_above: policy.claim_above.is_some(),
        }
    }
}
