//! All tiers in this process, each on its own sockets, over a real broker.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_cloud_service::{CloudConfig, CloudHandle, CloudService, EngineChoice};
use headwater_edge_aggregator::{
    Aggregator, AggregatorConfig, AggregatorHandle, Edge, EdgeHandle, JournalConfig, Role,
};
use headwater_end_device::{Device, DeviceConfig, DeviceHandle, Frames};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::policy::{ExitThreshold, Policy, Threshold};
use headwater_link::broker::EmbeddedBroker;
use headwater_link::{BrokerAddress, QoS};
use headwater_protocol::{DeviceId, GroupId, SiteId, Slot, Topics};
use headwater_samples::archive::Archive;
use tokio::time::{Instant, sleep};

use crate::observer::{Observer, PATIENCE};
use crate::shipped;

/// What to start; every field has a default.
pub struct Plan {
    /// The network of every tier.
    pub bundle: Arc<Bundle>,
    /// What the devices see.
    pub frames: Arc<Archive>,
    /// The leader's thresholds and timing.
    pub policy: Policy,
    /// Where the broker is; `None` starts an embedded one.
    pub broker: Option<BrokerAddress>,
    /// Where the leader finds the cloud; `None` starts one.
    pub cloud_url: Option<String>,
    /// Of the devices' messages and the leader's requests.
    pub qos: QoS,
    /// Slots that get a device.
    pub slots: Vec<Slot>,
    /// File of the leader's journal; without one a restart knows nothing.
    pub journal: Option<PathBuf>,
    /// The network that devices can switch to; cloud, leader and edges hold it from the start.
    pub next: Option<Arc<Bundle>>,
}

/// The running tiers.
pub struct Tiers {
    /// Where the broker is.
    pub broker: BrokerAddress,
    /// `None` when it is somebody else's, or was killed.
    pub cloud: Option<CloudHandle>,
    /// The leader.
    pub aggregator: AggregatorHandle,
    /// What the leader was told, for one that takes its place.
    pub leader_config: AggregatorConfig,
    /// Edges of a network with several, each as a service of its own; `None` where one was killed.
    pub edges: Vec<Option<EdgeHandle>>,
    /// By slot; `None` where there is none, or it was killed.
    pub devices: Vec<Option<DeviceHandle>>,
    /// Of the group.
    pub topics: Topics,
    /// The network of every device that is started.
    pub bundle: Arc<Bundle>,
    /// What cloud, leader and edges hold.
    pub networks: Networks,
}

impl Default for Plan {
    /// The shipped network and frames under a policy whose waits no busy test machine reaches.
    fn default() -> Self {
        let bundle = shipped::bundle();
        let slots = Slot::first(usize::from(bundle.manifest().slots)).collect();
        let policy =
            Policy { window_ms: 10_000, features_ms: 10_000, deadline_ms: 20_000, ..bundle.policy().clone() };
        Self {
            bundle,
            frames: shipped::frames(),
            policy,
            broker: None,
            cloud_url: None,
            qos: QoS::AtMostOnce,
            slots,
            journal: None,
            next: None,
        }
    }
}

impl Plan {
    /// Another network, with its own policy, for the shipped frames.
    #[must_use]
    pub fn of(bundle: Bundle) -> Self {
        let slots = Slot::first(usize::from(bundle.manifest().slots)).collect();
        Self { policy: bundle.policy().clone(), bundle: Arc::new(bundle), slots, ..Self::default() }
    }

    /// With another local threshold: 0 sends what is not certain to the cloud, 1 sends nothing.
    ///
    /// # Panics
    /// For a number outside `[0, 1]`.
    #[must_use]
    pub fn threshold(mut self, threshold: f32) -> Self {
        self.policy.local.threshold = Threshold::One(ExitThreshold::new(threshold).expect("in [0, 1]"));
        self
    }

