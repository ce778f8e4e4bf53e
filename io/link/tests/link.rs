//! A link against a real broker, with real faults.

mod conformance;
mod support;

use std::time::{Duration, Instant};

use headwater_link::broker::EmbeddedBroker;
use headwater_link::testing::TcpProxy;
use headwater_link::{
    BrokerNeeds, ConnectFailure, Delivery, Incoming, Link, LinkConfig, LinkError, PublishRefusal, QoS,
    RetainedMessage,
};
use headwater_transport::{Endpoint, held_port};
use support::{MAX_WAIT, broker, connected, next, next_message, reader, until_connected};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[tokio::test]
async fn a_message_comes_back_and_its_bytes_are_counted() {
    let (link, mut incoming) =
        connected(LinkConfig::new(broker(), "round").subscribe("round/+", QoS::AtMostOnce)).await;
    let before = link.wire();
    link.publish("round/trip", vec![7u8; 100], QoS::AtMostOnce, false).expect("connected");
    let (topic, payload, retain) = next_message(&mut incoming).await;
    assert_eq!((topic.as_str(), payload.as_ref(), retain), ("round/trip", [7u8; 100].as_slice(), false));
    let after = link.wire();
    // Fixed header 2, topic 2 + 10, property length 1, alias 3, payload 100; the broker sends no alias.
    assert_eq!(after.sent - before.sent, 118);
    assert_eq!(after.received - before.received, 115);
    assert_eq!((link.counts().accepted, link.counts().written), (1, 1));
}

#[tokio::test]
async fn a_topic_that_was_sent_goes_as_its_alias_until_the_connection_ends() {
    let proxy = TcpProxy::to(broker()).await.expect("a free port");
    let mut config = LinkConfig::new(proxy.address(), "alias").subscribe("alias/+", QoS::AtMostOnce);
    config.retained.push(RetainedMessage::new("alias-status", "up"));
    let (link, mut incoming) = connected(config).await;
    for connection in 1..=2 {
        // The broker answers this message after the retained message, so all bytes of the connection's start are written by then.
        let mut taken = link.publish_acknowledged("alias-other", "x", false).expect("connected");
        timeout(MAX_WAIT, taken.wait()).await.expect("in time");
        // Fixed header 2, length of the topic 2, properties 1, payload 1, and the number of a message at `QoS` 1: 2.
        for (topic, qos, expected) in [
            ("alias/a", QoS::AtMostOnce, 6 + 3 + 7),
            ("alias/b", QoS::AtLeastOnce, 8 + 3 + 7),
            ("alias/a", QoS::AtLeastOnce, 8 + 3),
            ("alias/b", QoS::AtMostOnce, 6 + 3),
        ] {
            let before = link.wire().sent;
            link.publish(topic, "x", qos, false).expect("connected");
            assert_eq!(next_message(&mut incoming).await.0, topic, "connection {connection}");
            assert_eq!(link.wire().sent - before, expected, "{topic} on connection {connection}");
        }
        proxy.cut();
        until_connected(&mut incoming).await;
    }
}

#[tokio::test]
async fn a_link_connects_to_a_broker_that_starts_later() {
    let port = held_port().expect("a free port");
    let address = Endpoint::mqtt("127.0.0.1", port).expect("an address");
    let (link, mut incoming) = Link::start(LinkConfig::new(address, "early")).expect("valid settings");
    assert_eq!(link.publish("early", "x", QoS::AtMostOnce, false), Err(LinkError::NotConnected));
    while link.counts().disconnected < 2 {
        tokio::task::yield_now().await;
    }
    let _broker = EmbeddedBroker::start_at(port).expect("the port is held");
    assert_eq!(next(&mut incoming).await, Incoming::Connected);
    assert_eq!(link.publish("early", "x", QoS::AtMostOnce, false), Ok(()));
    assert_eq!(link.counts().refused_not_connected, 1);
}

/// A listener on a free port, and its address.
async fn listening() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    (listener, Endpoint::mqtt("127.0.0.1", port).expect("a valid address"))
}

async fn first_failure(link: &Link) -> ConnectFailure {
    let mut failures = link.failures();
    let failure = timeout(MAX_WAIT, failures.wait_for(Option::is_some)).await.expect("in time");
    failure.expect("the link lives").clone().expect("a failure")
}

