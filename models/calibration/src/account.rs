//! Counts of the exits at which the samples of a part leave under a policy, as in serving with `no_answer = "class_prior"`.

use headwater_inference::cascade::{Cascade, ExitAnswer};
use headwater_inference::cost::DeviceBody;
use headwater_inference::policy::Policy;
use headwater_protocol::Exit;
use serde::Serialize;

use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::part_logits::{ExitShares, PartLogits};

/// Counts of a part by exit: a sample without a view leaves at the first exit with the class prior, whatever `no_answer` says.
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
}

/// Answer to each sample of a part under a policy, with the exit at which it leaves.
///
/// # Panics
/// When `logits` belong to another part.
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

impl PartAccount {
    /// The account of a part under a policy.
    ///
    /// # Panics
    /// When `logits` belong to another part.
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
    /// Samples.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples that the device sees.
    pub devices: Vec<f64>,
    /// Share of correct answers of each exit over all samples.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of correct answers if each sample leaves at the exit that the policy chooses.
    pub overall: f64,
    /// Share of samples that leave at each exit; a sample without a view counts at the first exit.
    #[serde(flatten, with = "crate::by_exit::share")]
    pub share: ByExit<f64>,
    /// Share of correct answers among the samples that leave at each exit.
    #[serde(flatten, with = "crate::by_exit::accuracy")]
    pub accuracy: ByExit<f64>,
    /// Samples without a view, which the class prior answers.
    pub no_view: usize,
    /// Mean body bytes per device and sample, over slots with a view.
    pub body_bytes: f64,
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
        let ExitShares { devices, exits: every } = ExitShares::of(logits, samples, class_prior);
        let count = samples.len();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        Self {
            samples: count,
            devices,
            every,
            overall: share(account.right(), count),
            share: account.exits.map(|_, left| share(left.samples, count)),
            accuracy: account.exits.map(|_, left| share(left.right, left.samples)),
            no_view: account.no_view,
            body_bytes: match account.unsure_map_bytes {
                None => body.mean(account.views, account.unsure_views),
                Some(bytes) => body.mean_of_coded(account.views, account.unsure_views, bytes as f64),
            },
        }
    }
}
