//! The status of a group.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use headwater_protocol::DeviceId;
use headwater_protocol::status::{
    CloudRequests, EdgeCounts, EdgeRoleStatus, GroupDevice, GroupState, GroupStatus, JournalStatus,
    LeaderStatus, RoleStatus, SampleCounts,
};
use tokio::time::Instant;

use crate::devices::device_watch::ReportedDevice;
use crate::report::{EdgeReport, GroupReport, LeaderReport};
use crate::settings::config::OpenedGroup;
use crate::settings::group::Role;

/// A group of this process, as the status shows it.
#[derive(Clone)]
pub(crate) struct WatchedGroup {
    /// The status of a group that has not reported yet.
    blank: GroupStatus,
    journal: Option<PathBuf>,
    /// Reads the counts; `None` for a group that did not start.
    read: Option<Arc<dyn Fn() -> GroupReport + Send + Sync>>,
    /// Reason why the group failed; empty while it has not failed.
    failure: Arc<OnceLock<String>>,
}

impl WatchedGroup {
    /// A group whose counts `read` gives.
    pub(crate) fn new(config: &OpenedGroup, read: impl Fn() -> GroupReport + Send + Sync + 'static) -> Self {
        Self { read: Some(Arc::new(read)), ..Self::not_started(config) }
    }

    pub(crate) fn not_started(config: &OpenedGroup) -> Self {
        let edge = match &config.role {
            Role::Leader { .. } => None,
            Role::Edge { id, .. } => Some(id.clone()),
        };
        let blank = GroupStatus {
            site: config.settings.site.clone(),
            group: config.settings.group.clone(),
            role: if edge.is_some() { "edge" } else { "leader" }.into(),
            edge,
            networks: config.networks.bundles().iter().map(|(_, bundle)| bundle.network_id()).collect(),
            state: None,
            reason: None,
            counts: None,
        };
        Self { blank, journal: config.settings.journal.path.clone(), read: None, failure: Arc::default() }
    }

    /// Counts of the group; `None` if it did not start.
    pub(crate) fn report(&self) -> Option<GroupReport> {
        self.read.as_ref().map(|read| read())
    }

    /// Notes that the group has failed. The first reason stays.
    pub(crate) fn fail(&self, reason: String) {
        self.failure.get_or_init(|| reason);
    }

    /// The group's name and the reason why it failed; `None` while it has not failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().map(|failure| format!("{}: {failure}", self.name()))
    }

    /// Site and name of the group.
    pub(crate) fn labels(&self) -> [String; 2] {
        [self.blank.site.to_string(), self.blank.group.to_string()]
    }

    fn name(&self) -> String {
        format!("group {}/{}", self.blank.site, self.blank.group)
    }

    /// Reason why the group cannot work until a person changes something; `None` if there is none, or if the group did not start.
    pub(crate) fn unready_reason(&self) -> Option<String> {
        let (broker, lead) = match self.report()? {
            GroupReport::Leader(report) => {
                let LeaderReport { claim, broker, lead, .. } = *report;
                if claim.claim_refused.is_some() {
                    return claim.claim_refused;
                }
                (broker, claim.waits_for.filter(|_| lead == GroupState::WaitingForSilent))
            }
            GroupReport::Edge(report) => (report.broker, None),
        };
        let group = self.name();
        if broker.is_refused {
            return Some(format!("{group}: {}", broker.status.reason.unwrap_or_default()));
        }
        lead.map(|leader| {
            format!(
                "{group} waits for the leader {leader}, whose claim nobody renews: end that process for good, then start this one with \
                 --take-over"
            )
        })
    }

    pub(crate) fn status(&self) -> GroupStatus {
        let mut status = self.blank.clone();
        match self.report() {
            Some(GroupReport::Leader(report)) => {
                status.state = Some(report.lead);
                status.counts = Some(RoleStatus::Leader(Box::new(self.leader_status(*report))));
            }
            Some(GroupReport::Edge(report)) => {
                let is_connected = report.broker.status.connected;
                status.state = Some(if is_connected { GroupState::Up } else { GroupState::Starting });
                status.counts = Some(RoleStatus::Edge(edge_status(*report)));
            }
            None => {}
        }
        // A failed group shows its last counts, but not its last state.
        if let Some(reason) = self.failure.get() {
            (status.state, status.reason) = (Some(GroupState::Failed), Some(reason.clone()));
        }
        status
    }

    fn leader_status(&self, report: LeaderReport) -> LeaderStatus {
        let now = Instant::now();
        let empty = report.slots - report.filled_slots;
        let LeaderReport { cloud, journal, .. } = report;
        LeaderStatus {
            leader: report.claim,
            broker: report.broker.status,
            policy: (report.lead == GroupState::Leading).then_some(report.policy),
            numbering: report.numbering,
            samples: SampleCounts {
                open: report.open,
                awaited: report.awaited,
                unconfirmed_trigger: report.unconfirmed_trigger,
                decided: report.decided,
                dropped: report.dropped,
                degraded: report.degraded,
                republished: report.republished,
                unacknowledged: report.results_unacknowledged,
                waiting_for_broker: report.results_waiting,
            },
            cloud: CloudRequests {
                asked: cloud.asked,
                answered: cloud.answered,
                failed: cloud.failed,
                refused: cloud.refused.into_iter().map(|(code, count)| (code.to_owned(), count)).collect(),
                other_network: cloud.serves_other_network,
            },
            journal: JournalStatus {
                path: self.journal.clone(),
                full: journal.is_full,
                failed_writes: journal.failed_writes,
                unreadable_bytes: journal.unreadable_bytes,
            },
            devices: report.devices.into_iter().map(|(id, device)| device_status(now, id, device)).collect(),
            empty_slots: empty.iter().collect(),
            edges_up: report.edges_up.len(),
        }
    }
}