#[tokio::test]
async fn a_port_that_is_silent_is_said_as_what_it_is() {
    // The system opens connections though nobody accepts them.
    let (_listener, address) = listening().await;
    let mut config = LinkConfig::new(address, "lost");
    config.connect_timeout_ms = 300;
    let (link, _incoming) = Link::start(config).expect("valid settings");
    let failure = first_failure(&link).await;
    for word in ["accepts connections and does not answer MQTT", "another port"] {
        assert!(failure.to_string().contains(word), "{word} in {failure}");
    }
    assert!(!failure.is_refusal() && !failure.is_absence(), "{failure}");
}

#[tokio::test]
async fn a_message_that_the_broker_refuses_comes_back_with_its_topic() {
    let quota = PublishRefusal::Other("a quota is used up (QuotaExceeded, 0x97)".into());
    for (code, reason) in [(0x87, PublishRefusal::NotAuthorized), (0x97, quota)] {
        let mut config = LinkConfig::new(broker_that_answers(PUBACK, code).await, "forbidden");
        config.retained.push(RetainedMessage::new("forbidden/birth", "up"));
        let (link, mut incoming) = connected(config).await;
        let refused = |topic: &str| Incoming::Refused { topic: topic.into(), reason: reason.clone() };
        assert_eq!(next(&mut incoming).await, refused("forbidden/birth"));
        link.publish("forbidden/x", "x", QoS::AtLeastOnce, false).expect("connected");
        assert_eq!(next(&mut incoming).await, refused("forbidden/x"));
        assert_eq!(link.counts().refused_by_broker, 2);
    }
    let (link, mut incoming) =
        connected(LinkConfig::new(broker_that_answers(PUBACK, 0).await, "allowed")).await;
    let mut answer = link.publish_acknowledged("allowed/x", "x", false).expect("connected");
    assert_eq!(timeout(MAX_WAIT, answer.wait()).await.expect("in time"), Delivery::Acknowledged);
    assert!(incoming.try_recv().is_err(), "an acknowledged message is no refusal");
    assert_eq!(link.counts().refused_by_broker, 0);
}

#[tokio::test]
async fn retained_messages_and_subscriptions_come_back_after_a_cut() {
    let (_watcher, mut seen) = reader("cut-watcher", "cut/status").await;
    let proxy = TcpProxy::to(broker()).await.expect("a free port");
    let mut config = LinkConfig::new(proxy.address(), "cut").subscribe("cut/ask", QoS::AtMostOnce);
    config.retained.push(RetainedMessage::new("cut/status", "up"));
    config.last_will = Some(RetainedMessage::new("cut/status", "down"));
    let (link, mut incoming) = connected(config).await;
    assert_eq!(next_message(&mut seen).await.1, "up");

    proxy.cut();
    assert!(matches!(next(&mut incoming).await, Incoming::Disconnected { .. }));
    until_connected(&mut incoming).await;
    let mut states = [next_message(&mut seen).await.1, next_message(&mut seen).await.1];
    states.sort();
    assert_eq!(states, ["down", "up"], "the last will, and the status again");
    link.publish("cut/ask", "still there?", QoS::AtMostOnce, false).expect("connected");
    assert_eq!(next_message(&mut incoming).await.1, "still there?");
    assert_eq!((link.counts().connected, link.counts().disconnected), (2, 1));
}

#[tokio::test]
async fn a_killed_link_leaves_its_last_will() {
    let (_watcher, mut seen) = reader("will-watcher", "will/status").await;
    let mut config = LinkConfig::new(broker(), "will");
    config.retained.push(RetainedMessage::new("will/status", "up"));
    config.last_will = Some(RetainedMessage::new("will/status", "down, boot 7"));
    let (link, _incoming) = connected(config).await;
    assert_eq!(next_message(&mut seen).await.1, "up");
    link.kill();
    assert_eq!(next_message(&mut seen).await.1, "down, boot 7");
    assert_eq!(link.publish("will/x", "x", QoS::AtMostOnce, false), Err(LinkError::Closed));
    let (_late, mut kept) = reader("will-late", "will/status").await;
    let (_, payload, retain) = next_message(&mut kept).await;
    assert_eq!((payload.as_ref(), retain), (b"down, boot 7".as_slice(), true));
}

