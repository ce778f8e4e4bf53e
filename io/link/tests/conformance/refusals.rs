//! Packets and connections that a broker refuses, with the reason code of each.

use rumqttc::{
    ConnectReturnCode, DisconnectReasonCode as Reason, LastWill, Packet, Publish, QoS, Subscribe,
    SubscribeFilter, SubscribeProperties, SubscribeReasonCode,
};

use super::client::{Bench, said};

pub(super) fn qos_2(bench: &Bench) {
    // Mosquitto refuses `QoS` 2 because the tests configure it with `max_qos 1`.
    let (mut client, ack) = bench.introduce(bench.hello("client"));
    assert_eq!(ack.properties.and_then(|properties| properties.max_qos), Some(1));
    let granted = client.subscribe(SubscribeFilter::new(bench.topic("a"), QoS::ExactlyOnce));
    assert_eq!(granted, SubscribeReasonCode::Success(QoS::AtLeastOnce));
    let publish = Publish { pkid: 1, ..Publish::new(bench.topic("a"), QoS::ExactlyOnce, "x", None) };
    client.send(&Packet::Publish(publish));
    assert_eq!(client.end(), Some(Reason::QoSNotSupported));
    let will = LastWill::new(bench.topic("will"), "x", QoS::ExactlyOnce, false, None);
    let (client, ack) = bench.introduce(bench.hello("willing").will(will));
    assert_eq!((ack.code, client.end()), (ConnectReturnCode::QoSNotSupported, None));
}

pub(super) fn a_silent_client(bench: &Bench) {
    let mut hello = bench.hello("silent");
    hello.connect.keep_alive = 1;
    assert_eq!(bench.connect(hello).end(), said(bench, Reason::KeepAliveTimeout));
}

pub(super) fn authentication(bench: &Bench) {
    let hello =
        bench.hello("client").change(|properties| properties.authentication_method = Some("x".into()));
    let (client, ack) = bench.introduce(hello);
    assert_eq!((ack.code, client.end()), (ConnectReturnCode::BadAuthenticationMethod, None));
}

pub(super) fn another_version(bench: &Bench) {
    let answer = |level: u8| {
        let mut client = bench.open();
        // The client id is "q"; MQTT 3.1.1 has no properties before it.
        let rest: &[u8] = if level == 4 { &[0, 1, b'q'] } else { &[0, 0, 1, b'q'] };
        let head = [0x10, 10 + rest.len() as u8, 0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0];
        client.send_bytes(&[&head, rest].concat());
        client
    };
    // Mosquitto serves MQTT 3.1.1 too, so only the embedded broker must refuse it.
    if !bench.is_mosquitto() {
        assert_eq!(answer(4).rest(), [0x20, 2, 0, 1], "unacceptable protocol version, in the form of 3.1.1");
    }
    assert_eq!(answer(6).rest(), [0x20, 2, 0, 1]);
}

pub(super) fn shared_subscriptions_and_identifiers(bench: &Bench) {
    let (mut client, ack) = bench.introduce(bench.hello("client"));
    // Mosquitto serves shared subscriptions and subscription identifiers, so only the embedded broker must refuse them.
    if bench.is_mosquitto() {
        return;
    }
    let properties = ack.properties.expect("properties");
    assert_eq!(properties.shared_subscription_available, Some(0));
    assert_eq!(properties.subscription_identifiers_available, Some(0));
    let shared = SubscribeFilter::new("$share/group/a", QoS::AtMostOnce);
    assert_eq!(client.subscribe(shared), SubscribeReasonCode::SharedSubscriptionsNotSupported);
    let properties = SubscribeProperties { id: Some(7), user_properties: Vec::new() };
    let filter = SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce);
    client.send(&Packet::Subscribe(Subscribe { pkid: 9, ..Subscribe::new(filter, Some(properties)) }));
    let Packet::SubAck(ack) = client.next() else { panic!("expected SUBACK") };
    assert_eq!(ack.return_codes, [SubscribeReasonCode::SubscriptionIdNotSupported]);
}

