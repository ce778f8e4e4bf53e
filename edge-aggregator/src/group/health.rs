//! Health of all groups of a process: liveness, readiness and status for the admin port.

use std::sync::Arc;

use headwater_protocol::status::{AggregatorStatus, CloudLink};
use headwater_telemetry::{Health, Liveness, WorkLoops, fields_of};
use headwater_transport::Endpoint;
use serde_json::{Map, Value};

use crate::cloud::CloudConnection;
use crate::group::status::WatchedGroup;

/// The cloud service for the status: its address, and the connection to it.
pub(crate) type CloudView = (Endpoint, Arc<CloudConnection>);

pub(crate) struct GroupsHealth {
    pub(crate) groups: Vec<WatchedGroup>,
    pub(crate) work_loops: WorkLoops,
    pub(crate) cloud: Option<CloudView>,
}

impl Health for GroupsHealth {
    fn liveness(&self) -> Liveness {
        let reasons = self.groups.iter().filter_map(WatchedGroup::failure).chain(self.work_loops.hanging());
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
