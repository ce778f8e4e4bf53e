//! The door to the model: permits, the bounded queue behind them, and the wait for an answer.

use std::sync::Arc;

use headwater_protocol::Fault;
use headwater_protocol::v2::FeatureBatch;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::refusal::Refusal;

/// The handlers' end of the queue; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ModelQueue {
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<Entry>,
}

/// One request on its way to the model.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) batch: FeatureBatch,
    pub(crate) queued: Instant,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Vec<f32>, Fault>>,
    /// Held until the model is done with the entry, not until the caller has left: it bounds the queue.
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl ModelQueue {
    /// A queue of at most `most_requests` entries, and its other end.
    pub(crate) fn new(most_requests: usize) -> (Self, mpsc::Receiver<Entry>) {
        let (sender, receiver) = mpsc::channel(most_requests);
        (Self { permits: Arc::new(Semaphore::new(most_requests)), sender }, receiver)
    }

    /// Logits `[n, classes]` of a batch, or why there are none. Ends at `deadline` whatever the model does.
    pub(crate) async fn ask(&self, batch: FeatureBatch, deadline: Instant) -> Result<Vec<f32>, Refusal> {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return Err(overloaded()) };
        let (reply, answer) = oneshot::channel();
        let entry = Entry { batch, queued: Instant::now(), deadline, reply, _permit: permit };
        self.sender.try_send(entry).map_err(|error| match error {
            TrySendError::Full(_) => overloaded(),
            TrySendError::Closed(_) => Refusal::internal(),
        })?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(logits))) => Ok(logits),
            Ok(Ok(Err(Fault::DeadlineExceeded))) | Err(_) => Err(too_late()),
            // The model thread dropped the entry: it panicked.
            Ok(Ok(Err(_)) | Err(_)) => Err(Refusal::internal()),
        }
    }
}

pub(crate) fn too_late() -> Refusal {
    Refusal::new(Fault::DeadlineExceeded, "the deadline passed before the answer was ready")
}

fn overloaded() -> Refusal {
    Refusal::new(Fault::Overloaded, "as many requests as are allowed are in work: come again")
}
