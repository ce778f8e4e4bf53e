//! Reasons why there is no connection to the broker, with advice.

use std::io;

use headwater_transport::tls::{ClientIdentity, HandshakeRefused};
use headwater_transport::{BrokerAccess, UnknownHost};
use rumqttc::{
    ConnectReturnCode as Code, ConnectionError, DisconnectReasonCode, Packet, StateError, mqttbytes,
};
use thiserror::Error;

use crate::broker_bytes::{Seen, code_name};
use crate::end_reason;

/// Reason why an attempt to connect failed or a connection broke.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConnectFailure {
    /// The link's own settings do not allow an attempt.
    #[error("{0}")]
    Settings(String),
    /// The name of the host has no address.
    #[error("{0}")]
    UnknownHost(String),
    /// Nobody listens at the address, the network has no way to the address, or the network broke an accepted connection. Holds the
    /// system's reason.
    #[error("{0}")]
    Unreachable(String),
    /// No answer came in time.
    #[error("{0}")]
    NoAnswer(String),
    /// The connection ended for a reason that no other variant names, most often after the broker's first answer.
    #[error("{0}")]
    Ended(String),
    /// The other end takes connections, but then closes them, stops answering or answers in another protocol.
    #[error("the broker {seen}: {advice}")]
    NoMqtt {
        /// Behaviour of the other end.
        seen: &'static str,
        /// Advice for a person.
        advice: &'static str,
    },
    /// One end refuses the other's certificate.
    #[error("the broker is there: {0}")]
    Certificate(String),
    /// The broker refuses the client for now; a later attempt may work.
    #[error("the broker is there and refuses for now: {0}")]
    Later(&'static str),
    /// The broker refuses a subscription until somebody changes something.
    #[error(
        "the broker is there and refuses this client: it does not allow a subscription ({code}, {filter:?}): {}",
        subscription_advice(.code)
    )]
    Subscription {
        /// Filter of the subscription.
        filter: String,
        /// Name of the broker's return code.
        code: String,
        /// True when the broker's access rules do not allow the subscription.
        needs_rights: bool,
    },
    /// The broker accepts the client, but the broker's limits are too low for the client's messages.
    #[error("the broker is there and its limits do not allow this client's messages: {found}: {advice}")]
    Limits {
        /// What was found, and what is needed.
        found: String,
        /// Advice for a person.
        advice: String,
    },
    /// The broker refuses the client until somebody changes something, most often because the broker does not know the client.
    #[error("the broker is there and refuses this client: {reason} ({code}): {advice}")]
    Refused {
        /// Objection of the broker.
        reason: &'static str,
        /// Name of the broker's return code.
        code: String,
        /// Advice for a person.
        advice: &'static str,
    },
}

/// Circumstances of a failed connection; the advice depends on them.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Progress of the connection.
    pub(crate) progress: Progress,
    /// True when the address asks for TLS.
    pub(crate) uses_tls: bool,
    /// Advice if the broker does not admit the client. The advice depends on the credentials that the client shows.
    pub(crate) not_admitted: &'static str,
    /// First bytes that the other end sent.
    pub(crate) first: Vec<u8>,
    /// Reason code that the library does not know; `None` if there was none.
    pub(crate) code: Option<u8>,
}

impl Attempt {
    /// The circumstances of a connection to this broker. `is_accepted` is true if the broker has accepted the client.
    pub(crate) fn new(broker: &BrokerAccess, is_accepted: bool, seen: &Seen) -> Self {
        let BrokerAccess { address, identity, credentials } = broker;
        let uses_tls = address.scheme().uses_tls();
        let certificate = || identity.as_ref().and_then(ClientIdentity::certificate);
        let not_admitted = match credentials {
            Some(_) => SHOWS_USER,
            None if uses_tls && certificate().is_some() => SHOWS_CERTIFICATE,
            None => SHOWS_NOTHING,
        };
        let progress = match (is_accepted, seen.is_open) {
            (true, _) => Progress::Accepted,
            (false, true) => Progress::Open,
            (false, false) => Progress::Opening,
        };
        Self { progress, uses_tls, not_admitted, first: seen.first.clone(), code: seen.replaced }
    }
}

