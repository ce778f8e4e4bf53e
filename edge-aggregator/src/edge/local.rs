//! Local edges: the features that each collects, and the thread of its section.

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
use crate::remote_edges::NetworkEdge;

/// Edges that run in this process.
pub(crate) struct LocalEdges {
    edges: Vec<LocalEdge>,
    /// Sender for the threads of further edges.
    sender: UnboundedSender<EdgeReply>,
    replies: UnboundedReceiver<EdgeReply>,
    /// Replies without a run of the section.
    ready: VecDeque<EdgeReply>,
    /// Actions of the collectors; empty between events.
    actions: Vec<EdgeAction>,
}

struct LocalEdge {
    at: NetworkEdge,
    collector: Collector,
    model: EdgeModel,
}

impl LocalEdges {
    /// No edges yet.
    pub(crate) fn new() -> Self {
        let (sender, replies) = unbounded_channel();
        Self { edges: Vec::new(), sender, replies, ready: VecDeque::new(), actions: Vec::new() }
    }

    /// Loads the sections of these edges of a network and starts their threads.
    ///
    /// # Errors
    /// A sentence, when a section does not load.
    pub(crate) fn start(
        &mut self,
        (generation, bundle): (Generation, &Bundle),
        edges: &[EdgeIndex],
        features_ms: u32,
        max_open: usize,
    ) -> Result<(), String> {
        for &edge in edges {
            let section =
                EdgeSection::load(bundle, edge.index(), &TractEngine::new()).map_err(|e| e.to_string())?;
            let config = CollectorConfig {
                slots: section.slots().to_vec(),
                packed_bytes: bundle.manifest().features.packed_bytes(),
                features_ms,
                max_open_samples: max_open,
            };
            let at = NetworkEdge { generation, edge };
            let model = EdgeModel::start(at, section, max_open, self.sender.clone());
            let model = model.map_err(|error| format!("no thread for edge {edge}: {error}"))?;
            self.edges.push(LocalEdge { at, collector: Collector::new(config), model });
        }
        Ok(())
    }

    /// All edges.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Generation, EdgeIndex)> + '_ {
        self.edges.iter().map(|edge| (edge.at.generation, edge.at.edge))
    }

    /// Takes the part of a leader's event that concerns edges.
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

    /// Checks the waits of all edges.
    pub(crate) fn tick(&mut self, now: Micros) {
        Generation::ALL.into_iter().for_each(|generation| self.handle(now, generation, EdgeEvent::Tick));
    }

    /// Gives an event to every edge of a network.
    pub(crate) fn handle(&mut self, now: Micros, generation: Generation, event: EdgeEvent<'_>) {
        let edges = self.edges.iter_mut().filter(|edge| edge.at.generation == generation);
        for LocalEdge { at, collector, model } in edges {
            collector.handle(now, event, &mut self.actions);
            for action in self.actions.drain(..) {
                let nothing = |sample, failed| {
                    let edge = at.edge;
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

    /// Time of the next tick that is needed.
    pub(crate) fn next_timer(&self) -> Option<Micros> {
        self.edges.iter().filter_map(|edge| edge.collector.next_timer()).min()
    }

    /// The next reply; never returns while no reply is pending.
    pub(crate) async fn next(&mut self) -> EdgeReply {
        if let Some(reply) = self.ready.pop_front() {
            return reply;
        }
        match self.replies.recv().await {
            Some(reply) => reply,
            // The channel stays open: `sender` is one of its senders.
            None => std::future::pending().await,
        }
    }

    /// The next reply, if one has come.
    pub(crate) fn try_next(&mut self) -> Option<EdgeReply> {
        self.ready.pop_front().or_else(|| self.replies.try_recv().ok())
    }
}
