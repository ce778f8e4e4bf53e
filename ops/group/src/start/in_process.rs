//! All services of a group in this process, each with its own sockets.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_cloud_service::{CloudConfig, CloudService, EngineChoice};
use headwater_edge_aggregator::{
    GroupEdge, GroupLeader, LeaderReport, OpenedGroup, Role, Shared, SharedConfig,
};
use headwater_end_device::{Device, DeviceHandle, DeviceReport, Frames, OpenedDevice};
use headwater_inference::bundle::{Bundle, Networks};
use headwater_inference::policy::Policy;
use headwater_protocol::status::GroupState;
use headwater_protocol::{Slot, SlotSet};
use headwater_samples::archive::Archive;
use headwater_transport::Endpoint;
use tokio::time::sleep;

use super::device_totals::DeviceTotals;
use super::service::{Service, SiteSettings, StartError, device_id, separate_edges, services_of};

/// Time between two checks of [`InProcessGroup::wait_until_ready`].
const READY_POLL: Duration = Duration::from_millis(2);

/// Settings of an [`InProcessGroup`].
#[derive(Clone)]
pub struct InProcessSettings {
    /// Settings that all services share.
    pub site: SiteSettings,
    /// Networks of cloud, leader and edges.
    pub networks: Networks,
    /// Network of devices that are started after this field was set.
    pub device_network: Arc<Bundle>,
    /// Policy of leader, edges and batching devices; `None` for the policy of the bundle.
    pub policy: Option<Policy>,
    /// Frames that every device plays.
    pub frames: Arc<Archive>,
    /// Slots for which [`InProcessGroup::start`] starts a device.
    pub slots: Vec<Slot>,
    /// Address of a cloud service that runs elsewhere; `None` if the group starts its own.
    pub cloud_url: Option<String>,
    /// Engine of the cloud service that the group starts.
    pub cloud_engine: EngineChoice,
}

impl InProcessSettings {
    /// Settings for one device in each slot, and a cloud service of the group's own.
    pub fn new(site: SiteSettings, networks: impl Into<Networks>, frames: Arc<Archive>) -> Self {
        let networks = networks.into();
        let device_network = Arc::clone(networks.current());
        let slots = Slot::first(usize::from(device_network.manifest().slots)).collect();
        let (policy, cloud_url, cloud_engine) = (None, None, EngineChoice::Auto);
        Self { site, networks, device_network, policy, frames, slots, cloud_url, cloud_engine }
    }
}

/// The running services of a group.
pub struct InProcessGroup {
    /// Settings for every service that is started from now on.
    pub settings: InProcessSettings,
    running: BTreeMap<Service, Running>,
    /// Address of the group's own cloud service; a restarted cloud listens there again.
    cloud_listen: SocketAddr,
    totals: DeviceTotals,
}

enum Running {
    Device(DeviceHandle),
    Edge(GroupEdge),
    Leader(GroupLeader),
    Cloud(CloudService),
}

impl InProcessGroup {
    /// Starts every service. Does not wait until the services have found each other.
    ///
    /// # Errors
    /// [`StartError::Failed`] names the service.
    pub async fn start(settings: InProcessSettings) -> Result<Self, StartError> {
        let is_wanted = |service: &Service| match service {
            Service::Device(slot) => settings.slots.contains(slot),
            Service::Edge(_) | Service::Leader => true,
            Service::Cloud => settings.cloud_url.is_none(),
        };
        let services = services_of(settings.networks.current().manifest());
        let services: Vec<_> = services.into_iter().filter(is_wanted).collect();
        let (cloud_listen, totals) = (([127, 0, 0, 1], 0).into(), DeviceTotals::default());
        let mut group = Self { settings, running: BTreeMap::new(), cloud_listen, totals };
        for service in services {
            group.start_service(service).await?;
        }
        Ok(group)
    }

    /// Starts one service with the settings in the field `settings`.
    ///
    /// # Errors
    /// [`StartError::Failed`] names the service.
    pub async fn start_service(&mut self, service: Service) -> Result<(), StartError> {
        let started = self.start_handle(service).await;
        let running = started.map_err(StartError::of(format!("starting {service}")))?;
        if let Running::Cloud(cloud) = &running {
            self.cloud_listen = cloud.addr();
        }
        self.running.insert(service, running);
        Ok(())
    }

    /// Ends a service as SIGKILL would. The message counts of a killed device stay in the totals.
    pub async fn kill(&mut self, service: Service) {
        match self.running.remove(&service) {
            Some(Running::Device(device)) => {
                device.kill();
                self.add(&device.report());
            }
            Some(Running::Edge(edge)) => edge.kill().await,
            Some(Running::Leader(leader)) => leader.kill().await,
            Some(Running::Cloud(cloud)) => cloud.kill().await,
            None => {}
        }
    }

    /// Ends a service in order, as after SIGTERM. Does nothing for a service that does not run.
    ///
    /// # Errors
    /// [`StartError::Failed`] for a leader that had stopped by itself.
    pub async fn stop(&mut self, service: Service) -> Result<(), StartError> {
        match self.running.remove(&service) {
            Some(Running::Device(device)) => {
                let report = device.shutdown().await;
                self.add(&report);
            }
            Some(Running::Edge(edge)) => _ = edge.shutdown().await,
            Some(Running::Leader(leader)) => {
                leader.shutdown().await.map_err(StartError::of(format!("stopping {service}")))?;
            }
            Some(Running::Cloud(cloud)) => _ = cloud.shutdown().await,
            None => {}
        }
        Ok(())
    }

