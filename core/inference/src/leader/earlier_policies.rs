//! Earlier policies of a network, for as long as a sample needs them.

use headwater_protocol::PolicyId;

use super::LeaderConfig;
use crate::policy::Policy;

/// Policies that were replaced while samples under them were open, or their decisions could be revised.
#[derive(Default)]
pub(super) struct EarlierPolicies(pub(super) Vec<(Policy, PolicyId)>);

impl EarlierPolicies {
    /// The policy of this id: the present one of `config`, or an earlier one.
    pub(super) fn find<'a>(&'a self, config: &'a LeaderConfig, id: PolicyId) -> &'a Policy {
        let earlier = || self.0.iter().find(|(_, earlier)| *earlier == id).map(|(policy, _)| policy);
        if config.policy_id == id { &config.policy } else { earlier().unwrap_or(&config.policy) }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
