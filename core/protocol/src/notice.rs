//! Retained messages by which devices, edges and leaders introduce themselves; JSON, because people read them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::batch::BATCHES;
use crate::ids::{Boot, DeviceId, EdgeIndex, IdError, NetworkId, PolicyId, Slot, clipped};
use crate::json_version::Schema;

/// Message on `dev/{id}/status`, retained; the `down` form is the device's last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the message.
    pub schema: Schema<2>,
    /// Up or down.
    pub state: DeviceState,
    /// The start that this status belongs to. The will of an earlier start must not end a later one.
    pub boot: Boot,
    /// Why the device is up and gives no answers: its camera is frozen, dark or covered. Left out by a device that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
}

/// Whether the sender of a retained message (device, edge or leader) is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// The connection stands.
    Up,
    /// The sender left, or its last will came.
    Down,
}

/// Message on `dev/{id}/birth`, retained: identity of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Birth {
    /// Version of the message.
    pub schema: Schema<2>,
    /// Id of the device, as in the topic.
    pub device: DeviceId,
    /// The slot that the device fills.
    pub slot: Slot,
    /// Number of this start.
    pub boot: Boot,
    /// Name and version of the software.
    pub software: String,
    /// The network that it runs.
    pub network: NetworkId,
    /// Numbering of the device's samples; `None` for a program that answers whatever is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbering: Option<Numbering>,
    /// Policy under which the device decides by itself; `None` for one that does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyId>,
    /// Optional features of the protocol that the device supports; receivers ignore names that they do not know.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

impl Birth {
    /// True if the device can send batches; the device sends them only if the leader reads batches.
    pub fn sends_batches(&self) -> bool {
        self.capabilities.iter().any(|name| name == BATCHES)
    }
}

/// Numbering of samples by the devices of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Numbering {
    /// Capture time divided by the period.
    Clock {
        /// Time between two samples.
        period_ms: u32,
    },
    /// Milliseconds since 1970, from the source of the frames.
    Source,
    /// Ids of triggers.
    Trigger,
}

impl fmt::Display for Numbering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clock { period_ms } => write!(f, "clock with a period of {period_ms} ms"),
            Self::Source => f.write_str("source"),
            Self::Trigger => f.write_str("trigger"),
        }
    }
}

/// Message on `edge/{id}/status`, retained; the `down` form is the edge's last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EdgeStatus {
    /// Version of the message.
    pub schema: Schema<2>,
    /// Up or down.
    pub state: DeviceState,
    /// The start that this status belongs to.
    pub boot: Boot,
    /// Position of the edge in the network.
    pub edge: EdgeIndex,
    /// The network that it runs.
    pub network: NetworkId,
    /// Name and version of the software.
    pub software: String,
}

/// Message on `leader`, retained: the process that leads the group. The `down` form is its last will.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaderClaim {
    /// Version of the message.
    pub schema: Schema<2>,
    /// The leader; a restart with the same journal is the same instance.
    pub instance: InstanceId,
    /// Random number of the process: it tells two processes with copies of one journal apart.
    pub process: InstanceId,
    /// Number of the claim: every new leader takes a higher one. At most [`LeaderClaim::MAX_TERM`].
    pub term: u64,
    /// Up or down.
    pub state: DeviceState,
    /// Name and version of the software.
    pub software: String,
    /// Start of the claim, RFC 3339 in UTC.
    pub since: String,
    /// Number of this publication under the claim; a leader publishes its claim every few seconds.
    pub beat: u64,
}

/// Name of a leader: a random number that stays with its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("pattern" = "^[0-9a-f]{16}$")))]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(pub u64);

impl LeaderClaim {
    /// Largest term: a JSON reader that reads numbers as `f64` has every term up to this one exactly.
    pub const MAX_TERM: u64 = 1 << 53;