pub(super) fn a_filter_of_another_form(bench: &Bench) {
    let mut client = bench.client("client");
    let filter = SubscribeFilter::new("a#", QoS::AtMostOnce);
    // Mosquitto 2.0.11 ends the connection instead of refusing the subscription.
    if bench.is_mosquitto() {
        client.send(&Packet::Subscribe(Subscribe { pkid: 1, ..Subscribe::new(filter, None) }));
        return assert_eq!(client.end(), Some(Reason::MalformedPacket));
    }
    assert_eq!(client.subscribe(filter), SubscribeReasonCode::TopicFilterInvalid);
    let answered = client.subscribe(SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce));
    assert_eq!(answered, SubscribeReasonCode::Success(QoS::AtMostOnce), "the connection goes on");
}

/// Name and bytes of a packet, the reason that the embedded broker gives, and the reason of Mosquitto 2.0.11 if that differs. A
/// reason is `None` if the broker only closes the connection.
type BrokenPacket = (&'static str, &'static [u8], Option<Reason>, Option<Option<Reason>>);

pub(super) fn broken_packets_of_a_client(bench: &Bench) {
    use Reason::{MalformedPacket, PacketTooLarge, ProtocolError};
    #[rustfmt::skip]
    let cases: &[BrokenPacket] = &[
        ("PUBLISH without a topic", &[0x30, 3, 0, 0, 0], Some(ProtocolError), None),
        ("PUBLISH with a wildcard", &[0x30, 4, 0, 1, b'+', 0], Some(MalformedPacket), Some(Some(ProtocolError))),
        ("PUBLISH at QoS 3", &[0x36, 6, 0, 1, b'a', 0, 1, 0], Some(MalformedPacket), None),
        ("PUBLISH with packet id 0", &[0x32, 6, 0, 1, b'a', 0, 0, 0], Some(ProtocolError), None),
        ("PUBLISH above the packet limit", &[0x30, 0xff, 0xff, 0x7f], Some(PacketTooLarge), None),
        ("length of five bytes", &[0x30, 0xff, 0xff, 0xff, 0xff, 1], Some(MalformedPacket), Some(None)),
        ("packet type 0", &[0, 0], Some(MalformedPacket), Some(Some(ProtocolError))),
        ("SUBSCRIBE without a filter", &[0x82, 3, 0, 1, 0], Some(ProtocolError), Some(Some(MalformedPacket))),
        ("UNSUBSCRIBE without a filter", &[0xa2, 3, 0, 1, 0], Some(ProtocolError), Some(Some(MalformedPacket))),
        ("SUBSCRIBE with other flags", &[0x80, 7, 0, 1, 0, 0, 1, b'a', 0], Some(MalformedPacket), None),
        ("packet cut inside its properties", &[0x30, 4, 0, 1, b'a', 0x80], Some(MalformedPacket), None),
        ("second CONNECT", &[0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 1, b'q'], Some(ProtocolError), Some(None)),
        ("packet of a broker", &[0x20, 3, 0, 0, 0], Some(ProtocolError), Some(None)),
        ("AUTH", &[0xf0, 2, 0x18, 0], Some(ProtocolError), Some(None)),
    ];
    for (name, bytes, embedded, mosquitto) in cases {
        let mut client = bench.client("client");
        client.send_bytes(bytes);
        let expected = if bench.is_mosquitto() { mosquitto.unwrap_or(*embedded) } else { *embedded };
        assert_eq!(client.end(), expected, "{name}");
    }
}

pub(super) fn what_is_no_mqtt(bench: &Bench) {
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 2, 0, 1], &[0xc0, 0], &[0x30, 4, 0, 1, b'a', 0]]
    {
        let mut client = bench.open();
        client.send_bytes(bytes);
        assert_eq!(client.rest(), [], "{bytes:?}");
    }
}
