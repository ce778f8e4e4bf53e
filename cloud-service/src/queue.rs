//! Queue of a model: permits, a bounded channel, and the wait for an answer.

use std::sync::Arc;

use headwater_protocol::Fault;
use headwater_protocol::v2::FeatureBatch;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::refusal::Refusal;

/// Sending end of a queue; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ModelQueue {
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<Entry>,
}

/// One request for the model.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) batch: FeatureBatch,
    pub(crate) queued: Instant,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Vec<f32>, Fault>>,
    /// Bounds the queue: the permit is free once the model has finished with the entry, even when the caller left before.
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl ModelQueue {
    /// A queue of at most `max_requests` entries, and its receiving end.
    pub(crate) fn new(max_requests: usize) -> (Self, mpsc::Receiver<Entry>) {
        let (sender, receiver) = mpsc::channel(max_requests);
        (Self { permits: Arc::new(Semaphore::new(max_requests)), sender }, receiver)
    }

    /// Logits `[n, classes]` of a batch, or the refusal; ends at `deadline` at the latest.
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
    Refusal::new(Fault::Overloaded, "the limit of requests at one time is reached: try again later")
}
