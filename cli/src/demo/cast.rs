//! Everyone in the demo: the embedded broker, the cloud, the aggregator, one device per slot, each on its own sockets.

use std::sync::Arc;

use anyhow::Context;
use headwater_cloud_service::{CloudConfig, CloudHandle, CloudService};
use headwater_edge_aggregator::{Aggregator, AggregatorConfig, AggregatorHandle};
use headwater_end_device::{Device, DeviceConfig, DeviceHandle, DeviceReport, Frames};
use headwater_inference::bundle::Bundle;
use headwater_inference::policy::Policy;
use headwater_link::BrokerAddress;
use headwater_link::broker::EmbeddedBroker;
use headwater_protocol::{DeviceId, GroupId, Kind, SiteId, Slot, Topics};
use headwater_samples::archive::Archive;
use tokio::time::{Duration, sleep};

use super::plan::{MOST_UNSETTLED, Victim};

/// The running parts. A killed one is gone from here; what it had counted is kept.
pub(super) struct Cast {
    broker: EmbeddedBroker,
    cloud: Option<CloudHandle>,
    aggregator: AggregatorHandle,
    devices: Vec<Option<DeviceHandle>>,
    killed: Vec<DeviceReport>,
    topics: Topics,
}

/// What the devices counted, over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CastReport {
    /// Summaries with scores, that is views.
    pub(super) views: u64,
    pub(super) body_bytes: u64,
    pub(super) payload_bytes: u64,
    pub(super) wire_sent: u64,
    pub(super) wire_received: u64,
}

impl Cast {
    pub(super) async fn start(
        port: Option<u16>,
        bundle: &Arc<Bundle>,
        policy: Policy,
        frames: &Arc<Archive>,
    ) -> anyhow::Result<Self> {
        let (site, group) = (SiteId::new("demo")?, GroupId::new("cameras")?);
        let broker = EmbeddedBroker::start(port).context("starting the embedded broker")?;
        let cloud_config = CloudConfig { listen: ([127, 0, 0, 1], 0).into(), ..CloudConfig::default() };
        let model_name = cloud_config.model_name.clone();
        let cloud =
            CloudService::start(cloud_config, Arc::clone(bundle)).await.context("starting the cloud")?;
        let mut config = AggregatorConfig::new(site.clone(), group.clone(), broker.address());
        config.cloud_url = Some(format!("http://{}", cloud.addr()));
        config.cloud_model = model_name;
        let policy_id = Policy::id_of(&serde_json::to_vec(&policy)?);
        config.policy = Some((policy, policy_id));
        let aggregator =
            Aggregator::start(config, Arc::clone(bundle)).await.context("starting the aggregator")?;
        let mut devices = Vec::new();
        for slot in Slot::first(usize::from(bundle.manifest().slots)) {
            let id = DeviceId::new(format!("cam-{slot}"))?;
            let mut config = DeviceConfig::new(site.clone(), group.clone(), id, slot, broker.address());
            // Whatever is unsettled may still be asked for.
            config.keep_samples = config.keep_samples.max(2 * MOST_UNSETTLED);
            config.queue_samples = config.queue_samples.max(2 * MOST_UNSETTLED);
            let frames = Frames::of_archive(Arc::clone(frames), slot)
                .with_context(|| format!("the frames have no slot {slot}"))?;
            let device = Device::start(config, Arc::clone(bundle), frames)
                .await
                .with_context(|| format!("starting the device of slot {slot}"))?;
            devices.push(Some(device));
        }
        let topics = Topics::new(&site, &group);
        Ok(Self { broker, cloud: Some(cloud), aggregator, devices, killed: Vec::new(), topics })
    }

    /// Waits until the aggregator has seen every device's birth and every device hears triggers.
    pub(super) async fn ready(&self) {
        for device in self.devices.iter().flatten() {
            device.connected().await;
        }
        while self.aggregator.report().filled_slots.count_ones() as usize != self.devices.len() {
            sleep(Duration::from_millis(2)).await;
        }
    }

    pub(super) fn broker(&self) -> BrokerAddress {
        self.broker.address()
    }

    pub(super) fn topics(&self) -> Topics {
        self.topics.clone()
    }

    /// Ends a part as SIGKILL would; says what it was.
    pub(super) async fn kill(&mut self, victim: Victim) -> String {
        match victim {
            Victim::Cloud => {
                if let Some(cloud) = self.cloud.take() {
                    cloud.kill().await;
                }
                "the cloud".into()
            }
            Victim::Device(slot) => {
                if let Some(device) = self.devices.get_mut(slot.index()).and_then(Option::take) {
                    device.kill();
                    self.killed.push(device.report());
                }
                format!("device {slot}")
            }
        }
    }

    /// Ends everyone in order and adds up what the devices counted.
    pub(super) async fn shutdown(self) -> anyhow::Result<CastReport> {
        let mut reports = self.killed;
        for device in self.devices.into_iter().flatten() {
            reports.push(device.shutdown().await);
        }
        self.aggregator.shutdown().await.context("stopping the aggregator")?;
        if let Some(cloud) = self.cloud {
            cloud.shutdown().await;
        }
        Ok(reports.iter().fold(CastReport::default(), |sum, report| CastReport {
            views: sum.views + report.sent_of(Kind::Summary).messages,
            body_bytes: sum.body_bytes + report.body_bytes(),
            payload_bytes: sum.payload_bytes + report.payload_bytes(),
            wire_sent: sum.wire_sent + report.wire_sent,
            wire_received: sum.wire_received + report.wire_received,
        }))
    }
}