    /// Stops every service, devices first, and sums up the devices' counts.
    ///
    /// # Errors
    /// See [`InProcessGroup::stop`].
    pub async fn shutdown(mut self) -> Result<DeviceTotals, StartError> {
        while let Some(service) = self.running.keys().next().copied() {
            self.stop(service).await?;
        }
        Ok(self.totals)
    }

    /// Waits until the leader leads, and leader and edges know all running devices and edges. A device is known once it receives triggers.
    /// Returns at once if no leader runs.
    ///
    /// # Errors
    /// [`StartError::NotReady`] after the limit.
    pub async fn wait_until_ready(&self, limit: Duration) -> Result<(), StartError> {
        let until = Instant::now() + limit;
        while !self.is_ready() {
            if Instant::now() >= until {
                let known = |report: LeaderReport| (report.filled_slots, report.edges_up);
                let (slots, edges) = self.leader().map(GroupLeader::report).map(known).unwrap_or_default();
                let found = format!("the leader knows the devices {slots:?} and the edges {edges:?}");
                return Err(StartError::NotReady { limit, found });
            }
            sleep(READY_POLL).await;
        }
        Ok(())
    }

    /// Returns true when a service runs.
    pub fn is_running(&self, service: Service) -> bool {
        self.running.contains_key(&service)
    }

    /// The running leader; `None` if no leader runs.
    pub fn leader(&self) -> Option<&GroupLeader> {
        match self.running.get(&Service::Leader) {
            Some(Running::Leader(leader)) => Some(leader),
            _ => None,
        }
    }

    fn is_ready(&self) -> bool {
        let devices = self.running.keys().filter(|service| matches!(service, Service::Device(_))).count();
        let knows_devices = |slots: SlotSet| slots.len() == devices;
        let Some(report) = self.leader().map(GroupLeader::report) else { return true };
        let mut edges = separate_edges(self.settings.networks.current().manifest());
        report.lead == GroupState::Leading
            && knows_devices(report.filled_slots)
            && edges.all(|edge| report.edges_up.contains(edge) == self.is_running(Service::Edge(edge)))
            && self.running.values().all(|running| match running {
                Running::Edge(edge) => knows_devices(edge.report().filled_slots),
                Running::Device(_) | Running::Leader(_) | Running::Cloud(_) => true,
            })
    }

    async fn start_handle(&self, service: Service) -> Result<Running, Box<dyn Error + Send + Sync>> {
        let settings = &self.settings;
        Ok(match service {
            Service::Cloud => {
                let mut config = CloudConfig::default();
                config.http.listen = self.cloud_listen;
                // No load balancer sends requests to the group's own cloud, so the cloud need not keep answering while it stops.
                config.stop_delay_ms = 0;
                config.engine = settings.cloud_engine;
                Running::Cloud(CloudService::start(config, settings.networks.clone()).await?)
            }
            Service::Leader => {
                Running::Leader(GroupLeader::start(&self.aggregator_shared()?, self.group_config()).await?)
            }
            Service::Edge(edge) => {
                let config = OpenedGroup { role: Role::edge(edge), ..self.group_config() };
                Running::Edge(GroupEdge::start(&self.aggregator_shared()?, &config).await?)
            }
            Service::Device(slot) => {
                let frames = Frames::of_archive(Arc::clone(&settings.frames), slot);
                let frames = frames.ok_or("the frames do not have this slot")?;
                let network = Arc::clone(&settings.device_network);
                Running::Device(Device::start(self.device_config(slot), network, frames).await?)
            }
        })
    }

    /// Addresses of broker and cloud, for the leader and the edges.
    fn aggregator_shared(&self) -> Result<Shared, Box<dyn Error + Send + Sync>> {
        let own_cloud = format!("http://{}", self.cloud_listen);
        let mut config = SharedConfig::new(self.settings.site.broker.clone());
        let cloud_url = self.settings.cloud_url.as_ref().unwrap_or(&own_cloud);
        config.cloud.url = Some(Endpoint::http(cloud_url)?);
        Ok(Shared::new(config)?)
    }

    /// Settings of the leader. For an edge the caller changes the role.
    fn group_config(&self) -> OpenedGroup {
        let SiteSettings { site, group, qos, details, journal, .. } = self.settings.site.clone();
        let mut config = OpenedGroup::new(site, group, self.settings.networks.clone());
        (config.settings.request_qos, config.settings.journal.path) = (qos, journal);
        config.settings.details = details;
        config.policy = self.settings.policy.clone().map(|policy| (policy.clone(), policy.id()));
        config
    }

    /// Settings of the device in a slot, for a device that the caller starts.
    pub fn device_config(&self, slot: Slot) -> OpenedDevice {
        let SiteSettings { site, group, broker, qos, queue_samples, batch_ms, details, .. } =
            self.settings.site.clone();
        let mut config = OpenedDevice::new(site, group, device_id(slot), slot, broker);
        (config.settings.upward_qos, config.settings.queue_samples) = (qos, queue_samples);
        config.settings.name_frames = details;
        if batch_ms > 0 {
            config.settings.batch_ms = batch_ms;
            // The leader's policy has the waits that bound how long an answer may wait for further answers.
            config.policy = self.group_config().policy;
        }
        config
    }

    fn add(&mut self, report: &DeviceReport) {
        self.totals.add(&serde_json::to_value(report).expect("numbers and names become JSON"));
    }
}
