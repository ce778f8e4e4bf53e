//! Runs the device section on views: a brief section at once on the caller's thread, any other section on a separate thread.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use headwater_inference::sections::{DeviceSection, TierOutput};
use headwater_samples::View;
use headwater_telemetry::WorkLoop;
use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use crate::answer::Captured;
use crate::error::DeviceError;

/// A captured view that waits for the section.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) captured: Captured,
    pub(crate) view: Vec<u8>,
}

/// Result of the section for one view.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) captured: Captured,
    /// Scores and features, or the failure.
    pub(crate) output: Result<TierOutput, String>,
}

/// The section and where it runs.
pub(crate) enum SectionRunner {
    /// The section runs on the caller's thread. `results` sends nothing; its drop closes the channel of results.
    Inline { section: Box<DeviceSection>, results: Option<mpsc::Sender<JobResult>> },
    /// The section runs on a separate thread. Once the runner is dropped, the thread ends after the queued jobs.
    Thread(Arc<JobQueue>),
}

/// Outcome of submitting a view.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// The section has run.
    Done(JobResult),
    /// The job is queued; its result comes later.
    Queued,
    /// The job is queued in place of the oldest one, which is returned.
    Shed(Job),
}

/// Jobs that wait for the section's thread.
#[derive(Debug)]
pub(crate) struct JobQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    max_jobs: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// Results that may wait for the agent; the thread pauses while the channel is full.
const MAX_RESULTS: usize = 64;

impl SectionRunner {
    /// Starts the runner; results of queued jobs come out of the receiver. At most `max_jobs` jobs wait.
    ///
    /// # Errors
    /// [`DeviceError::Thread`] if the system starts no thread.
    pub(crate) fn start(
        section: DeviceSection,
        max_jobs: usize,
        work_loop: WorkLoop,
    ) -> Result<(Self, mpsc::Receiver<JobResult>), DeviceError> {
        let (results, receiver) = mpsc::channel(MAX_RESULTS);
        if section.is_brief() {
            return Ok((Self::Inline { section: Box::new(section), results: Some(results) }, receiver));
        }
        let queue = Arc::new(JobQueue::new(max_jobs.max(1)));
        let work = Arc::clone(&queue);
        thread::Builder::new()
            .name("model".into())
            .spawn(move || run(section, &work, (&results, &work_loop)))
            .map_err(DeviceError::Thread)?;
        Ok((Self::Thread(queue), receiver))
    }

    /// Runs the section on a view, or queues the view.
    pub(crate) fn submit(&mut self, captured: Captured, view: Cow<'_, View>) -> Submitted {
        match self {
            Self::Inline { section, .. } => {
                Submitted::Done(JobResult { captured, output: output(section, &view.pixels) })
            }
            Self::Thread(queue) => {
                let job = Job { captured, view: view.into_owned().pixels };
                queue.push(job).map_or(Submitted::Queued, Submitted::Shed)
            }
        }
    }

    /// True when one more view can be submitted without shedding an older one.
    pub(crate) fn has_capacity(&self) -> bool {
        match self {
            Self::Inline { .. } => true,
            Self::Thread(queue) => queue.state.lock().jobs.len() < queue.max_jobs,
        }
    }

    /// Lets the results end after the queued jobs. The caller must submit no more views.
    pub(crate) fn close(&mut self) {
        match self {
            Self::Inline { results, .. } => *results = None,
            Self::Thread(queue) => queue.close(),
        }
    }
}

impl Drop for SectionRunner {
    fn drop(&mut self) {
        self.close();
    }
}

impl JobQueue {
    fn new(max_jobs: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max_jobs }
    }

    /// Queues a job. A full queue gives back its oldest job.
    fn push(&self, job: Job) -> Option<Job> {
        let mut state = self.state.lock();
        let shed = if state.jobs.len() >= self.max_jobs { state.jobs.pop_front() } else { None };
        state.jobs.push_back(job);
        self.changed.notify_one();
        shed
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits for a job; `None` once the queue is closed and empty.
    fn next(&self) -> Option<Job> {
        let is_waiting = |state: &mut QueueState| state.jobs.is_empty() && !state.is_closed;
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, is_waiting);
        state.jobs.pop_front()
    }
}

fn run(
    mut section: DeviceSection,
    queue: &JobQueue,
    (results, work_loop): (&mpsc::Sender<JobResult>, &WorkLoop),
) {
    while let Some(Job { captured, view }) = queue.next() {
        work_loop.begin_round();
        let output = output(&mut section, &view);
        if results.blocking_send(JobResult { captured, output }).is_err() {
            return;
        }
        work_loop.end_round();
    }
}

fn output(section: &mut DeviceSection, view: &[u8]) -> Result<TierOutput, String> {
    let outputs = section.run(view, 1).map_err(|error| error.to_string())?;
    let output = outputs.into_iter().next().ok_or("the section gave no output")?;
    // The leader refuses scores that are not finite. The device reports them itself, since the fault is in its section.
    if !output.scores.iter().all(|score| score.is_finite()) {
        return Err("the section gave scores that are not finite".into());
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use headwater_protocol::SampleId;

    use super::*;

    fn job(id: u64) -> Job {
        let captured = Captured { sample: SampleId(id), captured_us: 0, frame: None };
        Job { captured, view: Vec::new() }
    }

    #[test]
    fn a_full_queue_sheds_its_oldest_job() {
        let queue = JobQueue::new(2);
        assert!(queue.push(job(1)).is_none());
        assert!(queue.push(job(2)).is_none());
        assert_eq!(queue.push(job(3)).map(|shed| shed.captured.sample), Some(SampleId(1)));
        assert_eq!(queue.next().map(|job| job.captured.sample), Some(SampleId(2)));
    }

    #[test]
    fn a_closed_queue_ends_once_it_is_empty() {
        let queue = JobQueue::new(2);
        queue.push(job(1));
        queue.close();
        assert!(queue.next().is_some());
        assert!(queue.next().is_none());
    }
}
