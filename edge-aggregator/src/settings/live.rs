//! Settings of a group that change while the group runs: SIGHUP reads their files again, and the event loops take the result.
//!
//! ```text
//! SIGHUP, command ──> GroupPolicy (file, bundle) ──watch channel──> event loop of the leader or edge
//! SIGHUP          ──> GroupDevices (setting `devices`)      ──watch channel──> event loop of the leader or edge
//! ```

use std::sync::Arc;

use headwater_inference::policy::{LivePolicy, Policy};
use headwater_protocol::{DeviceId, EdgeIndex, GroupId, PolicyId, SiteId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::field::display;
use tracing::{info, warn};

use crate::settings::config::OpenedGroup;
use crate::settings::group::GroupSettings;
use crate::settings::group_policy::{GroupPolicy, SharedPolicy};

/// Channel of policies of a group's current network; only the newest policy is kept.
pub(crate) type PolicyUpdates = watch::Receiver<(Policy, PolicyId)>;

/// Channel of lists of a group's device ids by slot; only the newest list is kept.
pub(crate) type DeviceUpdates = watch::Receiver<Vec<DeviceId>>;

/// Waits for a new value; never returns if none can come.
pub(crate) async fn next_update<T>(updates: &mut Option<watch::Receiver<T>>) {
    if let Some(updates) = updates
        && updates.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Connects the group's event loops to its policy file; `None` if the configuration brings updates of its own.
pub(crate) fn start_policy(config: &mut OpenedGroup) -> Option<SharedPolicy> {
    if config.policy_updates.is_some() {
        return None;
    }
    let policies = config.networks.current().policies().clone();
    let live = LivePolicy::new(config.settings.policy.clone(), policies, config.policy.clone());
    let (updates, receiver) = watch::channel(live.in_effect().clone());
    config.policy_updates = Some(receiver);
    let (site, group) = (config.settings.site.clone(), config.settings.group.clone());
    let policy = SharedPolicy(Arc::new(Mutex::new(GroupPolicy { site, group, live, updates })));
    config.policy_commands = Some(policy.clone());
    Some(policy)
}

/// The list of one member's devices, and the channel by which its event loops learn of a new list.
#[derive(Debug)]
pub(crate) struct GroupDevices {
    site: SiteId,
    group: GroupId,
    /// `None` for the leader.
    edge: Option<EdgeIndex>,
    /// Number of slots of each network of the group.
    slots: Vec<usize>,
    updates: watch::Sender<Vec<DeviceId>>,
}

impl GroupDevices {
    /// Connects the group's event loops to its setting `devices`.
    pub(crate) fn start(config: &mut OpenedGroup) -> Self {
        let (updates, receiver) = watch::channel(config.settings.devices.clone());
        config.device_updates = Some(receiver);
        let bundles = config.networks.bundles().iter();
        let slots = bundles.map(|(_, bundle)| bundle.manifest().slots.into()).collect();
        let (site, group, edge) =
            (config.settings.site.clone(), config.settings.group.clone(), config.role.edge_index());
        Self { site, group, edge, slots, updates }
    }

    /// Gives the event loops this member's list out of the settings of all groups, and logs a change or a mistake in one line.
    pub(crate) fn update(&self, groups: &[GroupSettings]) {
        let (site, group, edge) = (&self.site, &self.group, self.edge.map(display));
        // Leader and edges of one group may have different lists.
        let is_own = |of: &&GroupSettings| {
            let edge = of.role().map(|role| role.edge_index());
            (&of.site, &of.group, edge.ok()) == (site, group, Some(self.edge))
        };
        let Some(GroupSettings { devices, .. }) = groups.iter().find(is_own) else {
            warn!(%site, %group, edge, "SIGHUP: the settings have no such group any more, and its `devices` stay");
            return;
        };
        let found = devices.len();
        if let Some(slots) = self.slots.iter().find(|slots| found != 0 && **slots != found) {
            warn!(%site, %group, edge, "SIGHUP: devices: expected an id for each of {slots} slots, found {found}: the earlier ones stay");
            return;
        }
        if *self.updates.borrow() == *devices {
            return;
        }
        let earlier = self.updates.send_replace(devices.clone());
        let (added, removed) = (names(devices, &earlier), names(&earlier, devices));
        info!(%site, %group, edge, added, removed, "SIGHUP: the group has other `devices`");
    }
}

/// Ids in `list` that are not in `other`, with commas between; `None` if there are none.
fn names(list: &[DeviceId], other: &[DeviceId]) -> Option<String> {
    let only: Vec<&str> = list.iter().filter(|id| !other.contains(id)).map(DeviceId::as_str).collect();
    (!only.is_empty()).then(|| only.join(", "))
}

#[cfg(test)]
mod tests {
    use headwater_inference::bundle::Bundle;
    use headwater_inference::testing::TinyNetwork;
    use headwater_settings::defaults;

    use super::*;
    use crate::settings::group::{Role, RoleName};

    fn ids(names: &[&str]) -> Vec<DeviceId> {
        names.iter().map(|name| DeviceId::new(*name).unwrap()).collect()
    }

    #[test]
    fn a_list_that_fits_the_network_reaches_the_event_loops_and_another_does_not() {
        let bundle = Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap();
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
        let mut config = OpenedGroup::new(site.clone(), group.clone(), Arc::new(bundle));
        config.settings.devices = ids(&["a", "b", "c"]);
        let devices = GroupDevices::start(&mut config);
        let mut updates = config.device_updates.unwrap();
        let list = |group: &GroupId, names: &[&str]| {
            let (site, group) = (site.clone(), group.clone());
            [GroupSettings { site, group, devices: ids(names), ..defaults() }]
        };
        devices.update(&list(&group, &["a", "b", "c"]));
        devices.update(&list(&group, &["a", "b"]));
        devices.update(&list(&GroupId::new("yard").unwrap(), &["a", "b", "d"]));
        assert!(!updates.has_changed().unwrap(), "the same list, one of two slots, and one of another group");
        devices.update(&list(&group, &["a", "b", "d"]));
        assert!(updates.has_changed().unwrap());
        assert_eq!(*updates.borrow_and_update(), ids(&["a", "b", "d"]));
        devices.update(&list(&group, &[]));
        assert_eq!(*updates.borrow_and_update(), [], "any device may claim any slot");
    }

    #[test]
    fn leader_and_edges_of_one_group_have_lists_of_their_own() {
        let bundle = Arc::new(Bundle::from_bytes(&TinyNetwork::default().bundle()).unwrap());
        let (site, group) = (SiteId::new("plant").unwrap(), GroupId::new("gate").unwrap());
        let owners = ids(&["a", "b", "c"]);
        let start = |role: Role| {
            let mut config = OpenedGroup::new(site.clone(), group.clone(), Arc::clone(&bundle));
            (config.role, config.settings.devices) = (role, owners.clone());
            (GroupDevices::start(&mut config), config.device_updates.unwrap())
        };
        let edge = EdgeIndex::new(0).unwrap();
        let (leader, leader_updates) = start(Role::Leader { local_edges: None });
        let (of_edge, edge_updates) = start(Role::edge(edge));
        let list = |role, edge, devices: &[DeviceId]| {
            let (site, group, devices) = (site.clone(), group.clone(), devices.to_vec());
            GroupSettings { site, group, role, edge, devices, ..defaults() }
        };
        // The table of the edge stands first in the file.
        let lists = [list(RoleName::Edge, Some(0), &[]), list(RoleName::Leader, None, &owners)];
        leader.update(&lists);
        of_edge.update(&lists);
        assert!(!leader_updates.has_changed().unwrap(), "{:?}", leader_updates.borrow());
        assert_eq!(*edge_updates.borrow(), []);
    }

    #[test]
    fn the_names_of_a_change_are_those_of_one_list_alone() {
        let (before, after) = (ids(&["a", "b", "c"]), ids(&["a", "d", "e"]));
        assert_eq!(names(&after, &before).as_deref(), Some("d, e"));
        assert_eq!(names(&before, &before), None);
    }
}
