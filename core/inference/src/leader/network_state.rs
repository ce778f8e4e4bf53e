//! The part of a network that events and commands change.

use headwater_protocol::{EdgeSet, NetworkId, PolicyId};
use serde::{Deserialize, Serialize};

use super::LeaderConfig;
use super::devices::Devices;
use crate::policy::Policy;

/// The policy of one network, and the devices and edges that run it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct NetworkState {
    pub(super) network: NetworkId,
    pub(super) policy: Policy,
    pub(super) policy_id: PolicyId,
    /// Policies that were replaced while samples under them were open, or decisions under them could be revised.
    pub(super) earlier_policies: Vec<(Policy, PolicyId)>,
    pub(super) devices: Devices,
    pub(super) edges_up: EdgeSet,
}

impl NetworkState {
    pub(super) fn new(config: &LeaderConfig) -> Self {
        Self {
            network: config.network,
            policy: config.policy.clone(),
            policy_id: config.policy_id,
            earlier_policies: Vec::new(),
            devices: Devices::new(),
            edges_up: EdgeSet::EMPTY,
        }
    }

    /// The policy of this id: the present or an earlier policy; the present one if the id is unknown.
    pub(super) fn policy(&self, id: PolicyId) -> &Policy {
        let earlier = || self.earlier_policies.iter().find(|(_, earlier)| *earlier == id);
        if id == self.policy_id { &self.policy } else { earlier().map_or(&self.policy, |(policy, _)| policy) }
    }
}
