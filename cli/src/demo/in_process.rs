//! Everyone in this process: the cloud, the aggregator, edges, one device per slot, each on its own sockets.

use std::sync::Arc;

use anyhow::Context;
use headwater_cloud_service::{CloudConfig, CloudHandle, CloudService};
use headwater_edge_aggregator::{Aggregator, AggregatorConfig, AggregatorHandle, Edge, EdgeHandle, Role};
use headwater_end_device::{Device, DeviceConfig, DeviceHandle, DeviceReport, Frames};
use headwater_inference::policy::Policy;
use headwater_protocol::{DeviceId, Slot};
use tokio::time::{Duration, sleep};

use super::cast::{CastReport, Scene, VIEW_KINDS};
use super::plan::{MOST_UNSETTLED, Victim};

/// The running parts. A killed one is gone from here; what it had counted is kept.
pub(super) struct InProcess {
    cloud: Option<CloudHandle>,
    aggregator: AggregatorHandle,
    edges: Vec<Option<EdgeHandle>>,
    devices: Vec<Option<DeviceHandle>>,
    killed: Vec<DeviceReport>,
}

impl InProcess {
    pub(super) async fn start(scene: &Scene<'_>, policy: Policy) -> anyhow::Result<Self> {
        let Scene { site, group, broker, qos, material } = scene;
        let (bundle, frames) = (&material.bundle, &material.frames);
        let cloud_config = CloudConfig::default().with_listen(([127, 0, 0, 1], 0));
        let model_name = cloud_config.model.name.clone();
        let cloud =
            CloudService::start(cloud_config, Arc::clone(bundle)).await.context("starting the cloud")?;
        let mut config = AggregatorConfig::new(site.clone(), group.clone(), broker.clone());
        config.cloud_url = Some(format!("http://{}", cloud.addr()));
        config.cloud_model = model_name;
        config.request_qos = *qos;
        let policy_id = Policy::id_of(&serde_json::to_vec(&policy)?);
        config.policy = Some((policy, policy_id));
        let mut edges = Vec::new();
        for edge in 0..scene.edges() {
            let config = AggregatorConfig { role: Role::Edge { edge, id: None }, ..config.clone() };
            let started = Edge::start(config, (edge, None), Arc::clone(bundle)).await;
            edges.push(Some(started.with_context(|| format!("starting edge {edge}"))?));
        }
        let aggregator =
            Aggregator::start(config, Arc::clone(bundle)).await.context("starting the aggregator")?;
        let mut devices = Vec::new();
        for slot in Slot::first(usize::from(bundle.manifest().slots)) {
            let id = DeviceId::new(format!("cam-{slot}"))?;
            let mut config = DeviceConfig::new(site.clone(), group.clone(), id, slot, broker.clone());
            config.upward_qos = *qos;
            config.queue_samples = config.queue_samples.max(2 * MOST_UNSETTLED);
            let frames = Frames::of_archive(Arc::clone(frames), slot)
                .with_context(|| format!("the frames have no slot {slot}"))?;
            let device = Device::start(config, Arc::clone(bundle), frames)
                .await
                .with_context(|| format!("starting the device of slot {slot}"))?;
            devices.push(Some(device));
        }
        Ok(Self { cloud: Some(cloud), aggregator, edges, devices, killed: Vec::new() })
    }

    /// Waits until the aggregator has seen every device's birth and every edge, and every device hears triggers.
    pub(super) async fn ready(&self) {
        for device in self.devices.iter().flatten() {
            device.connected().await;
        }
        let is_ready = || {
            let report = self.aggregator.report();
            let devices = self.devices.len() as u32;
            let mut edges = self.edges.iter().flatten();
            report.filled_slots.count_ones() == devices
                && report.edges_up.count_ones() as usize >= self.edges.len()
                && edges.all(|edge| edge.report().filled_slots.count_ones() == devices)
        };
        while !is_ready() {
            sleep(Duration::from_millis(2)).await;
        }
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
            Victim::Edge(edge) => {
                if let Some(edge) = self.edges.get_mut(edge).and_then(Option::take) {
                    edge.kill().await;
                }
                format!("edge {edge}")
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
        for edge in self.edges.into_iter().flatten() {
            edge.shutdown().await;
        }
        self.aggregator.shutdown().await.context("stopping the aggregator")?;
        if let Some(cloud) = self.cloud {
            cloud.shutdown().await;
        }
        Ok(reports.iter().fold(CastReport::default(), |sum, report| CastReport {
            views: sum.views + VIEW_KINDS.iter().map(|kind| report.sent_of(*kind).messages).sum::<u64>(),
            body_bytes: sum.body_bytes + report.body_bytes(),
            payload_bytes: sum.payload_bytes + report.payload_bytes(),
            wire_sent: sum.wire_sent + report.wire_sent,
            wire_received: sum.wire_received + report.wire_received,
        }))
    }
}
