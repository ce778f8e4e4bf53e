//! The edges of this process: what each collects, and the thread of its section.

use std::collections::VecDeque;

use headwater_inference::bundle::Bundle;
use headwater_inference::edge::{Collector, CollectorConfig, EdgeAction, EdgeEvent};
use headwater_inference::engine::TractEngine;
use headwater_inference::leader::{Event, Micros};
use headwater_inference::sections::EdgeSection;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::model::EdgeModel;
pub(crate) use super::model::EdgeReply;

/// Edges with their sections.
pub(crate) struct OwnEdges {
    edges: Vec<OwnEdge>,
    replies: UnboundedReceiver<EdgeReply>,
    /// Replies that no section had to be run for.
    ready: VecDeque<EdgeReply>,
    /// What collectors want done; empty between events.
    actions: Vec<EdgeAction>,
}

struct OwnEdge {
    edge: usize,
    collector: Collector,
    model: EdgeModel,
}

impl OwnEdges {
    /// Makes the sections of these edges ready.
    ///
    /// # Errors
    /// A sentence, when a section does not load.
    pub(crate) fn start(
        bundle: &Bundle,
        edges: &[usize],
        features_ms: u32,
        most_open: usize,
    ) -> Result<Self, String> {
        let (sender, replies) = unbounded_channel();
        let start = |edge: usize| -> Result<OwnEdge, String> {
            let section = EdgeSection::load(bundle, edge, &TractEngine::new()).map_err(|e| e.to_string())?;
            let config = CollectorConfig {
                slots: section.slots().to_vec(),
                packed_bytes: bundle.manifest().features.packed_bytes(),
                features_ms,
                most_open,
            };
            let model = EdgeModel::start(edge, section, most_open, sender.clone());
            let model = model.map_err(|error| format!("no thread for edge {edge}: {error}"))?;
            Ok(OwnEdge { edge, collector: Collector::new(config), model })
        };
        let edges = edges.iter().map(|edge| start(*edge)).collect::<Result<_, _>>()?;
        Ok(Self { edges, replies, ready: VecDeque::new(), actions: Vec::new() })
    }

    /// Numbers of the edges.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.edges.iter().map(|own| own.edge)
    }

    /// Takes from what the leader hears the part that is for edges.
    pub(crate) fn overhear(&mut self, now: Micros, event: &Event<'_>) {
        match *event {
            Event::Features { slot, sample, bits } => {
                self.hear(now, EdgeEvent::Features { slot, sample, bits });
            }
            Event::Gone { slot, sample } => self.hear(now, EdgeEvent::Gone { slot, sample }),
            Event::DeviceDown { slot } => self.hear(now, EdgeEvent::DeviceDown { slot }),
            Event::Tick => self.hear(now, EdgeEvent::Tick),
            _ => {}
        }
    }

    /// Gives an event to every edge.
    pub(crate) fn hear(&mut self, now: Micros, event: EdgeEvent<'_>) {
        for OwnEdge { edge, collector, model } in &mut self.edges {
            collector.handle(now, event, &mut self.actions);
            for action in self.actions.drain(..) {
                let nothing =
                    |sample, failed| EdgeReply { edge: *edge, sample, slots: 0, output: None, failed };
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
        self.edges.iter().filter_map(|own| own.collector.next_wake()).min()
    }

    /// The next reply; waits for ever while nothing is asked.
    pub(crate) async fn next(&mut self) -> EdgeReply {
        if let Some(reply) = self.ready.pop_front() {
            return reply;
        }
        match self.replies.recv().await {
            Some(reply) => reply,
            // No edge in this process.
            None => std::future::pending().await,
        }
    }

    /// A reply that is there already.
    pub(crate) fn try_next(&mut self) -> Option<EdgeReply> {
        self.ready.pop_front().or_else(|| self.replies.try_recv().ok())
    }
}
