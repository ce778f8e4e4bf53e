//! A running member of a group (its leader or an edge): event loops, each with a connection to the broker, and a report.

use std::sync::Arc;
use std::time::Duration;

use headwater_link::{Link, WireBytes};
use headwater_protocol::status::BrokerStatus;
use headwater_protocol::{EdgeSet, SlotSet};
use headwater_telemetry::ReportMetric;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::devices::message_format::InboxCounts;
use crate::error::AggregatorError;
use crate::report::{BrokerLink, EdgeReport, GroupReport, LeaderReport};

/// A running member of a group. Dropping the value stops the member as [`Member::shutdown`] does, without waiting.
#[derive(Debug)]
pub struct Member<R> {
    /// The connection of each event loop.
    pub(crate) connections: Connections,
    /// A leader has one event loop, an edge one for each network.
    pub(crate) loops: JoinSet<Result<(), AggregatorError>>,
    pub(crate) grace: Duration,
    pub(crate) report: Arc<Mutex<R>>,
    /// Counts of the inbox since the process started, however often the process has begun to lead.
    pub(crate) inbox: Arc<Mutex<InboxCounts>>,
    pub(crate) stop: watch::Sender<bool>,
}

/// The connections of a member. A leader makes a new connection each time that it begins to wait or to lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections {
    current: Arc<Mutex<CurrentLinks>>,
}

#[derive(Debug, Default)]
struct CurrentLinks {
    links: Vec<Link>,
    /// Bytes on earlier connections.
    earlier: WireBytes,
}

impl Connections {
    pub(crate) fn add(&self, link: Link) {
        self.current.lock().links.push(link);
    }

    /// Removes and returns all connections; their bytes stay counted.
    pub(crate) fn remove_all(&self) -> Vec<Link> {
        let mut current = self.current.lock();
        let links = std::mem::take(&mut current.links);
        current.earlier = sum(current.earlier, &links);
        links
    }

    fn links(&self) -> Vec<Link> {
        self.current.lock().links.clone()
    }

    fn state(&self) -> BrokerLink {
        let current = self.current.lock();
        let links = &current.links;
        let connected = !links.is_empty() && links.iter().all(Link::is_connected);
        let mut failures = links.iter().filter(|_| !connected).filter_map(|link| {
            link.failures().borrow().as_ref().map(|failure| (failure.to_string(), failure.is_refusal()))
        });
        let (reason, is_refused) = failures.next_back().unzip();
        let (is_refused, wire) = (is_refused.unwrap_or(false), sum(current.earlier, links));
        BrokerLink { status: BrokerStatus { connected, reason }, is_refused, wire }
    }
}

/// Bytes on the sockets of links, added to `earlier`.
fn sum(earlier: WireBytes, links: &[Link]) -> WireBytes {
    links.iter().map(Link::wire).fold(earlier, |sum, wire| WireBytes {
        sent: sum.sent + wire.sent,
        received: sum.received + wire.received,
    })
}

/// Report of a member, with the bytes on its connections to the broker.
pub trait MemberReport: Clone + Default + Send + 'static {
    /// Metrics that are read from the report.
    const METRICS: &'static [ReportMetric<Self>];

    /// Sets the state of the connections to the broker, and the counts of the inbox.
    fn set_parts(&mut self, broker: BrokerLink, inbox: InboxCounts);

    /// Clears the parts of the report that hold only while the leader leads or the edge runs, such as the filled slots.
    fn clear_present(&mut self);

    /// The report in the type that holds a report of either role.
    fn into_group_report(self) -> GroupReport;
}

impl MemberReport for LeaderReport {
    const METRICS: &'static [ReportMetric<Self>] = Self::METRICS;

    fn set_parts(&mut self, broker: BrokerLink, inbox: InboxCounts) {
        (self.broker, self.inbox) = (broker, inbox);
    }

