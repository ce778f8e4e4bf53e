//! The model thread: runs the device section on views, off the async threads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use headwater_inference::sections::{DeviceOutput, DeviceSection};
use headwater_protocol::SampleId;
use tokio::sync::mpsc;

use crate::error::DeviceError;

/// A captured view on its way through the section.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) sample: SampleId,
    pub(crate) captured_us: u64,
    pub(crate) view: Vec<u8>,
}

/// What the section made of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) sample: SampleId,
    pub(crate) captured_us: u64,
    /// Scores and features, or what failed.
    pub(crate) output: Result<DeviceOutput, String>,
}

/// The way into the thread. Dropping it ends the thread after what is queued.
#[derive(Debug)]
pub(crate) struct Model {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// Results that may wait for the agent; the thread pauses when they stand full.
const RESULTS: usize = 64;

impl Model {
    /// Starts the thread. At most `most` jobs wait for it.
    ///
    /// # Errors
    /// [`DeviceError::Thread`].
    pub(crate) fn start(
        section: DeviceSection,
        most: usize,
    ) -> Result<(Self, mpsc::Receiver<Done>), DeviceError> {
        let queue = Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), most: most.max(1) });
        let (results, receiver) = mpsc::channel(RESULTS);
        let work = Arc::clone(&queue);
        thread::Builder::new()
            .name("model".into())
            .spawn(move || run(section, &work, &results))
            .map_err(DeviceError::Thread)?;
        Ok((Self { queue }, receiver))
    }

    /// Queues a job; gives back the oldest one when there is no room for both.
    pub(crate) fn push(&self, job: Job) -> Option<Job> {
        let mut state = self.queue.lock();
        let shed = if state.jobs.len() >= self.queue.most { state.jobs.pop_front() } else { None };
        state.jobs.push_back(job);
        self.queue.wake.notify_one();
        shed
    }

    /// Takes no more; the results end after what is queued.
    pub(crate) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.queue.wake.notify_one();
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(mut section: DeviceSection, queue: &Queue, results: &mpsc::Sender<Done>) {
    while let Some(Job { sample, captured_us, view }) = queue.next() {
        let output = match section.run(&view, 1) {
            Ok(outputs) => outputs.into_iter().next().ok_or_else(|| "the section gave nothing".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        // Scores that are no numbers would be refused by the leader as garbage; the fault is here, so it is named here.
        let output = output.and_then(|output| match output.scores.iter().all(|score| score.is_finite()) {
            true => Ok(output),
            false => Err("the section gave scores that are not finite".to_owned()),
        });
        if results.blocking_send(Done { sample, captured_us, output }).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Job {
        Job { sample: SampleId(id), captured_us: 0, view: Vec::new() }
    }

    fn queue(most: usize) -> Model {
        Model { queue: Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), most }) }
    }

    #[test]
    fn the_oldest_job_goes_when_the_queue_is_full() {
        let model = queue(2);
        assert!(model.push(job(1)).is_none());
        assert!(model.push(job(2)).is_none());
        assert_eq!(model.push(job(3)).map(|shed| shed.sample), Some(SampleId(1)));
        assert_eq!(model.queue.next().map(|job| job.sample), Some(SampleId(2)));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_then_ends() {
        let model = queue(2);
        model.push(job(1));
        model.close();
        assert!(model.queue.next().is_some());
        assert!(model.queue.next().is_none());
    }
}
