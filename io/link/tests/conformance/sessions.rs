//! Sessions over several connections, and last wills.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rumqttc::{
    Disconnect, DisconnectProperties, DisconnectReasonCode as Reason, LastWill, LastWillProperties, Packet,
    PublishProperties, QoS, SubscribeFilter,
};

use super::client::{Bench, Client, message, said};

const NORMAL: Reason = Reason::NormalDisconnection;

/// A client with one subscription, and a session that outlives its connection by a minute.
fn lasting(bench: &Bench) -> Client {
    let mut client = bench.connect(bench.hello("reader").session(true, 60));
    client.subscribe(SubscribeFilter::new(bench.topic("#"), QoS::AtLeastOnce));
    client
}

/// Connects the client of [`lasting`] again. Returns whether the broker still had the session.
fn again(bench: &Bench) -> (Client, bool) {
    let (client, ack) = bench.introduce(bench.hello("reader").session(false, 60));
    (client, ack.session_present)
}

pub(super) fn a_session_keeps_messages_of_qos_1(bench: &Bench) {
    lasting(bench).disconnect(NORMAL);
    let mut writer = bench.client("writer");
    writer.publish(&bench.topic("a"), QoS::AtLeastOnce, "1");
    writer.publish(&bench.topic("b"), QoS::AtMostOnce, "not kept");
    writer.publish(&bench.topic("a"), QoS::AtLeastOnce, "2");
    let (mut reader, is_present) = again(bench);
    assert!(is_present);
    assert_eq!(reader.payloads(), ["1", "2"]);
    writer.publish(&bench.topic("a"), QoS::AtMostOnce, "live");
    assert_eq!(reader.payloads(), ["live"], "the subscription is still there");
}

pub(super) fn what_is_not_acknowledged_comes_again(bench: &Bench) {
    let mut reader = lasting(bench);
    let mut writer = bench.client("writer");
    for payload in ["1", "2", "3"] {
        writer.publish(&bench.topic("a"), QoS::AtLeastOnce, payload);
    }
    let sent = [reader.message(), reader.message(), reader.message()].map(|publish| publish.pkid);
    reader.acknowledge(sent[1]);
    assert!(reader.arrived().is_empty());
    reader.crash();
    let (mut reader, _) = again(bench);
    let found = [reader.message(), reader.message()].map(|publish| (publish.pkid, publish.dup));
    assert_eq!(found, [(sent[0], true), (sent[2], true)]);
    assert!(reader.arrived().is_empty());
}

pub(super) fn a_session_ends_with_its_expiry(bench: &Bench) {
    lasting(bench).disconnect(NORMAL);
    let hello = bench.hello("reader").session(false, 1);
    bench.connect(hello).disconnect(NORMAL);
    sleep(Duration::from_millis(2500));
    assert!(!again(bench).1);
}

pub(super) fn a_clean_start_ends_the_session(bench: &Bench) {
    lasting(bench).disconnect(NORMAL);
    let (client, ack) = bench.introduce(bench.hello("reader").session(true, 60));
    assert!(!ack.session_present);
    client.disconnect(NORMAL);
    let (mut reader, is_present) = again(bench);
    assert!(is_present);
    bench.client("writer").publish(&bench.topic("a"), QoS::AtLeastOnce, "x");
    assert!(reader.arrived().is_empty(), "the subscription ended with the old session");
}

pub(super) fn the_expiry_may_change_at_the_end(bench: &Bench) {
    let end = |session_expiry_interval| {
        let properties = DisconnectProperties {
            session_expiry_interval: Some(session_expiry_interval),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        };
        Packet::Disconnect(Disconnect::new_with_properties(NORMAL, properties))
    };
    let mut client = lasting(bench);
    client.send(&end(0));
    assert_eq!(client.end(), None);
    assert!(!again(bench).1, "it ended with its connection");
    let mut client = bench.client("short");
    client.send(&end(60));
    assert_eq!(client.end(), Some(Reason::ProtocolError), "no session may outlive an expiry of 0");
}

pub(super) fn a_client_id_is_taken_over(bench: &Bench) {
    let first = lasting(bench);
    let (mut second, is_present) = again(bench);
    assert!(is_present);
    assert_eq!(first.end(), said(bench, Reason::SessionTakenOver));
    bench.client("writer").publish(&bench.topic("a"), QoS::AtLeastOnce, "x");
    assert_eq!(second.payloads(), ["x"]);
}

pub(super) fn a_client_without_an_id_gets_one(bench: &Bench) {
    let ids = ["", ""].map(|id| {
        let mut hello = bench.hello("");
        hello.connect.client_id = id.into();
        let (_client, ack) = bench.introduce(hello);
        ack.properties.and_then(|properties| properties.assigned_client_identifier).expect("an id")
    });
    assert_ne!(ids[0], ids[1]);
}