/// Progress of a connection at the time of its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The connection is not open: no TCP connection yet, or the TLS handshake has not finished.
    Opening,
    /// The connection is open, but no CONNACK has come.
    Open,
    /// The broker accepted the client.
    Accepted,
}

/// Advice for a client with neither a user nor a certificate.
const SHOWS_NOTHING: &str = "set `broker.user` and `broker.password_file`, or a certificate in `[tls]`, and allow this client in the broker's \
                             access rules (Mosquitto: acl_file; `headwater enroll` writes one)";

/// Advice for a client with user and password, with or without a certificate.
const SHOWS_USER: &str = "user or password is wrong, or the broker's password file lacks this user; compare `broker.user` and \
                          `broker.password_file` with the broker's password file (Mosquitto: password_file)";

/// Advice for a client with a certificate and without a user.
const SHOWS_CERTIFICATE: &str = "the broker does not admit the name in this client's certificate; allow it in the broker's access rules \
                                 (Mosquitto: acl_file; `headwater enroll` writes one)";

impl ConnectFailure {
    /// The broker accepts the client and sends no SUBACK.
    pub(crate) const WITHOUT_SUBACK: Self = Self::NoMqtt {
        seen: "accepts this client and does not answer its subscriptions",
        advice: "it hangs; look into its log",
    };

