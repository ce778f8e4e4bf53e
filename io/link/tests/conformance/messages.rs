//! Messages between connected clients, and retained messages.

use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{
    DisconnectReasonCode as Reason, Packet, PubAckReason, Publish, PublishProperties, QoS, RetainForwardRule,
    SubscribeFilter, SubscribeReasonCode, UnsubAckReason, Unsubscribe,
};

use super::client::{Bench, message};

pub(super) fn properties_pass_through(bench: &Bench) {
    let mut reader = bench.reader("reader", "+/b");
    let properties = PublishProperties {
        payload_format_indicator: Some(1),
        response_topic: Some("answer/here".into()),
        correlation_data: Some(Bytes::from_static(&[0, 255, 7])),
        user_properties: vec![("a".into(), "1".into()), ("a".into(), "2".into()), ("".into(), "".into())],
        content_type: Some("text/plain".into()),
        ..PublishProperties::default()
    };
    let sent = message(bench.topic("a/b"), "grüße", properties);
    assert_eq!(bench.client("writer").publish_with(sent.clone()), Some(PubAckReason::Success));
    let found = reader.message();
    assert_eq!((found.qos, found.retain, found.dup), (QoS::AtLeastOnce, false, false));
    assert_eq!(Publish { pkid: sent.pkid, ..found }, sent);
}

pub(super) fn wildcards_leave_out_topics_with_a_dollar(bench: &Bench) {
    let mut reader = bench.client("reader");
    let mut writer = bench.client("writer");
    reader.subscribe(SubscribeFilter::new("+/dollar", QoS::AtMostOnce));
    for topic in ["$test/dollar", "test/dollar"] {
        writer.publish(topic, QoS::AtMostOnce, topic);
    }
    assert_eq!(reader.payloads(), ["test/dollar"]);
    reader.subscribe(SubscribeFilter::new("$test/+", QoS::AtMostOnce));
    writer.publish("$test/dollar", QoS::AtMostOnce, "named");
    assert_eq!(reader.payloads(), ["named"]);
}

pub(super) fn each_subscription_counts_at_its_qos(bench: &Bench) {
    let mut reader = bench.client("reader");
    let subscribed = reader.subscribe(SubscribeFilter::new(bench.topic("#"), QoS::AtMostOnce));
    assert_eq!(subscribed, SubscribeReasonCode::Success(QoS::AtMostOnce));
    reader.subscribe(SubscribeFilter::new(bench.topic("+"), QoS::AtLeastOnce));
    let mut writer = bench.client("writer");
    let mut found = |qos: QoS| {
        writer.publish(&bench.topic("a"), qos, "x");
        let mut found = [reader.message(), reader.message()].map(|publish| (publish.qos as u8, publish.pkid));
        found.iter().filter(|(qos, _)| *qos > 0).for_each(|(_, id)| reader.acknowledge(*id));
        found.sort_unstable();
        found.map(|(qos, _)| qos)
    };
    assert_eq!(found(QoS::AtLeastOnce), [0, 1]);
    assert_eq!(found(QoS::AtMostOnce), [0, 0]);
}

pub(super) fn messages_of_a_topic_keep_their_order(bench: &Bench) {
    let mut reader = bench.reader("reader", "a");
    let mut writer = bench.client("writer");
    for number in 1..=200u16 {
        let mut publish = Publish::new(bench.topic("a"), QoS::AtLeastOnce, number.to_string(), None);
        publish.pkid = number;
        writer.send(&Packet::Publish(publish));
    }
    for number in 1..=200 {
        let publish = reader.message();
        assert_eq!(publish.payload, number.to_string());
        reader.acknowledge(publish.pkid);
    }
}

pub(super) fn nobody_reads(bench: &Bench) {
    let reason = bench.client("writer").publish(&bench.topic("a"), QoS::AtLeastOnce, "x");
    assert_eq!(reason, Some(PubAckReason::NoMatchingSubscribers));
}

pub(super) fn no_local(bench: &Bench) {
    let mut client = bench.client("both");
    let filter = SubscribeFilter { nolocal: true, ..SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce) };
    client.subscribe(filter);
    client.send(&Packet::Publish(Publish::new(bench.topic("a"), QoS::AtMostOnce, "own", None)));
    assert!(client.arrived().is_empty());
    bench.client("other").publish(&bench.topic("a"), QoS::AtMostOnce, "other");
    assert_eq!(client.payloads(), ["other"]);
}

pub(super) fn an_alias_stands_for_its_topic(bench: &Bench) {
    let mut reader = bench.reader("reader", "#");
    let mut writer = bench.client("writer");
    for (topic, alias) in [("a", 1), ("b", 2), ("", 1), ("", 2), ("c", 1), ("", 1)] {
        let topic = if topic.is_empty() { String::new() } else { bench.topic(topic) };
        let properties = PublishProperties { topic_alias: Some(alias), ..PublishProperties::default() };
        writer.publish_with(message(topic, "x", properties));
    }
    let topics: Vec<_> = (0..6).map(|_| reader.message().topic).collect();
    assert_eq!(topics, ["a", "b", "a", "b", "c", "c"].map(|name| bench.topic(name)));
    // An alias holds only on the connection that set the alias; for another client the alias stands for no topic.
    let mut other = bench.client("other");
    let properties = PublishProperties { topic_alias: Some(1), ..PublishProperties::default() };
    other.send(&Packet::Publish(Publish { pkid: 1, ..message(String::new(), "x", properties) }));
    assert_eq!(other.end(), Some(Reason::ProtocolError));
}

