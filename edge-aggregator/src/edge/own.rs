//! The edges of this process: what each collects, and the thread of its section.

use std::collections::VecDeque;

use headwater_inference::bundle::Bundle;
use headwater_inference::edge::{Collector, CollectorConfig, EdgeAction, EdgeEvent};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::{Event, Generation, Micros};
use headwater_inference::sections::EdgeSection;
use headwater_protocol::{EdgeIndex, SlotSet};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::model::EdgeModel;
pub(crate) use super::model::EdgeReply;

/// Edges with their sections.
pub(crate) struct OwnEdges {
    edges: Vec<OwnEdge>,
    /// For the threads of edges that are still to be started.
    sender: UnboundedSender<EdgeReply>,
    replies: UnboundedReceiver<EdgeReply>,
    /// Replies that no section had to be run for.
    ready: VecDeque<EdgeReply>,
    /// What collectors want done; empty between events.
    actions: Vec<EdgeAction>,
}

struct OwnEdge {
    generation: Generation,
    edge: EdgeIndex,
    collector: Collector,
    model: EdgeModel,
}

impl OwnEdges {
    /// No edges yet.
    pub(crate) fn new() -> Self {
        let (sender, replies) = unbounded_channel();
        Self { edges: Vec::new(), sender, replies, ready: VecDeque::new(), actions: Vec::new() }
    }

    /// Makes the sections of these edges of a network ready.
    ///
    /// # Errors
    /// A sentence, when a section does not load.
    pub(crate) fn start(
        &mut self,
        (generation, bundle): (Generation, &Bundle),
        edges: &[EdgeIndex],
        features_ms: u32,
        most_open: usize,
    ) -> Result<(), String> {
        for &edge in edges {
            let section =
                EdgeSection::load(bundle, edge.index(), &TractEngine::new()).map_err(|e| e.to_string())?;
            let config = CollectorConfig {
                slots: section.slots().to_vec(),
                packed_bytes: bundle.manifest().features.packed_bytes(),
                features_ms,
                max_open_samples: most_open,
            };
            let model = EdgeModel::start((generation, edge), section, most_open, self.sender.clone());
            let model = model.map_err(|error| format!("no thread for edge {edge}: {error}"))?;
            self.edges.push(OwnEdge { generation, edge, collector: Collector::new(config), model });
        }
        Ok(())
    }

    /// Which edges there are.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Generation, EdgeIndex)> + '_ {
        self.edges.iter().map(|own| (own.generation, own.edge))
    }

    /// Takes from what the leader hears the part that is for edges.
    pub(crate) fn overhear(&mut self, now: Micros, generation: Generation, event: &Event<'_>) {
        match *event {
            Event::Features { slot, sample, bits, .. } => {
                self.hear(now, generation, EdgeEvent::Features { slot, sample, bits });
            }
            Event::Gone { slot, sample } => self.hear(now, generation, EdgeEvent::Gone { slot, sample }),
            Event::DeviceDown { slot } => self.hear(now, generation, EdgeEvent::DeviceDown { slot }),
            _ => {}
        }
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Micros) {
        Generation::ALL.into_iter().for_each(|generation| self.hear(now, generation, EdgeEvent::Tick));
    }

    /// Gives an event to every edge of a network.
    pub(crate) fn hear(&mut self, now: Micros, generation: Generation, event: EdgeEvent<'_>) {
        let edges = self.edges.iter_mut().filter(|own| own.generation == generation);
        for OwnEdge { edge, collector, model, .. } in edges {
            collector.handle(now, event, &mut self.actions);
            for action in self.actions.drain(..) {
                let nothing = |sample, failed| {
                    let edge = *edge;
                    EdgeReply { generation, edge, sample, slots: SlotSet::EMPTY, output: None, failed }
                };
                match action {
                    EdgeAction::Gone(sample) => self.ready.push_back(nothing(sample, false)),
                    EdgeAction::Run(job) => {
                        if let Err(job) = model.push(job) {
                            self.ready.push_back(nothing(job.sample, true));
                        }
                    }
                }
            }
        }
    }

    /// When [`Event::Tick`] is needed next.
    pub(crate) fn next_wake(&self) -> Option<Micros> {
        self.edges.iter().filter_map(|own| own.collector.next_timer()).min()
    }

    /// The next reply; waits for ever while nothing is asked.
    pub(crate) async fn next(&mut self) -> EdgeReply {
        if let Some(reply) = self.ready.pop_front() {
            return reply;
        }
        match self.replies.recv().await {
            Some(reply) => reply,
            // It never ends: a sender is kept.
            None => std::future::pending().await,
        }
    }

    /// A reply that is there already.
    pub(crate) fn try_next(&mut self) -> Option<EdgeReply> {
        self.ready.pop_front().or_else(|| self.replies.try_recv().ok())
    }
}
