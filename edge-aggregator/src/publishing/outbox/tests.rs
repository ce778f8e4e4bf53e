use std::sync::Arc;

use headwater_link::{Endpoint, Incoming, LinkConfig};
use headwater_protocol::testing::decision;
use headwater_protocol::{GroupId, ResultMessage, SiteId};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::*;
use crate::report::LeaderReport;

/// Limit of every wait; long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// CONNACK of MQTT 5: accepted, no properties.
const CONNACK: [u8; 5] = [0x20, 3, 0, 0, 0];

/// PUBACK of the first message of a connection.
const FIRST_PUBACK: [u8; 4] = [0x40, 2, 0, 1];

/// A broker that accepts connections and acknowledges the messages that the test chooses.
struct Broker {
    listener: TcpListener,
    outbox: Outbox,
    report: Arc<Mutex<LeaderReport>>,
    incoming: mpsc::Receiver<Incoming>,
}

impl Broker {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = LinkConfig::new(Endpoint::mqtt("127.0.0.1", port).unwrap(), "outbox");
        let (link, incoming) = Link::start(config).unwrap();
        let topics = Topics::new(&SiteId::new("plant").unwrap(), &GroupId::new("gate").unwrap());
        let report = Arc::default();
        let answers = BrokerAnswers::new(&topics, Arc::clone(&report));
        Self { listener, outbox: Outbox::new(link, &topics, QoS::AtMostOnce, answers), report, incoming }
    }

    /// Accepts the next connection and opens the outbox.
    async fn accept(&mut self) -> TcpStream {
        let (mut stream, _) = timeout(LIMIT, self.listener.accept()).await.expect("a connection").unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(&CONNACK).await.unwrap();
        while timeout(LIMIT, self.incoming.recv()).await.expect("an event") != Some(Incoming::Connected) {}
        self.outbox.open(Instant::now());
        stream
    }

    /// Waits until `count` results have no acknowledgement.
    async fn wait_for_unacknowledged(&mut self, count: usize) {
        let wait = async {
            while self.outbox.unacknowledged() != count {
                self.outbox.flush(Instant::now());
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, wait).await.expect("an acknowledgement");
    }
}

#[tokio::test]
async fn only_results_without_an_acknowledgement_go_out_again_and_they_are_marked() {
    let mut broker = Broker::start().await;
    let mut stream = broker.accept().await;
    for sample in [1, 2] {
        broker.outbox.result(&decision(sample), Instant::now());
    }
    assert_eq!(broker.outbox.unacknowledged(), 2);
    stream.write_all(&FIRST_PUBACK).await.unwrap();
    broker.wait_for_unacknowledged(1).await;
    drop(stream);
    while timeout(LIMIT, broker.incoming.recv())
        .await
        .expect("an end")
        .is_some_and(|incoming| !matches!(incoming, Incoming::Disconnected { .. }))
    {}
    broker.outbox.close(Instant::now());
    let waiting: Vec<serde_json::Value> = broker
        .outbox
        .waiting
        .iter()
        .map(|message| serde_json::from_slice(&message.payload).unwrap())
        .collect();
    let mut expected = serde_json::to_value(decision(2)).unwrap();
    expected["republished"] = true.into();
    assert_eq!(waiting, [expected]);
    broker.outbox.result(&decision(3), Instant::now());
    assert_eq!(
        (broker.outbox.waiting.len(), broker.report.lock().republished),
        (2, 0),
        "without a connection"
    );
    let _stream = broker.accept().await;
    assert_eq!((broker.outbox.waiting.len(), broker.report.lock().republished), (0, 1));
    assert_eq!(broker.outbox.unacknowledged(), 2);
}

#[test]
fn a_repeat_is_the_same_decision_with_a_mark() {
    let payload = json(&decision(1)).unwrap();
    let marked = QueuedResult::new(payload).marked();
    let again = marked.clone().marked();
    assert_eq!(again.payload, marked.payload, "it is marked once");
    let object: serde_json::Value = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(object["republished"], true);
    let read: Decision = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(read, decision(1), "a reader that does not know the mark ignores it");
    let read: ResultMessage = serde_json::from_slice(&marked.payload).unwrap();
    assert_eq!(read, ResultMessage { decision: decision(1), republished: true });
}
