//! Figures of a part of the data under a policy.

use headwater_inference::cost::DeviceBody;
use headwater_inference::policy::Policy;
use serde::{Deserialize, Serialize};

use crate::account::PartAccount;
use crate::by_exit::ByExit;
use crate::data::Samples;
use crate::evaluation::{ExitShares, PartLogits};

/// Figures of a part of the data under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// Samples.
    pub samples: usize,
    /// Share of correct answers of each device alone, over the samples seen.
    pub devices: Vec<f64>,
    /// Share of correct answers of each exit over all samples.
    #[serde(flatten, with = "crate::by_exit::plain")]
    pub every: ByExit<f64>,
    /// Share of correct answers when each sample leaves where the policy decides.
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
            body_bytes: body.mean(account.views, account.unsure_views),
        }
    }
}
