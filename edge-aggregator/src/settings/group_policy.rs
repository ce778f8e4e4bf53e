//! The policy of a running group: its file is read again at SIGHUP, and changed by commands. A change by a command is checked and written,
//! with a line in an audit file, before it holds.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use headwater_inference::policy::{
    LivePolicy, Policy, PolicyChanges, PolicyDifference, PolicyEdit, PolicyFileError, Reread,
};
use headwater_protocol::policy_command::{Origin, PolicyAnswer, PolicyCommand, Verdict};
use headwater_protocol::{GroupId, MemberName, PolicyId, Schema, SiteId, UtcTime};
use headwater_toml_file::edit as edit_toml;
use headwater_transport::{PUBLIC_MODE, lock_folder_of, rewrite_file};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tracing::{info, warn};

/// Most characters of a command's reason that are written to the audit file.
const MAX_WHY: usize = 500;

/// A group's policy, for SIGHUP and for commands.
#[derive(Clone, Debug)]
pub struct SharedPolicy(pub(crate) Arc<Mutex<GroupPolicy>>);

/// The policy of a group, and the channel by which the group's event loops learn of a new policy.
#[derive(Debug)]
pub(crate) struct GroupPolicy {
    pub(crate) site: SiteId,
    pub(crate) group: GroupId,
    pub(crate) live: LivePolicy,
    pub(crate) updates: watch::Sender<(Policy, PolicyId)>,
}

impl GroupPolicy {
    /// Executes a command, or refuses one that could not be read, and returns the answer. Reads and writes files: call this off the async
    /// threads.
    pub(crate) fn answer(
        &mut self,
        member: &MemberName,
        command: Result<PolicyCommand, String>,
    ) -> PolicyAnswer {
        let (site, group, from) = (&self.site, &self.group, self.live.in_effect().1);
        let replaces = command.as_ref().ok().and_then(|command| command.replaces);
        let executed = command.and_then(|command| execute(&self.live, member, &command));
        let answer = match executed {
            Ok(policy) => {
                let id = policy.1;
                let changed = self.live.take(policy.clone());
                self.updates.send_replace(policy);
                info!(%site, %group, %member, %from, policy = %id, "a command: {}", Reread::from_to(from, changed));
                let (schema, verdict) = (Schema, Verdict::Accepted);
                PolicyAnswer {
                    schema,
                    replaces,
                    verdict,
                    reason: None,
                    policy: id,
                    pinned: false,
                    without: Vec::new(),
                }
            }
            Err(reason) => {
                info!(%site, %group, %member, policy = %from, reason, "a policy command is refused");
                PolicyAnswer::refused(replaces, reason, from)
            }
        };
        PolicyAnswer { pinned: self.live.is_pinned(), ..answer }
    }

    /// Reads the file again, gives a changed policy to the event loops, and logs the result in one line. Call this off the async threads,
    /// since the file system may be slow.
    pub(crate) fn reload(&mut self) {
        let reread = self.live.read_again();
        let (site, group, (policy, id)) = (&self.site, &self.group, self.live.in_effect());
        let file = self.live.file().map(|file| file.display().to_string());
        match reread.earlier() {
            Some(from) => {
                self.updates.send_replace((policy.clone(), *id));
                info!(%site, %group, %from, policy = %id, file, "SIGHUP: {reread}");
            }
            None if reread.is_refused() => warn!(%site, %group, policy = %id, "SIGHUP: {reread}"),
            None => info!(%site, %group, policy = %id, file, "SIGHUP: {reread}"),
        }
    }
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time: UtcTime,
    member: &'a MemberName,
    origin: Origin,
    release: bool,
    old: PolicyId,
    new: PolicyId,
    differences: &'a [PolicyDifference],
    why: String,
}

/// Checks a command and writes its changes to the policy file; returns the new policy. Reads and writes files.
///
/// # Errors
/// Reason why the command is refused; the policy file has not changed then.
fn execute(
    live: &LivePolicy,
    member: &MemberName,
    command: &PolicyCommand,
) -> Result<(Policy, PolicyId), String> {
    let (policy, in_effect) = live.in_effect();
    if command.replaces != Some(*in_effect) {
        return Err(match command.replaces {
            Some(other) => format!("expected to replace the policy in effect, {in_effect}, found {other}"),
            None => {
                format!("expected `replaces` with the id of the policy in effect, {in_effect}, found none")
            }
        });
    }
    let edits = edits(command)?;
    let file = live.file().ok_or("the leader has no policy file: give it one by its setting `policy`")?;
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    // The lock is held until the function returns.
    let _lock = lock_folder_of(file).map_err(|error| of_file(&error))?;
    let mut text = PolicyChanges::read_text(file).map_err(|error| of_file(&error))?;
    let mistake = |error: PolicyFileError| error.in_file(file).to_string();
    let earlier = PolicyChanges::parse(&text).map_err(mistake)?;
    if earlier.apply_to(live.bundle()).map_err(mistake)?.1 != *in_effect {
        return Err(of_file(
            &"changed by hand and not read since: send SIGHUP to headwater-aggregator first",
        ));
    }
    if command.origin == Origin::Plan && earlier.is_pinned() {
        return Err("pinned by an operator: plans are refused until a command with `release`".into());
    }
    for edit in edits {
        text = edit_toml(&text, edit.key(), edit.value()).map_err(|error| of_file(&error))?;
    }
    let new = PolicyChanges::parse(&text).and_then(|changes| changes.apply_to(live.bundle()));
    let new = new.map_err(|error| error.to_string())?;
    let line = AuditLine {
        time: SystemTime::now().into(),
        member,
        origin: command.origin,
        release: command.release,
        old: *in_effect,
        new: new.1,
        differences: &policy.differences(&new.0),
        why: command.why.chars().take(MAX_WHY).collect(),
    };
    // The audit file lies beside the policy file. Its line is written first: no change holds without its line.
    append(&file.with_added_extension("audit.jsonl"), &line)
        .map_err(|error| format!("writing the audit file: {error}"))?;
    rewrite_file(file, &text, PUBLIC_MODE).map_err(|error| of_file(&error))?;
    Ok(new)
}

/// The changes of a command to the policy file. A command of an operator also pins the policy, or releases it.
fn edits(command: &PolicyCommand) -> Result<Vec<PolicyEdit>, String> {
    if command.origin == Origin::Plan && command.release {
        return Err("expected `release` of an operator, found origin plan".into());
    }
    if command.changes.is_empty() && !command.release {
        return Err("expected `changes` or `release`, found neither".into());
    }
    let mut edits = Vec::new();
    for (key, value) in &command.changes {
        if key == PINNED {
            return Err(format!("{key}: expected a key of the policy; an operator's command pins by itself"));
        }
        edits.push(PolicyEdit::from_json(key, value.clone())?);
    }
    if command.origin == Origin::Operator {
        let pinned = if command.release { serde_json::Value::Null } else { true.into() };
        edits.push(PolicyEdit::from_json(PINNED, pinned)?);
    }
    Ok(edits)
}

const PINNED: &str = "pinned";

fn append(file: &Path, line: &AuditLine<'_>) -> std::io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
