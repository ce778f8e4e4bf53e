//! Health of all groups of a process: liveness, readiness and status for the admin port.

use std::sync::Arc;

use headwater_protocol::status::{AggregatorStatus, CloudLink};
use headwater_protocol::{GroupId, SiteId};
use headwater_telemetry::{Health, IntGaugeVec, Liveness, Metrics, WorkLoops, fields_of};
use headwater_transport::Endpoint;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::cloud::CloudConnection;
use crate::error::AggregatorError;
use crate::group::status::WatchedGroup;
use crate::settings::config::OpenedGroup;

/// The cloud service for the status: its address, and the connection to it.
pub(crate) type CloudView = (Endpoint, Arc<CloudConnection>);

/// Groups that failed, for the admin port and the metrics.
#[derive(Clone, Debug)]
pub(crate) struct FailedGroups {
    /// One line for each failed group: its name and the reason. Locked for single updates.
    lines: Arc<Mutex<Vec<String>>>,
    gauge: IntGaugeVec,
}

impl FailedGroups {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let help =
            "1 once the group has ended by itself or did not start; only a new process leads it again.";
        let gauge = metrics.gauges("headwater_aggregator_group_failed", help, &["site", "group"]);
        Self { lines: Arc::default(), gauge }
    }

    /// Adds the group's metric with value 0, so that the metric exists before a failure.
    pub(crate) fn watch(&self, config: &OpenedGroup) {
        self.gauge.with_label_values(&[config.settings.site.as_str(), config.settings.group.as_str()]);
    }

    pub(crate) fn add(&self, site: &SiteId, group: &GroupId, failure: &AggregatorError) {
        self.gauge.with_label_values(&[site.as_str(), group.as_str()]).set(1);
        let mut lines = self.lines.lock();
        lines.push(format!("group {site}/{group}: {failure}"));
    }

    /// The groups that failed, one a line with its reason; `None` while no group has failed.
    fn reason(&self) -> Option<String> {
        let lines = self.lines.lock();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Health of all groups, for the admin port.
pub(crate) struct GroupsHealth {
    pub(crate) failed: FailedGroups,
    pub(crate) groups: Vec<WatchedGroup>,
    pub(crate) work_loops: WorkLoops,
    pub(crate) cloud: Option<CloudView>,
}

impl Health for GroupsHealth {
    fn liveness(&self) -> Liveness {
        let reasons = [self.failed.reason(), self.work_loops.hanging()].into_iter().flatten();
        match reasons.collect::<Vec<_>>().join("\n") {
            reason if reason.is_empty() => Liveness::Live,
            reason => Liveness::Failed(reason),
        }
    }

    fn unready_reason(&self) -> Option<String> {
        if let Liveness::Failed(reason) = self.liveness() {
            return Some(reason);
        }
        let reasons: Vec<_> = self.groups.iter().filter_map(WatchedGroup::unready_reason).collect();
        (!reasons.is_empty()).then(|| reasons.join("\n"))
    }

    fn status(&self) -> Map<String, Value> {
        let cloud = self.cloud.as_ref();
        let cloud = cloud
            .map(|(url, connection)| CloudLink { url: url.to_string(), state: connection.state().into() });
        fields_of(&AggregatorStatus { cloud, groups: self.groups.iter().map(WatchedGroup::status).collect() })
    }
}
