//! Services of a group, the settings that they share, and errors of starting and stopping them.

use std::error::Error;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use headwater_inference::manifest::NetworkManifest;
use headwater_link::{Endpoint, QoS};
use headwater_protocol::{DeviceId, EdgeIndex, GroupId, SiteId, Slot};
use thiserror::Error;

/// One service of a group. The variants are in the order in which a group stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// The device of a slot.
    Device(Slot),
    /// An edge of a network with several edges; the only edge of a network runs in the leader.
    Edge(EdgeIndex),
    /// The leader.
    Leader,
    /// The cloud service.
    Cloud,
}

impl Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(slot) => write!(f, "device {slot}"),
            Self::Edge(edge) => write!(f, "edge {edge}"),
            Self::Leader => write!(f, "the leader"),
            Self::Cloud => write!(f, "the cloud"),
        }
    }
}

/// Settings that all services of a group share, in this process or as programs.
#[derive(Clone, Debug)]
pub struct SiteSettings {
    /// Site of the group.
    pub site: SiteId,
    /// The group.
    pub group: GroupId,
    /// Address of the broker.
    pub broker: Endpoint,
    /// `QoS` of the devices' messages and of the leader's requests.
    pub qos: QoS,
    /// Number of captured views of one device that may wait until the section of the device is free; one view more sheds the oldest.
    pub queue_samples: usize,
    /// Milliseconds for which an answer of a device waits for further answers that go in the same message; 0 if no answer waits.
    pub batch_ms: u64,
    /// True when results list views with their frames, and the probability of every class (settings `details` and `name_frames`).
    pub details: bool,
    /// File of the leader's journal; `None` for no journal: the leader's decisions are then lost when the leader ends.
    pub journal: Option<PathBuf>,
}

impl SiteSettings {
    /// Settings at their defaults: `QoS` 0, 128 waiting views, no batches, no details, no journal.
    pub fn new(site: SiteId, group: GroupId, broker: Endpoint) -> Self {
        let (qos, details, journal) = (QoS::AtMostOnce, false, None);
        Self { site, group, broker, qos, queue_samples: 128, batch_ms: 0, details, journal }
    }
}

/// A group that cannot be started or stopped.
#[derive(Debug, Error)]
pub enum StartError {
    /// An operation failed: a service did not start, had already stopped by itself, or the operating system refuses the operation.
    #[error("{operation}: {reason}")]
    Failed {
        /// The operation, such as `starting the leader`.
        operation: String,
        /// The reason. It is no source, since the message contains its text.
        reason: Box<dyn Error + Send + Sync>,
    },
    /// The services did not find each other in time, or a program did not become ready or end in time.
    #[error("waited {limit:?} for all services to find each other: {found}")]
    NotReady {
        /// Time waited.
        limit: Duration,
        /// State at the end of the wait.
        found: String,
    },
    /// A program is in none of the places where it is looked for.
    #[error("{name} is not there ({tried}): build all programs with `cargo build --release --workspace`")]
    NoProgram {
        /// File name of the program.
        name: String,
        /// Paths that were tried.
        tried: String,
    },
}

impl StartError {
    pub(super) fn of<E: Into<Box<dyn Error + Send + Sync>>>(operation: String) -> impl FnOnce(E) -> Self {
        move |reason| Self::Failed { operation, reason: reason.into() }
    }
}

/// Name of the device in a slot: `cam-0` for slot 0.
pub(super) fn device_id(slot: Slot) -> DeviceId {
    DeviceId::new(format!("cam-{slot}")).expect("a number and letters make a name")
}

/// Edges that run as services of their own: all edges of a network with several edges, none of a network with one, which runs in the
/// leader.
pub fn separate_edges(network: &NetworkManifest) -> impl Iterator<Item = EdgeIndex> {
    let edges = network.edge.as_ref().map_or(0, |edge| edge.groups.len());
    EdgeIndex::first(if edges > 1 { edges } else { 0 })
}

/// Services of a network, in the order in which they start.
pub(super) fn services_of(network: &NetworkManifest) -> Vec<Service> {
    let edges = separate_edges(network).map(Service::Edge);
    let devices = Slot::first(usize::from(network.slots)).map(Service::Device);
    [Service::Cloud, Service::Leader].into_iter().chain(edges).chain(devices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_start_is_said_once() {
        let error = StartError::of::<&str>("starting the leader".into())("no room");
        assert_eq!(error.to_string(), "starting the leader: no room");
        assert!(error.source().is_none());
    }
}
