//! Runs an edge section on a thread of its own, off the async threads.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use headwater_inference::edge::EdgeJob;
use headwater_inference::leader::Generation;
use headwater_inference::sections::{EdgeOutput, EdgeSection};
use headwater_protocol::{EdgeIndex, SampleId, SlotSet};
use tokio::sync::mpsc::UnboundedSender;
use tracing::error;

/// What an edge says of a sample.
#[derive(Debug)]
pub(crate) struct EdgeReply {
    pub(crate) generation: Generation,
    /// Which edge of the network.
    pub(crate) edge: EdgeIndex,
    pub(crate) sample: SampleId,
    /// Slots that have a part in it.
    pub(crate) slots: SlotSet,
    /// Scores and map; `None` where no features came or the section failed.
    pub(crate) output: Option<EdgeOutput>,
    /// Whether the section failed.
    pub(crate) failed: bool,
}

/// The way to a thread with a section; it ends after what is queued once this is dropped.
#[derive(Debug)]
pub(crate) struct EdgeModel(SyncSender<EdgeJob>);

impl EdgeModel {
    /// Starts the thread of an edge; at most `most` jobs wait. There is one reply a job, so their number is bounded too.
    ///
    /// # Errors
    /// Whatever the system says when it has no thread to give.
    pub(crate) fn start(
        (generation, edge): (Generation, EdgeIndex),
        section: EdgeSection,
        most: usize,
        replies: UnboundedSender<EdgeReply>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel(most);
        thread::Builder::new()
            .name(format!("edge-{edge}"))
            .spawn(move || run((generation, edge), section, &queue, &replies))?;
        Ok(Self(jobs))
    }

    /// Queues a job; gives it back when there is no room, or the thread is gone.
    pub(crate) fn push(&self, job: EdgeJob) -> Result<(), EdgeJob> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn run(
    (generation, edge): (Generation, EdgeIndex),
    mut section: EdgeSection,
    queue: &Receiver<EdgeJob>,
    replies: &UnboundedSender<EdgeReply>,
) {
    let mut failures = 0u64;
    while let Ok(EdgeJob { sample, slots, features, presence }) = queue.recv() {
        let output = match section.run(1, &features, &presence) {
            // Scores that are no numbers would be refused by the leader as garbage.
            Ok(outputs) => outputs.into_iter().next().filter(|it| it.scores.iter().all(|it| it.is_finite())),
            Err(reason) => {
                failures += 1;
                if failures == 1 {
                    error!(%edge, %sample, %reason, "the edge section failed; the next times are only counted");
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