pub(super) fn expiry_of_waiting_messages(bench: &Bench) {
    lasting(bench).disconnect(NORMAL);
    let mut writer = bench.client("writer");
    for (payload, expiry_s) in [("short", 1), ("long", 100)] {
        let expiry = Some(expiry_s);
        let properties =
            PublishProperties { message_expiry_interval: expiry, ..PublishProperties::default() };
        writer.publish_with(message(bench.topic("a"), payload, properties));
    }
    sleep(Duration::from_millis(2100));
    again(bench).0.has_only_the_long_message();
}

/// A will with a delay in seconds.
fn will(bench: &Bench, delay_s: u32) -> LastWill {
    let properties = LastWillProperties {
        delay_interval: Some(delay_s),
        payload_format_indicator: Some(1),
        message_expiry_interval: None,
        content_type: Some("text/plain".into()),
        response_topic: Some("answer".into()),
        correlation_data: Some(Bytes::from_static(b"7")),
        user_properties: vec![("a".into(), "1".into())],
    };
    LastWill::new(bench.topic("will"), "gone", QoS::AtLeastOnce, false, Some(properties))
}

pub(super) fn a_lost_client_leaves_its_will(bench: &Bench) {
    let mut reader = bench.reader("reader", "will");
    bench.connect(bench.hello("lost").will(will(bench, 0))).crash();
    let found = reader.message();
    assert_eq!(
        (found.payload.as_ref(), found.qos, found.retain),
        (b"gone".as_slice(), QoS::AtLeastOnce, false)
    );
    let expected = PublishProperties {
        payload_format_indicator: Some(1),
        content_type: Some("text/plain".into()),
        response_topic: Some("answer".into()),
        correlation_data: Some(Bytes::from_static(b"7")),
        user_properties: vec![("a".into(), "1".into())],
        ..PublishProperties::default()
    };
    assert_eq!(found.properties, Some(expected));
}

pub(super) fn a_client_that_leaves_decides_about_its_will(bench: &Bench) {
    let mut reader = bench.reader("reader", "will");
    bench.connect(bench.hello("lost").will(will(bench, 0))).disconnect(NORMAL);
    assert!(reader.arrived().is_empty());
    bench.connect(bench.hello("lost").will(will(bench, 0))).disconnect(Reason::DisconnectWithWillMessage);
    assert_eq!(reader.message().payload, "gone");
}

pub(super) fn a_retained_will_is_kept(bench: &Bench) {
    let mut reader = bench.reader("early", "will");
    let will = LastWill { retain: true, ..will(bench, 0) };
    bench.connect(bench.hello("lost").will(will)).crash();
    assert!(!reader.message().retain);
    assert!(bench.reader("late", "will").message().retain);
}

/// Loses a client whose session outlives its connection by `expiry_s`, and whose will has this delay; the will must come.
pub(super) fn a_delayed_will_comes(bench: &Bench, expiry_s: u32, delay_s: u32) {
    let mut reader = bench.reader("reader", "will");
    bench.connect(bench.hello("lost").session(true, expiry_s).will(will(bench, delay_s))).crash();
    assert_eq!(reader.message().payload, "gone");
}

pub(super) fn a_client_that_returns_in_time_leaves_no_will(bench: &Bench) {
    let mut reader = bench.reader("reader", "will");
    let lost = || bench.hello("lost").session(false, 60);
    let _returned = loop {
        let start = Instant::now();
        bench.connect(lost().will(will(bench, 1))).crash();
        let returned = bench.connect(lost());
        if start.elapsed() < Duration::from_secs(1) {
            break returned;
        }
        // The machine was too slow for the delay of the will, which may have been sent.
        reader.arrived();
    };
    sleep(Duration::from_millis(2500));
    assert!(reader.arrived().is_empty());
}

pub(super) fn a_clean_start_does_not_wait_for_the_will(bench: &Bench) {
    let mut reader = bench.reader("reader", "will");
    let hello = bench.hello("lost").session(true, 60).will(will(bench, 3600));
    let first = bench.connect(hello);
    let _second = bench.client("lost");
    assert_eq!(first.end(), said(bench, Reason::SessionTakenOver));
    // A clean start ends the session, so the will is due before its delay. Mosquitto 2.0.11 drops the will.
    let expected: &[&str] = if bench.is_mosquitto() { &[] } else { &["gone"] };
    assert_eq!(reader.payloads(), expected);
}

pub(super) fn a_take_over_leaves_a_will_without_delay(bench: &Bench) {
    let mut reader = bench.reader("reader", "will");
    let hello = |name| bench.hello(name).session(false, 60);
    let first = bench.connect(hello("lost").will(will(bench, 0)));
    let _second = bench.connect(hello("lost"));
    assert_eq!(first.end(), said(bench, Reason::SessionTakenOver));
    // MQTT 5, 3.1.3.2.2: a will without delay is sent when the connection closes. Mosquitto 2.0.11 drops the will if the session goes on.
    let expected: &[&str] = if bench.is_mosquitto() { &[] } else { &["gone"] };
    assert_eq!(reader.payloads(), expected);
}
