//! A change of policy.

use headwater_protocol::PolicyId;

use super::Leader;
use crate::bundle::Generation;
use crate::policy::Policy;

impl Leader {
    /// Replaces the policy of the current network. Samples opened from now on are decided under the new policy. Open samples, and
    /// revisions of decided samples, keep the policy under which the sample was opened.
    pub fn set_policy(&mut self, policy: Policy, id: PolicyId) {
        let network = &mut self.state.networks.current;
        if network.policy_id == id {
            return;
        }
        let earlier = &mut network.earlier_policies;
        let replaced = std::mem::replace(&mut network.policy, policy);
        earlier.retain(|(_, earlier)| *earlier != id);
        earlier.push((replaced, std::mem::replace(&mut network.policy_id, id)));
        let of_open = self.state.open.values().filter(|open| open.generation == Generation::Current);
        let mut needed: Vec<_> = of_open.map(|open| open.policy).collect();
        needed.extend(self.state.closed.revisable().map(|revisable| revisable.decision.policy));
        earlier.retain(|(_, earlier)| needed.contains(earlier));
    }

    /// Id of the present policy of the current network.
    pub fn policy_id(&self) -> PolicyId {
        self.state.networks.current.policy_id
    }
}
