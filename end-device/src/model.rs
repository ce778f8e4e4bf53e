//! Runs the device section on views: a brief one at once, any other on a thread of its own, off the async threads.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use headwater_inference::sections::{DeviceOutput, DeviceSection};
use headwater_protocol::SampleId;
use headwater_samples::View;
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

/// The section, where it is run.
pub(crate) enum Model {
    /// Right here. Nobody sends results, but whoever receives them learns of the end by their end.
    Brief { section: Box<DeviceSection>, results: Option<mpsc::Sender<Done>> },
    /// On a thread, which ends after what is queued once this is dropped.
    Thread(Arc<Queue>),
}

/// What became of a job.
#[derive(Debug)]
pub(crate) enum Pushed {
    /// It is done.
    Done(Done),
    /// It waits, and its result comes later.
    Queued,
    /// It waits, and the oldest job, given back, does not: there was no room for both.
    Shed(Job),
}

/// Jobs on their way into the thread.
#[derive(Debug)]
pub(crate) struct Queue {
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
    /// Makes the section ready; results of queued jobs come out of the receiver. At most `most` jobs wait.
    ///
    /// # Errors
    /// [`DeviceError::Thread`].
    pub(crate) fn start(
        section: DeviceSection,
        most: usize,
    ) -> Result<(Self, mpsc::Receiver<Done>), DeviceError> {
        let (results, receiver) = mpsc::channel(RESULTS);
        if section.is_brief() {
            return Ok((Self::Brief { section: Box::new(section), results: Some(results) }, receiver));
        }
        let queue = Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), most: most.max(1) });
        let work = Arc::clone(&queue);
        thread::Builder::new()
            .name("model".into())
            .spawn(move || run(section, &work, &results))
            .map_err(DeviceError::Thread)?;
        Ok((Self::Thread(queue), receiver))
    }

    /// Runs the section on a view or queues it.
    pub(crate) fn push(&mut self, sample: SampleId, captured_us: u64, view: Cow<'_, View>) -> Pushed {
        match self {
            Self::Brief { section, .. } => {
                Pushed::Done(Done { sample, captured_us, output: output(section, &view.pixels) })
            }
            Self::Thread(queue) => {
                let job = Job { sample, captured_us, view: view.into_owned().pixels };
                queue.push(job).map_or(Pushed::Queued, Pushed::Shed)
            }
        }
    }

    /// True when one more view can be pushed and none is shed for it.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Brief { .. } => true,
            Self::Thread(queue) => queue.lock().jobs.len() < queue.most,
        }
    }

    /// Takes no more; the results end after what is queued.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Brief { results, .. } => *results = None,
            Self::Thread(queue) => queue.close(),
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    /// Queues a job; gives back the oldest one when there is no room for both.
    fn push(&self, job: Job) -> Option<Job> {
        let mut state = self.lock();
        let shed = if state.jobs.len() >= self.most { state.jobs.pop_front() } else { None };
        state.jobs.push_back(job);
        self.wake.notify_one();
        shed
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

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
        let output = output(&mut section, &view);
        if results.blocking_send(Done { sample, captured_us, output }).is_err() {
            return;
        }
    }
}

fn output(section: &mut DeviceSection, view: &[u8]) -> Result<DeviceOutput, String> {
    let output = match section.run(view, 1) {
        Ok(outputs) => outputs.into_iter().next().ok_or_else(|| "the section gave nothing".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    // Scores that are no numbers would be refused by the leader as garbage; the fault is here, so it is named here.
    output.and_then(|output| match output.scores.iter().all(|score| score.is_finite()) {
        true => Ok(output),
        false => Err("the section gave scores that are not finite".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: u64) -> Job {
        Job { sample: SampleId(id), captured_us: 0, view: Vec::new() }
    }

    fn queue(most: usize) -> Queue {
        Queue { state: Mutex::default(), wake: Condvar::new(), most }
    }

    #[test]
    fn the_oldest_job_goes_when_the_queue_is_full() {
        let queue = queue(2);
        assert!(queue.push(job(1)).is_none());
        assert!(queue.push(job(2)).is_none());
        assert_eq!(queue.push(job(3)).map(|shed| shed.sample), Some(SampleId(1)));
        assert_eq!(queue.next().map(|job| job.sample), Some(SampleId(2)));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_then_ends() {
        let queue = queue(2);
        queue.push(job(1));
        queue.close();
        assert!(queue.next().is_some());
        assert!(queue.next().is_none());
    }
}
