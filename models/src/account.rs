//! The account of a part under a policy: at which exit each sample leaves, and how many are right there.

use headwater_inference::cascade::Cascade;
use headwater_inference::policy::Policy;
use headwater_protocol::Exit;

use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::evaluation::PartLogits;

/// Counts of a part by exit, as in serving: a sample without a view leaves at the first exit with the class prior.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartAccount {
    /// Samples that leave at each exit.
    pub exits: ByExit<ExitCount>,
    /// Samples without a view.
    pub no_view: usize,
    /// Views of all samples.
    pub views: usize,
    /// Views of the samples that do not leave at the first exit.
    pub unsure_views: usize,
}

/// Samples that leave at one exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitCount {
    /// Samples.
    pub samples: usize,
    /// Right answers.
    pub right: usize,
}

impl PartAccount {
    /// The account of a part under a policy.
    ///
    /// # Panics
    /// When `logits` belong to another part.
    pub fn of(logits: &PartLogits, samples: &Samples, class_prior: &[f32], policy: &Policy) -> Self {
        let exits: Vec<Exit> = logits.exits.iter().map(|(exit, _)| exit).collect();
        let cascade = Cascade { exits: &exits, policy, class_prior };
        let counts = logits.exits.map(|_, _| ExitCount::default());
        let mut account = Self { exits: counts, ..Self::default() };
        for (sample, (seen, label)) in samples.seen.iter().zip(&samples.labels).enumerate() {
            let present = seen.len();
            let answer = cascade.answer(present as u32, |exit| logits.of(exit, sample));
            let count = account.exits.slot(answer.exit).get_or_insert_default();
            count.samples += 1;
            count.right += usize::from(answer.assessment.class == *label);
            account.no_view += usize::from(present == 0);
            account.views += present;
            account.unsure_views += if answer.exit == exits[0] { 0 } else { present };
        }
        account
    }

    /// Right answers at all exits.
    pub fn right(&self) -> usize {
        self.exits.iter().map(|(_, count)| count.right).sum()
    }
}
