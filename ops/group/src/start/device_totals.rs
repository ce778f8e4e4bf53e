//! Messages and bytes of a group's devices.

use headwater_protocol::Kind;
use serde_json::Value;

/// Sums over the reports of a group's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Number of answers `summary`, `input` and `decided`, alone or in batches. A device sends exactly one of these for each sample that it sees.
    pub views: u64,
    /// Bytes of message bodies: scores, features, pixels, decisions.
    pub body_bytes: u64,
    /// Bytes of message bodies and our headers, without topics and MQTT headers.
    pub payload_bytes: u64,
    /// All bytes that the devices wrote to their sockets.
    pub wire_sent: u64,
    /// All bytes that the devices read from their sockets.
    pub wire_received: u64,
}

/// Kinds of messages that a device sends once for each sample that it sees.
const VIEW_KINDS: [Kind; 3] = [Kind::Summary, Kind::Input, Kind::Decided];

impl DeviceTotals {
    /// Adds a device report in JSON, as `headwater-device --json` prints it.
    pub fn add(&mut self, report: &Value) {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let sent = |field: &str| -> u64 {
            let kinds = report["sent"].as_object().into_iter().flatten();
            kinds.map(|(_, sent)| number(&sent[field])).sum()
        };
        let views = VIEW_KINDS.map(|kind| number(&report["sent"][kind.name()]["messages"]));
        self.views += views.iter().sum::<u64>() + number(&report["batched"][Kind::Summary.name()]);
        self.body_bytes += sent("body_bytes");
        self.payload_bytes += sent("payload_bytes");
        self.wire_sent += number(&report["wire_sent"]);
        self.wire_received += number(&report["wire_received"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn totals_are_sums_over_kinds_and_devices() {
        let report = json!({
            "sent": {
                "summary": { "messages": 3, "body_bytes": 120, "payload_bytes": 156 },
                "features": { "messages": 1, "body_bytes": 256, "payload_bytes": 268 },
                "not_in_view": { "messages": 2, "body_bytes": 0, "payload_bytes": 24 },
                "batch": { "messages": 1, "body_bytes": 80, "payload_bytes": 98 },
            },
            "batched": { "summary": 2, "not_in_view": 1 },
            "wire_sent": 900,
            "wire_received": 100,
        });
        let mut totals = DeviceTotals::default();
        totals.add(&report);
        totals.add(&report);
        let expected = DeviceTotals {
            views: 10,
            body_bytes: 912,
            payload_bytes: 1092,
            wire_sent: 1800,
            wire_received: 200,
        };
        assert_eq!(totals, expected);
    }
}