    fn clear_present(&mut self) {
        (self.open, self.awaited, self.results_waiting, self.results_unacknowledged) = (0, 0, 0, 0);
        self.unconfirmed_trigger = None;
        self.journal.is_full = false;
        (self.slots, self.filled_slots) = (SlotSet::EMPTY, SlotSet::EMPTY);
        self.edges_up = EdgeSet::EMPTY;
        self.devices.clear();
    }

    fn into_group_report(self) -> GroupReport {
        GroupReport::Leader(Box::new(self))
    }
}

impl MemberReport for EdgeReport {
    const METRICS: &'static [ReportMetric<Self>] = Self::METRICS;

    fn set_parts(&mut self, broker: BrokerLink, inbox: InboxCounts) {
        (self.broker, self.inbox) = (broker, inbox);
    }

    fn clear_present(&mut self) {
        self.filled_slots = SlotSet::EMPTY;
    }

    fn into_group_report(self) -> GroupReport {
        GroupReport::Edge(Box::new(self))
    }
}

impl<R: MemberReport> Member<R> {
    /// A member without event loops yet.
    pub(crate) fn new(grace: Duration) -> Self {
        let stop = watch::Sender::new(false);
        let connections = Connections::default();
        Self {
            connections,
            loops: JoinSet::new(),
            grace,
            report: Arc::default(),
            inbox: Arc::default(),
            stop,
        }
    }

    /// Present state of the member, and its counts since the process started.
    pub fn report(&self) -> R {
        self.reader()()
    }

    /// A function that reads the counts, also after the member has ended.
    pub(crate) fn reader(&self) -> impl Fn() -> R + Send + Sync + 'static + use<R> {
        let (connections, report) = (self.connections.clone(), Arc::clone(&self.report));
        let inbox = Arc::clone(&self.inbox);
        move || {
            let mut report = report.lock().clone();
            report.set_parts(connections.state(), inbox.lock().clone());
            report
        }
    }

    /// True if every event loop is connected to the broker.
    pub fn is_connected(&self) -> bool {
        self.connections.state().status.connected
    }

    /// Stops, each step within the grace time: accepts no new samples, finishes the open ones, lets the broker take the last messages.
    ///
    /// # Errors
    /// [`AggregatorError`] if an event loop of the member ended with an error or a panic.
    pub async fn shutdown(self) -> Result<R, AggregatorError> {
        self.run(std::future::ready(())).await
    }

    /// Runs until `stop` ends, or until an event loop ends by itself.
    ///
    /// # Errors
    /// [`AggregatorError`] if an event loop of the member ended with an error or a panic.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<R, AggregatorError> {
        let first = tokio::select! {
            () = stop => None,
            first = self.loops.join_next() => first,
        };
        let ended_by_itself = first.is_some();
        self.stop.send_replace(true);
        let mut ends = Vec::from_iter(first);
        while let Some(end) = self.loops.join_next().await {
            ends.push(end);
        }
        for link in self.connections.links() {
            link.shutdown(self.grace).await;
        }
        if ended_by_itself {
            self.report.lock().clear_present();
        }
        for end in ends {
            end.map_err(|panic| AggregatorError::Stopped(panic.to_string())).flatten()?;
        }
        Ok(self.report())
    }

    /// Ends everything at once, as SIGKILL would; returns when the tasks have ended.
    pub async fn kill(mut self) {
        self.connections.links().iter().for_each(Link::kill);
        self.loops.shutdown().await;
    }
}

impl<R> Drop for Member<R> {
    fn drop(&mut self) {
        // The dropped sender of `stop` ends the event loops.
        self.loops.detach_all();
    }
}

#[cfg(test)]
mod tests {
    use headwater_protocol::SampleId;

    use super::*;

    #[test]
    fn a_leader_that_does_not_lead_reports_no_empty_slots_and_waits_for_no_sample() {
        let slots = SlotSet::from_bits(0b11);
        let unconfirmed_trigger = Some(SampleId(7));
        let mut report = LeaderReport {
            slots,
            filled_slots: SlotSet::from_bits(1),
            awaited: 2,
            unconfirmed_trigger,
            ..LeaderReport::default()
        };
        report.clear_present();
        assert_eq!(report, LeaderReport::default());
    }
}
