//! Reasons of brokers for the end of a connection, as text for people.

use rumqttc::DisconnectReasonCode as Code;

use crate::broker_bytes::code_name;

/// The reason of a DISCONNECT packet. `replaced` is the broker's code if the library does not know the code.
pub(crate) fn of_disconnect(code: Code, replaced: Option<u8>) -> String {
    match code {
        Code::SessionTakenOver => "another client connected with the same client id (session taken over): \
                                   give each process a client id of its own"
            .into(),
        Code::ServerShuttingDown => "the broker shuts down".into(),
        Code::KeepAliveTimeout => "the broker heard nothing from this client for too long".into(),
        code => format!("the broker ended the connection: {}", code_name(code, replaced)),
    }
}

/// Returns true if the code blames a message: the same message would end the next connection too.
pub(crate) fn blames_message(code: Code) -> bool {
    matches!(
        code,
        Code::MalformedPacket
            | Code::ProtocolError
            | Code::ImplementationSpecificError
            | Code::TopicNameInvalid
            | Code::PacketTooLarge
            | Code::PayloadFormatInvalid
    )
}