    /// Returns true if it is possible that no broker runs at the address.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::UnknownHost(_) | Self::Unreachable(_) | Self::NoAnswer(_) | Self::Ended(_))
    }

    /// Returns true if the failure lasts until somebody changes something.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. } | Self::Subscription { .. } | Self::Certificate(_) | Self::Limits { .. }
        )
    }

    pub(crate) fn of(error: &ConnectionError, attempt: &Attempt) -> Self {
        if let Some(refused) = refused_handshake(error) {
            return Self::Certificate(refused);
        }
        if let Some(code) = disconnect_code(error) {
            return Self::of_disconnect(code, attempt);
        }
        if attempt.progress != Progress::Accepted
            && let Some(failure) = Self::of_first_bytes(attempt)
        {
            return failure;
        }
        if attempt.progress != Progress::Accepted && is_close(error) {
            return Self::closed_at_once(attempt);
        }
        match error {
            ConnectionError::ConnectionRefused(code) => Self::of_code(*code, attempt),
            ConnectionError::Timeout(_) if attempt.progress == Progress::Open => Self::NoMqtt {
                seen: "accepts connections and does not answer MQTT",
                advice: "it hangs, knows no MQTT 5, or another program listens there; look into its log, or name another port",
            },
            ConnectionError::Timeout(_) => Self::NoAnswer("no answer in time".into()),
            ConnectionError::Io(error) => Self::of_io(error),
            error if attempt.progress != Progress::Accepted && is_other_protocol(error) => Self::NoMqtt {
                seen: "answers in another protocol than MQTT",
                advice: "another program listens there; correct host and port",
            },
            other => Self::Ended(other.to_string()),
        }
    }

    /// The failure that the first bytes show; `None` if no byte has come or the first bytes may be MQTT 5.
    fn of_first_bytes(attempt: &Attempt) -> Option<Self> {
        let (seen, advice) = match attempt.first.as_slice() {
            // A CONNACK without properties: MQTT 3.1 or 3.1.1.
            [0x20, 2, ..] => return Some(Self::of_code(Code::UnsupportedProtocolVersion, attempt)),
            // No byte has come, or a CONNACK or DISCONNECT of MQTT 5, whole or not.
            [] | [0x20 | 0xe0, ..] => return None,
            // AUTH: the broker wants another way to authenticate.
            [0xf0, ..] => return Some(Self::of_code(Code::BadAuthenticationMethod, attempt)),
            [b'H', b'T', b'T', b'P', ..] => (
                "answers as a web server does (HTTP)",
                "set the broker's port; MQTT over WebSocket is not supported",
            ),
            [b'S', b'S', b'H', b'-', ..] => {
                ("answers as an SSH server does", "set the broker's port (1883, with TLS 8883)")
            }
            // An alert of TLS.
            [0x15, 3, ..] => ("expects TLS", "use `mqtts://` in place of `mqtt://`"),
            _ => (
                "answers in another protocol than MQTT",
                "another program listens there; correct host and port",
            ),
        };
        Some(Self::NoMqtt { seen, advice })
    }

    /// The failure behind an error of the socket, other than a close before the broker accepted the client.
    fn of_io(error: &io::Error) -> Self {
        let reason = error.to_string();
        match error.kind() {
            _ if UnknownHost::is(error) => Self::UnknownHost(reason),
            io::ErrorKind::TimedOut => Self::NoAnswer(reason),
            // No certificate authority is set for TLS, or the host is not a valid name.
            io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Self::Settings(reason),
            // The TLS handshake read bytes that are not TLS.
            io::ErrorKind::InvalidData => Self::NoMqtt {
                seen: "answers without TLS",
                advice: "it may not speak TLS there (`mqtt://` in place of `mqtts://`), or another program listens there",
            },
            _ => Self::Unreachable(reason),
        }
    }

    /// The failure behind a DISCONNECT packet. The codes of the list are treated as in a CONNACK; every other code gives
    /// `Ended`.
    pub(crate) fn of_disconnect(code: DisconnectReasonCode, attempt: &Attempt) -> Self {
        use DisconnectReasonCode as Ended;
        let same = match code {
            Ended::NotAuthorized => Code::NotAuthorized,
            Ended::ServerBusy => Code::ServerBusy,
            Ended::ConnectionRateExceeded => Code::ConnectionRateExceeded,
            Ended::QuotaExceeded => Code::QuotaExceeded,
            Ended::PacketTooLarge => Code::PacketTooLarge,
            Ended::RetainNotSupported => Code::RetainNotSupported,
            Ended::QoSNotSupported => Code::QoSNotSupported,
            Ended::UseAnotherServer => Code::UseAnotherServer,
            Ended::ServerMoved => Code::ServerMoved,
            code => return Self::Ended(end_reason::of_disconnect(code, attempt.code)),
        };
        Self::of_code(same, attempt)
    }

    /// The failure for a connection that the other end closed before it sent a CONNACK.
    fn closed_at_once(attempt: &Attempt) -> Self {
        let advice = match (attempt.uses_tls, attempt.progress) {
            (false, _) => {
                "it may expect TLS there (`mqtts://` in place of `mqtt://`), or be a broker without MQTT 5, or another program"
            }
            (true, Progress::Opening) => "it may not speak TLS there (`mqtt://` in place of `mqtts://`)",
            (true, Progress::Open | Progress::Accepted) => {
                "it may not admit this client's certificate; the broker's log may say more"
            }
        };
        Self::NoMqtt { seen: "closed the connection at the first bytes", advice }
    }

    /// The failure behind a return code of CONNACK.
    fn of_code(code: Code, attempt: &Attempt) -> Self {
        const PASSWORD: &str =
            "check `broker.user` and `broker.password_file`, and the broker's list of passwords";
        let (reason, advice) = match code {
            Code::ServerBusy => return Self::Later("it is busy"),
            Code::ServerUnavailable | Code::ServiceUnavailable => return Self::Later("it is not available"),
            Code::ConnectionRateExceeded => return Self::Later("too many clients connect at this moment"),
            Code::QuotaExceeded => return Self::Later("a quota is used up"),
            // The broker knows the client.
            Code::NotAuthorized if attempt.progress == Progress::Accepted => ("not authorized", RIGHTS),
            Code::NotAuthorized => ("not authorized", attempt.not_admitted),
            Code::BadUserNamePassword => ("bad user name or password", attempt.not_admitted),
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
            Code::PacketTooLarge => {
                ("a packet is larger than it allows", "raise its limit (Mosquitto: max_packet_size)")
            }
            Code::RetainNotSupported => {
                ("it keeps no retained messages", "allow retained messages at the broker; births need them")
            }
            Code::QoSNotSupported => {
                ("it does not support QoS 1", "allow QoS 1 at the broker; births and last wills need it")
            }
            _ => ("it does not accept the connection", "the broker's log may say more"),
        };
        let code = code_name(code, attempt.code);
        Self::Refused { reason, code, advice }
    }
}

