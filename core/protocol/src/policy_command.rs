//! Commands that change the policy of a group, and their answers; JSON, because pages and scripts write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{DeviceId, PolicyId, clipped};
use crate::json_version::Schema;

/// Message on `policy/{name}`: a change of the group's policy by the member of that name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyCommand {
    /// Version of the message.
    #[serde(default)]
    pub schema: Schema<1>,
    /// Id of the policy that the command replaces. One that is not in effect any more is refused, and the answer names the one that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<PolicyId>,
    /// Who chose the values.
    #[serde(default)]
    pub origin: Origin,
    /// An operator's command lets plans in again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub release: bool,
    /// Keys of the policy file with their values, such as `local.threshold` and 0.4; null takes a key out of the file.
    #[serde(default)]
    pub changes: BTreeMap<String, Value>,
    /// Reason, for the audit file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Who chose the values of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A person: the policy is pinned, so that plans are refused, until a command with `release`.
    #[default]
    Operator,
    /// A program that plans.
    Plan,
}

/// Message on `policy/{name}/answer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyAnswer {
    /// Version of the message.
    pub schema: Schema<1>,
    /// Id that the command asked to replace.
    pub replaces: Option<PolicyId>,
    /// Whether the changes hold.
    pub verdict: Verdict,
    /// Reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Id of the policy in effect.
    pub policy: PolicyId,
    /// Whether plans are refused.
    pub pinned: bool,
    /// Devices that decide by themselves and have not taken the policy in time; they get it at their next birth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<DeviceId>,
}

impl PolicyAnswer {
    /// The answer that refuses a command for a reason. `pinned` is false until the caller sets it.
    pub fn refused(replaces: Option<PolicyId>, reason: impl Into<String>, policy: PolicyId) -> Self {
        let (schema, verdict, reason) = (Schema, Verdict::Refused, Some(reason.into()));
        Self { schema, replaces, verdict, reason, policy, pinned: false, without: Vec::new() }
    }
}

/// Whether the changes of a command hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They are in the policy file and hold.
    Accepted,
    /// Nothing changed.
    Refused,
}

/// Message on `dev/{id}/cmd`: the policy of a device that decides by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DeviceCommand {
    /// Version of the message.
    #[serde(default)]
    pub schema: Schema<1>,
    /// The policy, as in `policy.json` of a bundle.
    pub policy: Value,
}

/// Longest command, in bytes.
pub const MAX_COMMAND_BYTES: usize = 16 << 10;

/// Reads a command.
///
/// # Errors
/// One line with the mistake, if the bytes are no command or more than [`MAX_COMMAND_BYTES`].
pub fn read_command<T: for<'de> Deserialize<'de>>(payload: &[u8]) -> Result<T, String> {
    if payload.len() > MAX_COMMAND_BYTES {
        return Err(format!(
            "expected a command of at most {MAX_COMMAND_BYTES} bytes, found {}",
            payload.len()
        ));
    }
    // A derived `Deserialize` would also accept a JSON list of the fields.
    if payload.trim_ascii_start().first() != Some(&b'{') {
        return Err("expected a JSON object, found something else".into());
    }
    serde_json::from_slice(payload).map_err(|error| clipped(&error.to_string(), 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_a_script_needs_only_what_it_changes() {
        let command: PolicyCommand =
            read_command(br#"{"replaces":"0102030405060708","changes":{"local.threshold":null}}"#).unwrap();
        assert_eq!((command.origin, command.release), (Origin::Operator, false));
        assert_eq!(command.replaces, Some(PolicyId([1, 2, 3, 4, 5, 6, 7, 8])));
        assert_eq!(command.changes["local.threshold"], Value::Null);
    }

    #[test]
    fn what_is_no_command_is_refused_in_one_line() {
        for (payload, expected) in [
            (&b"[1]"[..], "expected a JSON object"),
            (&b"{"[..], "EOF"),
            (br#"{"schema":2}"#, "expected schema 1, found schema 2"),
            (br#"{"change":{}}"#, "unknown field `change`"),
            (br#"{"origin":"root"}"#, "expected `operator` or `plan`"),
            (&[b'{'; MAX_COMMAND_BYTES + 1], "at most 16384 bytes, found 16385"),
        ] {
            let refused = read_command::<PolicyCommand>(payload).unwrap_err();
            assert!(refused.contains(expected) && !refused.contains('\n'), "{expected}: {refused}");
        }
    }
}
