//! The error table: each error between two tiers, with code, HTTP status, gRPC status, MQTT handling and metric label.

use serde::{Deserialize, Serialize};

/// An error between two tiers. Clients see the code and a message about their own mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The message has an unknown kind, a wrong length, or contents that are not valid.
    Malformed,
    /// The message has a protocol version that this build does not read.
    WrongVersion,
    /// The message is larger than the largest that its receiver accepts.
    Oversize,
    /// The message belongs to a network that this tier does not run.
    WrongNetwork,
    /// The device numbers its samples in another way than its group.
    WrongNumbering,
    /// The sample's id is not plausible: too far from the clock or from the newest id.
    Implausible,
    /// The device has sent no birth, or is not allowed here.
    UnknownDevice,
    /// A second device claims a slot that is taken.
    SlotTaken,
    /// The body has a `Content-Encoding` that this tier does not read.
    UnknownEncoding,
    /// The model, version or endpoint does not exist.
    NotFound,
    /// The endpoint does not accept the HTTP method.
    WrongMethod,
    /// A key or certificate is missing or wrong.
    Unauthorized,
    /// The service has as much work as it takes at a time; the same request may succeed later.
    Overloaded,
    /// The deadline passed before the work was done.
    DeadlineExceeded,
    /// The tier is starting or stopping.
    Unavailable,
    /// An internal error; the log has the details.
    Internal,
}

/// Handling of an MQTT message that ended in a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttHandling {
    /// The message is counted for its device, and otherwise ignored.
    CountAndIgnore,
    /// The message is counted, and the device is named in the log, at most once for each fault and start of the device.
    CountAndName,
}

impl Fault {
    /// Code, HTTP status, gRPC status and MQTT handling of every fault, in the order of the enum.
    const TABLE: [(Self, &'static str, u16, u8, MqttHandling); 16] = [
        (Self::Malformed, "malformed", 400, 3, MqttHandling::CountAndName),
        (Self::WrongVersion, "wrong_version", 400, 3, MqttHandling::CountAndName),
        (Self::Oversize, "oversize", 413, 8, MqttHandling::CountAndName),
        (Self::WrongNetwork, "wrong_network", 409, 9, MqttHandling::CountAndName),
        (Self::WrongNumbering, "wrong_numbering", 409, 9, MqttHandling::CountAndName),
        (Self::Implausible, "implausible", 409, 9, MqttHandling::CountAndName),
        (Self::UnknownDevice, "unknown_device", 403, 7, MqttHandling::CountAndName),
        (Self::SlotTaken, "slot_taken", 409, 9, MqttHandling::CountAndName),
        (Self::UnknownEncoding, "unknown_encoding", 415, 12, MqttHandling::CountAndIgnore),
        (Self::NotFound, "not_found", 404, 5, MqttHandling::CountAndIgnore),
        (Self::WrongMethod, "wrong_method", 405, 12, MqttHandling::CountAndIgnore),
        (Self::Unauthorized, "unauthorized", 401, 16, MqttHandling::CountAndName),
        (Self::Overloaded, "overloaded", 429, 8, MqttHandling::CountAndIgnore),
        (Self::DeadlineExceeded, "deadline_exceeded", 504, 4, MqttHandling::CountAndIgnore),
        (Self::Unavailable, "unavailable", 503, 14, MqttHandling::CountAndIgnore),
        (Self::Internal, "internal", 500, 13, MqttHandling::CountAndIgnore),
    ];

    /// Every fault.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(fault, ..)| fault)
    }

    /// Code in answers and label in metrics; it never changes.
    pub const fn code(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// HTTP status of an answer with the fault.
    pub const fn http_status(self) -> u16 {
        Self::TABLE[self as usize].2
    }

    /// Status of a gRPC call with the fault.
    pub const fn grpc_status(self) -> u8 {
        Self::TABLE[self as usize].3
    }

    /// Handling of an MQTT message that ended in the fault.
    pub const fn mqtt(self) -> MqttHandling {
        Self::TABLE[self as usize].4
    }

    /// True if the same request may succeed later.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Overloaded | Self::DeadlineExceeded | Self::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        assert!(Fault::all().enumerate().all(|(row, fault)| fault as usize == row));
    }

    #[test]
    fn codes_are_distinct_and_equal_the_json() {
        let mut codes: Vec<_> = Fault::all().map(Fault::code).collect();
        for fault in Fault::all() {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.code());
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Fault::TABLE.len());
    }

    #[test]
    fn faults_of_the_caller_are_4xx_and_internal_ones_5xx() {
        for fault in Fault::all() {
            let ours = matches!(fault, Fault::DeadlineExceeded | Fault::Unavailable | Fault::Internal);
            assert_eq!(fault.http_status() >= 500, ours, "{fault:?}");
        }
    }
}