/// Advice for a client that the broker has accepted, and whose action the access rules do not allow.
const RIGHTS: &str = "allow this client what its role needs in the broker's access rules (Mosquitto: acl_file; `headwater enroll` writes one)";

/// Advice for a subscription that the broker refuses with this code.
fn subscription_advice(code: &str) -> &'static str {
    match code {
        "NotAuthorized" => {
            "allow this client id to read the topics of its group in the broker's access rules"
        }
        "QuotaExceeded" => "raise the broker's limit of subscriptions",
        "WildcardSubscriptionsNotSupported" => "use a broker that takes filters with `+`",
        _ => "see the broker's access rules and its log",
    }
}

/// The reason why one end refused the TLS handshake; `None` for another error.
fn refused_handshake(error: &ConnectionError) -> Option<String> {
    io_error(error).filter(|error| HandshakeRefused::is(error)).map(ToString::to_string)
}

/// The code of a DISCONNECT packet that ended the connection, also before a CONNACK; `None` for another error.
pub(crate) fn disconnect_code(error: &ConnectionError) -> Option<DisconnectReasonCode> {
    match error {
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => Some(*reason_code),
        ConnectionError::NotConnAck(packet) => match &**packet {
            Packet::Disconnect(packet) => Some(packet.reason_code),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if the other end closed the connection.
fn is_close(error: &ConnectionError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    matches!(error, ConnectionError::MqttState(StateError::ConnectionAborted))
        || io_error(error).is_some_and(|error| kinds.contains(&error.kind()))
}

/// Returns true if the first answer is not MQTT, or is a packet of MQTT that may not come first.
fn is_other_protocol(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::NotConnAck(_) => true,
        ConnectionError::MqttState(StateError::Deserialization(error)) => {
            !matches!(error, mqttbytes::Error::Io(_))
        }
        ConnectionError::MqttState(
            StateError::ProtocolViolation(_) | StateError::IncomingPacketTooLarge { .. },
        ) => true,
        _ => false,
    }
}

/// The error of the socket; `None` for another error.
fn io_error(error: &ConnectionError) -> Option<&io::Error> {
    match error {
        ConnectionError::Io(error)
        | ConnectionError::MqttState(
            StateError::Io(error) | StateError::Deserialization(mqttbytes::Error::Io(error)),
        ) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(progress: Progress, not_admitted: &'static str) -> Attempt {
        Attempt { progress, uses_tls: false, not_admitted, first: Vec::new(), code: None }
    }

    fn failure(error: &ConnectionError, progress: Progress, shown: &'static str) -> ConnectFailure {
        ConnectFailure::of(error, &attempt(progress, shown))
    }

    #[track_caller]
    fn check(code: Code, is_refusal: bool, words: [&str; 2]) {
        let error = ConnectionError::ConnectionRefused(code);
        let failure = failure(&error, Progress::Open, SHOWS_NOTHING);
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

    #[test]
    fn each_way_to_fail_before_an_answer_is_told_apart() {
        let of = |kind: io::ErrorKind| {
            failure(&ConnectionError::Io(kind.into()), Progress::Opening, SHOWS_NOTHING)
        };
        assert!(matches!(of(io::ErrorKind::ConnectionRefused), ConnectFailure::Unreachable(_)));
        assert!(matches!(of(io::ErrorKind::TimedOut), ConnectFailure::NoAnswer(_)));
        assert!(matches!(of(io::ErrorKind::Unsupported), ConnectFailure::Settings(_)));
        let without_tls = of(io::ErrorKind::InvalidData).to_string();
        assert!(without_tls.contains("`mqtt://` in place"), "{without_tls}");
        let garbage = StateError::Deserialization(mqttbytes::Error::InvalidProtocol);
        let other = failure(&ConnectionError::MqttState(garbage), Progress::Open, SHOWS_NOTHING);
        assert!(matches!(other, ConnectFailure::NoMqtt { .. }), "{other}");
    }

    #[test]
    fn a_disconnect_is_told_by_its_code_and_says_what_to_do() {
        use DisconnectReasonCode as Ended;
        let accepted = attempt(Progress::Accepted, SHOWS_USER);
        for (code, is_refusal, word) in [
            (Ended::NotAuthorized, true, "access rules"),
            (Ended::PacketTooLarge, true, "max_packet_size"),
            (Ended::QoSNotSupported, true, "allow QoS 1"),
            (Ended::RetainNotSupported, true, "allow retained"),
            (Ended::ServerMoved, true, "address of that broker"),
            (Ended::ServerBusy, false, "busy"),
            (Ended::QuotaExceeded, false, "quota"),
            (Ended::SessionTakenOver, false, "same client id"),
            (Ended::AdministrativeAction, false, "AdministrativeAction"),
        ] {
            let error = StateError::ServerDisconnect { reason_code: code, reason_string: None };
            let failure = ConnectFailure::of(&ConnectionError::MqttState(error), &accepted);
            assert_eq!(failure.is_refusal(), is_refusal, "{failure}");
            assert!(failure.to_string().contains(word), "{word} in {failure}");
        }
        let unknown = Attempt { code: Some(0xc3), ..accepted };
        let failure = ConnectFailure::of_disconnect(Ended::UnspecifiedError, &unknown).to_string();
        assert!(failure.contains("0xc3"), "{failure}");
        let known = ConnectFailure::of_disconnect(Ended::AdministrativeAction, &unknown).to_string();
        assert!(!known.contains("0xc3"), "{known}");
    }

    #[test]
    fn the_first_bytes_tell_what_answers() {
        for (first, expected) in [
            (&[0x20, 3, 0, 0, 0][..], None),
            (&[], None),
            (&[0xe0, 1, 0x87], None),
            (&[0x20, 2, 0, 1], Some("does not speak MQTT 5")),
            (b"HTTP/1.1 400 Bad Request", Some("(HTTP)")),
            (b"SSH-2.0-OpenSSH_9.2", Some("SSH server")),
            (&[0x15, 3, 1, 0, 2], Some("expects TLS")),
            (&[0xf0, 2, 0x18, 0], Some("another way to authenticate")),
            (b"220 mail ready", Some("another protocol")),
        ] {
            let attempt = Attempt { first: first.to_vec(), ..attempt(Progress::Open, SHOWS_NOTHING) };
            let found = ConnectFailure::of_first_bytes(&attempt).map(|failure| failure.to_string());
            assert_eq!(found.is_some(), expected.is_some(), "{first:?}");
            assert!(expected.is_none_or(|word| found.is_some_and(|text| text.contains(word))), "{first:?}");
        }
    }

    #[test]
    fn a_client_that_shows_something_is_not_told_to_set_it() {
        for code in [Code::BadUserNamePassword, Code::NotAuthorized] {
            let error = ConnectionError::ConnectionRefused(code);
            for (shown, word) in [
                (SHOWS_USER, "user or password is wrong"),
                (SHOWS_CERTIFICATE, "name in this client's certificate"),
            ] {
                let text = failure(&error, Progress::Open, shown).to_string();
                assert!(text.contains(word) && !text.contains("set `broker.user`"), "{text}");
            }
        }
    }

    #[test]
    fn a_connection_closed_at_the_first_bytes_names_the_other_scheme() {
        let reset = || ConnectionError::Io(io::ErrorKind::ConnectionReset.into());
        let aborted = ConnectionError::MqttState(StateError::ConnectionAborted);
        for (error, uses_tls, progress, word) in [
            (&reset(), false, Progress::Open, "`mqtts://` in place"),
            (&aborted, false, Progress::Open, "`mqtts://` in place"),
            (&reset(), true, Progress::Opening, "`mqtt://` in place"),
            (&aborted, true, Progress::Open, "certificate"),
        ] {
            let attempt = Attempt { uses_tls, ..attempt(progress, SHOWS_NOTHING) };
            let text = ConnectFailure::of(error, &attempt).to_string();
            assert!(text.contains("closed the connection at the first bytes"), "{text}");
            assert!(text.contains(word), "{word} in {text}");
        }
        let later = failure(&reset(), Progress::Accepted, SHOWS_NOTHING);
        assert!(later.is_absence(), "{later}");
    }
}
