//! Thread of an edge section, apart from the async threads.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use headwater_inference::edge::EdgeJob;
use headwater_inference::leader::Generation;
use headwater_inference::sections::{EdgeSection, TierOutput};
use headwater_protocol::{EdgeIndex, SampleId, SlotSet};
use tokio::sync::mpsc::UnboundedSender;
use tracing::error;

use crate::remote_edges::NetworkEdge;

/// Answer of an edge for one sample.
#[derive(Debug)]
pub(crate) struct EdgeReply {
    pub(crate) generation: Generation,
    /// Position of the edge in the network.
    pub(crate) edge: EdgeIndex,
    pub(crate) sample: SampleId,
    /// Slots whose features are in the answer.
    pub(crate) slots: SlotSet,
    /// Scores and feature map; `None` where no features came or the section failed.
    pub(crate) output: Option<TierOutput>,
    /// Whether the section failed.
    pub(crate) failed: bool,
}

/// Queue of a section's thread. Once the queue is dropped, the thread runs the queued jobs and ends.
#[derive(Debug)]
pub(crate) struct EdgeModel(SyncSender<EdgeJob>);

impl EdgeModel {
    /// Starts the thread of an edge with a queue of `max_jobs`. Every job has one reply, so that the number of replies is bounded too.
    ///
    /// # Errors
    /// The system's error when no thread can be started.
    pub(crate) fn start(
        at: NetworkEdge,
        section: EdgeSection,
        max_jobs: usize,
        replies: UnboundedSender<EdgeReply>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(max_jobs);
        thread::Builder::new()
            .name(format!("edge-{}", at.edge))
            .spawn(move || run(at, section, &queue, &replies))?;
        Ok(Self(jobs))
    }

    /// Queues a job; gives the job back when the queue is full or the thread has ended.
    pub(crate) fn push(&self, job: EdgeJob) -> Result<(), EdgeJob> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn run(
    at: NetworkEdge,
    mut section: EdgeSection,
    queue: &Receiver<EdgeJob>,
    replies: &UnboundedSender<EdgeReply>,
) {
    let NetworkEdge { generation, edge } = at;
    let mut failures = 0u64;
    while let Ok(EdgeJob { sample, slots, features, presence }) = queue.recv() {
        let output = match section.run(1, &features, &presence) {
            // The leader would refuse scores that are not finite.
            Ok(outputs) => {
                outputs.into_iter().next().filter(|it| it.scores.iter().all(|score| score.is_finite()))
            }
            Err(reason) => {
                failures += 1;
                if failures == 1 {
                    error!(%edge, %sample, %reason, "the edge section failed; more failures are only counted");
                }
                None
            }
        };
        let failed = output.is_none();
        if replies.send(EdgeReply { generation, edge, sample, slots, output, failed }).is_err() {
            return;
        }
    }
}
