//! Health of the model threads, one for each network.

use std::future::pending;

use headwater_inference::bundle::PerNetwork;
use headwater_telemetry::{Liveness, WorkLoops};
use tokio::sync::watch;

/// Health of one model thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The thread loads its section.
    Loading,
    /// The thread answers.
    Ready,
    /// The thread ended after the last request, as asked.
    Stopped,
    /// The section did not load, or the thread panicked; only a new process helps.
    Failed(String),
}

/// Health of the service: the health of all model threads, and a flag that turns true when the service stops.
#[derive(Clone, Debug)]
pub(crate) struct Healths {
    pub(crate) threads: PerNetwork<watch::Receiver<Health>>,
    pub(crate) is_stopping: watch::Receiver<bool>,
    pub(crate) work_loops: WorkLoops,
}

impl Healths {
    /// True if every thread has loaded its section, has not ended and does not hang, and the service is not stopping.
    pub(crate) fn is_ready(&self) -> bool {
        self.unready_reason().is_none()
    }

    /// True if no thread has failed, and none hangs.
    pub(crate) fn is_live(&self) -> bool {
        self.liveness() == Liveness::Live
    }

    fn has_failed(&self) -> bool {
        self.threads.iter().any(|(_, health)| matches!(*health.borrow(), Health::Failed(_)))
    }

    /// Liveness of the service, with the reason if a model has failed or hangs.
    pub(crate) fn liveness(&self) -> Liveness {
        match self.work_loops.hanging() {
            _ if self.has_failed() => Liveness::Failed("a model has failed; the log has the reason".into()),
            Some(hanging) => Liveness::Failed(hanging),
            None => Liveness::Live,
        }
    }

    /// Reason why the service is not ready; `None` while it is ready. A service that is stopping is not ready, and still answers requests.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        if *self.is_stopping.borrow() {
            return Some("the service stops".into());
        }
        let is_waiting = |health: &Health| *health != Health::Ready;
        let waiting = self.threads.iter().find(|(_, health)| is_waiting(&health.borrow()));
        waiting
            .map(|(generation, _)| format!("the model of the {} network does not answer", generation.name()))
            .or_else(|| self.work_loops.hanging())
    }

    /// Waits until every section is loaded.
    ///
    /// # Errors
    /// The reason why a section does not load; for a section of the next network, the reason says so.
    pub(crate) async fn loaded(&self) -> Result<(), String> {
        self.all_are(|health| *health != Health::Loading).await;
        if self.has_failed() { Err(self.failed().await) } else { Ok(()) }
    }

    /// Waits until every thread has ended, by stop or failure.
    pub(crate) async fn ended(&self) {
        self.all_are(|health| matches!(health, Health::Stopped | Health::Failed(_))).await;
    }

    async fn all_are(&self, is_reached: fn(&Health) -> bool) {
        for (_, health) in self.threads.iter() {
            // An error means that the channel is closed, since the thread has ended.
            let _ = health.clone().wait_for(is_reached).await;
        }
    }

    /// Waits until a thread has failed; returns the reason, which names the next network if its thread has failed.
    pub(crate) async fn failed(&self) -> String {
        let next = async {
            match &self.threads.next {
                Some(health) => failure(health.clone()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            reason = failure(self.threads.current.clone()) => reason,
            reason = next => format!("the next network: {reason}"),
        }
    }
}

async fn failure(mut health: watch::Receiver<Health>) -> String {
    if let Ok(health) = health.wait_for(|health| matches!(health, Health::Failed(_))).await
        && let Health::Failed(reason) = &*health
    {
        return reason.clone();
    }
    pending().await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_service_whose_model_hangs_is_not_ready() {
        let (_thread, health) = watch::channel(Health::Ready);
        let (_service, is_stopping) = watch::channel(false);
        let work_loops = WorkLoops::with_limit(Duration::ZERO);
        let model = work_loops.add("model");
        let threads = PerNetwork { current: health, next: None };
        let healths = Healths { threads, is_stopping, work_loops };
        assert!(healths.is_ready());
        model.begin_round();
        std::thread::sleep(Duration::from_millis(2));
        let reason = healths.unready_reason().unwrap();
        assert!(reason.starts_with("model has not come to the end") && !healths.is_live(), "{reason}");
        model.end_round();
        assert!(healths.is_ready());
    }
}
