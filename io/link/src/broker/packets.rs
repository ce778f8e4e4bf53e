//! Reads packets from a client's bytes, and writes the broker's answer to bytes or packets that the broker refuses.

use bytes::{BufMut, BytesMut};
use rumqttc::mqttbytes::{Error, check};
use rumqttc::{
    ConnAck, ConnAckProperties, ConnectReturnCode, Disconnect, DisconnectReasonCode as Reason, Packet,
};

/// Largest packet: a payload of a megabyte, well above the 256 KiB that links allow by default, with topic and properties.
pub(super) const MAX_PACKET_BYTES: u32 = (1 << 20) + 128 * 1024;
/// Largest topic alias that a client may use.
pub(super) const MAX_ALIAS: u16 = 64;

/// First byte of a CONNECT.
const CONNECT: u8 = 0x10;

/// End of a connection by the broker or by the client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    /// The socket closes without a packet: the client does not speak MQTT, lost its connection, or disconnected with another reason than
    /// the normal one. A last will is published.
    Silent,
    /// The client speaks another version of MQTT. The broker answers with a CONNACK of MQTT 3.1.1, which older clients
    /// can read.
    OtherVersion,
    /// The broker refuses the connection.
    Refused(ConnectReturnCode),
    /// The broker ends the connection.
    Disconnected(Reason),
    /// The client ended the connection and wants no last will.
    Left,
}

/// Reads the next packet; `None` until all bytes of the packet are there. The first packet of a connection must be a CONNECT.
///
/// # Errors
/// The end of the connection, if the bytes are no packet of MQTT 5 or the packet is larger than `MAX_PACKET_BYTES`.
pub(super) fn next(input: &mut BytesMut, is_first: bool) -> Result<Option<Packet>, End> {
    if is_first && input.first().is_some_and(|byte| *byte != CONNECT) {
        return Err(End::Silent);
    }
    // The codec gives one error both for a packet that has not arrived whole and for a field that exceeds its packet, so the length of
    // the packet is checked first.
    let packet = match check(input.iter(), Some(MAX_PACKET_BYTES)) {
        Err(Error::InsufficientBytes(_)) => return Ok(None),
        Err(error) => Err(error),
        // A DISCONNECT with a reason and no properties: MQTT allows it, but the codec cannot read it.
        Ok(_) if input[..2] == [0xe0, 1] => {
            Reason::try_from(input.split_to(3)[2]).map(|reason| Packet::Disconnect(Disconnect::new(reason)))
        }
        Ok(_) => Packet::read(input, None),
    };
    packet.map(Some).map_err(|error| match error {
        error if !is_first => End::Disconnected(reason(&error)),
        Error::InvalidProtocol | Error::InvalidProtocolLevel(_) => End::OtherVersion,
        Error::PayloadSizeLimitExceeded { .. } => End::Refused(ConnectReturnCode::PacketTooLarge),
        Error::ProtocolError => End::Refused(ConnectReturnCode::ProtocolError),
        _ => End::Refused(ConnectReturnCode::MalformedPacket),
    })
}

fn reason(error: &Error) -> Reason {
    match error {
        Error::PayloadSizeLimitExceeded { .. } => Reason::PacketTooLarge,
        Error::ProtocolViolation(reason) => *reason,
        Error::ProtocolError | Error::PacketIdZero | Error::EmptySubscription => Reason::ProtocolError,
        _ => Reason::MalformedPacket,
    }
}

/// Writes the last packet of a connection, if `end` has one.
pub(super) fn write_end(end: End, output: &mut BytesMut) {
    let written = match end {
        End::Silent | End::Left => return,
        End::OtherVersion => return output.put_slice(&[0x20, 2, 0, 1]),
        End::Refused(code) => ConnAck { session_present: false, code, properties: None }.write(output),
        End::Disconnected(reason) => Disconnect::new(reason).write(output),
    };
    debug_assert!(written.is_ok(), "a packet of constants: {written:?}");
}

/// The CONNACK that accepts a connection. Its properties tell the client what this broker does not do.
pub(super) fn accepted(session_present: bool, assigned_client_identifier: Option<String>) -> Packet {
    let properties = ConnAckProperties {
        session_expiry_interval: None,
        receive_max: None,
        max_qos: Some(1),
        retain_available: None,
        max_packet_size: Some(MAX_PACKET_BYTES),
        assigned_client_identifier,
        topic_alias_max: Some(MAX_ALIAS),
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: Some(0),
        shared_subscription_available: Some(0),
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    };
    let code = ConnectReturnCode::Success;
    Packet::ConnAck(ConnAck { session_present, code, properties: Some(properties) })
}
