//! A running group, found by the retained messages of its devices and its leader.

use std::time::Duration;

use headwater_group::{GroupClient, GroupEvent};
use headwater_protocol::{NetworkId, SampleId};
use tokio::time::{Instant, timeout_at};

use crate::args::TriggerArgs;

/// Limit for the first device to be found.
const FIND_LIMIT: Duration = Duration::from_secs(5);
/// The births are complete when none has come for this time.
const QUIET: Duration = Duration::from_millis(300);

/// Facts about a group that triggers need.
pub(super) struct FoundGroup {
    /// Network of the devices that are up; of most of them while the group changes its network.
    pub(super) network: NetworkId,
    /// Newest id in the leader's account; 0 before the first sample.
    pub(super) newest: SampleId,
}

/// Reads the retained messages of the group.
///
/// # Errors
/// When no device is up, none takes triggers, or the broker does not allow triggers.
pub(super) async fn find_group(client: &mut GroupClient, args: &TriggerArgs) -> anyhow::Result<FoundGroup> {
    let limit = Instant::now() + FIND_LIMIT;
    let mut quiet = limit;
    while let Ok(event) = timeout_at(quiet.min(limit), client.next()).await {
        if event? == GroupEvent::Device && !client.devices.slots_up().is_empty() {
            quiet = Instant::now() + QUIET;
        }
    }
    let name = format!("{}/{}", args.site, args.group);
    let Some(network) = client.devices.network_up() else {
        // Some brokers accept the subscription of a client without rights, and send it nothing.
        client.may_trigger().await?;
        anyhow::bail!(
            "{}: no device of the group {name} is up: check --site and --group, that its devices run, and that the broker's access rules let \
             this client read their births (role `operator`)",
            args.broker
        );
    };
    anyhow::ensure!(
        client.devices.takes_triggers(),
        "the devices of the group {name} capture by themselves and take no triggers; only those with capture = \"trigger\" do"
    );
    let decided = client.account().decisions().map(|decision| decision.sample).max();
    let newest = client.account().settled.highest.max(decided.unwrap_or_default());
    Ok(FoundGroup { network, newest })
}