#[tokio::test]
async fn a_shutdown_writes_the_queue_and_publishes_the_last_message_once() {
    let (watcher, mut seen) = reader("bye-watcher", "bye/#").await;
    let mut config = LinkConfig::new(broker(), "bye");
    config.last_will = Some(RetainedMessage::new("bye/status", "down"));
    let (link, _incoming) = connected(config).await;
    for _ in 0..100 {
        link.publish("bye/work", "x", QoS::AtMostOnce, false).expect("a queue of more than a hundred");
    }
    link.shutdown(MAX_WAIT).await;
    for _ in 0..100 {
        assert_eq!(next_message(&mut seen).await.0, "bye/work");
    }
    assert_eq!(next_message(&mut seen).await.0, "bye/status");
    watcher.publish("bye/end", "x", QoS::AtMostOnce, false).expect("connected");
    assert_eq!(next_message(&mut seen).await.0, "bye/end", "no last will after a shutdown");
}

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_the_next_one_goes() {
    let (link, mut incoming) =
        connected(LinkConfig::new(broker(), "big").subscribe("big", QoS::AtMostOnce)).await;
    let (limit, found) = (256 * 1024, 256 * 1024 + 1);
    let refused = link.publish("big", vec![0; found], QoS::AtMostOnce, false);
    assert_eq!(refused, Err(LinkError::Oversize { limit, found }));
    link.publish("big", vec![1; limit], QoS::AtMostOnce, false).expect("at the limit");
    assert_eq!(next_message(&mut incoming).await.1.len(), limit);
    assert_eq!((link.counts().refused_oversize, link.counts().connected), (1, 1));
}

#[tokio::test]
async fn the_link_works_on_after_payloads_that_are_too_large() {
    let mut config = LinkConfig::new(broker(), "small").subscribe("small", QoS::AtMostOnce);
    config.max_payload_bytes = 1000;
    let (link, mut incoming) = connected(config).await;
    let (sender, _) = connected(LinkConfig::new(broker(), "flood")).await;
    sender.publish("small", vec![0; 1001], QoS::AtMostOnce, false).expect("within the sender's limit");
    sender.publish("small", "first", QoS::AtMostOnce, false).expect("within the sender's limit");
    assert_eq!(next_message(&mut incoming).await.1, "first");
    assert_eq!((link.counts().dropped_oversize, link.counts().connected), (1, 1));

    // The broker leaves out a message far above the receiver's limit.
    sender.publish("small", vec![0; 256 * 1024], QoS::AtMostOnce, false).expect("within the sender's limit");
    sender.publish("small", "second", QoS::AtMostOnce, false).expect("within the sender's limit");
    assert_eq!(next_message(&mut incoming).await.1, "second");
    assert_eq!((link.counts().dropped_oversize, link.counts().connected), (1, 1));
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let mut config = LinkConfig::new(broker(), "full");
    config.outgoing_messages = 8;
    let (link, _incoming) = connected(config).await;
    // There is no await between the calls, so the driver, which runs on this same thread, can write no message meanwhile.
    let refused = (0..100).filter(|_| link.publish("full", "x", QoS::AtMostOnce, false).is_err()).count();
    assert!(refused >= 80, "{refused} refused of 100");
    assert_eq!(link.counts().refused_queue_full, refused as u64);
    link.publish_when_free("full", "x", QoS::AtMostOnce, false).await.expect("the queue empties");
}

#[tokio::test]
async fn a_slow_owner_receives_every_message_that_the_broker_keeps() {
    let mut config = LinkConfig::new(broker(), "slow").subscribe("slow", QoS::AtMostOnce);
    config.incoming_messages = 4;
    let (_slow, mut incoming) = connected(config).await;
    let (sender, _) = connected(LinkConfig::new(broker(), "fast")).await;
    for number in 0..2000u32 {
        let payload = number.to_le_bytes().to_vec();
        sender.publish_when_free("slow", payload, QoS::AtMostOnce, false).await.expect("connected");
    }
    for number in 0..2000u32 {
        assert_eq!(next_message(&mut incoming).await.1.as_ref(), number.to_le_bytes());
    }
}