fn edge_status(report: EdgeReport) -> EdgeRoleStatus {
    let EdgeReport { answered, gone, section_failures, .. } = report;
    let samples = EdgeCounts { answered, gone, section_failures };
    EdgeRoleStatus { broker: report.broker.status, samples }
}

fn device_status(now: Instant, name: DeviceId, device: ReportedDevice) -> GroupDevice {
    let seconds = |at: Instant| (now.saturating_duration_since(at).as_secs_f64() * 1000.0).round() / 1000.0;
    GroupDevice {
        name,
        slot: device.slot,
        state: device.state,
        since_s: seconds(device.since),
        last_message_s: seconds(device.heard),
        reason: Some(device.reason.into_owned()).filter(|reason| !reason.is_empty()),
        version: device.software,
    }
}

#[cfg(test)]
mod tests {
    use headwater_inference::bundle::Bundle;
    use headwater_inference::testing::TinyNetwork;
    use headwater_protocol::status::{BrokerStatus, LeadStatus};
    use headwater_protocol::{GroupId, InstanceId, SiteId};

    use super::*;
    use crate::report::BrokerLink;

    fn unready_reason(report: LeaderReport) -> Option<String> {
        let bundle = Arc::new(Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap());
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
        let config = OpenedGroup::new(site, group, bundle);
        WatchedGroup::new(&config, move || GroupReport::Leader(Box::new(report.clone()))).unready_reason()
    }

    #[test]
    fn a_group_that_only_a_person_can_help_is_not_ready_and_says_what_helps() {
        let waits = |lead| {
            let claim = LeadStatus { waits_for: Some(InstanceId(5)), ..LeadStatus::default() };
            LeaderReport { lead, claim, ..LeaderReport::default() }
        };
        let broker = |is_refused| {
            let status = BrokerStatus { connected: false, reason: Some("QoS 0 alone".into()) };
            let broker = BrokerLink { status, is_refused, ..BrokerLink::default() };
            LeaderReport { broker, ..LeaderReport::default() }
        };
        for (report, words) in [
            (waits(GroupState::WaitingForSilent), ["group plant/gate waits for the leader", "--take-over"]),
            (broker(true), ["group plant/gate", "QoS 0 alone"]),
        ] {
            let reason = unready_reason(report).expect("a reason");
            assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
        }
        for report in [LeaderReport::default(), waits(GroupState::Waiting), broker(false)] {
            assert_eq!(unready_reason(report), None, "it goes on by itself");
        }
    }
}