    /// Reads a claim.
    ///
    /// # Errors
    /// A sentence that names the mistake.
    pub fn read(payload: &[u8]) -> Result<Self, String> {
        let claim: Self = serde_json::from_slice(payload)
            .map_err(|error| format!("leader: {}", clipped(&error.to_string(), 200)))?;
        if claim.term <= Self::MAX_TERM {
            Ok(claim)
        } else {
            Err(format!("leader: term: expected at most {}, found {}", Self::MAX_TERM, claim.term))
        }
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for InstanceId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let id = u64::from_str_radix(&text, 16).ok().filter(|_| is_hex).map(Self);
        id.ok_or_else(|| IdError::Hex { digits: 16, found: clipped(&text, 80) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> LeaderClaim {
        LeaderClaim {
            schema: Schema,
            instance: InstanceId(0x00ab),
            process: InstanceId(0x00cd),
            term: 3,
            state: DeviceState::Up,
            software: "test/1".into(),
            since: "2026-11-22T23:45:40Z".into(),
            beat: 7,
        }
    }

    #[test]
    fn a_claim_is_readable_json_and_unknown_fields_are_ignored() {
        let text = serde_json::to_string(&claim()).unwrap();
        let expected = r#"{"schema":2,"instance":"00000000000000ab","process":"00000000000000cd","term":3,"state":"up","software":"test/1","since":"2026-11-22T23:45:40Z","beat":7}"#;
        assert_eq!(text, expected);
        assert_eq!(LeaderClaim::read(text.as_bytes()), Ok(claim()));
        let more = text.replace(r#","beat":7"#, r#","beat":7,"load":0.5"#);
        assert_eq!(LeaderClaim::read(more.as_bytes()), Ok(claim()));
        let long = format!(r#"{{"schema":2,"state":"{}"}}"#, "x".repeat(100_000));
        assert!(LeaderClaim::read(long.as_bytes()).is_err_and(|why| why.len() < 300));
    }

    #[test]
    fn a_status_without_the_word_frozen_is_that_of_a_device_that_answers() {
        let text = r#"{"schema":2,"state":"up","boot":1}"#;
        let status: Status = serde_json::from_str(text).unwrap();
        assert_eq!((status.frozen.clone(), serde_json::to_string(&status).unwrap()), (None, text.to_owned()));
        let frozen = Status { frozen: Some("100 equal frames".into()), ..status };
        let text = r#"{"schema":2,"state":"up","boot":1,"frozen":"100 equal frames"}"#;
        assert_eq!(serde_json::to_string(&frozen).unwrap(), text);
        assert_eq!(serde_json::from_str::<Status>(text).unwrap(), frozen);
    }

    #[test]
    fn births_statuses_and_claims_of_868d949_are_refused_by_their_schema() {
        let birth = r#"{"device":"cam-2","slot":2,"boot":1,"software":"headwater-device/0.1.0","network":"a9ffd389e0f2924874117ab6c32123a85798c475ca5ecfe89395b54951d409a0","numbering":"trigger","capabilities":["batches"]}"#;
        let status = r#"{"state":"up","boot":1}"#;
        let claim = r#"{"instance":"00000000000000ab","process":"00000000000000cd","term":3,"state":"up","software":"headwater-aggregator/0.1.0","since":"2026-11-22T23:45:40Z","beat":7}"#;
        let found = [
            serde_json::from_str::<Birth>(birth).unwrap_err().to_string(),
            serde_json::from_str::<Status>(status).unwrap_err().to_string(),
            LeaderClaim::read(claim.as_bytes()).unwrap_err(),
        ];
        for error in found {
            let expected = "expected schema 2, found schema 1: use programs of one release";
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_claim_with_another_name_or_a_term_out_of_range_is_refused() {
        let text = serde_json::to_string(&claim()).unwrap();
        for (from, to, named) in [
            ("00000000000000ab", "ab", "ab"),
            ("00000000000000ab", "+0000000000000ab", "+0000"),
            ("\"term\":3", "\"term\":9007199254740993", "9007199254740993"),
            ("up", "sideways", "sideways"),
        ] {
            let error = LeaderClaim::read(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_numbering_has_a_plain_json_form() {
        let clock = Numbering::Clock { period_ms: 100 };
        for (numbering, text) in [
            (clock, r#"{"clock":{"period_ms":100}}"#),
            (Numbering::Source, r#""source""#),
            (Numbering::Trigger, r#""trigger""#),
        ] {
            assert_eq!(serde_json::to_string(&numbering).unwrap(), text);
            assert_eq!(serde_json::from_str::<Numbering>(text).unwrap(), numbering);
        }
        assert_eq!(clock.to_string(), "clock with a period of 100 ms");
    }
}
