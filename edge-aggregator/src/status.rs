//! The status of a group, as JSON.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use headwater_protocol::{DeviceId, Slot};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::OpenedGroup;
use crate::device_watch::ReportedDevice;
use crate::group_settings::Role;
use crate::report::{BrokerLink, EdgeReport, GroupReport, LeadState, LeaderReport};

/// A group of this process, as the status shows it.
#[derive(Clone)]
pub(crate) struct WatchedGroup {
    site: String,
    group: String,
    /// Name of the edge; `None` for a leader.
    edge: Option<String>,
    networks: Vec<String>,
    journal: Option<PathBuf>,
    /// Reads the counts; `None` for a group that did not start.
    read: Option<Arc<dyn Fn() -> GroupReport + Send + Sync>>,
    /// Why the group failed; empty while it has not.
    failure: Arc<OnceLock<String>>,
}

impl WatchedGroup {
    /// A group whose counts `read` gives.
    pub(crate) fn new(config: &OpenedGroup, read: impl Fn() -> GroupReport + Send + Sync + 'static) -> Self {
        Self { read: Some(Arc::new(read)), ..Self::not_started(config) }
    }

    /// A group without counts.
    pub(crate) fn not_started(config: &OpenedGroup) -> Self {
        let edge = match &config.role {
            Role::Leader { .. } => None,
            Role::Edge { id, .. } => Some(id.to_string()),
        };
        Self {
            site: config.settings.site.to_string(),
            group: config.settings.group.to_string(),
            edge,
            networks: config
                .networks
                .bundles()
                .iter()
                .map(|(_, bundle)| bundle.network_id().to_string())
                .collect(),
            journal: config.settings.journal.path.clone(),
            read: None,
            failure: Arc::default(),
        }
    }

    /// Counts of the group; `None` if it did not start.
    pub(crate) fn report(&self) -> Option<GroupReport> {
        self.read.as_ref().map(|read| read())
    }

    /// Says that the group has failed. The first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.get_or_init(|| reason);
    }

    /// State and counts as JSON.
    pub(crate) fn status(&self) -> Value {
        let own = self.report().map(|report| match report {
            GroupReport::Leader(report) => self.leader_status(&report),
            GroupReport::Edge(report) => edge_status(&report),
        });
        let mut status = json!({
            "site": self.site,
            "group": self.group,
            "role": if self.edge.is_some() { "edge" } else { "leader" },
            "edge": self.edge,
            "networks": self.networks,
        });
        if let (Value::Object(fields), Some(Value::Object(own))) = (&mut status, own) {
            fields.extend(own);
        }
        // The counts of a failed group are its last ones; its state is not.
        if let Some(reason) = self.failure.get() {
            (status["state"], status["reason"]) = ("failed".into(), reason.as_str().into());
        }
        status
    }

    fn leader_status(&self, report: &LeaderReport) -> Value {
        let now = Instant::now();
        let devices: Vec<Value> =
            report.devices.iter().map(|(id, device)| device_status(now, id, device)).collect();
        let empty = report.slots - report.filled_slots;
        let (cloud, journal) = (&report.cloud, &report.journal);
        json!({
            "state": lead_state(report.lead),
            "leader": {
                "instance": report.instance.map(|instance| instance.to_string()),
                "term": report.term,
                "waits_for": report.waits_for.map(|instance| instance.to_string()),
                "claim_refused": report.claim_refused,
            },
            "broker": broker_status(&report.broker),
            "policy": (report.lead == LeadState::Leading).then(|| report.policy.to_string()),
            "numbering": report.numbering.map(|numbering| numbering.to_string()),
            "samples": {
                "open": report.open,
                "awaited": report.awaited,
                "decided": report.decided,
                "dropped": report.dropped,
                "degraded": report.degraded,
                "republished": report.republished,
                "unacknowledged": report.results_unacknowledged,
                "waiting_for_broker": report.results_waiting,
            },
            "cloud": {
                "asked": cloud.asked,
                "answered": cloud.answered,
                "failed": cloud.failed,
                "refused": cloud.refused,
                "other_network": cloud.serves_other_network,
            },
            "journal": {
                "path": self.journal,
                "full": journal.is_full,
                "failed_writes": journal.failed_writes,
                "unreadable_bytes": journal.unreadable_bytes,
            },
            "devices": devices,
            "empty_slots": empty.iter().map(Slot::index).collect::<Vec<_>>(),
            "edges_up": report.edges_up.len(),
        })
    }
}

fn edge_status(report: &EdgeReport) -> Value {
    json!({
        "state": if report.broker.is_connected { "up" } else { "starting" },
        "broker": broker_status(&report.broker),
        "samples": {"answered": report.answered, "gone": report.gone, "section_failures": report.section_failures},
    })
}

fn device_status(now: Instant, id: &DeviceId, device: &ReportedDevice) -> Value {
    let seconds = |at: Instant| (now.saturating_duration_since(at).as_secs_f64() * 1000.0).round() / 1000.0;
    json!({
        "name": id,
        "slot": device.slot,
        "state": device.state.name(),
        "since_s": seconds(device.since),
        "last_message_s": seconds(device.heard),
        "reason": Some(&device.reason).filter(|reason| !reason.is_empty()),
        "version": device.software,
    })
}

fn broker_status(broker: &BrokerLink) -> Value {
    json!({
        "connected": broker.is_connected,
        "reason": Some(&broker.failure).filter(|failure| !failure.is_empty()),
    })
}

fn lead_state(lead: LeadState) -> &'static str {
    match lead {
        LeadState::Starting => "starting",
        LeadState::Leading => "leading",
        LeadState::Waiting => "waiting",
        LeadState::WaitingForSilent => "waiting_for_silent",
    }
}