pub(super) fn an_alias_above_the_limit(bench: &Bench) {
    let (mut client, ack) = bench.introduce(bench.hello("writer"));
    let limit = ack.properties.and_then(|properties| properties.topic_alias_max).expect("a limit of aliases");
    let properties = PublishProperties { topic_alias: Some(limit + 1), ..PublishProperties::default() };
    client.send(&Packet::Publish(Publish { pkid: 1, ..message(bench.topic("a"), "x", properties) }));
    assert_eq!(client.end(), Some(Reason::TopicAliasInvalid));
}

pub(super) fn the_receive_maximum_of_a_client_holds(bench: &Bench) {
    let hello = bench.hello("reader").change(|properties| properties.receive_maximum = Some(2));
    let mut reader = bench.connect(hello);
    reader.subscribe(SubscribeFilter::new(bench.topic("a"), QoS::AtLeastOnce));
    let mut writer = bench.client("writer");
    for payload in ["1", "2", "3", "4"] {
        writer.publish(&bench.topic("a"), QoS::AtLeastOnce, payload);
    }
    let ids = [reader.message(), reader.message()].map(|publish| publish.pkid);
    assert!(reader.arrived().is_empty(), "two messages wait for their acknowledgement");
    reader.acknowledge(ids[0]);
    // After the first acknowledgement Mosquitto 2.0.11 sends all messages that wait, and so exceeds the maximum.
    if bench.is_mosquitto() {
        return;
    }
    assert_eq!(reader.payloads(), ["3"]);
    reader.acknowledge(ids[1]);
    assert_eq!(reader.payloads(), ["4"]);
}

pub(super) fn a_message_above_the_packet_limit_of_a_client(bench: &Bench) {
    let hello = bench.hello("reader").change(|properties| properties.max_packet_size = Some(100));
    let mut reader = bench.connect(hello);
    reader.subscribe(SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce));
    let mut writer = bench.client("writer");
    writer.publish(&bench.topic("a"), QoS::AtMostOnce, &"x".repeat(100));
    writer.publish(&bench.topic("a"), QoS::AtMostOnce, "small");
    assert_eq!(reader.payloads(), ["small"]);
}

pub(super) fn unsubscribing(bench: &Bench) {
    let mut reader = bench.reader("reader", "a");
    let filters = [bench.topic("a"), bench.topic("b")];
    reader.send(&Packet::Unsubscribe(Unsubscribe { pkid: 9, filters: filters.to_vec(), properties: None }));
    let Packet::UnsubAck(ack) = reader.next() else { panic!("expected UNSUBACK") };
    assert_eq!(
        (ack.pkid, ack.reasons),
        (9, vec![UnsubAckReason::Success, UnsubAckReason::NoSubscriptionExisted])
    );
    let reason = bench.client("writer").publish(&bench.topic("a"), QoS::AtLeastOnce, "x");
    assert_eq!(reason, Some(PubAckReason::NoMatchingSubscribers));
    assert!(reader.arrived().is_empty());
}

fn retained(bench: &Bench, topic: &str, payload: &str, expiry_s: Option<u32>) {
    let properties = PublishProperties { message_expiry_interval: expiry_s, ..PublishProperties::default() };
    let publish = Publish { retain: true, ..message(bench.topic(topic), payload, properties) };
    bench.client("writer").publish_with(publish);
}

pub(super) fn a_retained_message_reaches_a_later_subscriber(bench: &Bench) {
    let mut early = bench.reader("early", "#");
    retained(bench, "a", "first", None);
    retained(bench, "a", "second", None);
    assert_eq!([early.message(), early.message()].map(|publish| publish.retain), [false, false]);
    let found = bench.reader("late", "+").message();
    assert_eq!((found.payload.as_ref(), found.retain), (b"second".as_slice(), true));
    retained(bench, "a", "", None);
    assert_eq!(early.message().payload, "", "subscribers see that the topic is cleared");
    assert!(bench.reader("latest", "+").arrived().is_empty());
}

pub(super) fn retain_as_published(bench: &Bench) {
    let mut reader = bench.client("reader");
    let filter = SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce);
    reader.subscribe(SubscribeFilter { preserve_retain: true, ..filter });
    retained(bench, "a", "kept", None);
    bench.client("other").publish(&bench.topic("a"), QoS::AtMostOnce, "live");
    assert_eq!([reader.message(), reader.message()].map(|publish| publish.retain), [true, false]);
}

pub(super) fn retain_handling(bench: &Bench) {
    retained(bench, "a", "kept", None);
    let mut reader = bench.client("reader");
    let mut found = |retain_forward_rule| {
        let filter = SubscribeFilter::new(bench.topic("a"), QoS::AtMostOnce);
        reader.subscribe(SubscribeFilter { retain_forward_rule, ..filter });
        reader.payloads().len()
    };
    assert_eq!(found(RetainForwardRule::Never), 0);
    assert_eq!(found(RetainForwardRule::OnNewSubscribe), 0, "the subscription is there");
    assert_eq!(found(RetainForwardRule::OnEverySubscribe), 1);
    let filter = SubscribeFilter::new(bench.topic("+"), QoS::AtMostOnce);
    reader.subscribe(SubscribeFilter { retain_forward_rule: RetainForwardRule::OnNewSubscribe, ..filter });
    assert_eq!(reader.payloads(), ["kept"]);
}

pub(super) fn expiry_of_retained_messages(bench: &Bench) {
    retained(bench, "short", "short", Some(1));
    retained(bench, "long", "long", Some(100));
    sleep(Duration::from_millis(2100));
    bench.reader("reader", "#").has_only_the_long_message();
}
