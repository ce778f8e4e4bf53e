//! Why a connection to the broker does not come about, and what to do.

use headwater_transport::tls::HandshakeRefused;
use rumqttc::{ConnectReturnCode as Code, ConnectionError, StateError, mqttbytes};
use thiserror::Error;

/// Why the latest attempt to connect failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectFailure {
    /// No broker answered: nothing listens there, the name is unknown, or the answer takes too long.
    #[error("{0}")]
    NoAnswer(String),
    /// One end refuses the other's certificate.
    #[error("the broker is there: {0}")]
    Certificate(String),
    /// The broker refuses the client for now; a later attempt may work.
    #[error("the broker is there and refuses for now: {0}")]
    Later(&'static str),
    /// The broker refuses the client until somebody changes something.
    #[error("the broker is there and refuses this client: {reason} ({code}): {advice}")]
    Refused {
        /// What the broker objects to.
        reason: &'static str,
        /// Name of the broker's return code.
        code: String,
        /// What a person can do.
        advice: &'static str,
    },
}

impl ConnectFailure {
    /// Whether the failure lasts until somebody changes something.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Certificate(_))
    }

    pub(crate) fn of(error: &ConnectionError) -> Self {
        if let Some(refused) = refused_handshake(error) {
            return Self::Certificate(refused);
        }
        match error {
            ConnectionError::ConnectionRefused(code) => Self::of_code(*code),
            ConnectionError::Timeout(_) => Self::NoAnswer("no answer in time".into()),
            ConnectionError::Io(error) => Self::NoAnswer(error.to_string()),
            other => Self::NoAnswer(crate::end_reason::of_error(other)),
        }
    }

    /// The failure behind a return code of CONNACK.
    fn of_code(code: Code) -> Self {
        const PASSWORD: &str =
            "check `broker.user` and `broker.password_file`, and the broker's list of passwords";
        let (reason, advice) = match code {
            Code::ServerBusy => return Self::Later("it is busy"),
            Code::ServerUnavailable | Code::ServiceUnavailable => return Self::Later("it is not available"),
            Code::ConnectionRateExceeded => return Self::Later("too many clients connect at this moment"),
            Code::QuotaExceeded => return Self::Later("a quota is used up"),
            Code::BadUserNamePassword => ("bad user name or password", PASSWORD),
            Code::NotAuthorized => (
                "not authorized",
                "set `broker.user` and `broker.password_file`, or a certificate in `[tls]`, and allow this client in the broker's access \
                 rules (Mosquitto: acl_file; `headwater enroll` writes one)",
            ),
            Code::Banned => {
                ("the client is banned", "lift the ban of this client id or address at the broker")
            }
            Code::BadClientId | Code::ClientIdentifierNotValid => {
                ("the client id is not accepted", "choose another client id, or allow this one at the broker")
            }
            Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion => {
                ("it does not speak MQTT 5", "use a broker for MQTT 5, such as Mosquitto from version 2 on")
            }
            Code::BadAuthenticationMethod => ("it wants another way to authenticate", PASSWORD),
            Code::UseAnotherServer | Code::ServerMoved => {
                ("it sends clients to another broker", "set the address of that broker")
            }
            Code::RetainNotSupported => {
                ("it keeps no retained messages", "allow retained messages at the broker; births need them")
            }
            Code::QoSNotSupported => {
                ("it does not support QoS 1", "allow QoS 1 at the broker; births and last wills need it")
            }
            _ => ("it does not accept the connection", "the broker's log may say more"),
        };
        Self::Refused { reason, code: format!("{code:?}"), advice }
    }
}

/// The reason of a handshake that one end refused, wherever in the error it is.
fn refused_handshake(error: &ConnectionError) -> Option<String> {
    let (ConnectionError::Io(error)
    | ConnectionError::MqttState(
        StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)),
    )) = error
    else {
        return None;
    };
    HandshakeRefused::is(error).then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Code, is_refusal: bool, words: [&str; 2]) {
        let failure = ConnectFailure::of(&ConnectionError::ConnectionRefused(code));
        assert_eq!(failure.is_refusal(), is_refusal, "{failure}");
        for word in words {
            assert!(failure.to_string().contains(word), "{word} in {failure}");
        }
    }

    #[test]
    fn each_refusal_of_a_broker_is_said_as_what_it_is_with_what_to_do() {
        check(Code::BadUserNamePassword, true, ["bad user name or password", "broker.password_file"]);
        check(Code::NotAuthorized, true, ["not authorized", "access rules"]);
        check(Code::Banned, true, ["banned", "lift the ban"]);
        check(Code::ClientIdentifierNotValid, true, ["client id is not accepted", "another client id"]);
        check(Code::UnsupportedProtocolVersion, true, ["MQTT 5", "Mosquitto"]);
        check(Code::ServerBusy, false, ["busy", "for now"]);
        check(Code::ServerUnavailable, false, ["not available", "for now"]);
        check(Code::ImplementationSpecificError, true, ["does not accept", "ImplementationSpecificError"]);
    }
}
