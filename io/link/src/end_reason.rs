//! Why the broker ended a connection, for people.

use rumqttc::{ConnectionError, DisconnectReasonCode as Code, StateError};

/// The reason of a DISCONNECT packet, with what to do.
pub(crate) fn of_disconnect(code: Code) -> String {
    match code {
        Code::SessionTakenOver => "another client connected with the same client id (session taken over): \
                                   give each process a client id of its own"
            .into(),
        Code::ServerShuttingDown => "the broker shuts down".into(),
        Code::KeepAliveTimeout => "the broker heard nothing from this client for too long".into(),
        Code::NotAuthorized => {
            "the broker does not allow this client what it did; see the broker's access rules".into()
        }
        code => format!("the broker ended the connection: {code:?}"),
    }
}

/// Why the connection ended, from the client library's error.
pub(crate) fn of_error(error: &ConnectionError) -> String {
    match error {
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => {
            of_disconnect(*reason_code)
        }
        error => error.to_string(),
    }
}
