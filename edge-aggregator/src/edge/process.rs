//! An edge beside the leader (configuration f): one worker for each network, two while the group switches its network.

use headwater_inference::leader::Generation;
use headwater_link::WireBytes;
use headwater_protocol::EdgeId;

use super::worker;
use crate::aggregator::{AggregatorError, Shared};
use crate::config::{GroupConfig, Role};
use crate::member::{Member, MemberReport};
use crate::remote_edges::NetworkEdge;
use crate::report::EdgeReport;

/// A running edge of a group. Dropping the value stops the edge as [`GroupEdge::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct GroupEdge {
    id: EdgeId,
    /// One worker for each network.
    workers: Vec<Member<EdgeReport>>,
}

impl MemberReport for EdgeReport {
    fn set_wire(&mut self, wire: WireBytes) {
        (self.wire_sent_bytes, self.wire_received_bytes) = (wire.sent, wire.received);
    }
}

impl GroupEdge {
    /// Loads the edge's section under each network, and starts connecting to the broker until a connection is made. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`AggregatorError`]: another role, a network without that edge, a section that does not load, or the link.
    pub async fn start(shared: &Shared, config: &GroupConfig) -> Result<Self, AggregatorError> {
        let Role::Edge { edge, id } = &config.role else {
            return Err(AggregatorError::mistake("role: expected \"edge\", found \"leader\""));
        };
        let id = match id {
            Some(id) => id.clone(),
            None => edge_id(format!("edge-{edge}"))?,
        };
        let mut workers = Vec::new();
        for (generation, bundle) in config.networks.bundles().iter() {
            let id = match generation {
                Generation::Current => id.clone(),
                // Two workers with one name would end each other's connections.
                Generation::Next => edge_id(format!("{id}-next"))?,
            };
            let edge = NetworkEdge { generation, edge: *edge };
            workers.push(worker::start(shared, config, (edge, id), bundle).await?);
        }
        Ok(Self { id, workers })
    }

    /// Name of the edge in topics.
    pub(crate) fn id(&self) -> &str {
        self.id.as_str()
    }

    /// Counts under all networks.
    pub fn report(&self) -> EdgeReport {
        self.reader()()
    }

    /// A function that reads the counts, also after the edge has ended.
    pub(crate) fn reader(&self) -> impl Fn() -> EdgeReport + Send + Sync + 'static + use<> {
        let readers: Vec<_> = self.workers.iter().map(Member::reader).collect();
        move || readers.iter().fold(EdgeReport::default(), |sum, read| sum.plus(read()))
    }

    /// Whether the edge is connected to the broker.
    pub fn is_connected(&self) -> bool {
        self.workers.iter().all(Member::is_connected)
    }

    /// Publishes that the edge is down and ends, within the grace time.
    pub async fn shutdown(self) -> EdgeReport {
        let read = self.reader();
        for worker in self.workers {
            // Whether the worker returned or panicked, it has ended.
            let _ = worker.shutdown().await;
        }
        read()
    }

    /// Runs until `stop` ends.
    ///
    /// # Errors
    /// [`AggregatorError::Stopped`] when the link of a worker ended.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<EdgeReport, AggregatorError> {
        let ended = {
            let mut workers = self.workers.iter_mut().map(|member| &mut member.worker);
            let (current, next) = (workers.next(), workers.next());
            tokio::select! {
                () = stop => false,
                () = ended(current) => true,
                () = ended(next) => true,
            }
        };
        if ended {
            return Err(AggregatorError::Stopped("the link ended".into()));
        }
        Ok(self.shutdown().await)
    }

    /// Ends everything at once, as SIGKILL would; returns when the tasks have ended.
    pub async fn kill(self) {
        for worker in self.workers {
            worker.kill().await;
        }
    }
}

/// Waits for the end of a task; without a task, for ever.
async fn ended<T>(task: Option<&mut tokio::task::JoinHandle<T>>) {
    match task {
        Some(task) => _ = task.await,
        None => std::future::pending().await,
    }
}

fn edge_id(id: String) -> Result<EdgeId, AggregatorError> {
    EdgeId::new(id).map_err(|error| AggregatorError::mistake(format!("edge_id: {error}")))
}
