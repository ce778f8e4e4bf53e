//! Health and status of a device.

use std::collections::BTreeMap;
use std::time::Instant;

use headwater_link::Link;
use headwater_protocol::status::{
    BrokerStatus, CaptureStatus, DeviceBroker, DeviceStatus as Page, LeaderNews, SourceStatus, SpoolStatus,
};
use headwater_protocol::{Boot, NetworkId};
use headwater_telemetry::{Health, Liveness, WorkLoops, certificate_status, fields_of};
use headwater_transport::tls::{CertificateState, ClientIdentity};
use serde_json::{Map, Value};

use crate::opened::OpenedDevice;
use crate::report::SharedReport;

/// Parts of a running device that its handle and its status page read.
pub(crate) struct DeviceStatus {
    pub(crate) device: OpenedDevice,
    pub(crate) boot: Boot,
    pub(crate) network: NetworkId,
    pub(crate) link: Link,
    pub(crate) report: SharedReport,
    pub(crate) work_loops: WorkLoops,
}

impl DeviceStatus {
    /// State of the device's certificate for the connection to the broker; `None` without a certificate.
    pub(crate) fn certificate_state(&self) -> Option<CertificateState> {
        self.device.broker.identity.as_ref().and_then(ClientIdentity::certificate_state)
    }

    /// Reason for which the device is not connected to the broker; `None` while the device is connected.
    fn broker_failure(&self) -> Option<String> {
        if self.link.is_connected() {
            return None;
        }
        let failures = self.link.failures();
        let failure = failures.borrow().as_ref().map(ToString::to_string);
        Some(failure.unwrap_or_else(|| "connecting".into()))
    }
}

impl Health for DeviceStatus {
    fn liveness(&self) -> Liveness {
        self.work_loops.hanging().map_or(Liveness::Live, Liveness::Failed)
    }

    fn unready_reason(&self) -> Option<String> {
        let hanging = self.work_loops.hanging();
        let broker =
            || self.broker_failure().map(|reason| format!("broker {}: {reason}", self.device.broker.address));
        let refusal = || self.report.latest().refusal.clone();
        let refused = || refusal().map(|reason| format!("the leader refuses this device: {reason}"));
        hanging.or_else(broker).or_else(refused)
    }

    fn status(&self) -> Map<String, Value> {
        let counts = self.report.with_link(&self.link);
        let latest = self.report.latest().clone();
        let settings = &self.device.settings;
        let by_name = |counts: BTreeMap<&'static str, u64>| {
            counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
        };
        fields_of(&Page {
            device: settings.id.clone(),
            site: settings.site.clone(),
            group: settings.group.clone(),
            slot: settings.slot,
            boot: self.boot,
            network: self.network,
            broker: DeviceBroker {
                address: self.device.broker.address.to_string(),
                link: BrokerStatus { connected: self.link.is_connected(), reason: self.broker_failure() },
                connections: counts.connected,
            },
            leader: LeaderNews { last_notice_s: seconds_since(latest.notice), refusal: latest.refusal },
            source: SourceStatus {
                frames: counts.source_frames,
                faults: by_name(counts.frame_faults),
                broken_frames: counts.broken_frames,
                frozen: self.report.frozen(),
                format: latest.format,
                waits: latest.waits,
            },
            captures: CaptureStatus {
                captured: counts.captured,
                missed: counts.captures_missed,
                shed: counts.shed,
                clock_steps: counts.clock_steps,
                last_capture_s: seconds_since(latest.capture),
                refused_trigger: latest.refused_trigger,
            },
            spool: SpoolStatus {
                samples: counts.spooled,
                bytes: counts.spool_bytes,
                in_memory: counts.kept_samples,
                given_up: by_name(counts.given_up),
                lost: counts.lost,
            },
            certificate: self.certificate_state().map(certificate_status),
        })
    }
}

fn seconds_since(at: Option<Instant>) -> Option<f64> {
    at.map(|at| (at.elapsed().as_secs_f64() * 1000.0).round() / 1000.0)
}
