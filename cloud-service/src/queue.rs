//! Queue of a model: permits, a bounded channel, the wait for an answer, and batching.
//!
//! A run takes every waiting request, up to a limit of samples. No request waits for a full batch.

use std::sync::Arc;

use headwater_protocol::Fault;
use headwater_protocol::v2::FeatureBatch;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::metrics::ModelCounts;
use crate::refusal::Refusal;

/// Sending end of a queue.
#[derive(Debug)]
pub(crate) struct ModelQueue {
    permits: Arc<Semaphore>,
    sender: mpsc::Sender<Entry>,
    max_requests: usize,
}

/// One request for the model.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) batch: FeatureBatch,
    pub(crate) queued: Instant,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Result<Vec<f32>, Fault>>,
    /// Bounds the queue: the permit is held until the model has finished with the entry, even if the caller leaves before.
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl ModelQueue {
    /// A queue of at most `max_requests` entries, and its receiving end.
    pub(crate) fn new(max_requests: usize, max_batch: usize) -> (Self, Batcher) {
        let (sender, queue) = mpsc::channel(max_requests);
        let permits = Arc::new(Semaphore::new(max_requests));
        (Self { permits, sender, max_requests }, Batcher { queue, max_batch, carried: None })
    }

    /// Number of requests that wait or run now.
    pub(crate) fn waiting(&self) -> usize {
        self.max_requests.saturating_sub(self.permits.available_permits())
    }

    /// Largest number of requests that wait or run at one time.
    pub(crate) fn max_requests(&self) -> usize {
        self.max_requests
    }

    /// Logits `[n, classes]` of a batch, or the refusal; returns at `deadline` at the latest.
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
            Ok(Ok(Err(Fault::DeadlineExceeded))) | Err(_) => {
                let reason = "the deadline passed before the answer was ready";
                Err(Refusal::new(Fault::DeadlineExceeded, reason))
            }
            // The model failed on the request, or the model thread panicked and dropped the entry.
            Ok(Ok(Err(_)) | Err(_)) => Err(Refusal::internal()),
        }
    }
}

fn overloaded() -> Refusal {
    Refusal::new(Fault::Overloaded, "the limit of requests at one time is reached: try again later")
}

/// Receiving end of a queue.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: mpsc::Receiver<Entry>,
    max_batch: usize,
    /// Entry that was too large for the rest of the last run; it is the first entry of the next run.
    carried: Option<Entry>,
}

impl Batcher {
    /// Waits for entries and fills `entries` with one run of at most `max_batch` samples. An entry with more samples runs alone. `entries`
    /// stays empty once the queue is closed and has no entries left.
    pub(crate) fn next_run(&mut self, counts: &Mutex<ModelCounts>, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut samples = 0;
        loop {
            let next = match self.carried.take() {
                Some(entry) => Some(entry),
                None if entries.is_empty() => self.queue.blocking_recv(),
                None => self.queue.try_recv().ok(),
            };
            let Some(entry) = next else { return };
            let Some(entry) = not_expired(entry, Instant::now(), counts) else { continue };
            if samples > 0 && samples + entry.batch.samples > self.max_batch {
                self.carried = Some(entry);
                return;
            }
            samples += entry.batch.samples;
            entries.push(entry);
            if samples >= self.max_batch {
                return;
            }
        }
    }
}

/// The entry, unless its deadline has passed or its caller has left; such entries are counted as skipped.
fn not_expired(entry: Entry, now: Instant, counts: &Mutex<ModelCounts>) -> Option<Entry> {
    if now >= entry.deadline {
        counts.lock().count_skipped("deadline");
        // Sending fails if the caller has left: there is nothing to do then.
        let _ = entry.reply.send(Err(Fault::DeadlineExceeded));
        return None;
    }
    if entry.reply.is_closed() {
        counts.lock().count_skipped("caller_gone");
        return None;
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use headwater_protocol::v2::FeatureBatch;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    struct Queue {
        sender: mpsc::Sender<Entry>,
        permits: Arc<Semaphore>,
        batcher: Batcher,
        counts: Mutex<ModelCounts>,
    }

    impl Queue {
        fn new(max_batch: usize) -> Self {
            let (sender, queue) = mpsc::channel(16);
            let batcher = Batcher { queue, max_batch, carried: None };
            Self { sender, permits: Arc::new(Semaphore::new(16)), batcher, counts: Mutex::default() }
        }

        fn push(&self, samples: usize, left: Duration) -> oneshot::Receiver<Result<Vec<f32>, Fault>> {
            let (reply, answer) = oneshot::channel();
            let batch = FeatureBatch { samples, features: vec![0; samples], presence: vec![true; samples] };
            let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
            let now = Instant::now();
            let entry = Entry { batch, queued: now, deadline: now + left, reply, _permit: permit };
            self.sender.try_send(entry).unwrap();
            answer
        }

        fn next_run(&mut self) -> Vec<usize> {
            let mut entries = Vec::new();
            self.batcher.next_run(&self.counts, &mut entries);
            entries.iter().map(|entry| entry.batch.samples).collect()
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_run_takes_every_waiting_entry_up_to_the_limit() {
        let mut queue = Queue::new(4);
        let _callers: Vec<_> = [1, 2, 2, 9, 1].map(|samples| queue.push(samples, LONG)).into();
        assert_eq!(queue.next_run(), [1, 2]);
        assert_eq!(queue.next_run(), [2]);
        assert_eq!(queue.next_run(), [9], "larger than the limit: alone");
        assert_eq!(queue.next_run(), [1]);
    }

    #[test]
    fn an_entry_whose_caller_has_left_is_skipped_and_counted() {
        let mut queue = Queue::new(4);
        drop(queue.push(1, LONG));
        let _caller = queue.push(2, LONG);
        assert_eq!(queue.next_run(), [2]);
        assert_eq!(queue.counts.lock().skipped("caller_gone"), 1);
        assert_eq!(queue.permits.available_permits(), 16, "every permit is free");
    }

    #[test]
    fn a_closed_queue_ends_with_an_empty_run() {
        let mut queue = Queue::new(4);
        let _caller = queue.push(1, LONG);
        queue.sender = mpsc::channel(1).0;
        assert_eq!(queue.next_run(), [1]);
        assert_eq!(queue.next_run(), [0; 0]);
    }
}