#[tokio::test]
async fn a_topic_that_mqtt_does_not_allow_is_refused() {
    let (link, _incoming) = connected(LinkConfig::new(broker(), "topic")).await;
    assert_eq!(link.publish("a/+", "x", QoS::AtMostOnce, false), Err(LinkError::Topic("a/+".into())));
    assert_eq!(link.publish("", "x", QoS::AtMostOnce, false), Err(LinkError::Topic(String::new())));
}

/// Half the time of a stalled round trip. Nagle's algorithm against delayed acknowledgements stalls every round trip by 40 ms; a
/// round trip without a stall takes well under a millisecond.
const STALL: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_and_response_at_qos_1_do_not_stall() {
    let (asker, mut answers) =
        connected(LinkConfig::new(broker(), "asker").subscribe("rtt/answer", QoS::AtLeastOnce)).await;
    let (answerer, mut asked) =
        connected(LinkConfig::new(broker(), "answerer").subscribe("rtt/ask", QoS::AtLeastOnce)).await;
    tokio::spawn(async move {
        loop {
            let (_, payload, _) = next_message(&mut asked).await;
            answerer.publish("rtt/answer", payload, QoS::AtLeastOnce, false).expect("connected");
        }
    });
    let mut trips = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        asker.publish("rtt/ask", vec![0u8; 48], QoS::AtLeastOnce, false).expect("connected");
        next_message(&mut answers).await;
        trips.push(start.elapsed());
    }
    trips.sort();
    println!(
        "QoS 1 request and response: p50 {:?}, p95 {:?}, worst {:?}",
        trips[100], trips[190], trips[199]
    );
    // Stalls would delay every trip; other work of the machine delays only some.
    assert!(trips[20] < STALL, "a tenth of the trips took less than {:?}", trips[20]);
}

#[tokio::test]
async fn a_client_id_that_another_process_took_over_is_named() {
    // CONNACK, then DISCONNECT with the reason 0x8E (session taken over), as MQTT 5 asks.
    let address = port_that_says(&[0x20, 3, 0, 0, 0, 0xe0, 2, 0x8e, 0]).await;
    let (_link, mut incoming) = connected(LinkConfig::new(address, "twice")).await;
    let Incoming::Disconnected { reason, .. } = next(&mut incoming).await else { panic!("expected an end") };
    assert!(reason.contains("same client id") && reason.contains("of its own"), "{reason}");
}

