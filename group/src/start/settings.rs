//! Settings that all services of a group share.

use std::path::PathBuf;

use headwater_inference::manifest::NetworkManifest;
use headwater_link::{Endpoint, QoS};
use headwater_protocol::{DeviceId, EdgeIndex, GroupId, SiteId, Slot};

use super::service::Service;

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
    /// Captured views that may wait for a device's section.
    pub queue_samples: usize,
    /// File of the leader's journal. `None`: decisions do not survive the leader.
    pub journal: Option<PathBuf>,
}

impl SiteSettings {
    /// Settings at their defaults: `QoS` 0, 128 waiting views, no journal.
    pub fn new(site: SiteId, group: GroupId, broker: Endpoint) -> Self {
        Self { site, group, broker, qos: QoS::AtMostOnce, queue_samples: 128, journal: None }
    }
}

/// Name of the device in a slot.
pub(super) fn device_id(slot: Slot) -> DeviceId {
    DeviceId::new(format!("cam-{slot}")).expect("a number and letters make a name")
}

/// Edges that are separate services. The only edge of a network runs in the leader.
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