    /// Starts everything and waits until every device is known to the leader.
    ///
    /// # Panics
    /// When a part does not start in time.
    pub async fn start(self) -> Tiers {
        let networks = match self.next {
            Some(next) => Networks::both(Arc::clone(&self.bundle), next).expect("two networks"),
            None => Arc::clone(&self.bundle).into(),
        };
        let broker = match self.broker {
            Some(broker) => broker,
            None => EmbeddedBroker::start(None).expect("the embedded broker starts").address(),
        };
        let (cloud, cloud_url) = match self.cloud_url {
            Some(url) => (None, url),
            None => {
                let cloud = start_cloud(networks.clone()).await;
                let url = format!("http://{}", cloud.addr());
                (Some(cloud), url)
            }
        };
        let (site, group) = names();
        let mut config = AggregatorConfig::new(site.clone(), group.clone(), broker.clone());
        config.cloud_url = Some(cloud_url);
        config.request_qos = self.qos;
        config.journal = self.journal.map(JournalConfig::new);
        let policy_id = Policy::id_of(&serde_json::to_vec(&self.policy).expect("a policy becomes JSON"));
        config.policy = Some((self.policy, policy_id));
        let aggregator =
            Aggregator::start(config.clone(), networks.clone()).await.expect("the aggregator starts");
        let mut tiers = Tiers {
            broker,
            cloud,
            aggregator,
            leader_config: config,
            edges: Vec::new(),
            devices: (0..self.bundle.manifest().slots).map(|_| None).collect(),
            topics: Topics::new(&site, &group),
            bundle: self.bundle,
            networks,
        };
        let edges = tiers.bundle.manifest().edge.as_ref().map_or(0, |edge| edge.groups.len());
        if edges > 1 {
            for edge in 0..edges {
                tiers.edges.push(None);
                tiers.start_edge(edge).await;
            }
        }
        for slot in self.slots {
            tiers.start_device(slot, &self.frames, self.qos).await;
        }
        tiers.until_filled().await;
        tiers
    }
}

