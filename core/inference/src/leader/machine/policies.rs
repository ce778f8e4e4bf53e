//! A change of policy.

use headwater_protocol::PolicyId;

use super::Leader;
use crate::bundle::Generation;
use crate::policy::Policy;

impl Leader {
    /// Replaces the policy of the current network. Samples opened from now on are decided under it. Open samples, and revisions of
    /// decided ones, keep the policy under which the sample was opened.
    pub fn set_policy(&mut self, policy: Policy, id: PolicyId) {
        let network = &mut self.networks.current;
        if network.config.policy_id == id {
            return;
        }
        let (config, earlier) = (&mut network.config, &mut network.earlier_policies.0);
        let replaced = std::mem::replace(&mut config.policy, policy);
        earlier.retain(|(_, earlier)| *earlier != id);
        earlier.push((replaced, std::mem::replace(&mut config.policy_id, id)));
        let of_open = self.open.values().filter(|open| open.generation == Generation::Current);
        let mut needed: Vec<_> = of_open.map(|open| open.policy).collect();
        needed.extend(self.closed.revisable().map(|decision| decision.policy));
        earlier.retain(|(_, earlier)| needed.contains(earlier));
    }

    /// Id of the present policy of the current network.
    pub fn policy_id(&self) -> PolicyId {
        self.networks.current.config.policy_id
    }
}
