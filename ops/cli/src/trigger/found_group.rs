//! A running group: its network and newest sample, found by the messages of its devices and its leader.

use std::time::Duration;

use headwater_group::{GroupClient, GroupEvent};
use headwater_protocol::{NetworkId, SampleId};
use tokio::time::{Instant, timeout_at};

use crate::args::TriggerArgs;

/// Longest search for the devices of the group.
const FIND_LIMIT: Duration = Duration::from_secs(5);
/// Time without a further birth or status after which all devices count as known, once one device is up.
const QUIET: Duration = Duration::from_millis(300);

/// Reads the messages of the group until its devices are known. Returns the network that most of the devices that are up have, and the
/// newest id that the leader's account or a decision names; id 0 before the first sample.
///
/// # Errors
/// When no device is up, none takes triggers, or the broker does not allow triggers.
pub(super) async fn find_group(
    client: &mut GroupClient,
    args: &TriggerArgs,
) -> anyhow::Result<(NetworkId, SampleId)> {
    let limit = Instant::now() + FIND_LIMIT;
    let mut quiet = limit;
    while let Ok(event) = timeout_at(quiet.min(limit), client.next()).await {
        if event? == GroupEvent::Device && !client.devices.slots_up().is_empty() {
            quiet = Instant::now() + QUIET;
        }
    }
    let name = format!("{}/{}", args.site, args.group);
    let Some(network) = client.devices.network_up() else {
        // Some brokers accept the subscription of a client without rights and send it nothing; a trigger shows whether this is the reason.
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
    Ok((network, client.account().settled.highest.max(decided.unwrap_or_default())))
}
