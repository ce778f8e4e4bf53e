//! Waits of a client for events of its group. Each returns when the event has come, and fails after the client's `wait_limit`.

use std::collections::BTreeMap;

use headwater_group::{GroupClient, GroupError};
use headwater_protocol::{Decision, SampleId, Settled, SlotSet};

/// Waits of a client for decisions, for the leader's account, and for the leader and devices to be up.
#[expect(async_fn_in_trait, reason = "the tests await every future on the task that made the future")]
pub trait Waits {
    /// The client that waits.
    fn client(&mut self) -> &mut GroupClient;

    /// Triggers one sample and waits for its decision.
    ///
    /// # Errors
    /// As [`GroupClient::wait_for`].
    async fn decide(&mut self, sample: SampleId) -> Result<Decision, GroupError> {
        self.client().trigger(sample).await?;
        let expected = format!("the decision of sample {sample}");
        self.client().wait_for(&expected, |client| client.account().decision(sample).cloned()).await
    }

    /// Waits until each of the samples has a decision, and returns the decisions.
    ///
    /// # Errors
    /// As [`GroupClient::wait_for`].
    async fn wait_for_decisions(
        &mut self,
        samples: &[SampleId],
    ) -> Result<BTreeMap<SampleId, Decision>, GroupError> {
        let expected = format!("decisions of samples {samples:?}");
        let decided = |client: &GroupClient| -> Option<BTreeMap<SampleId, Decision>> {
            let decision = |sample: &SampleId| Some((*sample, client.account().decision(*sample)?.clone()));
            samples.iter().map(decision).collect()
        };
        self.client().wait_for(&expected, decided).await
    }

    /// Waits until the leader's account fulfils a condition, and returns the account.
    ///
    /// # Errors
    /// As [`GroupClient::wait_for`].
    async fn wait_for_settled(
        &mut self,
        is_reached: impl Fn(&Settled) -> bool,
    ) -> Result<Settled, GroupError> {
        let reached = |client: &GroupClient| {
            Some(&client.account().settled).filter(|settled| is_reached(settled)).cloned()
        };
        self.client().wait_for("an account of the leader", reached).await
    }

    /// Waits until a leader takes triggers, and a device is up in each of the slots.
    ///
    /// # Errors
    /// As [`GroupClient::wait_for`].
    async fn wait_for_members(&mut self, slots: SlotSet) -> Result<(), GroupError> {
        let are_up = |client: &GroupClient| {
            (client.has_account() && slots.is_subset(client.devices.slots_up())).then_some(())
        };
        self.client().wait_for(&format!("a leader, and devices in the slots {slots:?}"), are_up).await
    }
}

impl Waits for GroupClient {
    fn client(&mut self) -> &mut GroupClient {
        self
    }
}
