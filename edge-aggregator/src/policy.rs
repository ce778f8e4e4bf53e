//! The policy of a group while the group runs: its file is read again on request, and the event loops take the result.
//!
//! ```text
//! SIGHUP ──> GroupPolicy (file, calibrated policy) ──watch channel──> event loop of the leader or edge
//! ```

use headwater_inference::policy::{LivePolicy, Policy, Reread};
use headwater_protocol::{GroupId, PolicyId, SiteId};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::config::GroupConfig;

/// Policies of a group's current network, the newest one kept.
pub(crate) type PolicyUpdates = watch::Receiver<(Policy, PolicyId)>;

/// Waits for another policy; for ever where none can come.
pub(crate) async fn next_policy(updates: &mut Option<PolicyUpdates>) {
    if let Some(updates) = updates
        && updates.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The policy of a group, and the event loops that are told of another one.
#[derive(Debug)]
pub(crate) struct GroupPolicy {
    site: SiteId,
    group: GroupId,
    live: LivePolicy,
    updates: watch::Sender<(Policy, PolicyId)>,
}

impl GroupPolicy {
    /// Connects the group's event loops to its policy file; `None` where the configuration brings updates of its own.
    pub(crate) fn start(config: &mut GroupConfig) -> Option<Self> {
        if config.policy_updates.is_some() {
            return None;
        }
        let calibrated = config.networks.current().calibrated_policy();
        let live = LivePolicy::new(config.policy_file.clone(), calibrated, config.policy.clone());
        let (updates, receiver) = watch::channel(live.in_effect().clone());
        config.policy_updates = Some(receiver);
        let (site, group) = (config.site.clone(), config.group.clone());
        Some(Self { site, group, live, updates })
    }

    /// Reads the file again, tells the event loops of another policy, and logs the result in one line. It reads a file: call it off the
    /// async threads.
    pub(crate) fn reload(&mut self) {
        let reread = self.live.read_again();
        let (site, group, (policy, id)) = (&self.site, &self.group, self.live.in_effect());
        let file = self.live.file().map(|file| file.display().to_string());
        match reread {
            Reread::NoFile => {
                info!(%site, %group, "SIGHUP: the group has no policy file (`policy`), so its policy stays");
            }
            Reread::Unchanged => info!(%site, %group, policy = %id, file, "SIGHUP: the policy is unchanged"),
            Reread::Refused(mistake) => {
                warn!(%site, %group, policy = %id, %mistake, "SIGHUP: the policy file is refused, and the earlier policy stays");
            }
            Reread::Changed { from, differences } => {
                self.updates.send_replace((policy.clone(), *id));
                let changes = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                info!(
                    %site, %group, %from, policy = %id, changes, file,
                    "SIGHUP: another policy holds for samples opened from now on"
                );
            }
        }
    }
}
