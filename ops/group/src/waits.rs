//! Functions by which the group client waits for an event. Each fails after the client's `wait_limit`.

use std::time::Duration;

use headwater_protocol::{Decision, SampleId};
use tokio::time::{Instant, timeout_at};

use crate::client::GroupClient;
use crate::error::GroupError;

/// Time between two triggers of [`GroupClient::wait_for_complete_decision`].
const ATTEMPT_PERIOD: Duration = Duration::from_millis(250);

impl GroupClient {
    /// Triggers new samples with ids from `first` on, until one of them is decided with every view and without degradation. Then all
    /// services have found each other. Returns the highest id that was triggered.
    ///
    /// # Errors
    /// [`GroupError::TimedOut`] after the limit, [`GroupError::Link`] while there is no connection; the errors of [`GroupClient::next`].
    pub async fn wait_for_complete_decision(&mut self, first: SampleId) -> Result<SampleId, GroupError> {
        let until = Instant::now() + self.wait_limit;
        let mut sample = first;
        while Instant::now() < until {
            self.trigger(sample).await?;
            let next_attempt = Instant::now() + ATTEMPT_PERIOD;
            while let Ok(event) = timeout_at(next_attempt, self.next()).await {
                event?;
                let mut attempts =
                    (first.0..=sample.0).filter_map(|id| self.account().decision(SampleId(id)));
                if attempts.any(is_complete) {
                    return Ok(sample);
                }
            }
            sample = SampleId(sample.0 + 1);
        }
        Err(self.timed_out("a complete decision"))
    }

    /// Waits until `reached` returns a value; `expected` names the awaited value in the error.
    ///
    /// # Errors
    /// [`GroupError::TimedOut`] after the limit; the errors of [`GroupClient::next`].
    pub async fn wait_for<T>(
        &mut self,
        expected: &str,
        reached: impl Fn(&Self) -> Option<T>,
    ) -> Result<T, GroupError> {
        let until = Instant::now() + self.wait_limit;
        loop {
            if let Some(value) = reached(self) {
                return Ok(value);
            }
            match timeout_at(until, self.next()).await {
                Ok(event) => _ = event?,
                Err(_) => return Err(self.timed_out(expected)),
            }
        }
    }

    fn timed_out(&self, expected: &str) -> GroupError {
        let (account, up) = (self.account(), self.devices.slots_up());
        let (decided, triggered) = (account.decided_count, account.triggered_count);
        let settled = &account.settled;
        let found = format!("{decided} of {triggered} samples decided, slots {up:?} up, {settled:?}");
        GroupError::TimedOut { expected: expected.into(), found, limit: self.wait_limit }
    }
}

fn is_complete(decision: &Decision) -> bool {
    decision.presence.missing_count() == 0 && decision.degraded.is_empty()
}
