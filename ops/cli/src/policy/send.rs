//! `headwater policy send`: changes the policy of a running group.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use headwater_group::PolicyClient;
use headwater_protocol::policy_command::{Origin, PolicyAnswer, PolicyCommand, Verdict};
use headwater_protocol::{DeviceId, Schema};
use serde_json::Value;

use super::SendArgs;
use super::set::edits;
use crate::BadUsage;
use crate::progress::waiting;

/// Longest wait for the connection, and for each answer: the leader itself waits up to 10 s for its devices.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// Sends the changes, and prints the answer. A refusal of the leader is an error.
pub(super) fn run(args: &SendArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime.context("starting the async runtime")?.block_on(send(args))?;
    let text = if args.json { serde_json::to_string_pretty(&answer)? } else { sentence(&answer) };
    crate::print(&(text + "\n"))?;
    anyhow::ensure!(answer.verdict == Verdict::Accepted, "the leader refused the command");
    Ok(())
}

async fn send(args: &SendArgs) -> anyhow::Result<PolicyAnswer> {
    let origin = if args.plan { Origin::Plan } else { Origin::Operator };
    let edits = edits(&args.values)?;
    let changes = edits.iter().map(|edit| {
        // Values are given in TOML, sent in JSON, and written in TOML again by the leader.
        let value =
            edit.value().map(|value| toml::from_str::<BTreeMap<String, Value>>(&format!("value = {value}")));
        let value = value.transpose().map_err(|error| BadUsage(error.to_string()))?;
        let value = value.and_then(|mut found| found.remove("value")).unwrap_or_default();
        Ok((edit.key().to_owned(), value))
    });
    let changes = changes.collect::<Result<BTreeMap<_, _>, BadUsage>>()?;
    let broker = args.security.access(&args.broker)?;
    waiting(&format!("the broker {}", args.broker), WAIT_LIMIT);
    let group = (&args.site, &args.group);
    let mut client = PolicyClient::connect(broker, group, &args.member, WAIT_LIMIT).await?;
    let mut command = PolicyCommand {
        schema: Schema,
        replaces: args.replaces,
        origin,
        release: args.release,
        changes,
        why: args.why.clone().unwrap_or_default(),
    };
    waiting("the leader's answer", WAIT_LIMIT);
    if command.replaces.is_none() {
        // A command without changes is refused, and the refusal names the policy in effect.
        let question = PolicyCommand { changes: BTreeMap::new(), release: false, ..command.clone() };
        command.replaces = Some(client.ask(&question).await?.policy);
    }
    Ok(client.ask(&command).await?)
}

fn sentence(answer: &PolicyAnswer) -> String {
    let PolicyAnswer { policy, pinned, without, reason, .. } = answer;
    let pinned = if *pinned { ", pinned: plans are refused until --release" } else { "" };
    let mut text = match (answer.verdict, reason) {
        (Verdict::Accepted, _) => format!("accepted: the policy is {policy}{pinned}"),
        (Verdict::Refused, reason) => {
            format!(
                "refused: {}; the policy stays {policy}{pinned}",
                reason.as_deref().unwrap_or("no reason given")
            )
        }
    };
    if !without.is_empty() {
        let devices: Vec<_> = without.iter().map(DeviceId::as_str).collect();
        text += &format!("\nnot taken yet by {}; it is sent again until they have it", devices.join(", "));
    }
    text
}