impl Tiers {
    /// Starts the device of a slot.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_device(&mut self, slot: Slot, frames: &Arc<Archive>, qos: QoS) {
        let mut config = device_config(slot, self.broker.clone());
        config.upward_qos = qos;
        let frames = Frames::of_archive(Arc::clone(frames), slot).expect("the frames have the slot");
        let device =
            Device::start(config, Arc::clone(&self.bundle), frames).await.expect("the device starts");
        device.connected().await;
        self.devices[slot.index()] = Some(device);
    }

    /// Starts an edge as a service of its own, and waits until the leader knows it.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_edge(&mut self, edge: usize) {
        let (site, group) = names();
        let mut config = AggregatorConfig::new(site, group, self.broker.clone());
        config.role = Role::Edge { edge, id: None };
        let handle = Edge::start(config, (edge, None), self.networks.clone()).await.expect("the edge starts");
        self.edges[edge] = Some(handle);
        self.until_edges(|up| up >> edge & 1 == 1).await;
    }

    /// Ends an edge as SIGKILL would, and waits until the leader knows.
    ///
    /// # Panics
    /// When there is none, or the leader does not hear of it in time.
    pub async fn kill_edge(&mut self, edge: usize) {
        self.edges[edge].take().expect("a running edge").kill().await;
        self.until_edges(|up| up >> edge & 1 == 0).await;
    }

    /// Restarts the device of a slot with the next network, and waits until the leader knows.
    ///
    /// # Panics
    /// When there is none, or it does not come back in time.
    pub async fn switch_device(&mut self, slot: Slot, frames: &Arc<Archive>) {
        self.devices[slot.index()].take().expect("a device in the slot").shutdown().await;
        let next = Arc::clone(self.networks.next().expect("a next network"));
        let current = std::mem::replace(&mut self.bundle, next);
        self.start_device(slot, frames, QoS::AtMostOnce).await;
        self.bundle = current;
        self.until_filled().await;
    }

    /// Restarts cloud, leader and edges with the next network alone.
    ///
    /// # Panics
    /// When one of them does not come back in time.
    #[must_use]
    pub async fn only_next(mut self) -> Self {
        self.bundle = Arc::clone(self.networks.next().expect("a next network"));
        self.networks = Arc::clone(&self.bundle).into();
        self.leader_config.policy = None;
        self.aggregator.shutdown().await.expect("the aggregator ends well");
        if let Some(cloud) = self.cloud.take() {
            cloud.shutdown().await;
        }
        let cloud = start_cloud(self.networks.clone()).await;
        self.leader_config.cloud_url = Some(format!("http://{}", cloud.addr()));
        self.cloud = Some(cloud);
        let started = Aggregator::start(self.leader_config.clone(), self.networks.clone()).await;
        self.aggregator = started.expect("the aggregator starts again");
        for edge in 0..self.edges.len() {
            self.edges[edge].take().expect("a running edge").shutdown().await;
            self.start_edge(edge).await;
        }
        self.until_filled().await;
        self
    }

    /// Ends the leader as SIGKILL would, starts another in its place, and waits until it knows everyone.
    ///
    /// # Panics
    /// When it does not start, or does not hear of everyone in time.
    #[must_use]
    pub async fn restart_leader(mut self) -> Self {
        self.aggregator.kill().await;
        let started = Aggregator::start(self.leader_config.clone(), self.networks.clone()).await;
        self.aggregator = started.expect("the aggregator starts again");
        self.until_filled().await;
        let running = self.edges.iter().flatten().count() as u32;
        self.until_edges(|up| up.count_ones() >= running).await;
        self
    }

    async fn until_edges(&self, is_so: impl Fn(u64) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self.aggregator.report().edges_up) {
            let report = self.aggregator.report();
            assert!(Instant::now() < until, "edges known to the leader: {report:?}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the leader knows every running device, and every running edge knows its own.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until_filled(&self) {
        let expected = self.devices.iter().flatten().count();
        let until = Instant::now() + PATIENCE;
        while self.aggregator.report().filled_slots.count_ones() as usize != expected {
            let report = self.aggregator.report();
            assert!(Instant::now() < until, "devices known to the leader: {report:?}");
            sleep(Duration::from_millis(2)).await;
        }
        for edge in self.edges.iter().flatten() {
            while edge.report().filled_slots.count_ones() as usize != expected {
                assert!(Instant::now() < until, "devices known to an edge: {:?}", edge.report());
                sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Someone who triggers and listens.
    pub async fn observer(&self) -> Observer {
        Observer::connect(self.broker.clone(), self.topics.clone(), self.bundle.network_id()).await
    }

    /// Ends a device as SIGKILL would, and waits until the leader knows.
    ///
    /// # Panics
    /// When there is none, or the leader does not hear of it in time.
    pub async fn kill_device(&mut self, slot: Slot) {
        let device = self.devices[slot.index()].take().expect("a device in the slot");
        device.kill();
        self.until_filled().await;
    }

    /// Ends everyone.
    ///
    /// # Panics
    /// When the aggregator had stopped by itself.
    pub async fn shutdown(self) {
        for device in self.devices.into_iter().flatten() {
            device.shutdown().await;
        }
        for edge in self.edges.into_iter().flatten() {
            edge.shutdown().await;
        }
        self.aggregator.shutdown().await.expect("the aggregator ends well");
        if let Some(cloud) = self.cloud {
            cloud.shutdown().await;
        }
    }
}

/// A cloud service on a free port.
///
/// # Panics
/// When it does not start.
pub async fn start_cloud(networks: impl Into<Networks>) -> CloudHandle {
    let mut config = CloudConfig::default().with_listen(([127, 0, 0, 1], 0));
    config.model.engine = EngineChoice::Tract;
    CloudService::start(config, networks).await.expect("the cloud starts")
}

/// Configuration of the device that tests put into a slot.
///
/// # Panics
/// Never: the names are good.
pub fn device_config(slot: Slot, broker: BrokerAddress) -> DeviceConfig {
    let (site, group) = names();
    let id = DeviceId::new(format!("cam-{slot}")).expect("a good name");
    DeviceConfig::new(site, group, id, slot, broker)
}

/// Site and group of the tests.
///
/// # Panics
/// Never: the names are good.
pub fn names() -> (SiteId, GroupId) {
    (SiteId::new("tests").expect("a good name"), GroupId::new("group").expect("a good name"))
}