#[tokio::test]
async fn a_message_is_acknowledged_or_lost_with_its_connection() {
    let proxy = TcpProxy::to(broker()).await.expect("a free port");
    let (link, mut incoming) = connected(LinkConfig::new(proxy.address(), "ack")).await;
    let mut taken = link.publish_acknowledged("ack/x", "x", false).expect("connected");
    let limit = Instant::now() + MAX_WAIT;
    while taken.poll() == Delivery::Pending {
        assert!(Instant::now() < limit, "no acknowledgement");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(taken.poll(), Delivery::Acknowledged);
    // There is no await between publication and cut, so the driver, which runs on this same thread, cannot write the message.
    let mut lost = link.publish_acknowledged("ack/x", "y", false).expect("connected");
    assert_eq!(lost.poll(), Delivery::Pending);
    proxy.close();
    while !matches!(next(&mut incoming).await, Incoming::Disconnected { .. }) {}
    proxy.open();
    until_connected(&mut incoming).await;
    assert_ne!(lost.poll(), Delivery::Pending, "a new connection brings no answer to an old message");
}

#[tokio::test]
async fn a_link_that_leaves_publishes_no_last_message() {
    let (watcher, mut seen) = reader("leave-watcher", "leave/#").await;
    let mut config = LinkConfig::new(broker(), "leave");
    config.last_will = Some(RetainedMessage::new("leave/status", "down"));
    let (link, _incoming) = connected(config).await;
    link.publish("leave/work", "x", QoS::AtMostOnce, false).expect("connected");
    link.leave(MAX_WAIT).await;
    assert_eq!(next_message(&mut seen).await.0, "leave/work");
    watcher.publish("leave/end", "x", QoS::AtMostOnce, false).expect("connected");
    assert_eq!(next_message(&mut seen).await.0, "leave/end");
}

#[test]
fn a_port_in_use_is_named() {
    let error = EmbeddedBroker::start_at(broker().port()).expect_err("a broker listens there");
    assert!(error.to_string().contains(&broker().port().to_string()), "{error}");
}

#[tokio::test]
async fn a_broker_that_stops_ends_its_connections_and_frees_its_port() {
    let server = EmbeddedBroker::start().expect("a free port");
    let port = server.address().port();
    let (link, mut incoming) = connected(LinkConfig::new(server.address(), "stopped")).await;
    server.stop();
    let Incoming::Disconnected { reason, .. } = next(&mut incoming).await else { panic!("expected an end") };
    assert!(reason.contains("shut"), "{reason}");
    let next_server = EmbeddedBroker::start_at(port).expect("free");
    assert_eq!(next_server.address().port(), port);
    until_connected(&mut incoming).await;
    assert!(link.is_connected());
}

/// First byte of the packet by which a fake broker answers with a reason code.
const CONNACK: u8 = 0x20;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const SUBACK: u8 = 0x90;
const DISCONNECT: u8 = 0xe0;

/// A fake broker that accepts everything, but gives `code` in the packet `with`. A DISCONNECT answers a PUBLISH at `QoS` 1.
async fn broker_that_answers(with: u8, code: u8) -> Endpoint {
    let (listener, address) = listening().await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            while let Some((kind, body)) = next_packet(&mut client).await {
                let answer = match kind >> 4 {
                    1 => vec![CONNACK, 3, 0, if with == CONNACK { code } else { 0 }, 0],
                    8 => vec![SUBACK, 4, body[0], body[1], 0, if with == SUBACK { code } else { 1 }],
                    3 if kind & 0b110 != 0 => {
                        let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
                        let id = [body[2 + topic], body[3 + topic]];
                        match with {
                            DISCONNECT => vec![DISCONNECT, 2, code, 0],
                            PUBREC => vec![PUBREC, 3, id[0], id[1], code],
                            _ => vec![PUBACK, 3, id[0], id[1], if with == PUBACK { code } else { 0 }],
                        }
                    }
                    12 => vec![0xd0, 0],
                    _ => continue,
                };
                if client.write_all(&answer).await.is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// First byte and body of the next packet.
async fn next_packet(client: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let kind = client.read_u8().await.ok()?;
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = client.read_u8().await.ok()?;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    Some((kind, body))
}

#[tokio::test]
async fn whatever_code_refuses_a_message_it_is_named_and_the_connection_stays() {
    for (packet, code) in
        [PUBACK, PUBREC].into_iter().flat_map(|of| (0x80..=0xff).map(move |code| (of, code)))
    {
        let address = broker_that_answers(packet, code).await;
        let (link, mut incoming) = connected(LinkConfig::new(address, "refused")).await;
        let mut answer = link.publish_acknowledged("a", "x", false).expect("connected");
        let delivery = timeout(MAX_WAIT, answer.wait()).await.expect("in time");
        let Delivery::Refused { reason, needs_rights } = delivery else {
            panic!("0x{code:02x}: {delivery:?}")
        };
        assert!(reason.contains(&format!("0x{code:02x}")) && needs_rights == (code == 0x87), "{reason}");
        link.publish("b", "x", QoS::AtLeastOnce, false).expect("connected");
        let refused = next(&mut incoming).await;
        assert!(matches!(&refused, Incoming::Refused { topic, .. } if topic == "b"), "{refused:?}");
        assert_eq!((link.is_connected(), link.counts().disconnected), (true, 0));
    }
}

async fn failure_at(address: Endpoint) -> ConnectFailure {
    let config = LinkConfig::new(address, "refused").subscribe("a/+", QoS::AtMostOnce);
    let (link, _incoming) = Link::start(config).expect("settings");
    first_failure(&link).await
}

#[tokio::test]
async fn whatever_code_refuses_a_client_or_a_subscription_it_is_named_as_a_refusal() {
    for code in 0x80..=0xff {
        let failure = failure_at(broker_that_answers(CONNACK, code).await).await;
        // Not available, busy, quota exceeded, connection rate exceeded: a later attempt may work.
        let is_for_now = matches!(code, 0x88 | 0x89 | 0x97 | 0x9f);
        assert_eq!(failure.is_refusal(), !is_for_now, "0x{code:02x}: {failure}");
        let failure = failure_at(broker_that_answers(SUBACK, code).await).await;
        assert!(matches!(failure, ConnectFailure::Subscription { .. }), "0x{code:02x}: {failure}");
        assert_eq!(failure.to_string().contains("NotAuthorized"), code == 0x87, "{failure}");
    }
    let unlisted = failure_at(broker_that_answers(SUBACK, 0x95).await).await.to_string();
    assert!(unlisted.contains("unknown reason code 0x95"), "{unlisted}");
    let wildcards = failure_at(broker_that_answers(SUBACK, 0xa2).await).await.to_string();
    assert!(wildcards.contains("takes filters with `+`"), "{wildcards}");
}

#[tokio::test]
async fn a_disconnect_is_the_failure_that_is_shown_and_says_whether_a_message_is_to_blame() {
    for (code, word, blames_message) in [
        (0x81, "MalformedPacket", true),
        (0x87, "access rules", false),
        (0x8e, "same client id", false),
        (0x95, "max_packet_size", true),
        (0x98, "AdministrativeAction", false),
        (0xc3, "0xc3", false),
    ] {
        let address = broker_that_answers(DISCONNECT, code).await;
        let (link, mut incoming) = connected(LinkConfig::new(address, "ended")).await;
        link.publish("a", "x", QoS::AtLeastOnce, false).expect("connected");
        let shown = first_failure(&link).await.to_string();
        assert!(shown.contains(word), "{word} in {shown}");
        let ended = next(&mut incoming).await;
        assert_eq!(ended, Incoming::Disconnected { reason: shown, by_message: blames_message });
    }
}

/// A port that answers every connection with these bytes and closes it.
async fn port_that_says(bytes: &'static [u8]) -> Endpoint {
    let (listener, address) = listening().await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut read = [0; 512];
            let _ = client.read(&mut read).await;
            let _ = client.write_all(bytes).await;
        }
    });
    address
}

