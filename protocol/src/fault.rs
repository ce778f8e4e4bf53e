//! The one error table: what went wrong between two parts, its code, HTTP status, MQTT handling and metric label.

use serde::{Deserialize, Serialize};

/// An error that crosses a boundary. Clients see the code and a message of their own mistake, never our internals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Not a message of ours: kind, length or contents do not fit.
    Malformed,
    /// A protocol version this build does not speak.
    WrongVersion,
    /// Larger than the limit for its kind.
    Oversize,
    /// Made by another network than this tier holds.
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
    /// A fault of ours; the log has it.
    Internal,
}

/// What a tier does with an MQTT message that ended in a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttHandling {
    /// Count it under its device and go on.
    CountAndIgnore,
    /// Also name the device in the log, once per life of it.
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

    /// Stable word: the code in answers and the label in metrics.
    pub const fn code(self) -> &'static str {
        self.row().0
    }

    /// HTTP status of an answer that carries it.
    pub const fn http_status(self) -> u16 {
        self.row().1
    }

    /// What a tier does with an MQTT message that ended in it.
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
    fn codes_are_distinct_and_are_the_json_words() {
        let mut codes: Vec<_> = Fault::ALL.iter().map(|f| f.code()).collect();
        for fault in Fault::ALL {
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.code());
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Fault::ALL.len());
    }

    #[test]
    fn faults_of_the_caller_are_4xx_and_ours_5xx() {
        for fault in Fault::ALL {
            let ours = matches!(fault, Fault::DeadlineExceeded | Fault::Unavailable | Fault::Internal);
            assert_eq!(fault.http_status() >= 500, ours, "{fault:?}");
        }
    }
}
