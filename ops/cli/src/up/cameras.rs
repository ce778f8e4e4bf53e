//! The devices of a site's cameras. The state of each device is printed when it changes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use headwater_edge_aggregator::{Aggregator, GroupReport, ReportedDevice};
use headwater_end_device::{Device, DeviceCounts, DeviceHandle, DeviceReport, DeviceSettings, Ended, Source};
use headwater_link::Endpoint;
use headwater_protocol::DeviceId;
use headwater_protocol::status::ReportedState;
use headwater_telemetry::{AdminServer, Health, print_error};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::site_file::Tier;

#[derive(Default)]
pub(super) struct Cameras {
    /// A task for each device that runs.
    pub(super) running: JoinSet<EndedCamera>,
    stop: watch::Sender<bool>,
    shown: Vec<ShownCamera>,
}

pub(super) struct EndedCamera {
    pub(super) ended: Ended,
    pub(super) report: DeviceReport,
    /// Number of answers that the device could not send.
    pub(super) unsent: u64,
}

struct ShownCamera {
    name: DeviceId,
    health: Arc<dyn Health>,
    /// The state that was printed last.
    state: String,
}

impl Cameras {
    /// Starts a device for each camera, or for each region of a camera, which is opened once.
    ///
    /// # Errors
    /// The camera that does not start, and why.
    pub(super) async fn start(
        &mut self,
        mut devices: Vec<Tier<DeviceSettings>>,
        broker: &Endpoint,
    ) -> anyhow::Result<()> {
        devices.iter_mut().for_each(|device| device.settings.broker.address = broker.clone());
        for devices in devices.chunk_by(Tier::shares_camera) {
            let (mut opened, mut sources) = (Vec::new(), Vec::new());
            for Tier { settings, .. } in devices {
                let of_camera = || format!("camera {}", settings.id);
                let (device, bundle, source) = settings.open().with_context(of_camera)?;
                settings.keep_release(&bundle).with_context(of_camera)?;
                opened.push((settings, device, bundle));
                sources.push(source);
            }
            for ((settings, device, bundle), source) in opened.into_iter().zip(Source::of_one_camera(sources))
            {
                let of_camera = || format!("camera {}", settings.id);
                let device = Device::start(device, Arc::new(bundle), source).await.with_context(of_camera)?;
                let admin = device.start_admin(&settings.admin).await.with_context(of_camera)?;
                let (name, health) = (settings.id.clone(), device.health());
                self.shown.push(ShownCamera { name, health, state: String::new() });
                self.running.spawn(until_end(device, admin, self.stop.subscribe()));
            }
        }
        Ok(())
    }

    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Stops every device, and waits for their ends, at most for `limit`.
    pub(super) async fn end(&mut self, limit: Duration) {
        self.stop();
        let ends = async { while self.running.join_next().await.is_some() {} };
        let _ = timeout(limit, ends).await;
    }

    /// Prints the states that have changed.
    pub(super) fn show(&mut self, aggregator: &Aggregator) {
        let reports = aggregator.reports();
        let known = reports.iter().find_map(|report| match report {
            GroupReport::Leader(leader) => Some(&leader.devices),
            GroupReport::Edge(_) => None,
        });
        for camera in &mut self.shown {
            let (state, details) = camera.state(known.and_then(|known| known.get(&camera.name)));
            if state != camera.state {
                print_error(&format!("{}: {state}{details}", camera.name));
                camera.state = state;
            }
        }
    }

    /// Prints why a device has ended.
    pub(super) fn show_end(&mut self, EndedCamera { ended, report, .. }: &EndedCamera) {
        let Some(at) = self.shown.iter().position(|camera| camera.name == report.device) else { return };
        let camera = self.shown.remove(at);
        let why = match ended {
            Ended::Stopped => return,
            Ended::Source => "its frames have ended".to_owned(),
            Ended::SourceBroke => format!("it gives no frames any more: {}", camera.of_source("waits")),
            Ended::Model => "its section failed".to_owned(),
        };
        print_error(&format!("{}: {why}; captured {}", camera.name, report.counts.captured));
    }
}

impl ShownCamera {
    /// A text about the source on the device's status page; empty without one.
    fn of_source(&self, field: &str) -> String {
        let page = self.health.status();
        let text = page.get("source").and_then(|source| source[field].as_str());
        text.unwrap_or_default().to_owned()
    }

    /// The state, and details. A change of the details alone is no change of the state.
    fn state(&self, known: Option<&ReportedDevice>) -> (String, String) {
        // The device itself knows best that it has no connection, that the leader refuses it, or that it has no frames.
        if let Some(reason) = self.health.unready_reason() {
            return (reason, String::new());
        }
        let waits = self.of_source("waits");
        if !waits.is_empty() {
            return (format!("no frames: {waits}"), String::new());
        }
        match known {
            None => ("waiting for the leader".into(), String::new()),
            Some(ReportedDevice { state: ReportedState::Up, .. }) => {
                let format = self.of_source("format");
                ("up".into(), if format.is_empty() { format } else { format!(", {format}") })
            }
            Some(ReportedDevice { state, reason, .. }) => (state.name().into(), format!(": {reason}")),
        }
    }
}

/// Runs a device until it ends by itself or is asked to stop.
async fn until_end(
    mut device: DeviceHandle,
    admin: Option<AdminServer>,
    mut stop: watch::Receiver<bool>,
) -> EndedCamera {
    let ended = tokio::select! {
        ended = device.ended() => ended,
        _ = stop.wait_for(|stop| *stop) => Ended::Stopped,
    };
    // The spool is counted before the shutdown, at which the device also spools answers that it has just sent and the leader counts.
    let before = device.report().counts;
    let report = device.shutdown().await;
    drop(admin);
    let not_sent = |counts: &DeviceCounts| counts.dropped.values().sum::<u64>();
    let unsent = before.spooled + not_sent(&report.counts).saturating_sub(not_sent(&before));
    EndedCamera { ended, report, unsent }
}
