//! How the model threads are, one for each network that is held.

use std::future::pending;

use tokio::sync::watch;

use crate::held::Held;

/// How one model thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Loading its section.
    Loading,
    /// Answers.
    Ready,
    /// Ended after the last request, as asked.
    Stopped,
    /// Could not load, or panicked; only a new process helps.
    Failed(String),
}

/// How all of them are.
pub(crate) type Healths = Held<watch::Receiver<Health>>;

impl Healths {
    /// Every one answers.
    pub(crate) fn is_ready(&self) -> bool {
        self.each().all(|(_, health)| *health.borrow() == Health::Ready)
    }

    /// None has failed.
    pub(crate) fn is_live(&self) -> bool {
        !self.each().any(|(_, health)| matches!(*health.borrow(), Health::Failed(_)))
    }

    /// Ends when every one has ended, however it did.
    pub(crate) async fn ended(&self) {
        for (_, health) in self.each() {
            // A sender that is gone has ended too.
            let _ =
                health.clone().wait_for(|health| matches!(health, Health::Stopped | Health::Failed(_))).await;
        }
    }

    /// Ends when one of them has failed; says which, and why.
    pub(crate) async fn failed(&self) -> String {
        let next = async {
            match &self.next {
                Some(health) => failure(health.clone()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            reason = failure(self.current.clone()) => reason,
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
