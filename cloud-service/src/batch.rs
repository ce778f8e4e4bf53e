//! Batching by work: a run takes everything that waits, up to a limit. Nothing waits for a batch to fill.

use std::sync::atomic::Ordering::Relaxed;

use headwater_protocol::Fault;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::model_counters::ModelCounters;
use crate::queue::Entry;

/// The model thread's end of the queue.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: mpsc::Receiver<Entry>,
    max_batch: usize,
    /// Taken from the queue, but the last run had no room for it.
    carried: Option<Entry>,
}

impl Batcher {
    pub(crate) fn new(queue: mpsc::Receiver<Entry>, max_batch: usize) -> Self {
        Self { queue, max_batch, carried: None }
    }

    /// Waits for work and fills `entries` with what one run takes; empty when the queue is closed and nothing is left.
    /// An entry larger than the limit runs alone.
    pub(crate) fn gather(&mut self, counters: &ModelCounters, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut samples = 0;
        loop {
            let next = match self.carried.take() {
                Some(entry) => Some(entry),
                None if entries.is_empty() => self.queue.blocking_recv(),
                None => self.queue.try_recv().ok(),
            };
            let Some(entry) = next else { return };
            let Some(entry) = wanted(entry, Instant::now(), counters) else { continue };
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

/// The entry, unless nobody waits for it any more; then it is counted.
fn wanted(entry: Entry, now: Instant, counters: &ModelCounters) -> Option<Entry> {
    if now >= entry.deadline {
        counters.skipped_deadline.fetch_add(1, Relaxed);
        // The caller may have left by itself.
        let _ = entry.reply.send(Err(Fault::DeadlineExceeded));
        return None;
    }
    if entry.reply.is_closed() {
        counters.skipped_caller_gone.fetch_add(1, Relaxed);
        return None;
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use headwater_protocol::NetworkId;
    use headwater_protocol::v2::FeatureBatch;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    struct Line {
        sender: mpsc::Sender<Entry>,
        permits: Arc<Semaphore>,
        batcher: Batcher,
        counters: ModelCounters,
    }

    impl Line {
        fn of(max_batch: usize) -> Self {
            let (sender, queue) = mpsc::channel(16);
            let batcher = Batcher::new(queue, max_batch);
            let counters = ModelCounters::of(NetworkId([1; 32]));
            Self { sender, permits: Arc::new(Semaphore::new(16)), batcher, counters }
        }

        fn queues(&self, samples: usize, left: Duration) -> oneshot::Receiver<Result<Vec<f32>, Fault>> {
            let (reply, answer) = oneshot::channel();
            let batch = FeatureBatch { samples, features: vec![0; samples], presence: vec![true; samples] };
            let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
            let now = Instant::now();
            let entry = Entry { batch, queued: now, deadline: now + left, reply, _permit: permit };
            self.sender.try_send(entry).unwrap();
            answer
        }

        fn gathers(&mut self) -> Vec<usize> {
            let mut entries = Vec::new();
            self.batcher.gather(&self.counters, &mut entries);
            entries.iter().map(|entry| entry.batch.samples).collect()
        }
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_run_takes_all_that_waits_up_to_the_limit() {
        let mut line = Line::of(4);
        let _callers: Vec<_> = [1, 2, 2, 9, 1].map(|samples| line.queues(samples, LONG)).into();
        assert_eq!(line.gathers(), [1, 2]);
        assert_eq!(line.gathers(), [2]);
        assert_eq!(line.gathers(), [9], "larger than the limit: alone");
        assert_eq!(line.gathers(), [1]);
    }

    #[test]
    fn an_entry_past_its_deadline_is_answered_so_and_counted() {
        let mut line = Line::of(4);
        let mut late = line.queues(1, Duration::ZERO);
        let _caller = line.queues(2, LONG);
        assert_eq!(line.gathers(), [2]);
        assert_eq!(late.try_recv().unwrap(), Err(Fault::DeadlineExceeded));
        assert_eq!(line.counters.skipped_deadline.load(Relaxed), 1);
    }

    #[test]
    fn an_entry_whose_caller_has_gone_is_skipped_and_counted() {
        let mut line = Line::of(4);
        drop(line.queues(1, LONG));
        let _caller = line.queues(2, LONG);
        assert_eq!(line.gathers(), [2]);
        assert_eq!(line.counters.skipped_caller_gone.load(Relaxed), 1);
        assert_eq!(line.permits.available_permits(), 16, "nothing held");
    }

    #[test]
    fn a_closed_queue_ends_with_nothing_gathered() {
        let mut line = Line::of(4);
        let _caller = line.queues(1, LONG);
        line.sender = mpsc::channel(1).0;
        assert_eq!(line.gathers(), [1]);
        assert_eq!(line.gathers(), [0; 0]);
    }
}
