//! Local edges: each local edge collects features, and runs its section on a thread of its own, apart from the async threads.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use headwater_inference::bundle::Bundle;
use headwater_inference::edge::{Collector, CollectorConfig, EdgeAction, EdgeEvent, EdgeJob};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::{Event, Generation, Micros};
use headwater_inference::sections::{EdgeSection, TierOutput};
use headwater_protocol::{EdgeIndex, SampleId, SlotSet};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::error;

use crate::devices::remote_edges::NetworkEdge;
use crate::error::AggregatorError;

/// Edges that run in this process.
pub(crate) struct LocalEdges {
    edges: Vec<LocalEdge>,
    /// Sender of replies: each edge's thread gets a clone, and replies without a run of the section use this sender.
    sender: UnboundedSender<EdgeReply>,
    replies: UnboundedReceiver<EdgeReply>,
    /// Actions of the collectors; empty between events.
    actions: Vec<EdgeAction>,
}

/// Answer of an edge for one sample.
#[derive(Debug)]
pub(crate) struct EdgeReply {
    pub(crate) generation: Generation,
    /// Position of the edge in the network.
    pub(crate) edge: EdgeIndex,
    pub(crate) sample: SampleId,
    /// Slots whose features are in the answer.
    pub(crate) slots: SlotSet,
    /// Scores and feature map; `None` if no features came or the section did not run or failed.
    pub(crate) output: Option<TierOutput>,
    /// True if the section failed, or could not take the job.
    pub(crate) failed: bool,
}

struct LocalEdge {
    at: NetworkEdge,
    collector: Collector,
    /// Queue of the section's thread.
    jobs: SyncSender<EdgeJob>,
}

impl LocalEdges {
    pub(crate) fn new() -> Self {
        let (sender, replies) = unbounded_channel();
        Self { edges: Vec::new(), sender, replies, actions: Vec::new() }
    }

    /// Loads the sections of these edges of a network and starts their threads.
    ///
    /// # Errors
    /// [`AggregatorError::Section`] if a section does not load, or the system starts no further thread.
    pub(crate) fn start(
        &mut self,
        (generation, bundle): (Generation, &Bundle),
        edges: &[EdgeIndex],
        features_ms: u32,
        max_open: usize,
    ) -> Result<(), AggregatorError> {
        for &edge in edges {
            let section = EdgeSection::load(bundle, edge.index(), &TractEngine::new())
                .map_err(AggregatorError::section)?;
            let config = CollectorConfig {
                slots: section.slots().to_vec(),
                packed_bytes: bundle.manifest().features.packed_bytes(),
                features_ms,
                max_open_samples: max_open,
            };
            let at = NetworkEdge { generation, edge };
            let ((jobs, queue), replies) = (sync_channel(max_open), self.sender.clone());
            let thread = std::thread::Builder::new().name(format!("edge-{edge}"));
            let started = thread.spawn(move || run(at, section, &queue, &replies));
            started
                .map_err(|error| AggregatorError::section(format!("no thread for edge {edge}: {error}")))?;
            self.edges.push(LocalEdge { at, collector: Collector::new(config), jobs });
        }
        Ok(())
    }

    /// Sets how long, in ms, the edges of a network wait for features of samples that are requested from now on.
    pub(crate) fn set_features_ms(&mut self, generation: Generation, features_ms: u32) {
        let edges = self.edges.iter_mut().filter(|edge| edge.at.generation == generation);
        edges.for_each(|edge| edge.collector.set_features_ms(features_ms));
    }

    /// The edges of all networks, each with its network.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Generation, EdgeIndex)> + '_ {
        self.edges.iter().map(|edge| (edge.at.generation, edge.at.edge))
    }

    /// Gives the edges of a network an event of the leader, if it is one of these: features, features that a device has lost, or a device
    /// that is down.
    pub(crate) fn handle_leader_event(&mut self, now: Micros, generation: Generation, event: &Event<'_>) {
        match *event {
            Event::Features { slot, sample, bits, .. } => {
                self.handle(now, generation, EdgeEvent::Features { slot, sample, bits });
            }
            Event::Gone { slot, sample } => self.handle(now, generation, EdgeEvent::Gone { slot, sample }),
            Event::DeviceDown { slot } => self.handle(now, generation, EdgeEvent::DeviceDown { slot }),
            _ => {}
        }
    }

    /// Lets every edge run or give up the samples whose wait for features is over.
    pub(crate) fn tick(&mut self, now: Micros) {
        Generation::ALL.into_iter().for_each(|generation| self.handle(now, generation, EdgeEvent::Tick));
    }

    /// Gives an event to every edge of a network.
    pub(crate) fn handle(&mut self, now: Micros, generation: Generation, event: EdgeEvent<'_>) {
        let edges = self.edges.iter_mut().filter(|edge| edge.at.generation == generation);
        for LocalEdge { at, collector, jobs } in edges {
            collector.handle(now, event, &mut self.actions);
            for action in self.actions.drain(..) {
                let (sample, failed) = match action {
                    EdgeAction::Gone(sample) => (sample, false),
                    EdgeAction::Run(job) => match jobs.try_send(job) {
                        Ok(()) => continue,
                        // A full queue, or a thread that has ended.
                        Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => (job.sample, true),
                    },
                };
                let slots = SlotSet::EMPTY;
                let nothing = EdgeReply { generation, edge: at.edge, sample, slots, output: None, failed };
                self.sender.send(nothing).expect("the receiver lives as long as the sender");
            }
        }
    }

    /// Time at which [`LocalEdges::tick`] is needed next.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.edges.iter().filter_map(|edge| edge.collector.next_timer()).min()
    }

    pub(crate) async fn next(&mut self) -> EdgeReply {
        self.replies.recv().await.expect("the channel stays open: `sender` is one of its senders")
    }

    pub(crate) fn try_next(&mut self) -> Option<EdgeReply> {
        self.replies.try_recv().ok()
    }
}

/// Runs the queued jobs of an edge, and ends once the queue is dropped. Every job has one reply, so that the number of replies is bounded.
fn run(
    at: NetworkEdge,
    mut section: EdgeSection,
    queue: &Receiver<EdgeJob>,
    replies: &UnboundedSender<EdgeReply>,
) {
    let NetworkEdge { generation, edge } = at;
    let mut failures = 0u64;
    while let Ok(EdgeJob { sample, slots, features, presence }) = queue.recv() {
        let outputs = section.run(1, &features, &presence);
        let output = outputs.map(|outputs| outputs.into_iter().next()).map_err(|error| error.to_string());
        // The leader would refuse scores that are not finite.
        let is_finite = |output: &TierOutput| output.scores.iter().all(|score| score.is_finite());
        let output =
            output.and_then(|output| output.filter(is_finite).ok_or("its scores are not finite".into()));
        if let Err(reason) = &output {
            failures += 1;
            if failures == 1 {
                error!(%edge, %sample, reason, "the edge section failed; more failures are only counted");
            }
        }
        let output = output.ok();
        let failed = output.is_none();
        if replies.send(EdgeReply { generation, edge, sample, slots, output, failed }).is_err() {
            return;
        }
    }
}