#[tokio::test]
async fn what_answers_in_place_of_a_broker_for_mqtt_5_is_named() {
    for (bytes, words) in [
        (&b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n"[..], ["web server", "broker's port"]),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", ["SSH server", "broker's port"]),
        (b"", ["closed the connection at the first bytes", "mqtts://"]),
        (&[0x20, 2, 0, 1], ["does not speak MQTT 5", "Mosquitto"]),
        (&[0x15, 3, 3, 0, 2, 2, 40], ["expects TLS", "mqtts://"]),
        (&[0x20, 3, 0, 0x93, 0], ["0x93", "log may say more"]),
        (&[0xe0, 2, 0x89, 0], ["busy", "for now"]),
        (&[0xf0, 2, 0x18, 0], ["another way to authenticate", "broker.user"]),
    ] {
        let failure = failure_at(port_that_says(bytes).await).await.to_string();
        for word in words {
            assert!(failure.contains(word), "{word} in {failure}");
        }
    }
}

#[tokio::test]
async fn a_broker_whose_limits_do_not_fit_is_named_and_not_taken() {
    // CONNACK with properties: maximum QoS 0; no retained messages; no wildcards; packets of at most 150 bytes.
    for (connack, word) in [
        (&[0x20, 5, 0, 0, 2, 0x24, 0][..], "QoS 0 alone"),
        (&[0x20, 5, 0, 0, 2, 0x25, 0], "no retained messages"),
        (&[0x20, 5, 0, 0, 2, 0x28, 0], "no wildcards"),
        (
            &[0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 150],
            "max_packet_size is 150 bytes, the largest message takes 900",
        ),
    ] {
        let mut config = LinkConfig::new(port_that_says(connack).await, "limited");
        config.needs = BrokerNeeds {
            packet_bytes: 900,
            rare_packet_bytes: 900,
            publishes_state: true,
            has_wildcards: true,
        };
        let (link, mut incoming) = Link::start(config).expect("settings");
        let failure = first_failure(&link).await;
        assert!(failure.to_string().contains(word) && failure.is_refusal(), "{failure}");
        assert!(incoming.try_recv().is_err() && !link.is_connected());
    }
}
