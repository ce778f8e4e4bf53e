//! The error table: each error between two tiers, with code, HTTP status, MQTT handling and metric label.

use serde::{Deserialize, Serialize};

/// An error between two tiers. Clients see the code and a message about their own mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The message has an unknown kind, another length or contents that do not fit.
    Malformed,
    /// A protocol version that this build does not have.
    WrongVersion,
    /// Larger than the limit for its kind.
    Oversize,
    /// The message belongs to a network that this tier does not run.
    WrongNetwork,
    /// A device that has not introduced itself, or is not allowed here.
    UnknownDevice,
    /// A second device claims a slot that is taken.
    SlotTaken,
    /// No such model, version or endpoint.
    NotFound,
    /// A key or certificate is missing or wrong.
    Unauthorized,
    /// More work than the permits allow; come again.
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
    /// The message is counted under its device.
    CountAndIgnore,
    /// The message is counted and the device is named in the log, once for each start.
    CountAndName,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::WrongVersion,
        Self::Oversize,
        Self::WrongNetwork,
        Self::UnknownDevice,
        Self::SlotTaken,
        Self::NotFound,
        Self::Unauthorized,
        Self::Overloaded,
        Self::DeadlineExceeded,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Code in answers and label in metrics; it never changes.
    pub const fn code(self) -> &'static str {
        self.row().0
    }

    /// HTTP status of an answer with the fault.
    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    /// Handling of an MQTT message that ended in the fault.
    pub const fn mqtt(self) -> MqttHandling {
        self.row().2
    }

    /// Whether the same request may succeed later.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Overloaded | Self::DeadlineExceeded | Self::Unavailable)
    }

    const fn row(self) -> (&'static str, u16, MqttHandling) {
        use MqttHandling::{CountAndIgnore, CountAndName};
        match self {
            Self::Malformed => ("malformed", 400, CountAndName),
            Self::WrongVersion => ("wrong_version", 400, CountAndName),
            Self::Oversize => ("oversize", 413, CountAndName),
            Self::WrongNetwork => ("wrong_network", 409, CountAndName),
            Self::UnknownDevice => ("unknown_device", 403, CountAndName),
            Self::SlotTaken => ("slot_taken", 409, CountAndName),
            Self::NotFound => ("not_found", 404, CountAndIgnore),
            Self::Unauthorized => ("unauthorized", 401, CountAndName),
            Self::Overloaded => ("overloaded", 429, CountAndIgnore),
            Self::DeadlineExceeded => ("deadline_exceeded", 504, CountAndIgnore),
            Self::Unavailable => ("unavailable", 503, CountAndIgnore),
            Self::Internal => ("internal", 500, CountAndIgnore),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_equal_the_json() {
        let mut codes: Vec<_> = Fault::ALL.iter().map(|f| f.code()).collect();
        for fault in Fault::ALL {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.code());
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Fault::ALL.len());
    }

    #[test]
    fn faults_of_the_caller_are_4xx_and_internal_ones_5xx() {
        for fault in Fault::ALL {
            let ours = matches!(fault, Fault::DeadlineExceeded | Fault::Unavailable | Fault::Internal);
            assert_eq!(fault.http_status() >= 500, ours, "{fault:?}");
        }
    }
}
