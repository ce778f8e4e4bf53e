//! Topic aliases with Mosquitto: the bytes that aliases save, the limit on the number of aliases, and a restart of Mosquitto.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use headwater_group::start::Program;
use headwater_link::{Endpoint, Incoming, Link, LinkConfig, QoS, RetainedMessage};
use headwater_tests::other_programs::{free_address, mosquitto_of};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longest wait for an event. Only a failing test waits this long.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Bytes of a message with a payload of 1 byte at `QoS` 0, without the topic: fixed header 2, topic length 2, length of properties 1,
/// payload 1.
const MESSAGE: u64 = 6;

/// Bytes that an alias adds to the properties.
const ALIAS: u64 = 3;

/// Starts Mosquitto with this limit on the number of aliases; `None` for the default of Mosquitto, which is 10.
fn broker(folder: &Path, address: &Endpoint, max_alias: Option<u16>) -> Program {
    let max = max_alias.map(|max| format!("max_topic_alias {max}\n")).unwrap_or_default();
    mosquitto_of(&format!("allow_anonymous true\nset_tcp_nodelay true\n{max}"), folder, address)
}

struct Client {
    link: Link,
    incoming: mpsc::Receiver<Incoming>,
}

impl Client {
    /// A connected client that has one retained message and receives the messages that it publishes on `view/+`.
    async fn new(address: &Endpoint) -> Self {
        let mut config = LinkConfig::new(address.clone(), "alias").subscribe("view/+", QoS::AtMostOnce);
        config.retained.push(RetainedMessage::new("kept/status", "up"));
        let (link, incoming) = Link::start(config).expect("valid settings");
        let mut client = Self { link, incoming };
        client.until_connected().await;
        client
    }

    async fn next(&mut self) -> Incoming {
        timeout(MAX_WAIT, self.incoming.recv()).await.expect("in time").expect("the link lives")
    }

    async fn until_connected(&mut self) {
        while self.next().await != Incoming::Connected {}
        // The retained message is sent before this one, so all bytes of the start have been written once the broker acknowledges this message.
        let mut taken = self.link.publish_acknowledged("other/x", "x", false).expect("connected");
        timeout(MAX_WAIT, taken.wait()).await.expect("in time");
    }

    /// Publishes one byte, waits until the message comes back, and returns the number of bytes that the link has written.
    async fn bytes_of(&mut self, topic: &str) -> u64 {
        let before = self.link.wire().sent;
        self.link.publish(topic, "x", QoS::AtMostOnce, false).expect("connected");
        assert_eq!(self.message().await, (topic.to_owned(), Bytes::from("x")));
        self.link.wire().sent - before
    }

    async fn message(&mut self) -> (String, Bytes) {
        loop {
            if let Incoming::Message { topic, payload, .. } = self.next().await {
                return (topic, payload);
            }
        }
    }
}

#[tokio::test]
async fn a_topic_costs_its_name_once_on_a_connection() {
    let (folder, address) = (tempfile::tempdir().expect("a folder"), free_address());
    let _broker = broker(folder.path(), &address, None);
    let mut client = Client::new(&address).await;
    for topic in ["view/summary", "view/features"] {
        let name = topic.len() as u64;
        assert_eq!(client.bytes_of(topic).await, MESSAGE + ALIAS + name, "{topic} for the first time");
        assert_eq!(client.bytes_of(topic).await, MESSAGE + ALIAS, "{topic} again");
    }
    // Mosquitto allows ten aliases. `other/x` and the two topics above have three of them, so seven of these 20 topics get an alias.
    let mut with_names = 0;
    for topic in (0..20).map(|number| format!("view/{number:02}")) {
        client.bytes_of(&topic).await;
        with_names += u64::from(client.bytes_of(&topic).await == MESSAGE + topic.len() as u64);
    }
    assert_eq!((with_names, client.link.counts().disconnected), (13, 0));
}

#[tokio::test]
async fn a_broker_without_aliases_and_one_with_a_single_alias_are_obeyed() {
    for (max, first_saves) in [(0, false), (1, true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let address = free_address();
        let _broker = broker(folder.path(), &address, Some(max));
        let mut config = LinkConfig::new(address, "few").subscribe("view/+", QoS::AtMostOnce);
        config.retained.push(RetainedMessage::new("view/status", "up"));
        let (link, incoming) = Link::start(config).expect("valid settings");
        let mut client = Client { link, incoming };
        assert_eq!(client.message().await.0, "view/status");
        let name = "view/summary".len() as u64;
        let first = client.bytes_of("view/summary").await;
        assert_eq!(first, MESSAGE + name + if first_saves { ALIAS } else { 0 });
        let again = client.bytes_of("view/summary").await;
        assert_eq!(again, MESSAGE + if first_saves { ALIAS } else { name });
        let second = "view/features";
        for _ in 0..2 {
            assert_eq!(client.bytes_of(second).await, MESSAGE + second.len() as u64, "at most {max}");
        }
        assert_eq!(client.link.counts().disconnected, 0);
    }
}

#[tokio::test]
async fn a_restarted_broker_learns_the_aliases_anew() {
    let (folder, address) = (tempfile::tempdir().expect("a folder"), free_address());
    let first = broker(folder.path(), &address, None);
    let mut client = Client::new(&address).await;
    for topic in ["view/a", "view/b"] {
        client.bytes_of(topic).await;
        assert_eq!(client.bytes_of(topic).await, MESSAGE + ALIAS);
    }
    // These messages at `QoS` 1 are sent by alias. The broker may end before it has acknowledged all of them.
    for _ in 0..100 {
        client.link.publish("view/b", "before", QoS::AtLeastOnce, false).expect("room for the message");
    }
    drop(first);
    while !matches!(client.next().await, Incoming::Disconnected { .. }) {}
    let _second = broker(folder.path(), &address, None);
    client.until_connected().await;
    // The topics come in the reverse order, so an alias of the earlier connection would now stand for the other topic.
    for topic in ["view/b", "view/a"] {
        let name = topic.len() as u64;
        let before = client.link.wire().sent;
        client.link.publish(topic, "after", QoS::AtMostOnce, false).expect("connected");
        loop {
            let (found, payload) = client.message().await;
            // A message from before the restart may come again, but only on the topic `view/b`.
            assert_eq!(found, if payload == "before" { "view/b" } else { topic });
            if payload == "after" {
                break;
            }
        }
        assert_eq!(client.link.wire().sent - before, MESSAGE + 4 + ALIAS + name);
    }
    assert_eq!(client.link.counts().connected, 2, "no alias ended the new connection");
}
